"""A standing query and its answers: made when windows close, kept, and sent to subscribers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from shedder.archive.metadata.deleted_positions import Deletion
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract
from shedder.engine.estimates.window_estimates import error_parts, window_evidence
from shedder.engine.runtime.subscribers import AnswerUpdate, Subscribers
from shedder.engine.standing_queries.answer_audits import AnswerAudits
from shedder.engine.standing_queries.deletion_notes import allow_for_deleted
from shedder.engine.standing_queries.dropped_tuples import Drops
from shedder.engine.standing_queries.lost_tuples import LostTuples
from shedder.engine.standing_queries.observed_error import Measured
from shedder.engine.standing_queries.pane_deletions import PaneDeletions
from shedder.engine.synopsis_plans.allocation_request import SynopsisSizes
from shedder.engine.synopsis_plans.thinning_levels import levels_text
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import InternalError, ShedderError
from shedder.queries.answers.answer import Answer
from shedder.queries.certification.certification import Certification, facts_of, marked
from shedder.queries.evidence.answer_builder import finish, needs_exact, shown_evidence
from shedder.queries.evidence.confidence_budget import EXACT_IN_PANES, split_confidence
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.late_tuple_bounds import widen_late
from shedder.queries.evidence.precision_parts import EvidenceStep
from shedder.streams.basics import ColumnBasics
from shedder.streams.frame import Frame
from shedder.streams.windows import Span

SLIDES_PER_FRAME_MAX = 1_000  # Of one frame, no listener gets more answers than this,
PANES_PER_FRAME_MAX = 10_000  # and no more than have their slides in so many panes.


_log = structlog.get_logger("shedder.engine")


@dataclass(frozen=True, slots=True, eq=False)
class StreamFacts:
    """What an answer says about its stream, as of one moment on the apply thread.

    position: one past the last applied tuple.
    watermark_us: the stream's watermark; None before its first tuple.
    basics: basics of each column, of all tuples that were applied.
    drops: tuples that were dropped on admission, or left out at the source.
    drops_by_chance: whether chance alone decides which tuples are dropped.
    lost: tuples that damaged bytes of the log held.
    deletions: returns all DELETEs of the stream.
    """

    position: int
    watermark_us: int | None
    basics: Mapping[str, ColumnBasics]
    drops: Drops
    drops_by_chance: bool
    lost: LostTuples
    deletions: Callable[[], Sequence[Deletion]]

    def steps(self, evidence: Evidence, query: BoundQuery) -> Iterator[EvidenceStep]:
        """Account for tuples that were too late for their panes, were dropped, or were lost."""
        if evidence.late:
            evidence = widen_late(query, evidence, self.basics)
            yield EvidenceStep("late tuples", evidence)
        by_chance = self.drops_by_chance
        evidence = self.drops.widen(query, evidence, self.basics, by_chance=by_chance)
        yield EvidenceStep("dropped tuples", evidence)
        yield EvidenceStep("lost tuples", self.lost.widen(query, evidence))


class StandingQuery:
    """One standing query with its newest answer. Used by the apply thread.

    latest: the newest answer, or the error that stands for it (contract FAIL); any thread reads it.
    granted: in words; news: what they are of, (): it is not known.
    weight, active: for the allocator, as they were altered. measured: how wide answers really are.
    audits: of its answers.
    limits: what a query that has limits of its own may be given at most; None: what there is.
    lost: what was gone from the log when it was registered, and the stream had read before.
    deleted: the DELETEs that its panes reflect.
    answer_exactly: hands a window to the exact worker, which answers later (contract EXACT).
    """

    def __init__(
        self,
        query_state: QueryState,
        *,
        from_position: int,
        granted: dict[str, str],
        answer_exactly: Callable[[StandingQuery, Span], None],
        limits: SynopsisSizes | None = None,
        grant_key: tuple[object, ...] = (),
        deleted: PaneDeletions | None = None,
    ) -> None:
        self.state = query_state
        self.from_position = from_position
        self.granted = granted
        self.grant_key = grant_key
        self.listeners = Subscribers()
        self.latest: AnswerUpdate | None = None
        self.emitted_to: int | None = None
        self.failed = ""  # Why it does not answer any more.
        self.behind = True  # Tuples have been applied since the newest answer was made.
        self.outdated = False  # The newest answer does not reflect later drops.
        self.deferred_windows = (
            0  # Windows that have closed and were not answered, to be fresh again later.
        )
        self.deferred_windows_ever = 0
        self._whole_from: int | None = None  # The first window end whose panes have all been read.
        self._span: Span | None = None  # The newest answer's window, and how many were late for it.
        self._late = 0
        self._exact: Evidence | None = None  # Of the archive, if the newest answer is made of it.
        self._answer_exactly = answer_exactly
        self.weight = query_state.query.weight
        self.active = True
        self.limits = limits
        self.audits = AnswerAudits()
        self.lost = LostTuples()
        self.deleted = PaneDeletions() if deleted is None else deleted
        self.measured = Measured(len(query_state.plan.parts))
        self._confidences = split_confidence(query_state.query, EXACT_IN_PANES)

    def alter(self, *, weight: float, active: bool) -> None:
        """Count so much for the allocator, from now on."""
        self.weight, self.active = weight, active

    def restore(
        self,
        *,
        emitted_to: int | None,
        weight: float,
        active: bool,
        failed: str,
        lost: LostTuples | None,
        deleted: PaneDeletions | None,
    ) -> None:
        """Go on from what a checkpoint has of the query. lost, deleted: None: it has nothing."""
        self.emitted_to, self.failed = emitted_to, failed
        self.alter(weight=weight, active=active)
        self.lost = self.lost if lost is None else lost
        self.deleted = self.deleted if deleted is None else deleted

    def grant(self, granted: dict[str, str], grant_key: tuple[object, ...]) -> None:
        """Replace what is granted. grant_key: what the facts were made for."""
        self.granted, self.grant_key = granted, grant_key

    def note_behind(self) -> None:
        """Tuples have been applied that the newest answer lacks."""
        self.behind = True

    def begin_at(self, end_us: int | None) -> None:
        """Set the end of the last window before the first that is answered."""
        self.emitted_to = end_us

    def guard(self, work: Callable[[], None]) -> None:
        """Do this query's own work: what goes wrong there ends this query, not the engine.

        A query that failed has missed tuples, so it never answers again; its error says so.
        """
        if self.failed:
            return
        try:
            work()
        except Exception as error:
            _log.error("query_failed", query=self.state.name, exc_info=error)
            self.fail(
                f"query {self.state.name!r} failed ({type(error).__name__}) and has missed "
                "tuples since; drop it and register it again"
            )

    def fail(self, reason: str) -> None:
        """From now on, every answer is this error."""
        self.failed = reason
        self.state.fail()
        self.tell(InternalError(reason))

    def foresee(self, after_us: int | None) -> None:
        """Say which windows will be answered when the next frame has been read.

        Args:
          after_us: the watermark then. Of the windows that it closes only the newest are answered,
            so panes that lie before these are not made.
        """
        ends = self._ends_to_answer(after_us)
        if ends:
            self._whole_from = max(ends[0], self._whole_from or ends[0])
        self.state.ask_from(ends[0] if ends else None)

    def read(self, frame: Frame, *, watermark_us: int | None, limit_us: int) -> None:
        """Read a frame into the panes that answers will need, as QueryState.apply has it."""
        self.state.apply(frame, watermark_us=watermark_us, limit_us=limit_us)

    def _ends_to_answer(self, watermark_us: int | None) -> range:
        """The ends of the windows that are to be answered when the watermark is here."""
        grid = self.state.grid
        if watermark_us is None or grid.slide_us is None or self.emitted_to is None:
            return range(0)
        if watermark_us // grid.slide_us * grid.slide_us <= self.emitted_to:
            return range(0)  # As after most batches.
        assert grid.width_us is not None
        most = min(SLIDES_PER_FRAME_MAX, PANES_PER_FRAME_MAX * grid.width_us // grid.slide_us)
        most = max(1, most) if len(self.listeners) else 1
        return grid.ends_between(self.emitted_to, watermark_us, most)

    def windows_closed(self, stream: StreamFacts, stretch: int = 1) -> None:
        """Answer the windows that the watermark has passed: all for listeners, else the last.

        Args:
          stream: of the query.
          stretch: 1; under overload, answers come so many slides apart. They are due at multiples
            of that from the epoch, so that queries of one slide are late together and find the
            merges of each other's panes; what is due late is the newest window, once.
        """
        grid = self.state.grid
        watermark = stream.watermark_us
        end = grid.window_end(watermark)
        if end is None:
            return
        assert watermark is not None
        assert grid.slide_us is not None
        if self.emitted_to is None:  # No tuple yet, but a promise: its newest window is empty.
            self.emitted_to = end - grid.slide_us
        if end <= self.emitted_to:
            if not self.deferred_windows and (self._span is None or self._span.end_us != end):
                self.refresh(stream)  # Empty windows before the first one are not published.
            return
        ends = self._ends_to_answer(watermark)
        if stretch > 1:
            period_us = stretch * grid.slide_us
            answered_to_us = None if self._span is None else self._span.end_us
            due = answered_to_us is None or end // period_us > answered_to_us // period_us
            self.deferred_windows += len(ends) - due
            self.deferred_windows_ever += len(ends) - due
            ends = ends[len(ends) - due :]
        for each in ends:
            if self._whole_from is None or each >= self._whole_from:  # Subscribers receive
                self.publish(stream, grid.window(each))  # whole windows only.
        self.emitted_to = end
        self._drop_unneeded(watermark)

    def begin(self, stream: StreamFacts) -> None:
        """The past has been read: answer for it, and hold no more of it than windows need."""
        watermark = stream.watermark_us
        self.state.close(watermark)
        self.emitted_to = self.state.grid.window_end(watermark)
        self.refresh(stream)
        self._drop_unneeded(watermark)

    def _drop_unneeded(self, watermark_us: int | None) -> None:
        needed = self.state.grid.first_needed(watermark_us)
        if needed is not None:
            self.state.drop_before(needed)

    @property
    def stale(self) -> bool:
        """Return whether the newest answer would be another one now.

        A closed window changes only by tuples that come too late for it, its intervals widen, and
        by those that were dropped.
        """
        if self.failed:
            return False
        if self.outdated:
            return True
        if not self.state.grid.slides or self._span == Span(None, None):
            return self.behind
        return self._span is not None and self.state.late_in(self._span) != self._late

    def note_dropped(self, from_us: int) -> None:
        """Tuples were dropped, none of them before this time: the newest answer may lack some."""
        if self._span is not None and (self._span.end_us is None or from_us < self._span.end_us):
            self.outdated = True

    def refresh(self, stream: StreamFacts) -> None:
        """Make the newest answer say what is known now. Each slide is told once, when it closes."""
        if self.failed:
            self.latest = InternalError(self.failed)
            return
        grid = self.state.grid
        if grid.slides:
            end = grid.window_end(stream.watermark_us)
            self.latest = self._next_answer(
                stream, Span(None, None) if end is None else grid.window(end)
            )
        else:
            self.publish(stream, grid.span)

    def publish(self, stream: StreamFacts, span: Span) -> None:
        """Answer one window, keep the answer and tell it."""
        self.tell(self._next_answer(stream, span))

    def _next_answer(self, stream: StreamFacts, span: Span) -> AnswerUpdate:
        if span.end_us is not None and self.state.grid.slides:
            self.state.fold(span.end_us)
        evidence = self.evidence(stream, span)
        if self.measured.wanted:
            shown = shown_evidence(self.state.query, evidence)
            self.measured.look(self.state.query, self.state.plan, shown)
        answer = self._answer_of(evidence)
        self._exact = None
        self.behind = self.outdated = False
        self.deferred_windows = 0
        self._span, self._late = span, evidence.late
        if (
            not isinstance(answer, ShedderError)
            and self.state.query.contract is Contract.EXACT
            and needs_exact(answer)
        ):
            self._answer_exactly(self, span)
        return answer

    def _answer_of(self, evidence: Evidence) -> AnswerUpdate:
        try:
            return self._marked(finish(self.state.query, evidence))
        except ShedderError as error:  # contract FAIL: the slide errs, the query goes on
            return error

    def tell(self, update: AnswerUpdate) -> None:
        """This is the newest answer now."""
        self.latest = update
        self.listeners.tell(update)

    def tell_exact(self, answer: Answer, evidence: Evidence) -> None:
        """The archive has answered a window; a newer window's answer stays the newest.

        evidence: of the archive, that the answer was made of.
        """
        newest, answer = self.latest, self._marked(answer)
        if isinstance(newest, Answer) and (newest.end_us or 0) > (answer.end_us or 0):
            self.listeners.tell(answer)
        else:
            self._exact = evidence
            self.tell(answer)

    @property
    def span(self) -> Span | None:
        """The newest answer's window; None before the first one."""
        return self._span

    def certify(self, certification: Certification) -> None:
        """This is what audits have come to; the newest answer says so at once."""
        self.audits.certify(certification)
        if isinstance(self.latest, Answer):
            self.latest = self._marked(self.latest)

    def _marked(self, answer: Answer) -> Answer:
        return marked(answer, self.audits.certification)

    def evidence(
        self, stream: StreamFacts, span: Span, query: BoundQuery | None = None
    ) -> Evidence:
        """What the panes of a window say; query: the standing one with another confidence."""
        *_, last = self._widening(stream, span, self._panes_say(stream, span, query))
        return self._noted(last.evidence)

    def _panes_say(
        self,
        stream: StreamFacts,
        span: Span,
        query: BoundQuery | None = None,
        *,
        counts_others: bool = True,
    ) -> Evidence:
        """The evidence of panes alone, as `window_evidence`."""
        confidences = self._confidences
        if query is not None:
            confidences = split_confidence(query, EXACT_IN_PANES)
        return window_evidence(
            self.state,
            span,
            confidences=confidences,
            watermark_us=stream.watermark_us,
            position=stream.position,
            query=query,
            counts_others=counts_others,
        )

    def _noted(self, evidence: Evidence) -> Evidence:
        """The evidence with a note if the query was rewritten."""
        if "rewrite" not in self.granted:
            return evidence
        note = f"rewritten to keep its limits: {self.granted['rewrite']}"
        return replace(evidence, notes=(*evidence.notes, note))

    def _widening(
        self, stream: StreamFacts, span: Span, evidence: Evidence
    ) -> Iterator[EvidenceStep]:
        """The steps behind the evidence of panes: for tuples that the panes lack, or have still."""
        query = self.state.query
        for step in stream.steps(evidence, query):
            evidence = step.evidence
            yield step
        evidence = self.lost.widen(query, evidence)
        yield EvidenceStep("lost tuples", evidence)
        deletions = stream.deletions()
        if deletions:
            self.deleted.look(deletions, self.state, stream.position)
            pending = self.deleted.pending(deletions, self.state.grid, span)
            yield EvidenceStep("deleted rows", allow_for_deleted(evidence, pending))

    def explained_steps(self, stream: StreamFacts) -> list[EvidenceStep]:
        """Return the steps in which the intervals of the newest answer were made.

        The newest answer is made again if it would be another one now.

        Raises:
          InternalError: the query has failed.
        """
        if self.failed:
            raise InternalError(self.failed)
        if self.stale or self._span is None:
            self.refresh(stream)
        if self._exact is not None:
            return [EvidenceStep("archive", self._exact)]
        assert self._span is not None, "a query that was answered has a window"
        span = self._span
        counted = self._panes_say(stream, span)
        panes = counted
        if counted.others is not None:
            panes = self._panes_say(stream, span, counts_others=False)
        steps = [
            EvidenceStep("panes", panes, error_parts(self.state, span), spends=True),
            EvidenceStep("groups without room", counted),
            *self._widening(stream, span, counted),
        ]
        self._make_newest(self._noted(steps[-1].evidence))
        return steps

    def _make_newest(self, evidence: Evidence) -> None:
        """Replace the newest answer if panes have changed below it since it was made."""
        update = self._answer_of(evidence)
        tables = [each.table for each in (update, self.latest) if isinstance(each, Answer)]
        if len(tables) < 2 or not tables[0].equals(tables[1]):
            self.latest = update


def status_of(standing_query: StandingQuery) -> dict[str, str]:
    """The query's rows of the control table: value by property."""
    query_state = standing_query.state
    return {
        "stream": query_state.query.schema.name,
        "text": query_state.query.text,
        "read": str(query_state.timely - max(query_state.thinned)),
        "thinned": str(max(query_state.thinned)),
        "thinning": levels_text(query_state.levels),
        "weight": f"{standing_query.weight:g}",
        "active": str(standing_query.active).lower(),
        "late": str(query_state.late),
        "windows_put_off": str(standing_query.deferred_windows_ever),
        "panes": str(len(query_state.panes)),
        "thinned_panes": str(sum(bool(pane.segments) for pane in query_state.panes.values())),
        "size_bytes": str(query_state.size_bytes),
        "reads_panes_of": "" if query_state.provider is None else query_state.provider.name,
        **facts_of(standing_query.audits.certification),
        **standing_query.granted,
    }
