"""One-time queries: the live sample, the archive in part, or everything, as the target allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract
from shedder.errors import BudgetExceeded, DeadlineExceeded, PrecisionUnavailable
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.python_rows import plain_rows
from shedder.queries.answers.text_format import shown, stretch_text
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.missing_tuple_bounds import of_the_others, without_bounds
from shedder.queries.evidence.precision_targets import target_text
from shedder.queries.one_time.precision_progress import at_look, claimed, error_of
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.queries.sampling.stratified import stratified_for
from shedder.streams.live_sample import SampleView
from synopses.intervals.sequential_looks import MET_OVER


class Source(Enum):
    """Where a one-time answer comes from."""

    SAMPLE = "the live sample"
    PART = "the archive, as much of it as the target needs"
    REDUCED = "the archive, reduced as the query says"
    EXACT = "the archive and the tail, exactly"


@dataclass(frozen=True, slots=True)
class Stretch:
    """What of the stream a one-time query is over, and how far the stream has come.

    start_us, end_us: event time, half open; None is open. complete: the watermark has passed
    end_us, or there is no end. built: tuples of the stream that came as summaries, which standing
    queries alone know. dropped: of this stretch, tuples that were dropped at the door.
    doubted: why no bound holds: it may lack tuples, or have removed ones, of an unknown number;
      empty: its bounds hold.
    """

    start_us: int | None = None
    end_us: int | None = None
    watermark_us: int | None = None
    complete: bool = True
    built: int = 0
    dropped: int = 0
    doubted: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What a part of the tuples said.

    error: see `narrowness.error_of`. share: of all tuples, as a simple random sample; 0 where it
    was none. is_late: there was no time to read on.
    """

    evidence: Evidence
    error: float
    share: float
    is_late: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The chosen source, why, and the sample's answer where it was computed for the choice."""

    source: Source
    reason: str
    sampled: Answer | None = None
    look: Look | None = None


@dataclass(frozen=True, slots=True)
class Partly:
    """A way to read the archive in part.

    read: given a look at the sample, the last look at what was read; None: read everything.
    asked_for: the query names the reduction, and gets it whatever the sample knows.
    reads_on: looks are taken until the target is met, so that each has a part of delta.
    """

    read: Callable[[Look | None], Look | None]
    asked_for: bool
    reads_on: bool


EVERYTHING = Stretch()
_BUILT = "{:,} tuples came as summaries, which standing queries alone know"
_DROPPED = "{:,} tuples were dropped under overload, or before they came, and were not archived"
PLANNED_BY_MIN: Final = 10_000  # A look at a smaller sample costs delta and plans badly.
COUNTED_BY_MIN: Final = 1_000  # Of counts the interval is exact, and so as narrow as it can be.


def answer_once(
    query: BoundQuery,
    view: SampleView | None,
    exact: Callable[[], Evidence],
    stretch: Stretch = EVERYTHING,
    partly: Partly | None = None,
) -> Answer:
    """Answer a query once, as cheaply as its target allows.

    Without a target the answer is exact, unless the query itself names a reduction. With one the
    sample is tried first; then the archive is read in part, where it can be, until every value
    meets the target; then in full. Each look spends its part of delta
    (synopses.intervals.sequential_looks), the sample's also where what follows it is exact: of
    the intervals that meet a target more miss than of all.

    Args:
      query: any query.
      view: the stream's sample, of all its tuples; None where there is none.
      exact: computes the exact evidence; called at most once.
      stretch: what of the stream the query is over.
      partly: reads the archive in part; None where that cannot be.

    Raises:
      PrecisionUnavailable: the target is missed, the contract is FAIL, and the exact answer takes
        more time or memory than there is.
      DeadlineExceeded, BudgetExceeded: the same without a sample or target, or where the contract
        is EXACT.
    """
    choice = choose(query, view, stretch, partly)
    if choice.source is Source.SAMPLE:
        assert choice.sampled is not None
        return choice.sampled
    best = choice.look
    try:
        if partly is not None and choice.source in (Source.PART, Source.REDUCED):
            read = partly.read(choice.look if partly.reads_on else None)
            best = best if read is None else replace(read, evidence=_within(read.evidence, stretch))
            if read is not None and best is not None and _is_final(query, partly, best):
                return finish(query, best.evidence)
        return finish(query, _within(exact(), stretch))
    except (DeadlineExceeded, BudgetExceeded) as error:
        if best is None or query.contract is Contract.EXACT:
            raise
        if query.contract is Contract.FAIL:
            raise PrecisionUnavailable(
                f"what could be read misses {target_text(query)}: {error}"
            ) from error
        what = "sample" if best is choice.look else "part that was read"
        note = f"the archive could not be read ({error}); this is what the {what} knows"
        return finish(query, replace(best.evidence, notes=(*best.evidence.notes, note)))


def choose(
    query: BoundQuery,
    view: SampleView | None,
    stretch: Stretch = EVERYTHING,
    partly: Partly | None = None,
) -> Choice:
    """Choose the source of a one-time answer, or the first one that is read."""
    rest = Source.EXACT if partly is None else Source.PART
    if partly is not None and partly.asked_for:
        return Choice(Source.REDUCED, "the query says REDUCE BY")
    if query.target is None:
        return Choice(Source.EXACT, "the query has no target")
    if view is None:
        return Choice(rest, "there is no sample")
    if view.first > 0:
        return Choice(rest, f"the sample begins at position {view.first:,}")
    stratified = stratified_for(query, view)
    rows = view.rows.num_rows
    is_small = rows < _planned_by_min(query) and stratified is None and not view.is_everything
    if partly is not None and is_small:
        return Choice(Source.PART, f"a sample of {rows:,} rows is too few to plan by")
    lenient = query if query.contract is not Contract.FAIL else _widening(query)
    evidence = _sampled(query, view, stretch)
    error = error_of(query, evidence)
    if 0.0 < error <= 1.0 / MET_OVER:
        evidence = _sampled(query, view, stretch, alone=True)
        error = error_of(query, evidence)
    answer = finish(lenient, evidence)
    # How wide a stratified sample is says nothing of what a part of the archive would be.
    share = 0.0 if stratified is not None else rows / max(1, view.population)
    look = Look(evidence, error, share)
    if answer.met:
        return Choice(Source.SAMPLE, "every value of the sample meets the target", answer, look)
    if look.error <= 1.0:
        why = "every value of the sample that has a bound meets the target"
        return Choice(Source.SAMPLE, why, answer, look)
    if partly is not None and view.extremes is not None:  # A part of the archive has none.
        alone = _sampled(query, replace(view, extremes=None), stretch)
        look = replace(look, error=error_of(query, alone))
    if answer.met is None:
        return Choice(rest, "the sample has no row to estimate from", answer, look)
    return Choice(rest, f"the sample misses: {_worst(answer)}", answer, look)


def _planned_by_min(query: BoundQuery) -> int:
    """Rows that a sample must have to say how many are needed."""
    counts = all(each.function is AggregateFunction.COUNT for each in query.aggregates)
    return COUNTED_BY_MIN if counts and not query.groups else PLANNED_BY_MIN


def _is_final(query: BoundQuery, partly: Partly, look: Look) -> bool:
    """Return whether what was read in part is the answer: for others everything is read."""
    if query.target is None or look.error <= 1.0:
        return True
    return (partly.asked_for or look.is_late) and query.contract is not Contract.EXACT


def explain_once(
    query: BoundQuery,
    view: SampleView | None,
    stretch: Stretch = EVERYTHING,
    partly: Partly | None = None,
) -> str:
    """What `answer_once` would do, a line per fact."""
    choice = choose(query, view, stretch, partly)
    lines = [
        ("source", choice.source.value),
        ("because", choice.reason),
        ("target", target_text(query)),
        ("stretch", stretch_text(stretch.start_us, stretch.end_us)),
    ]
    if view is not None:
        rows = f"{view.rows.num_rows:,} of {view.population:,} rows"
        lines.append(("sample", f"{rows}, {view.rows.nbytes:,} bytes"))
        if view.extremes is not None:
            rows = f"{view.extremes.rows.num_rows:,} rows beyond an end of a column"
            lines.append(("extremes", f"{rows}, {view.extremes.rows.nbytes:,} bytes"))
    stratified = None if view is None else stratified_for(query, view)
    if stratified is not None:
        rows = f"{stratified.rows.num_rows:,} rows by {', '.join(stratified.columns)}"
        lines.append(("strata", f"{rows}, {stratified.rows.nbytes:,} bytes"))
    if choice.sampled is not None:
        lines += [("predicted", line) for line in _predicted(choice.sampled)]
    return "\n".join(f"{name + ':':<11}{text}" for name, text in lines)


def _sampled(
    query: BoundQuery, view: SampleView, stretch: Stretch, *, alone: bool = False
) -> Evidence:
    """What the sample says as the first look; alone: it met the target many times over."""
    asked = at_look(query, 0, alone=alone)
    evidence = evidence_from_sample(asked, view, start_us=stretch.start_us, end_us=stretch.end_us)
    return _within(claimed(query, 0, evidence, alone=alone), stretch)


def _within(evidence: Evidence, stretch: Stretch) -> Evidence:
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


def _widening(query: BoundQuery) -> BoundQuery:
    return replace(query, contract=Contract.WIDEN)


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
