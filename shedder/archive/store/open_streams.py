"""The streams of an open directory: their states, and the lock that guards these."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.store.stream_state import StreamState
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import UnknownStream


class OpenStreams:
    """States of all streams, as the catalog has them. Any thread may call it.

    catalog: of the directory.
    lock: held by a thread that reads or changes a state. A change that the catalog stores uses
      `change`.
    """

    def __init__(self, catalog: Catalog) -> None:
        """Read the states from the catalog."""
        self.catalog = catalog
        self.lock = threading.RLock()
        self._states = _restored(catalog)

    @contextmanager
    def change(self, on_progress: ProgressCallback = no_progress) -> Iterator[None]:
        """Hold the locks of the catalog and of the states for the block, in this order.

        on_progress: called repeatedly while the catalog's lock is waited for. What it raises is
          raised.
        """
        with self.catalog.turn(on_progress), self.lock:
            yield

    @contextmanager
    def changing(
        self, stream: int, on_progress: ProgressCallback = no_progress
    ) -> Iterator[StreamState]:
        """As `change`; yields the state of a stream.

        Raises:
          UnknownStream: there is no such stream (any more).
        """
        with self.change(on_progress):
            yield self.state(stream)

    @contextmanager
    def reading(self, stream: int) -> Iterator[StreamState]:
        """Hold the lock of the states for the block; yields the state of a stream.

        Raises:
          UnknownStream: there is no such stream (any more).
        """
        with self.lock:
            yield self.state(stream)

    def state(self, stream: int) -> StreamState:
        """Return the state of a stream.

        Raises:
          UnknownStream: there is no such stream (any more).
        """
        state = self._states.get(stream)
        if state is None:
            known = [f"{s.entry.id} ({s.entry.schema.name})" for s in self.states()]
            raise UnknownStream(str(stream), known)
        return state

    def find(self, stream: int) -> StreamState | None:
        """Return the state of a stream; None: it was dropped."""
        return self._states.get(stream)

    def states(self) -> list[StreamState]:
        """Return the states of all streams, by id."""
        return list(self._states.values())

    def has(self, state: StreamState) -> bool:
        """Return whether the stream of a state is still there."""
        return self._states.get(state.entry.id) is state

    def add(self, schema: StreamSchema) -> StreamEntry:
        """Give a stream its id and its state.

        Raises:
          StreamExists: there is one of this name.
        """
        with self.change():
            entry = self.catalog.add_stream(schema)
            self._states[entry.id] = StreamState(entry, [])
        return entry

    def change_schema(self, stream: int, changed: Callable[[StreamSchema], StreamSchema]) -> None:
        """Replace a stream's schema, in the catalog first; its name stays.

        Raises:
          UnknownStream: there is no such stream (any more).
        """
        with self.changing(stream) as state:
            entry = replace(state.entry, schema=changed(state.entry.schema))
            self.catalog.put_stream(entry)
            state.replace_entry(entry)

    def drop(self, stream: int) -> StreamState:
        """Forget a stream; returns its last state.

        Raises:
          UnknownStream: there is no such stream (any more).
        """
        with self.changing(stream) as state:
            self.catalog.drop_stream(stream)
            del self._states[stream]
        return state


def _restored(catalog: Catalog) -> dict[int, StreamState]:
    """Return what the catalog says of each stream, by id."""
    by_stream: dict[int, list[Run]] = {}
    for run in catalog.runs():
        by_stream.setdefault(run.stream_id, []).append(run)
    states = {
        entry.id: StreamState(entry, by_stream.get(entry.id, [])) for entry in catalog.streams()
    }
    notes = catalog.annotations
    for mark in notes.quarantined():
        states[mark.stream_id].quarantined[mark.first_position] = mark
    for (stream, first), scans in notes.scans().items():
        states[stream].scans[first] = scans
    for (stream, first), deleted in notes.deleted().items():
        states[stream].deleted[first] = deleted
    for deletion in notes.deletions():
        states[deletion.stream_id].deletions.append(deletion)
    for state in states.values():
        state.recover_marked_us()
    for (stream, first), scrubbed_us in notes.scrubbed().items():
        states[stream].scrubbed[first] = scrubbed_us
    for stream, _, end_position in notes.emptied():
        states[stream].note_emptied(end_position)
    for stream, column in notes.indexes():
        states[stream].add_index(column)
    for rollup in catalog.rollups.entries():
        states[rollup.stream_id].recover_rollup(rollup)
    return states
