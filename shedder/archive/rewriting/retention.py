"""Runs that are older than what a stream retains: whole compartments go at once."""

from __future__ import annotations

from dataclasses import replace

from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.store.open_streams import OpenStreams


class Retention:
    """Drops runs that are older than their stream retains."""

    def __init__(self, streams: OpenStreams, run_files: RunFiles) -> None:
        self._streams, self._catalog, self._run_files = streams, streams.catalog, run_files

    def retained_from_us(self, stream: int) -> int | None:
        """Retention has removed tuples with event times before this; None: it has removed none."""
        with self._streams.reading(stream) as state:
            return state.entry.retained_from_us

    def apply(self, stream: int, before_us: int) -> int:
        """Remove the runs all of whose event times are before an instant.

        Returns:
          how many rows were removed. Their files go when no snapshot holds them.
        """
        with self._streams.changing(stream) as state:
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
            with self._catalog.transaction():
                for run in old:
                    self._catalog.drop_run(run)
                self._catalog.set_retained(stream, entry.retained_from_us, entry.retained_position)
            state.replace_entry(entry)
            state.drop_runs(old)
            self._run_files.retire(name for run in old for name in run.files)
        self._run_files.remove_retired()
        return sum(run.rows for run in old)
