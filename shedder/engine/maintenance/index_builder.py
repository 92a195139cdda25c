"""Index builder: builds value indexes of runs, slowly while batches or runs are written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import zip_longest

import structlog

from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.tasks.progress import LOOK_S, Progress
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.background_pace import Pace
from shedder.errors import Cancelled, DiskFull, Draining, ShedderError, UnknownStream

SHARE = 0.1
"""Share of the time that all builders together work while batches or runs are written. They pause
for the rest: writers that lose all of it take 1 / (1 - SHARE) = 1.11 times as long."""
QUIET_S = 0.25  # Without a batch or a run for this time, builders work without pauses; seconds.

_log = structlog.get_logger("shedder.indexer")


class IndexBuilder:
    """Builds missing indexes in a background worker. Several requests make one pass. Thread-safe.

    A run without its index is read as a whole meanwhile. The newest runs get theirs first: they are
    asked for most, and the oldest may be dropped before their turn comes.
    """

    def __init__(self, core: EngineState) -> None:
        """core: of whose store; the worker begins when it is asked."""
        self._core = core
        self._pool = core.machine.pool("shedder-indexes")
        self._requested = threading.Event()
        self._closed = False
        self._lock = threading.Lock()
        self._builders = 0
        self._claims: dict[tuple[str, str], threading.Event] = {}  # By file of a run, and column.
        self._writers = 0  # Which do not use the log.
        self._sequence = -1  # The log's sequence at the last look.
        self._written_s = float("-inf")  # Time of the last write that a look has seen.

    def catch_up(self) -> None:
        """Soon, build what is missing and remove what is of no use."""
        if self._requested.is_set() or self._closed:
            return
        self._requested.set()
        try:
            self._pool.submit(self._work).add_done_callback(_tell)
        except RuntimeError:  # closed meanwhile: the next start goes on
            self._requested.clear()

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """The block writes files, and not by the log."""
        with self._lock:
            self._writers += 1
        try:
            yield
        finally:
            with self._lock:
                self._writers -= 1
                self._written_s = self._core.machine.monotonic_s()

    def build(self, run: Run, column: str, progress: Progress) -> None:
        """Make the index of one run and column, see `RunIndexes.build`.

        If another thread builds the same index, wait for it and do not build it again.

        Raises:
          CorruptData: the run is damaged, and in quarantine now. DiskFull, StorageFailed.
          Cancelled: by `progress`, within some milliseconds.
        """
        with self._claimed((run.file, column), progress), self.building() as pace:

            def on_progress(rows: int) -> None:
                progress.advance(rows)
                pace.rest_if_due(progress.advance)

            with self._core.store.quarantine.watched(run):
                self._core.store.indexes.build(run, column, on_progress)
            pace.rest(progress.advance)

    def close(self) -> None:
        """Return when the worker has ended; call off its task first."""
        self._closed = True
        self._pool.shutdown()

    def _work(self) -> None:
        self._requested.clear()
        try:
            due = self._due()
            if not due:
                return
            progress = Progress("value indexes", "rows", total=sum(run.rows for run, _ in due))
            with self._core.tasks.running(progress):
                for run, column in due:
                    is_built = self._build_one(run, column, progress)
                    if is_built and self._requested.is_set():  # One at least, however often it is.
                        return  # It is in the pool again, and looks for newer ones.
        except (Cancelled, Draining) as error:
            _log.info("indexes_stopped", reason=str(error))
        except DiskFull as error:  # The others would be read in vain; the next run asks again.
            _log.warning("indexes_stopped", reason=str(error))

    def _build_one(self, run: Run, column: str, progress: Progress) -> bool:
        try:
            self.build(run, column, progress)
        except (Cancelled, Draining, DiskFull):
            raise
        except ShedderError as error:  # The run is read without; the next run asks again.
            _log.warning("index_not_built", file=run.file, column=column, error=str(error))
            return False
        return True

    def _due(self) -> list[tuple[Run, str]]:
        """What is missing: of each stream the newest runs first, the streams in turns."""
        store, found = self._core.store, []
        with self.building() as pace:

            def on_progress() -> None:
                pace.rest_if_due(self._go_on)

            for stream in store.indexes.streams():
                store.indexes.sweep(stream, on_progress)
                with suppress(UnknownStream):  # dropped meanwhile
                    found.append(store.indexes.unindexed(stream, on_progress)[::-1])
        return [each for turn in zip_longest(*found) for each in turn if each is not None]

    def _go_on(self) -> None:
        if self._closed:
            raise Draining("the database is closed")

    @contextmanager
    def _claimed(self, what: tuple[str, str], progress: Progress) -> Iterator[None]:
        """Claim an index for the block, so that no other thread builds it."""
        mine = threading.Event()
        while (theirs := self._claims.setdefault(what, mine)) is not mine:
            progress.advance()
            theirs.wait(LOOK_S)
        try:
            yield
        finally:
            del self._claims[what]
            mine.set()

    @contextmanager
    def building(self) -> Iterator[Pace]:
        """Count the block as a builder, whose pace shares the CPU with all other builders."""
        self._count(1)
        try:
            yield Pace(self._core.machine, self.share, share_min=0.0)
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            self._builders += more

    def share(self) -> float:
        """Return the share of a core that each builder may take now, above 0."""
        return SHARE / max(1, self._builders) if self._is_written() else 1.0

    def _is_written(self) -> bool:
        """Return whether batches or runs are being written, or were a moment ago."""
        core, now_s = self._core, self._core.machine.monotonic_s()
        sequence, before = core.store.log.next_sequence, self._sequence
        waits = core.log_queue.in_flight_bytes or core.meter.queue_bytes
        if sequence != before or waits or self._writers:
            self._sequence, self._written_s = sequence, now_s
        return now_s - self._written_s < QUIET_S


def _tell(future: Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("indexes_failed", error=repr(error))
