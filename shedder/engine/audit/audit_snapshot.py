"""Audit snapshot: a query's newest answer, and the same answer at the strict confidence.

The service's own audit and auditors elsewhere take answers here, and note what came of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.executor import check_retained
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import ShedderError
from shedder.queries.answers.answer import Answer
from shedder.queries.certification.audit import chances, without_decisions
from shedder.queries.certification.certification import AuditSample, after
from shedder.queries.certification.claims import Case
from shedder.queries.evidence.answer_builder import finish
from shedder.streams.windows import Span

_ROUNDING = 1.001  # Of 1 less a confidence, where outputs are made of several aggregates.

_log = structlog.get_logger("shedder.audit")


@dataclass(frozen=True, slots=True, eq=False)
class AuditSnapshot:
    """An answer, and the same with every group and intervals that a single miss refutes.

    strict: empty where none of them would.
    """

    standing_query: StandingQuery
    answer: Answer
    strict: Answer
    span: Span

    @property
    def shown(self) -> int:
        """Return the number of groups that the answer shows."""
        return len(self.answer.table) - (self.answer.others is not None)

    @property
    def disjoint(self) -> bool:
        """Return whether no look that was noted has bet on its tuples; on the apply thread."""
        before_us = self.standing_query.audits.bet_to_us
        slides = self.standing_query.state.grid.slides
        return before_us is None or (slides and (self.span.start_us or 0) >= before_us)


def unseen(
    core: EngineState,
    stream: Stream,
    standing_query: StandingQuery,
    *,
    without_archive: bool = False,
) -> tuple[Answer, Span] | None:
    """Return a query's newest answer and its window, if it was not audited. On the apply thread.

    Args:
      core, stream: of the query. standing_query: it.
      without_archive: the truth is to come from elsewhere; else the archive must be able to tell.
    """
    name, query = standing_query.state.name, standing_query.state.query
    if standing_query.failed or stream.queries.get(name) is not standing_query:
        return None
    if (
        core.store.deletions.entries(stream.id)
        or core.machine.monotonic_s() < standing_query.audits.reserved_to_s
    ):
        return None
    slides = standing_query.state.grid.slides
    if not slides if without_archive else bool(stream.built):
        return None  # Of tuples that came as summaries, windows say which, and the archive nothing.
    if standing_query.stale:
        standing_query.refresh(stream.facts())
    answer, span = standing_query.latest, standing_query.span
    if not isinstance(answer, Answer) or span is None:
        return None
    if not Case(0, query, answer).judgeable or (slides and span.end_us is None):
        return None
    if standing_query.audits.audited == _seen(standing_query, answer, span):
        return None
    try:
        if not without_archive:
            check_retained(core, stream, span)
    except ShedderError:
        return None
    return answer, span


def taken(
    stream: Stream, standing_query: StandingQuery, answer: Answer, span: Span
) -> AuditSnapshot:
    """On the apply thread: what is compared; the answer counts as looked at from now on."""
    strict = _strict(stream, standing_query, answer, span)
    standing_query.audits.note_audited(_seen(standing_query, answer, span))
    return AuditSnapshot(standing_query, answer, strict, span)


def _strict(stream: Stream, standing_query: StandingQuery, answer: Answer, span: Span) -> Answer:
    """The answer again, at the confidence that so many intervals leave to each of them.

    How many there are it says itself: with HAVING or LIMIT it has more groups than were told, and
    at another confidence a list may have other items. So it is asked for until it has no more than
    were reckoned with.
    """
    query = without_decisions(standing_query.state.query)
    there, intervals = max(1, chances(query, answer)), 0
    while there > intervals:
        intervals = there
        confidence = standing_query.audits.certification.strict_confidence(intervals)
        if confidence is None:
            break
        wider = replace(query, confidence=confidence)
        strict = finish(wider, standing_query.evidence(stream.facts(), span, wider))
        if 1 - strict.confidence > (1 - confidence) * _ROUNDING:
            break  # Some column cannot be asked for more.
        there = chances(query, strict)
    else:
        return strict
    return without_rows(answer)


def without_rows(answer: Answer) -> Answer:
    """As a strict one that no single miss refutes."""
    return replace(answer, table=answer.table.slice(0, 0), others=None)


def note(checkpoints: Checkpoints, moment: AuditSnapshot, look: AuditSample) -> None:
    """On the apply thread: what a look came to, in certification, answers and checkpoint."""
    standing_query, was = moment.standing_query, moment.standing_query.audits.certification
    disjoint = moment.disjoint
    standing_query.certify(after(was, look if disjoint else look.overlapping))
    if disjoint:
        standing_query.audits.note_bet(moment.span.end_us or moment.answer.position)
    now = standing_query.audits.certification
    if now.lost and not was.lost:
        _log.error("certification_lost", query=standing_query.state.name, why=now.lost)
    elif was.lost and not now.lost:
        _log.warning("certification_regained", query=standing_query.state.name)
    checkpoints.audited()
    if bool(was.lost) != bool(now.lost):
        checkpoints.now()  # Whatever ends the service now, it knows that afterwards.


def _seen(
    standing_query: StandingQuery, answer: Answer, span: Span
) -> tuple[int | None, int | None, int]:
    position = 0 if standing_query.state.grid.slides else answer.position
    return span.start_us, span.end_us, position
