"""Builds value indexes of new runs, beside everything else."""

from __future__ import annotations

import threading
from concurrent.futures import Executor

import structlog

from shedder.archive.progress import Progress
from shedder.archive.store import Store
from shedder.errors import Cancelled, ShedderError

_log = structlog.get_logger("shedder.indexer")


class Indexer:
    """Has a worker that nobody waits for; asked often, it works once. Safe from any thread."""

    def __init__(self, store: Store, pool: Executor) -> None:
        self._store = store
        self._pool = pool
        self._progress = Progress("indexes", "rows")
        self._asked = threading.Event()
        self._closed = False

    def catch_up(self) -> None:
        """Soon, build what is missing and remove what is of no use."""
        if not self._asked.is_set() and not self._closed:
            self._asked.set()
            self._pool.submit(self._work)

    def settle(self) -> None:
        """Return when what was asked for is done."""
        self._pool.submit(int).result()

    def _work(self) -> None:
        self._asked.clear()
        for entry in self._store.streams():
            try:
                self._store.sweep_indexes(entry.id)
                for run, column in self._store.unindexed(entry.id):
                    self._store.build_index(run, column, self._progress.advance)
            except Cancelled:
                return
            except ShedderError as error:  # The run is read without; the next run asks again.
                _log.warning("index_not_built", stream=entry.schema.name, error=str(error))

    def close(self) -> None:
        """Stop, in the middle of a run if need be."""
        self._closed = True
        self._progress.cancel()
        self._pool.shutdown()
