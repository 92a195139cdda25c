"""Audits: a standing query's answer beside the exact one, value by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    JOINS,
    LISTS,
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Call,
    Op,
)
from shedder.cql.expressions.histograms import counts_of, is_histogram
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract, Output
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.text_format import shown
from shedder.queries.certification.certification import AuditSample, may_miss
from shedder.queries.certification.claims import Case, Key
from shedder.queries.certification.value_verdict import (
    Claim,
    Verdict,
    judge_listed,
    judge_promise,
    judge_value,
)

BY_HASH = JOINS | SET_FUNCTIONS | {AggregateFunction.COUNT_DISTINCT}
"""Functions whose randomness is of hashes of values, which stay from window to window."""

_SPREAD = frozenset({AggregateFunction.VAR, AggregateFunction.STDDEV})
_SUMMED = frozenset({AggregateFunction.SUM, AggregateFunction.AVG})


def measured_closely(aggregate: Aggregate, claim: Claim) -> bool:
    """Return whether it is known how far rounding may take a value from the truth."""
    function = aggregate.function
    return function not in OF_PAIRS and not (claim.bound == "exact" and function in _SPREAD)


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """One value beside the truth. name: of the output. certain: a miss cannot be chance."""

    name: str
    key: Key
    aggregate: Aggregate
    verdict: Verdict
    certain: bool

    @property
    def fresh(self) -> bool:
        """Return whether its interval may miss by chance, and of these tuples alone."""
        is_interval = self.verdict.claim.bound == "interval" and not self.certain
        return is_interval and self.aggregate.function not in BY_HASH


def chances(query: BoundQuery, answer: Answer) -> int:
    """Return the number of intervals of an answer that may miss the truth by chance."""
    table, most = answer.table, 0
    for output in query.outputs:
        expression = output.expression
        buckets = counts_of(expression) if is_histogram(expression) else ()
        if not (buckets or isinstance(expression, Aggregate)):
            continue
        said = table.filter(pc.equal(table[output.name + "_bound"], pa.scalar("interval")))[
            output.name
        ]
        match expression:
            case Aggregate(function=function) if function in LISTS:  # Items, and which these are.
                most += len(pc.list_flatten(said)) + len(said)
            case _:
                most += len(said) * max(1, len(buckets))
    return most


def exact_query(query: BoundQuery) -> BoundQuery:
    """The query whose exact answer a query's answers are compared with.

    It has every group, and beside each sum and average of doubles what rounding is measured by.
    """
    outputs, aggregates = list(query.outputs), list(query.aggregates)
    for aggregate in query.aggregates:
        for name, part in _for_rounding(aggregate, query.aggregates.index(aggregate)):
            outputs.append(Output(name, part))
            aggregates += [] if part in aggregates else [part]
    return replace(
        without_decisions(query),
        outputs=tuple(outputs),
        aggregates=tuple(aggregates),
        thinning=0,
        costing=None,
    )


def without_decisions(query: BoundQuery) -> BoundQuery:
    """The query with every group, and every value whatever its width."""
    return replace(query, having=None, order=(), limit=None, target=None, contract=Contract.WIDEN)


def compared(query: BoundQuery, answer: Answer, exactly: Answer) -> list[ComparedValue]:
    """Judge each value of an answer.

    Args:
      query: that was asked.
      answer: to it; its groups can be told by its outputs (`Case.judgeable`).
      exactly: the answer to `exact_query`, over the same tuples.
    """
    case, truth = Case(0, query, answer), Case(0, exact_query(query), exactly)
    found: list[ComparedValue] = []
    for name, aggregate in case.aggregates():
        truths: dict[Key, Claim] = dict(truth.claims(name))
        at = query.aggregates.index(aggregate)
        extra = {part: dict(truth.claims(part)) for part, _ in _for_rounding(aggregate, at)}
        for key, claim in case.claims(name):
            if key in truths and truths[key].bound != "exact":
                continue
            rounding = {part: claims[key].value for part, claims in extra.items() if key in claims}
            true = truths[key].value if key in truths else None
            certain = claim.bound == "exact" or answer.confidence >= 1.0
            for verdict in _verdicts(aggregate, at, claim, true, rounding):
                sure = certain or verdict.claim.bound == "exact"
                found.append(ComparedValue(name, key, aggregate, verdict, sure))
    return found


def chooses(query: BoundQuery) -> bool:
    """Return whether an answer shows rows because of their values, and so may show none."""
    return query.having is not None or query.limit is not None


def look_at(
    published: list[ComparedValue],
    strict: list[ComparedValue],
    confidence: float,
    *,
    chosen: bool = False,
    placed: bool | None = None,
) -> AuditSample | None:
    """What comparing one answer says; None: it had no value to compare.

    Args:
      published: the values that the query's users were told, as they were told them.
      strict: those of all groups, with intervals that were asked for at the strict confidence.
      confidence: of the published intervals.
      chosen: the query `chooses` its rows; an answer without any is a look as well.
      placed: whether each row that is `certain` is in its place (`places_hold`).
    """
    promised = [one for one in published if one.verdict.claim.bound != "none"]
    if not promised and not chosen and placed is None:
        return None
    wrong = [one for one in promised if one.certain and not one.verdict.held]
    wrong += [one for one in strict if not one.verdict.held and one.verdict.claim.bound != "none"]
    fresh = [one for one in promised if one.fresh]
    places = 0 if placed is None else 1
    return AuditSample(
        len(promised) + places,
        sum(not one.verdict.held for one in promised) + places * (not placed),
        len(fresh),
        sum(not one.verdict.held for one in fresh),
        may_miss(confidence),
        _refuted(wrong[0]) if wrong else "",
        chosen,
        placed,
    )


def _refuted(one: ComparedValue) -> str:
    claim = one.verdict.claim
    group = "" if not one.key else f" of {', '.join(map(str, one.key))}"
    said = shown(claim.value, claim.low, claim.high, claim.bound)
    return f"{one.name}{group} was said to be {said}, and is {shown(one.verdict.truth)}"


def _for_rounding(aggregate: Aggregate, at: int) -> Iterator[tuple[str, Aggregate]]:
    """Names and aggregates by which the rounding of one aggregate of doubles is measured."""
    x = aggregate.argument
    if x is None:
        return
    if aggregate.function in _SUMMED and x.type is ColumnType.DOUBLE:
        total = Call(Op.ABS, (x,), ColumnType.DOUBLE)
        yield (
            f"__absolute{at}",
            Aggregate(AggregateFunction.SUM, total, type=ColumnType.DOUBLE),
        )
        yield f"__count{at}", Aggregate(AggregateFunction.COUNT, x, type=ColumnType.BIGINT)


def _verdicts(
    aggregate: Aggregate, at: int, claim: Claim, truth: Any, rounding: Mapping[str, Any]
) -> list[Verdict]:
    match aggregate.function:
        case AggregateFunction.TOP:
            most = int(aggregate.parameter or 0)
            return judge_listed(claim, _counts(truth), complete=len(truth or []) < most)
        case AggregateFunction.FREQUENT:
            assert aggregate.promise is not None, aggregate
            counts = _counts(truth)
            items = judge_listed(claim, counts, complete=False)
            return [*items, judge_promise(claim, list(counts), aggregate.promise)]
        case _ if not measured_closely(aggregate, claim):
            return []
        case function:
            absolute = rounding.get(f"__absolute{at}") or 0.0
            rows = rounding.get(f"__count{at}") or 0
            if truth is None and function in _COUNTS:
                truth = 0
            return [judge_value(function, claim, truth, None, float(absolute), int(rows))]


_COUNTS = JOINS | {
    AggregateFunction.COUNT,
    AggregateFunction.COUNT_DISTINCT,
    AggregateFunction.DISTINCT_BOTH,
    AggregateFunction.DISTINCT_ONLY,
}


def _counts(items: Any) -> dict[Any, int]:
    return {item["value"]: item["count"] for item in items or []}
