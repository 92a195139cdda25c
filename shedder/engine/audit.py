"""The self-audit: answers of standing queries are computed again, exactly, from the archive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import structlog

from shedder.archive.deadline import Deadline
from shedder.archive.exact import ExactWorker
from shedder.archive.run_files import Snapshot
from shedder.cql.query import BoundQuery
from shedder.cql.statement import Contract
from shedder.engine.core import Core
from shedder.engine.one_time import OneTime, check_retained
from shedder.engine.published import Published
from shedder.engine.stream import Stream
from shedder.errors import ShedderError
from shedder.queries.answer import Answer
from shedder.queries.audited import compared, exact_query, look_at
from shedder.queries.cases import Case
from shedder.queries.certification import after
from shedder.queries.finish import finish
from shedder.scheduling import LATE
from shedder.streams.windows import Span

TICK_S = 1.0
LOAD_MAX = 0.1  # Of the queue of what waits to be applied, above which nothing is audited.
TIMEOUT_S = 10.0
GROUPS_MAX = 1_000  # Comparing takes the interpreter some 50 us a group and output.

_log = structlog.get_logger("shedder.audit")


@dataclass(frozen=True, slots=True, eq=False)
class _Moment:
    """An answer, the same asked for at the strict confidence, and the archive it is of."""

    answer: Answer
    strict: Answer
    span: Span
    snapshot: Snapshot
    disjoint: bool


class Audit:
    """Looks at one answer after the other, the one that waits for longest first.

    It reads with a process of its own, which gives way to all others, for `audit_share` of the time
    that passes, and only while ingest leaves time. looks: answers that were compared. skipped:
    those that could not be, in time or memory. busy_s: what that took.
    """

    def __init__(self, core: Core) -> None:
        """Nothing happens before `start`."""
        settings = core.settings
        self.looks = 0
        self.skipped = 0
        self.busy_s = 0.0
        self._core = core
        self._worker = ExactWorker(
            core.store.directory / "tmp" / "audit",
            memory_bytes=settings.audit_memory_bytes,
            threads=1,
            timeout_s=TIMEOUT_S,
        )
        self._one_time = OneTime(core, self._worker)
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
        self._one_time.close()

    def facts(self) -> dict[str, object]:
        """For the control table."""
        return {
            "running": int(self._stop is not None),
            "looks": self.looks,
            "skipped": self.skipped,
            "busy_s": f"{self.busy_s:.3f}",
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
            (published.audited_s, stream, published)
            for stream in list(self._core.streams.values())
            for published in list(stream.queries.values())
        ]
        for _, stream, published in sorted(waiting, key=lambda each: each[0]):
            published.audited_s = machine.monotonic_s()
            moment = self._core.actor.call(partial(self._moment, stream, published)).result()
            if moment is None:
                continue
            try:
                self._compare(published, moment)
                self.looks += 1
            except ShedderError as error:
                self.skipped += 1
                _log.info("audit_skipped", query=published.standing.name, error=str(error))
            finally:
                self.busy_s += machine.monotonic_s() - published.audited_s
            return published.standing.name
        return None

    def _moment(self, stream: Stream, published: Published) -> _Moment | None:
        """On the apply thread: an answer that was not compared yet, and what it is of."""
        name, query = published.standing.name, published.standing.query
        store = self._core.store
        if published.failed or stream.queries.get(name) is not published:
            return None
        if stream.built or store.deletions(stream.id):
            return None  # The archive has other tuples than the synopses.
        if published.stale:
            published.refresh(stream)
        answer, span = published.latest, published.span
        if not isinstance(answer, Answer) or span is None:
            return None
        slides = published.standing.grid.slides
        if not Case(0, query, answer).judgeable or (slides and span.end_us is None):
            return None
        seen = (span.start_us, span.end_us, 0 if slides else answer.position)
        if published.audited == seen or len(answer.table) > GROUPS_MAX:
            return None
        try:
            check_retained(self._core, stream, span)
        except ShedderError:
            return None
        snapshot = store.snapshot(stream.id, span.start_us, span.end_us)
        rows = sum(run.rows for run in snapshot.runs) + sum(len(each) for each in snapshot.tail)
        if snapshot.missing or snapshot.holes or rows > self._core.settings.audit_rows_max:
            snapshot.release()
            return None
        confidence = published.certification.strict_confidence
        asked = replace(_without_decisions(query), confidence=confidence)
        strict = finish(asked, published.evidence(stream, span, asked))
        before_us = published.bet_to_us
        disjoint = before_us is None or (slides and (span.start_us or 0) >= before_us)
        published.audited = seen
        return _Moment(answer, strict, span, snapshot, disjoint)

    def _compare(self, published: Published, moment: _Moment) -> None:
        query = published.standing.query
        asked = exact_query(query)
        with moment.snapshot:
            evidence = self._one_time.exactly(
                asked,
                moment.snapshot,
                moment.span,
                moment.answer.watermark_us,
                Deadline(TIMEOUT_S),
            )
        exactly = finish(asked, evidence)
        values = compared(query, moment.answer, exactly)
        strict = compared(_without_decisions(query), moment.strict, exactly)
        look = look_at(values, strict, query.confidence, disjoint=moment.disjoint)
        if look is None:
            return

        def note() -> None:
            was = published.certification
            published.certify(after(was, look))
            if moment.disjoint:
                published.bet_to_us = moment.span.end_us or moment.answer.position
            now = published.certification
            if now.lost and not was.lost:
                _log.error("certification_lost", query=published.standing.name, why=now.lost)
            elif was.lost and not now.lost:
                _log.warning("certification_regained", query=published.standing.name)
            self._core.audited()
            if bool(was.lost) != bool(now.lost):
                self._core.checkpoint()  # Whatever ends the service now, it knows that afterwards.

        self._core.actor.call(note).result()

    def _look_quietly(self) -> None:
        try:
            self.tick()
        except ShedderError as error:
            _log.info("audit_ended", error=str(error))


def _without_decisions(query: BoundQuery) -> BoundQuery:
    """The strict answer has every group, too."""
    return replace(query, having=None, order=(), limit=None, target=None, contract=Contract.WIDEN)
