"""Levels set by load: in force at once, and logged behind the batches that wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

import structlog

from shedder.archive.files.data_directory import FORMAT_LOAD
from shedder.archive.log.records import LevelFrom, RecordType
from shedder.engine.engine_state import EngineState
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.thinning_levels import by_load
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import Draining, InternalError, ShedderError

Wanted = Mapping[tuple[str, str], Mapping[int, int]]
"""By stream and query, the levels of those synopses that its plan has, by their numbers."""

_log = structlog.get_logger("shedder.engine")


class LoadLevels:
    """What the controller wants, until the apply thread takes it.

    What sheds work does not wait for the work: the record of it stands in the log behind the
    batches that wait, and says from which of them on it was in force. Should the machine stop in
    the milliseconds before that record is durable, these are read at the former levels when the log
    is replayed; their panes are of another part of the same tuples then, and as honest.
    """

    def __init__(self, core: EngineState) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._wanted: Wanted = {}

    @property
    def waits(self) -> bool:
        """Return whether anything is wanted that is not in force yet."""
        return bool(self._wanted)

    def want(self, levels: Wanted) -> None:
        """Have levels set before the next batch is applied. From any thread.

        Args:
          levels: by query; queries that are not named and forced levels stay as they are.
        """
        with self._lock:
            self._wanted = {**self._wanted, **levels}
        with suppress(Draining, InternalError):  # closed meanwhile
            self._core.executor.post(lambda: self.take(self._core.applied_sequence))

    def take(self, sequence: int) -> None:
        """On the apply thread, before the record of this sequence: what is wanted is in force."""
        if not self._wanted:
            return
        with self._lock:
            wanted, self._wanted = self._wanted, {}
        changed: dict[str, Stream] = {}
        for (name, query), levels in wanted.items():
            stream = self._core.streams.get(name)
            standing_query = None if stream is None else stream.queries.get(query)
            if stream is None or standing_query is None or standing_query.state.feed is not None:
                continue  # Its level is that of its provider.
            for each in (standing_query.state, *standing_query.state.consumers):
                if self._set(stream, each, levels, sequence):
                    changed[name] = stream
        for stream in changed.values():
            stream.share_panes()

    def _set(
        self, stream: Stream, query_state: QueryState, changes: Mapping[int, int], sequence: int
    ) -> bool:
        levels = by_load(query_state.levels, query_state.forced, changes)
        if levels == query_state.levels or not self._logged(
            stream, query_state.name, levels, sequence
        ):
            return False
        query_state.set_levels(levels)
        return True

    def _logged(self, stream: Stream, query: str, levels: tuple[int, ...], sequence: int) -> bool:
        """Log levels that are in force from a record on; False where that cannot be."""
        core = self._core
        header = LevelFrom(stream.id, query, levels, core.clock_us(), sequence)
        if not header.fits:
            return False
        try:
            core.store.allow(FORMAT_LOAD)
            core.log_queue.submit(RecordType.LEVEL_FROM, [header.to_bytes()], header, urgent=True)
        except ShedderError as error:
            _log.warning("levels_not_changed", query=query, error=str(error))
            return False
        return True
