"""Commit of a new query to the catalog, while the apply thread goes on."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.cql.statements.bound_query import StreamSchema
from shedder.engine.engine_state import EngineState
from shedder.engine.window_state.pane_store_writer import PanesToStore
from shedder.errors import ShedderError, StorageFailed
from shedder.streams.live_sample import StreamSample

ENCODE_NS = 2_000_000  # Of the apply thread's CPU that closed panes may take at once, and one more.

_SEQUENCE = struct.Struct("<q")


class QueryCommit:
    """A query as it was at one sequence of the log, beside the checkpoint of an earlier one.

    A replay begins at the checkpoint, and the query joins it at its own sequence. The next
    checkpoint contains all queries, and removes this entry.

    writing: future of the calling thread's write. error: why it could not be written.
    """

    def __init__(
        self,
        entry: QueryEntry,
        parts: dict[str, bytes],
        panes: PanesToStore | None,
        sequence: int,
        sample: StreamSample | None,
        leave: Callable[[], None],
    ) -> None:
        """On the apply thread, before the query shares panes with others.

        parts: of the query. panes: closed ones; None: it has none. sample: the stream's, if it
        came with the query. leave: takes it out of memory again.
        """
        self.entry = entry
        self.error: ShedderError | None = None
        self.writing: Future[None] = Future()
        self._sequence = sequence
        self._parts = parts
        self._sample = None if sample is None else sample.image()
        self._leave = leave
        self._panes = panes

    @property
    def waiting_panes(self) -> int:
        """The number of closed panes that are not bytes yet."""
        return 0 if self._panes is None else len(self._panes.waiting)

    def encode_some(self, core: EngineState) -> bool:
        """Make bytes of closed panes, for a moment; whether all are. On the apply thread."""
        end_ns = core.machine.cpu_ns() + ENCODE_NS
        return self.encode_while(lambda: core.machine.cpu_ns() < end_ns)

    def encode_while(self, goes_on: Callable[[], bool]) -> bool:
        """As a checkpoint does."""
        while self._panes is not None and self._panes.waiting:
            self._panes.encode_one()
            if not goes_on():
                return False
        return True

    def store(self, catalog: Catalog) -> None:
        """Write it, in one transaction.

        Raises:
          DiskFull, StorageFailed: nothing was stored.
        """
        try:
            parts = self._parts
            if self._sample is not None:
                data = _SEQUENCE.pack(self._sequence) + self._sample.to_bytes()
                parts = parts | {_sample(self.entry.stream_id): data}
            with catalog.transaction():
                catalog.join_checkpoint(self.entry, self._sequence, parts)
                if self._panes is not None:
                    self._panes.put(catalog)
        except ShedderError as error:
            self.error = error
            raise
        except BaseException as error:
            self.error = StorageFailed(f"query {self.entry.name!r} was not stored: {error!r}")
            raise

    def end(self) -> None:
        """It is written; or the query stands nowhere. On the apply thread."""
        if self._panes is not None:
            self._panes.forget()
        if self.error is not None:
            self._leave()


def joined_sample(
    parts: Mapping[str, bytes], stream_id: int, schema: StreamSchema
) -> tuple[int, StreamSample] | None:
    """The newest sample that came with a query, and when; None: none since the checkpoint."""
    data = parts.get(_sample(stream_id))
    if data is None:
        return None
    sample = StreamSample.from_bytes(schema, data[_SEQUENCE.size :])
    return int(_SEQUENCE.unpack_from(data)[0]), sample


def _sample(stream_id: int) -> str:
    return f"joined_sample/{stream_id}"
