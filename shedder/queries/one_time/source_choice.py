"""Choice of the sources of a one-time query: a plan from what is known, without reading files."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.python_rows import plain_rows
from shedder.queries.answers.text_format import shown, stretch_text
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.precision_targets import target_text
from shedder.queries.one_time.plan import (
    KnownSources,
    OneTimePlan,
    PlanStep,
    ScanEstimate,
    Source,
    TimeRange,
)
from shedder.queries.one_time.plan_execution import within
from shedder.queries.one_time.precision_progress import at_look, claimed, error_of
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.queries.sampling.stratified import stratified_for
from shedder.streams.live_sample import SampleView
from synopses.intervals.sequential_looks import MET_OVER

PLANNED_BY_MIN: Final = 10_000  # A look at a smaller sample costs delta and plans badly.
COUNTED_BY_MIN: Final = 1_000  # Of counts the interval is exact, and so as narrow as it can be.
_SAMPLE: Final = PlanStep(Source.SAMPLE, tuples=0)


def choose(query: BoundQuery, known: KnownSources) -> OneTimePlan:
    """Return the plan that answers a query as cheaply as its target allows.

    Without a target the answer is exact, unless the query itself names a reduction. With one the
    sample is tried first; then the archive is read in part, where it can be, until every value
    meets the target; then in full. An exact step that reads next to nothing goes before all.
    Each look spends its part of delta (synopses.intervals.sequential_looks), the sample's also
    where what follows it is exact: of the intervals that meet a target more miss than of all.
    """
    part, view = known.part, known.sample
    if known.is_soonest:
        return OneTimePlan((known.exact,))
    if part is not None and part.source is Source.REDUCED:
        return _reading(known, "the query says REDUCE BY")
    if query.target is None:
        return _reading(known, "the query has no target")
    if query.reduction is not None and part is None:
        return _reading(known, "REDUCE BY has no effect on what is stored")
    if view is None:
        return _reading(known, "there is no sample")
    if view.first > 0:
        return _reading(known, f"the sample begins at position {view.first:,}")
    stratified = stratified_for(query, view)
    rows = view.rows.num_rows
    is_small = rows < _planned_by_min(query) and stratified is None and not view.is_everything
    if part is not None and is_small:
        return _reading(known, f"a sample of {rows:,} rows is too few to plan by")
    lenient = query if query.contract is not Contract.FAIL else _widening(query)
    evidence = _sampled(query, view, known.stretch)
    error = error_of(query, evidence)
    if 0.0 < error <= 1.0 / MET_OVER:
        evidence = _sampled(query, view, known.stretch, alone=True)
        error = error_of(query, evidence)
    answer = finish(lenient, evidence)
    # How wide a stratified sample is says nothing of what a part of the archive would be.
    share = 0.0 if stratified is not None else rows / max(1, view.population)
    look = ScanEstimate(evidence, error, share)
    if answer.met or look.error <= 1.0:
        bounded = "" if answer.met else " that has a bound"
        reason = f"every value of the sample{bounded} meets the target"
        return OneTimePlan((replace(_SAMPLE, reason=reason),), look, answer)
    if part is not None and view.extremes is not None and not known.has_extremes:
        alone = _sampled(query, replace(view, extremes=None), known.stretch)
        look = replace(look, error=error_of(query, alone))
    if answer.met is None:
        return _reading(known, "the sample has no row to estimate from", look, answer)
    return _reading(known, f"the sample misses: {_worst(answer)}", look, answer)


def explained(query: BoundQuery, known: KnownSources, plan: OneTimePlan) -> str:
    """Return a plan as EXPLAIN prints it, a line per fact."""
    first, *later = plan.steps
    lines = [("source", first.text), ("because", first.reason)]
    if first.tuples is not None:
        lines.append(("reads", f"{first.tuples:,} tuples"))
    lines += [("then", f"{each.text}, {each.reason} ({each.tuples:,} tuples)") for each in later]
    lines.append(("target", target_text(query)))
    lines.append(("stretch", stretch_text(known.stretch.start_us, known.stretch.end_us)))
    if not known.is_soonest:
        lines += _sample_lines(query, known.sample)
        if plan.predicted is not None:
            lines += [("predicted", line) for line in _predicted(plan.predicted)]
        if first.source in (Source.PART, Source.REDUCED):
            lines.append(("reduced", f"by {first.name}"))
        lines.append(("archive", known.archive))
    if plan.steps[-1].detail:
        lines.append((plan.steps[-1].source.name.lower(), plan.steps[-1].detail))
    return "\n".join(f"{name + ':':<11}{text}" for name, text in lines)


def _reading(
    known: KnownSources,
    reason: str,
    look: ScanEstimate | None = None,
    predicted: Answer | None = None,
) -> OneTimePlan:
    """The plan that reads the archive: in part, where it can be, and then exactly."""
    if known.part is None:
        return OneTimePlan((replace(known.exact, reason=reason),), look, predicted)
    exact = replace(known.exact, reason="if no part suffices")
    return OneTimePlan((replace(known.part, reason=reason), exact), look, predicted)


def _planned_by_min(query: BoundQuery) -> int:
    """Rows that a sample must have to say how many are needed."""
    counts = all(each.function is AggregateFunction.COUNT for each in query.aggregates)
    return COUNTED_BY_MIN if counts and not query.groups else PLANNED_BY_MIN


def _sampled(
    query: BoundQuery, view: SampleView, stretch: TimeRange, *, alone: bool = False
) -> Evidence:
    """What the sample says as the first look; alone: it met the target many times over."""
    first_look = at_look(query, 0, alone=alone)
    evidence = evidence_from_sample(
        first_look, view, start_us=stretch.start_us, end_us=stretch.end_us
    )
    return within(claimed(query, 0, evidence, alone=alone), stretch)


def _widening(query: BoundQuery) -> BoundQuery:
    return replace(query, contract=Contract.WIDEN)


def _sample_lines(query: BoundQuery, view: SampleView | None) -> list[tuple[str, str]]:
    if view is None:
        return []
    rows = f"{view.rows.num_rows:,} of {view.population:,} rows"
    lines = [("sample", f"{rows}, {view.rows.nbytes:,} bytes")]
    if view.extremes is not None:
        rows = f"{view.extremes.rows.num_rows:,} rows beyond an end of a column"
        lines.append(("extremes", f"{rows}, {view.extremes.rows.nbytes:,} bytes"))
    stratified = stratified_for(query, view)
    if stratified is not None:
        rows = f"{stratified.rows.num_rows:,} rows by {', '.join(stratified.columns)}"
        lines.append(("strata", f"{rows}, {stratified.rows.nbytes:,} bytes"))
    return lines


def _worst(answer: Answer) -> str:
    """The first value that misses, in words."""
    for name in answer.approximate:
        flags = answer.table[name + "_met"].to_pylist()
        if False in flags:
            return f"{name} is {_cell(answer, flags.index(False), name)}"
    raise AssertionError(answer)


def _predicted(answer: Answer) -> list[str]:
    if answer.table.num_rows == 0:
        return ["no rows"]
    return [f"{name}: {_cell(answer, 0, name)} in the first row" for name in answer.approximate]


def _cell(answer: Answer, at: int, name: str) -> str:
    [row] = plain_rows(answer.table.slice(at, 1))
    if name + "_low" not in row:
        return "a list"
    ends = row[name + "_low"], row[name + "_high"]
    return shown(row[name], *ends, row[name + "_bound"], answer.confidence)
