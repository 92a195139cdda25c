"""Self-audit: answers of standing queries, compared with exact answers from the archive."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import structlog

from shedder.archive.exact.client import ExactWorker
from shedder.archive.store.snapshot import Snapshot
from shedder.archive.tasks.deadline import Deadline
from shedder.cpu_priority import LATE
from shedder.engine.audit.audit_snapshot import AuditSnapshot, note, taken, unseen
from shedder.engine.audit.external_audit import AuditTickets
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.archive_question import ArchiveQuestion
from shedder.engine.one_time_queries.exact_reader import ExactReader
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import ShedderError
from shedder.queries.certification.audit import (
    chooses,
    compared,
    exact_query,
    look_at,
    without_decisions,
)
from shedder.queries.certification.row_places import places_hold, placing_query
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.one_time.plan import TimeRange

TICK_S = 1.0
LOAD_MAX = 0.1  # Of the queue of what waits to be applied, above which nothing is audited.
TIMEOUT_S = 10.0
GROUPS_MAX = 1_000  # Comparing takes the interpreter some 50 us a group and output.

_log = structlog.get_logger("shedder.audit")


class Audit:
    """Looks at one answer after the other, the one that waits for longest first.

    It reads with a process of its own, which gives way to all others, for `audit_share` of the time
    that passes, and only while ingest leaves time. looks: answers that were compared. skipped:
    those that could not be, in time or memory. busy_s: what that took. tickets: what auditors
    elsewhere look at.
    """

    def __init__(
        self, core: EngineState, checkpoints: Checkpoints, rewrite: Callable[[str], None]
    ) -> None:
        """Nothing happens before `start`."""
        settings = core.settings
        self.looks = 0
        self.skipped = 0
        self.busy_s = 0.0
        self.tickets = AuditTickets(core, checkpoints)
        self._core = core
        self._checkpoints = checkpoints
        self._worker = ExactWorker(
            core.store.directory / "tmp" / "audit",
            memory_bytes=settings.audit_memory_bytes,
            threads=1,
            timeout_s=TIMEOUT_S,
        )
        self._reader = ExactReader(core, self._worker, rewrite)
        self._next_s = 0.0
        self._stop: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin; nothing happens when it has."""
        if self._stop is None:
            self._stop = self._core.machine.ticker(
                "shedder-audit", TICK_S, self._look_quietly, niceness=LATE
            )

    def close(self) -> None:
        """Return when nothing will be looked at any more."""
        self._worker.close()  # What it reads now ends at once.
        if self._stop is not None:
            self._stop()
            self._stop = None

    def facts(self) -> dict[str, object]:
        """For the control table."""
        return {
            "running": int(self._stop is not None),
            "looks": self.looks,
            "skipped": self.skipped,
            "busy_s": f"{self.busy_s:.3f}",
            "reported": self.tickets.reported,
            "share": self._core.settings.audit_share,
        }

    def tick(self) -> None:
        """Look at one answer, if the budget has room for it."""
        now = self._core.machine.monotonic_s()
        if now < self._next_s or self._core.load() > LOAD_MAX:
            return
        busy_s = self.busy_s
        self.look()
        took_s = self.busy_s - busy_s
        share = self._core.settings.audit_share
        self._next_s = now + took_s / share

    def look(self) -> str | None:
        """Look at the answer that waits for longest, whatever the budget.

        Returns:
          The query's name; None when there is nothing new to look at.
        """
        machine = self._core.machine
        waiting = [
            (standing_query.audits.audited_s, stream, standing_query)
            for stream in list(self._core.streams.values())
            for standing_query in list(stream.queries.values())
        ]
        for _, stream, standing_query in sorted(waiting, key=lambda each: each[0]):
            standing_query.audits.note_look(machine.monotonic_s())
            moment = self._core.executor.call(
                partial(self._moment, stream, standing_query)
            ).result()
            if moment is None:
                continue
            try:
                self._compare(*moment)
                self.looks += 1
            except ShedderError as error:
                self.skipped += 1
                _log.info("audit_skipped", query=standing_query.state.name, error=str(error))
            finally:
                standing_query.audits.release()
                self.busy_s += machine.monotonic_s() - standing_query.audits.audited_s
            return standing_query.state.name
        return None

    def _moment(
        self, stream: Stream, standing_query: StandingQuery
    ) -> tuple[AuditSnapshot, Snapshot] | None:
        """On the apply thread: an answer that was not compared yet, and the archive it is of."""
        found = unseen(self._core, stream, standing_query)
        if found is None:
            return None
        answer, span = found
        if len(answer.table) > GROUPS_MAX:
            return None
        snapshot = self._core.store.snapshot(stream.id, span.start_us, span.end_us)
        rows = sum(run.rows for run in snapshot.runs) + sum(len(each) for each in snapshot.tail)
        if snapshot.missing or snapshot.holes or rows > self._core.settings.audit_rows_max:
            snapshot.release()
            return None
        standing_query.audits.reserve(math.inf)
        return taken(stream, standing_query, answer, span), snapshot

    def _compare(self, moment: AuditSnapshot, snapshot: Snapshot) -> None:
        query = moment.standing_query.state.query
        exact = exact_query(query)
        with snapshot:
            stretch = TimeRange.of(moment.span, moment.answer.watermark_us)
            question = ArchiveQuestion(exact, snapshot, stretch, Deadline(TIMEOUT_S))
            evidence = self._reader.read(question, self._reader.way(question))
        exactly = finish(exact, evidence)
        values = compared(query, moment.answer, exactly)
        strict = compared(without_decisions(query), moment.strict, exactly)
        placed = places_hold(query, moment.answer, finish(placing_query(query), evidence))
        look = look_at(values, strict, query.confidence, chosen=chooses(query), placed=placed)
        if look is not None:
            self._core.executor.call(partial(note, self._checkpoints, moment, look)).result()

    def _look_quietly(self) -> None:
        try:
            self.tick()
        except ShedderError as error:
            _log.info("audit_ended", error=str(error))
