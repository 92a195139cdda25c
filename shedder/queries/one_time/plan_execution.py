"""Execution of the plan of a one-time query, step by step, until the target is met."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract
from shedder.errors import BudgetExceeded, DeadlineExceeded, PrecisionUnavailable
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.missing_tuple_bounds import of_the_others, without_bounds
from shedder.queries.evidence.precision_parts import EvidenceStep
from shedder.queries.evidence.precision_targets import target_text
from shedder.queries.one_time.plan import OneTimePlan, PlanStep, ScanEstimate, Source, TimeRange

_BUILT = "{:,} tuples came as summaries, which standing queries alone know"
_DROPPED = "{:,} tuples were dropped under overload, or before they came, and were not archived"

_SAMPLED, _REDUCED, _WHOLE = "live sample", "archive reduction", "archive"  # Parts of widths.
_LACKING = "tuples that are not archived"


class ArchiveReader(Protocol):
    """Reads the archive for the steps of a plan; each method is called at most once."""

    def part(self, before: ScanEstimate | None) -> ScanEstimate | None:
        """Return the last look at what was read; None: everything should be read instead.

        before: the look at the live sample that the scan continues; None: there was none.
        """

    def exact(self) -> Evidence:
        """Return the evidence from everything."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanOutcome:
    """What the steps of a plan found.

    source: the step that answers. read: what a part of the tuples said; None: all were read.
    steps: those in which the intervals were made; the last one is what the answer is made of.
    answer: the answer if it was made already.
    """

    source: Source
    read: ScanEstimate | None
    steps: tuple[EvidenceStep, ...]
    answer: Answer | None = None


def execute(
    query: BoundQuery, plan: OneTimePlan, stretch: TimeRange, archive: ArchiveReader
) -> Answer:
    """Answer a query by its plan. Raises: as `find`."""
    found = find(query, plan, stretch, archive)
    return found.answer or finish(query, found.steps[-1].evidence)


def find(
    query: BoundQuery, plan: OneTimePlan, stretch: TimeRange, archive: ArchiveReader
) -> PlanOutcome:
    """Return the evidence that answers a query by its plan.

    Raises:
      PrecisionUnavailable: the target is missed, the contract is FAIL, and the exact answer takes
        more time or memory than there is.
      DeadlineExceeded, BudgetExceeded: the same without a sample or target, or where the contract
        is EXACT.
    """
    best = plan.look
    try:
        for step in plan.steps:
            match step.source:
                case Source.SAMPLE:
                    assert plan.look is not None
                    own = EvidenceStep(_SAMPLED, plan.look.evidence, spends=True)
                    return PlanOutcome(step.source, plan.look, (own,), plan.predicted)
                case Source.PART | Source.REDUCED:
                    read = archive.part(plan.look if step.source is Source.PART else None)
                    if read is None:
                        continue
                    best = replace(read, evidence=within(read.evidence, stretch))
                    if _is_final(query, step, best):
                        return PlanOutcome(step.source, best, _steps(_REDUCED, read.evidence, best))
                case Source.ROLLUP | Source.INDEX | Source.ARCHIVE:
                    evidence = archive.exact()
                    whole = ScanEstimate(within(evidence, stretch), 0.0, 1.0)
                    return PlanOutcome(step.source, None, _steps(_WHOLE, evidence, whole))
                case _:
                    assert_never(step.source)
    except (DeadlineExceeded, BudgetExceeded) as error:
        if best is None or query.contract is Contract.EXACT:
            raise
        if query.contract is Contract.FAIL:
            raise PrecisionUnavailable(
                f"what could be read misses {target_text(query)}: {error}"
            ) from error
        what = "sample" if best is plan.look else "part that was read"
        note = f"the archive could not be read ({error}); this is what the {what} knows"
        evidence = replace(best.evidence, notes=(*best.evidence.notes, note))
        source, part = (Source.SAMPLE, _SAMPLED) if best is plan.look else (Source.PART, _REDUCED)
        return PlanOutcome(source, best, (EvidenceStep(part, evidence, spends=True),))
    raise AssertionError(plan.steps)  # The last step answers.


def _steps(part: str, evidence: Evidence, last: ScanEstimate) -> tuple[EvidenceStep, ...]:
    """The steps of what was read, and of what the archive may lack."""
    first = EvidenceStep(part, evidence, spends=part != _WHOLE)
    return first, EvidenceStep(_LACKING, last.evidence)


def within(evidence: Evidence, stretch: TimeRange) -> Evidence:
    """Return the evidence as of a stretch, with intervals that allow for tuples it may lack."""
    if stretch.built:
        evidence = of_the_others(evidence, _BUILT.format(stretch.built))
    if stretch.dropped:
        evidence = of_the_others(evidence, _DROPPED.format(stretch.dropped))
    if stretch.doubted:
        evidence = without_bounds(evidence, stretch.doubted, stretch.doubted)
        evidence = replace(evidence, complete=False)
    return replace(
        evidence,
        start_us=stretch.start_us,
        end_us=stretch.end_us,
        watermark_us=stretch.watermark_us,
        complete=stretch.complete and evidence.complete,
    )


def _is_final(query: BoundQuery, step: PlanStep, look: ScanEstimate) -> bool:
    """Return whether what was read in part is the answer: for others everything is read."""
    if query.target is None or look.error <= 1.0:
        return True
    return (step.source is Source.REDUCED or look.is_late) and query.contract is not Contract.EXACT
