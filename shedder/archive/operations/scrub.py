"""Scrubbing: all runs are read against their checksums while the directory is served."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from shedder.archive.archive_store import Store
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.tasks.progress import Progress
from shedder.errors import StorageFailed, UnknownStream


@dataclass(slots=True)
class Scrubbed:
    """What a scrub has read and found.

    released: runs whose file is whole again. unread: those that could not be read, for a reason
    that proves no damage (no permission, say); they are as they were.
    """

    runs: int = 0
    read_bytes: int = 0
    damaged: list[tuple[Run, str]] = field(default_factory=list)
    released: list[Run] = field(default_factory=list)
    unread: list[tuple[Run, str]] = field(default_factory=list)


def scrub(
    store: Store,
    *,
    progress: Progress | None = None,
    bytes_per_second: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Scrubbed:
    """Read every run; quarantine damaged runs, and release quarantined runs that are whole again.

    Args:
      store: the open directory, which stays in use.
      progress: receives bytes; another thread cancels it.
      bytes_per_second: largest rate of reading, so that queries are not slowed; None: no limit.
      clock: function that returns seconds.

    Raises:
      Cancelled: what was found by then holds.
    """
    progress = progress or Progress("scrub", "bytes")
    pace = ScrubPace(progress, bytes_per_second, clock)
    report = Scrubbed()
    streams = [entry.id for entry in store.streams()]
    progress.expect(sum(run.size_bytes for stream in streams for run in _runs(store, stream)))
    for stream in streams:
        for run in _runs(store, stream):
            try:
                scrub_run(store, run, pace.advance, report)
            except StorageFailed as error:
                report.unread.append((run, str(error)))
    progress.reach(progress.total)
    return report


def _runs(store: Store, stream: int) -> list[Run]:
    """Those of a stream, of which there are none when it was dropped meanwhile."""
    with suppress(UnknownStream):
        return store.runs(stream)
    return []


def scrub_run(
    store: Store, found: Run, on_progress: Callable[[int], None], report: Scrubbed
) -> None:
    """Read a run and what is beside it; as `scrub`.

    Args:
      store: the open directory.
      found: one of its runs.
      on_progress: called with the bytes that were read, every few; what it raises ends the reading.
      report: what was read and found is added to it.

    Raises:
      StorageFailed: a file could not be read, which is no proof of damage.
    """
    store.quarantine.take_back(found, on_progress)
    run = _without_damaged_copies(store, found, on_progress)
    for rolled in run.rolled:
        if store.quarantine.problem_of(run.of_rolled(rolled), on_progress) is not None:
            store.rollups.drop_rolled(run, rolled)
    problem = store.quarantine.problem_of(run, on_progress)
    report.runs += 1
    report.read_bytes += run.size_bytes
    if problem is None and store.quarantine.release(run):
        report.released.append(run)
    elif problem is not None and store.quarantine.add(run, problem):
        report.damaged.append((run, problem))


def _without_damaged_copies(store: Store, run: Run, on_progress: Callable[[int], None]) -> Run:
    """A run whose damaged copies were dropped; the rest of them is read."""
    for copy in run.copies:
        rest = replace(run, copies=tuple(other for other in run.copies if other != copy))
        problem = store.quarantine.problem_of(run.of_copy(copy), on_progress)
        if problem is not None and store.layouts.drop_copy(run, copy):
            run = rest
    return run


class ScrubPace:
    """Waits between reads so that they come at no more than a rate; a cancel ends the wait."""

    def __init__(
        self,
        progress: Progress,
        bytes_per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """At most so many bytes per second; None: no limit."""
        self._progress = progress
        self._rate = bytes_per_second
        self._clock = clock
        self._began = clock()
        self._read = 0

    def advance(self, size_bytes: int) -> None:
        """So much was read."""
        self._read += size_bytes
        if self._rate is not None:
            due = self._began + self._read / self._rate
            self._progress.wait(due - self._clock())
        self._progress.advance(size_bytes)
