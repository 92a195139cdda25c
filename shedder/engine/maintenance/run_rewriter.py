"""Background rewriter of runs: layout changes, purges, the vacuum's copies and rollups."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

import structlog

from shedder.archive.archive_store import Store
from shedder.archive.metadata.catalog_entries import RollupEntry, Run
from shedder.archive.tasks.progress import Progress
from shedder.engine.engine_state import EngineState
from shedder.engine.maintenance.index_builder import IndexBuilder
from shedder.errors import Cancelled, CorruptData, Draining, ShedderError, StorageFailed

PURGED_AFTER_QUIETS: Final = 10  # Deletions that never cease make one rewrite of a run in so long.

Work = Callable[[Run, Callable[[], None]], object]

_log = structlog.get_logger("shedder.relayout")


class RunRewriter:
    """One thread of low priority that rewrites run by run. Safe from any thread.

    What there is to do stands in the catalog: a restart goes on where it ended. It ends early when
    it is cancelled or the disk is full, and goes on when it is woken. A run that cannot be read or
    written keeps none of the others waiting.
    """

    def __init__(self, core: EngineState, indexer: IndexBuilder) -> None:
        self._core = core
        self._tasks = core.tasks
        self._indexer = indexer
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._running: dict[str, Progress] = {}
        self._failed: set[str] = set()
        self._worker = core.machine.pool("shedder-relayout")

    def wake(self, name: str) -> None:
        """See whether runs of a stream have to be written anew, and do it."""
        with self._lock:
            if name in self._waiting:
                return
            self._waiting.add(name)
        try:
            self._worker.submit(self._work, name).add_done_callback(_tell)
        except RuntimeError:  # closed: the next start goes on
            with self._lock:
                self._waiting.discard(name)

    def has_failed(self, name: str) -> bool:
        """Return whether an error, and no cancel, has left work of the last pass."""
        return name in self._failed

    def stop(self, name: str) -> None:
        """Call off what is being done to a stream; returns at once."""
        with self._lock:
            progress = self._running.get(name)
        if progress is not None:
            progress.cancel()

    def close(self) -> None:
        """Return when the thread has ended; call off its work first."""
        self._worker.shutdown(cancel_futures=True)

    def _work(self, name: str) -> None:
        with self._lock:
            self._waiting.discard(name)
        self._failed.discard(name)
        stream = self._core.streams.get(name)
        if stream is None:
            return
        store = self._core.store
        try:
            # Purges make room, which a rewrite may lack.
            self._each(
                name, f"purge of {name}", due_for_purge(self._core, stream.id), store.purger.purge
            )
            self._each(
                name, f"rewrite of {name}", store.layouts.unlike(stream.id), store.layouts.rewrite
            )
            self._each(
                name, f"vacuum of {name}", store.layouts.waste(stream.id), store.layouts.vacuum
            )
            for run, rolled in store.rollups.missed(stream.id):
                store.rollups.drop_rolled(run, rolled)
            for entry, _ in store.rollups.entries(stream.id):
                due = [run for run, wanted in store.rollups.due(stream.id) if wanted == entry]
                self._each(name, f"rollup {entry.name}", due, partial(_roll_up, store, entry))
        except (Cancelled, Draining) as error:
            _log.info("relayout_stopped", stream=name, reason=str(error))
            self._failed.discard(name)
        except ShedderError as error:
            self._fail(name, error)

    def _fail(self, name: str, error: ShedderError) -> None:
        _log.error("relayout_failed", stream=name, error=str(error))
        self._failed.add(name)

    def _each(self, name: str, what: str, runs: list[Run], work: Work) -> None:
        if not runs:
            return
        store = self._core.store
        progress = Progress(what, "rows", total=sum(run.rows for run in runs))
        with self._tasks.running(progress):
            with self._lock:
                self._running[name] = progress
            try:
                for run in runs:
                    progress.advance()
                    try:
                        work(run, progress.advance)
                    except CorruptData as error:
                        _log.error("run_damaged", stream=name, problem=str(error))
                        store.quarantine.add(run, str(error))
                    except StorageFailed as error:  # Of this run alone: a file of it.
                        self._fail(name, error)
                    progress.advance(run.rows)
            finally:
                with self._lock:
                    del self._running[name]
                self._indexer.catch_up()


def due_for_purge(core: EngineState, stream: int) -> list[Run]:
    """Runs to be purged: with many deleted rows, or, a while after the last DELETE, with any.

    Each is a run that is written anew, and many small deletions may follow each other. But none
    waits for ever: not longer than PURGED_AFTER_QUIETS such whiles.
    """
    deletions = core.store.deletions.entries(stream)
    if not deletions:
        return []
    now_us, after_us = core.clock_us(), round(core.settings.purge_after_s * 1e6)
    # A deletion that is still to come was dated by a clock that has jumped back since.
    is_quiet = not 0 <= now_us - deletions[-1].deleted_us < after_us
    share = 0.0 if is_quiet else core.settings.purge_share
    return core.store.purger.marked(stream, share, now_us - PURGED_AFTER_QUIETS * after_us)


def _roll_up(store: Store, entry: RollupEntry, run: Run, on_progress: Callable[[], None]) -> bool:
    return store.rollups.roll_up(run, entry, on_progress)


def _tell(future: Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("relayout_failed", error=repr(error))
