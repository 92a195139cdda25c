"""Runs whose bytes are not what they were: found, set aside, and read again once mended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shedder.archive.catalog.run_annotations import Quarantine
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.store.open_streams import OpenStreams
from shedder.errors import CorruptData


class RunQuarantine:
    """Damaged runs: they are set aside, and read again once they are whole."""

    def __init__(self, streams: OpenStreams, run_files: RunFiles) -> None:
        self._streams, self._catalog, self._run_files = streams, streams.catalog, run_files

    def runs(self, stream: int) -> list[tuple[Run, Quarantine]]:
        """The runs of a stream that are damaged, in order of position."""
        with self._streams.reading(stream) as state:
            return [
                (run, state.quarantined[run.first_position])
                for run in state.runs
                if not state.readable(run)
            ]

    def problem_of(self, run: Run, on_progress: Callable[[int], None] | None = None) -> str | None:
        """Read a run's file against its checksum; what is wrong with it, or None.

        Args:
          run: one of a stream.
          on_progress: called with the bytes that were read; what it raises ends the reading.

        Raises:
          StorageFailed: it cannot be read.
        """
        self._run_files.pin([run.file])
        try:
            self._run_files.verify(run, on_progress)
        except CorruptData as error:
            return str(error)
        finally:
            self._run_files.unpin([run.file])
        return None

    def add(self, run: Run, problem: str) -> bool:
        """Read a damaged run no more, and keep its file aside; False when that was so already.

        Answers from now on say that its tuples are missing.
        """
        mark = Quarantine(run.stream_id, run.first_position, time.time_ns() // 1000, problem)
        with self._streams.change():
            state = self._streams.find(run.stream_id)
            if state is None or run not in state.runs or not state.readable(run):
                return False
            aside = self._run_files.set_aside(run)
            self._catalog.annotations.quarantine(mark)
            state.quarantined[run.first_position] = mark
            if aside:
                self._run_files.retire([run.file])
        self._run_files.remove_retired()
        return True

    @contextmanager
    def watched(self, run: Run) -> Iterator[None]:
        """Reading a run: when it turns out to be damaged it goes into quarantine.

        Raises:
          CorruptData: as was raised inside.
        """
        try:
            yield
        except CorruptData as error:
            self.add(run, str(error))
            raise

    def scrubbed(self, stream: int) -> list[tuple[int | None, Run]]:
        """The whole runs of a stream, and when (us) each was noted as such; None: never."""
        with self._streams.reading(stream) as state:
            known = state.scrubbed
            return [(known.get(r.first_position), r) for r in state.runs if state.readable(r)]

    def note_scrubbed(self, runs: Sequence[Run], scrubbed_us: int) -> None:
        """Runs are whole: they were read, or written a moment ago.

        Those of which something else was made meanwhile are left out.
        """
        with self._streams.change(), self._catalog.transaction():
            for run in runs:
                state = self._streams.find(run.stream_id)
                if state is not None and run in state.runs:
                    self._catalog.annotations.put_scrubbed(run, scrubbed_us)
                    state.scrubbed[run.first_position] = scrubbed_us

    def take_back(self, run: Run, on_progress: Callable[[int], None] | None = None) -> None:
        """Put a quarantined run's file back if what was set aside is whole after all.

        A disk may read today what it could not read yesterday. It is read no sooner than it is
        released.

        Args:
          run: of a stream; nothing is done when it has its file, or is in no quarantine.
          on_progress: called with the bytes that were read; what it raises ends the reading.

        Raises:
          StorageFailed: it cannot be read, or not be put back.
        """
        with self._streams.lock:
            state = self._streams.find(run.stream_id)
            if state is None or run not in state.runs or state.readable(run):
                return
        self._run_files.take_back(run, on_progress)

    def release(self, run: Run) -> bool:
        """Read a run again whose file was put back whole; False when it was in no quarantine."""
        with self._streams.change():
            state = self._streams.find(run.stream_id)
            if state is None or run not in state.runs or state.readable(run):
                return False
            self._catalog.annotations.release(run)
            del state.quarantined[run.first_position]
            return True
