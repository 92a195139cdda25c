"""Periodic maintenance: purges after deletions, scrubs of old runs, opening of new runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

import structlog

from shedder.archive.backfill.staged_runs import POSITION_MIN
from shedder.archive.layouts.file_handle_cache import OPEN_FILES
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.operations.scrub import Scrubbed, ScrubPace, scrub_run
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.tasks.progress import Progress
from shedder.cpu_priority import LATE
from shedder.engine.engine_state import EngineState
from shedder.engine.maintenance.run_rewriter import RunRewriter, due_for_purge
from shedder.errors import Cancelled, Draining, ShedderError, UnknownStream

TICK_S = 1.0
RETRY_S = 60.0  # What is still due after it was tried, since the disk is full, say.
LOAD_MAX = 0.1  # Of the queue of what waits to be applied, above which nothing is scrubbed.

_DAY_US = 86_400_000_000
_log = structlog.get_logger("shedder.housekeeping")


class ScrubAndPurge:
    """Checks every second whether work is due; its thread has a low priority.

    A run is scrubbed when it was last read, or first seen, `scrub_days` ago: one per look, the
    oldest first, as long as ingest leaves time for it. scrubbed: what was found since the start.
    The files of new runs are opened, so that the first question to a part of them need not.
    """

    def __init__(self, core: EngineState, relayouts: RunRewriter) -> None:
        """Nothing happens before `start`."""
        self.scrubbed = Scrubbed()
        self._tasks = core.tasks
        self._core = core
        self._relayouts = relayouts
        self._again_at: dict[str, float] = {}
        self._opened: dict[int, int] = {}  # By stream: the end of the last run that was.
        self._stop: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin; the newest runs are open when it returns, which takes some 0.1 s at most."""
        self._open_ahead()
        self._stop = self._core.machine.ticker(
            "shedder-housekeeping", TICK_S, self._look, niceness=LATE
        )

    def close(self) -> None:
        """Return when nothing will be looked at any more."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    def tick(self) -> None:
        """Do what is due now."""
        now = self._core.machine.monotonic_s()
        for name, stream in list(self._core.streams.items()):
            try:
                due = self._relayouts.has_failed(name) or due_for_purge(self._core, stream.id)
            except UnknownStream:  # dropped meanwhile
                continue
            if due and now >= self._again_at.get(name, now):
                self._again_at[name] = now + RETRY_S
                self._relayouts.wake(name)
        if self._core.load() <= LOAD_MAX:
            self._open_ahead()
        self._scrub_one()

    def facts(self) -> dict[str, object]:
        """For the control table."""
        return {
            "due_runs": len(self._due_for_scrub()),
            "runs": self.scrubbed.runs,
            "read_bytes": self.scrubbed.read_bytes,
            "damaged_runs": len(self.scrubbed.damaged),
        }

    def _open_ahead(self) -> None:
        """Open the files of the newest runs, each once; after a start of as many as stay open."""
        store = self._core.store
        new: list[tuple[Run, RunFiles]] = []
        with ExitStack() as held:
            for entry in store.streams():
                with suppress(UnknownStream):  # dropped meanwhile
                    before = self._opened.get(entry.id, POSITION_MIN)
                    last = max((run.end_position for run in store.runs(entry.id)), default=before)
                    if last > before:
                        snapshot = held.enter_context(store.snapshot(entry.id))
                        found = [run for run in snapshot.runs if run.end_position > before]
                        new += [(run, snapshot.files) for run in found]
                        self._opened[entry.id] = last
            for run, files in sorted(new, key=lambda each: each[0].high_us)[-OPEN_FILES:]:
                files.open_ahead(run)

    def _scrub_one(self) -> None:
        """Read the run that is due for longest; when ingest needs the machine, another time."""
        core = self._core
        self._note_new()
        due = self._due_for_scrub() if core.load() <= LOAD_MAX else []
        if not due:
            return
        run, damaged = due[0], len(self.scrubbed.damaged)
        progress = Progress("scrub in the background", "bytes", total=run.size_bytes)
        pace = ScrubPace(progress, core.settings.scrub_bytes_per_second)

        def on_progress(size_bytes: int) -> None:
            pace.advance(size_bytes)
            if core.load() > LOAD_MAX:
                raise Cancelled("a scrub gave way to ingest")

        with self._tasks.running(progress):
            scrub_run(core.store, run, on_progress, self.scrubbed)
        for found, problem in self.scrubbed.damaged[damaged:]:
            _log.error("run_damaged", file=found.file, problem=problem)
        core.store.quarantine.note_scrubbed([run], core.clock_us())

    def _note_new(self) -> None:
        """Note new runs as scrubbed: they were written a moment ago."""
        if self._core.settings.scrub_days:
            new = [run for noted_us, run in self._runs() if noted_us is None]
            if new:
                self._core.store.quarantine.note_scrubbed(new, self._core.clock_us())

    def _due_for_scrub(self) -> list[Run]:
        """The runs that were not read for too long, the oldest first."""
        days = self._core.settings.scrub_days
        now_us = self._core.clock_us()
        before_us = now_us - int(days * _DAY_US)
        noted = [(us, run) for us, run in self._runs() if us is not None]
        # What was read in the future was dated by a clock that has jumped back since.
        due = [(us, run) for us, run in noted if not before_us < us <= now_us]
        return [run for _, run in sorted(due, key=lambda each: each[0])] if days else []

    def _runs(self) -> list[tuple[int | None, Run]]:
        store, found = self._core.store, []
        for entry in store.streams():
            with suppress(UnknownStream):  # dropped meanwhile
                found += store.quarantine.scrubbed(entry.id)
        return found

    def _look(self) -> None:
        try:
            self.tick()
        except (Cancelled, Draining):
            return
        except ShedderError as error:
            _log.error("housekeeping_failed", error=str(error))
