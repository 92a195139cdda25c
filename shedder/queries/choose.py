"""One-time queries: the live sample when it meets the target, else the exact answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from shedder.cql.query import BoundQuery
from shedder.cql.statement import Contract
from shedder.errors import BudgetExceeded, DeadlineExceeded, PrecisionUnavailable
from shedder.queries.answer import Answer
from shedder.queries.evidence import Evidence
from shedder.queries.finish import finish
from shedder.queries.from_sample import evidence_from_sample
from shedder.queries.printing import shown, stretch_text
from shedder.queries.targets import target_text
from shedder.streams.sample import SampleView


class Source(Enum):
    """Where a one-time answer comes from."""

    SAMPLE = "the live sample"
    EXACT = "the archive and the tail, exactly"


@dataclass(frozen=True, slots=True)
class Stretch:
    """What of the stream a one-time query is over, and how far the stream has come.

    start_us, end_us: event time, half open; None is open. complete: the watermark has passed
    end_us, or there is no end.
    """

    start_us: int | None = None
    end_us: int | None = None
    watermark_us: int | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen source, why, and the sample's answer where it was computed for the choice."""

    source: Source
    reason: str
    sampled: Answer | None = None


EVERYTHING = Stretch()


def answer_once(
    query: BoundQuery,
    view: SampleView | None,
    exact: Callable[[], Evidence],
    stretch: Stretch = EVERYTHING,
) -> Answer:
    """Answer a query once, as cheaply as its target allows.

    Without a target the answer is exact. With one the sample is tried first, and the archive is
    read when some value misses. Looking at the sample first costs no confidence: what replaces its
    answer is exact, so a reported value is wrong only if its sample's interval was.

    Args:
      query: any query.
      view: the stream's sample, of all its tuples; None where there is none.
      exact: computes the exact evidence; called at most once.
      stretch: what of the stream the query is over.

    Raises:
      PrecisionUnavailable: the target is missed, the contract is FAIL, and the exact answer takes
        more time or memory than there is.
      DeadlineExceeded, BudgetExceeded: the same without a sample or target, or where the contract
        is EXACT.
    """
    choice = choose(query, view, stretch)
    if choice.source is Source.SAMPLE:
        assert choice.sampled is not None
        return choice.sampled
    try:
        return finish(query, _within(exact(), stretch))
    except (DeadlineExceeded, BudgetExceeded) as error:
        if choice.sampled is None or query.contract is Contract.EXACT:
            raise
        if query.contract is Contract.FAIL:
            raise PrecisionUnavailable(
                f"the sample misses {target_text(query)}, and the archive cannot be read: {error}"
            ) from error
        assert view is not None
        note = f"the archive could not be read ({error}); this is what the sample knows"
        evidence = _sampled(query, view, stretch)
        return finish(query, replace(evidence, notes=(*evidence.notes, note)))


def choose(query: BoundQuery, view: SampleView | None, stretch: Stretch = EVERYTHING) -> Choice:
    """Choose the source of a one-time answer."""
    if query.target is None:
        return Choice(Source.EXACT, "the query has no target")
    if view is None:
        return Choice(Source.EXACT, "there is no sample")
    if view.first > 0:
        return Choice(Source.EXACT, f"the sample begins at position {view.first:,}")
    lenient = query if query.contract is not Contract.FAIL else _widening(query)
    answer = finish(lenient, _sampled(query, view, stretch))
    if answer.met:
        return Choice(Source.SAMPLE, "every value of the sample meets the target", answer)
    if answer.met is None:
        return Choice(Source.EXACT, "the sample has no row to estimate from", answer)
    return Choice(Source.EXACT, f"the sample misses: {_worst(answer)}", answer)


def explain_once(query: BoundQuery, view: SampleView | None, stretch: Stretch = EVERYTHING) -> str:
    """What `answer_once` would do, a line per fact."""
    choice = choose(query, view, stretch)
    lines = [
        ("source", choice.source.value),
        ("because", choice.reason),
        ("target", target_text(query)),
        ("stretch", stretch_text(stretch.start_us, stretch.end_us)),
    ]
    if view is not None:
        rows = f"{view.rows.num_rows:,} of {view.population:,} rows"
        lines.append(("sample", f"{rows}, {view.rows.nbytes:,} bytes"))
    if choice.sampled is not None:
        lines += [("predicted", line) for line in _predicted(choice.sampled)]
    return "\n".join(f"{name + ':':<11}{text}" for name, text in lines)


def _sampled(query: BoundQuery, view: SampleView, stretch: Stretch) -> Evidence:
    evidence = evidence_from_sample(query, view, start_us=stretch.start_us, end_us=stretch.end_us)
    return _within(evidence, stretch)


def _within(evidence: Evidence, stretch: Stretch) -> Evidence:
    return replace(
        evidence,
        start_us=stretch.start_us,
        end_us=stretch.end_us,
        watermark_us=stretch.watermark_us,
        complete=stretch.complete,
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
    row = answer.table.slice(at, 1).to_pylist()[0]
    if name + "_low" not in row:
        return "a list"
    ends = row[name + "_low"], row[name + "_high"]
    return shown(row[name], *ends, row[name + "_bound"], answer.confidence)
