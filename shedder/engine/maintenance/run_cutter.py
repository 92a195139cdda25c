"""Run cutter: writes the tail of a stream as a Parquet run in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress

import structlog

from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.store.retention_partitions import compartment_us
from shedder.archive.tasks.interruptible_call import awaited
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.engine.engine_state import EngineState
from shedder.engine.maintenance.index_builder import IndexBuilder
from shedder.engine.runtime.release_memory import give_back
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import Draining, InternalError, UnknownStream

TAIL_SHARE = 16  # A tail of 1/16 of the memory budget is written as one or more runs.
TAILS_SHARE = 6  # All tails together never hold more than this part.

_log = structlog.get_logger("shedder.engine")


class RunCutter:
    """Writes runs on a thread of its own; decides when on the apply thread."""

    def __init__(
        self, core: EngineState, indexer: IndexBuilder, lay_out_anew: Callable[[str], None]
    ) -> None:
        """lay_out_anew: rewrites the runs of a stream in its present layout, in the background."""
        self._core = core
        self._store = core.store
        self._settings = core.settings
        self._streams: Mapping[str, Stream] = core.streams
        self._executor = core.executor
        self._pool = core.machine.pool("shedder-runs")
        self._indexer = indexer
        self._lay_out_anew = lay_out_anew
        self._cutting: set[str] = set()
        self._compartments: dict[str, int] = {}  # By stream, where its watermark was.

    def close(self, *, cancel: bool) -> None:
        """Return when no run is being written; cancel: runs that have not begun are not written."""
        self._pool.shutdown(cancel_futures=cancel)

    def cut_what_is_due(self) -> None:
        """Write long or large tails into runs; all together are held down by the largest."""
        sizes = {name: self._store.tail_bytes(s.id) for name, s in self._streams.items()}
        due = {
            name
            for name, stream in self._streams.items()
            if sizes[name] >= self._settings.memory_bytes // TAIL_SHARE
            or self._store.tail_rows(stream.id) >= self._settings.run_rows
            or self._has_left_a_compartment(name, stream)
        }
        if sum(sizes.values()) >= self._settings.memory_bytes // TAILS_SHARE // 2:
            due.add(max(sizes, key=lambda name: sizes[name]))
        for name in due - self._cutting:
            self._cut(self._streams[name])

    def _has_left_a_compartment(self, name: str, stream: Stream) -> bool:
        """Return whether the watermark has moved to another compartment of the retained past."""
        width_us = compartment_us(stream.schema.retain_us)
        if width_us is None or stream.watermark_us is None:
            return False
        now = stream.watermark_us // width_us
        before = self._compartments.get(name)
        self._compartments[name] = now
        if before is None:  # Since the start: what has come may span many.
            return self._store.is_wide(stream.id)
        return now != before and self._store.tail_rows(stream.id) > 0

    def _cut_once(self, stream_id: int) -> Run | None:
        size_bytes_max = self._settings.memory_bytes // TAIL_SHARE
        is_large = self._store.tail_bytes(stream_id) >= size_bytes_max // 2
        try:
            with self._indexer.giving_way():
                return self._store.cut(stream_id, size_bytes_max=size_bytes_max)
        finally:
            if is_large:  # Else heaps keep the memory of tail and writer.
                give_back()

    def _cut_wide(self, stream_id: int) -> Run | None:
        """Write the tail, or as many runs of it as it spans compartments; the last one."""
        run = self._cut_once(stream_id)
        while run is not None and self._store.is_wide(stream_id):
            run = self._cut_once(stream_id)
        return run

    def _cut(self, stream: Stream) -> None:
        name = stream.schema.name
        self._cutting.add(name)

        def done(future: Future[Run | None]) -> None:
            self._cutting.discard(name)
            error = future.exception()
            if error is None:
                self._follow(stream)
            elif not isinstance(error, UnknownStream):  # dropped meanwhile
                _log.error("run_not_written", stream=name, error=str(error))
                return
            with suppress(Draining, InternalError):  # closed meanwhile
                self._executor.post(self.cut_what_is_due)

        self._pool.submit(self._cut_wide, stream.id).add_done_callback(done)

    def seal(self, name: str, on_progress: ProgressCallback = no_progress) -> None:
        """Write a stream's tail into runs; returns when it is done.

        Waits for what is durable to be applied first.
        on_progress: called now and then meanwhile. What it raises is raised, and the run is still
          written.
        """
        stream = self._core.stream(name)
        awaited(self._executor.call(lambda: None), on_progress)
        while awaited(self._pool.submit(self._cut_once, stream.id), on_progress) is not None:
            pass  # A run ends before a hole that damage has torn; the next one begins after it.
        self._follow(stream)

    def _follow(self, stream: Stream) -> None:
        """Have done what a new run needs: its index, and the layout, if that was altered since."""
        self._indexer.catch_up()
        with suppress(UnknownStream):  # dropped meanwhile
            if self._store.layouts.unlike(stream.id):
                self._lay_out_anew(stream.schema.name)
