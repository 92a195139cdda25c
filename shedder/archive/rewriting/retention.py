"""Runs that are older than what a stream retains: whole compartments go at once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import replace

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.store.stream_state import StreamState


class RetiredRuns(ABC):
    """The part of the store that drops the past."""

    catalog: Catalog
    _run_files: RunFiles
    _lock: threading.RLock

    @abstractmethod
    def _state(self, stream: int) -> StreamState: ...

    @property
    def pinned_files(self) -> frozenset[str]:
        """The files of runs that are being read or rewritten; they stay until that work ends."""
        return self._run_files.pinned

    def retained_from_us(self, stream: int) -> int | None:
        """Retention has removed tuples with event times before this; None: it has removed none."""
        with self._lock:
            return self._state(stream).entry.retained_from_us

    def apply_retention(self, stream: int, before_us: int) -> int:
        """Remove the runs all of whose event times are before an instant.

        Returns:
          how many rows were removed. Their files go when no snapshot holds them.
        """
        with self.catalog.turn(), self._lock:
            state = self._state(stream)
            old = [run for run in state.runs if run.high_us < before_us]
            if not old:
                return 0
            before = state.entry.retained_from_us
            newest_us = max(run.high_us for run in old) + 1
            entry = replace(
                state.entry,
                retained_from_us=newest_us if before is None else max(before, newest_us),
                retained_position=max(
                    state.entry.retained_position, *(run.end_position for run in old)
                ),
            )
            assert entry.retained_from_us is not None
            with self.catalog.transaction():
                for run in old:
                    self.catalog.drop_run(run)
                self.catalog.set_retained(stream, entry.retained_from_us, entry.retained_position)
            state.replace_entry(entry)
            state.drop_runs(old)
            self._run_files.retire(name for run in old for name in run.files)
        self._run_files.remove_retired()
        return sum(run.rows for run in old)
