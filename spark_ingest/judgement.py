"""The judge: cases and facts to verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from shedder.cql.expressions.expression import JOINS, Aggregate, AggregateFunction
from shedder.queries.certification.audit import ComparedValue
from shedder.queries.certification.claims import Case, Key, aggregate_name
from shedder.queries.certification.value_verdict import (
    Claim,
    Ranks,
    Verdict,
    judge_items,
    judge_promise,
    judge_quantile,
    judge_top,
    judge_value,
)
from spark_ingest.cases import Facts, made_of
from spark_ingest.exact_counts import Truths
from spark_ingest.scores import MISSING, PLACES, GroupCount, Judged, Made
from spark_ingest.workload import ANYTHING


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts, how many claimed values no truth was found for, and what became of groups."""

    judged: tuple[Judged, ...]
    unjudged: int
    groups: GroupCount


_NO_SHAPES: Mapping[str, str] = MappingProxyType({})
_NO_PLACES: Mapping[int, bool] = MappingProxyType({})


def judge(
    cases: Iterable[Case],
    truths: Truths,
    shapes: Mapping[str, str] = _NO_SHAPES,
    places: Mapping[int, bool] = _NO_PLACES,
) -> Judgement:
    """Judge every claim of every case: values, items, certain rows, the bound on missing groups.

    Args:
      cases: answered questions.
      truths: what Spark found about them.
      shapes: of the stream's columns, in words, to tell verdicts apart by.
      places: by number of the case, as of `places_by_case`.
    """
    judged: list[Judged] = []
    unjudged, groups = 0, GroupCount()
    for case in cases:
        if not case.judgeable:
            unjudged += case.answer.table.num_rows * len(case.answer.approximate)
            continue
        unjudged += len(case.answer.approximate) if case.answer.others is not None else 0
        judged += [
            _judged(case, one, made_of(case, one.aggregate, shapes))
            for one in compared(case, truths)
        ]
        judged += _missing(case, truths, groups)
        if case.number in places:
            judged.append(_placed(case, holds=places[case.number]))
    return Judgement(tuple(judged), unjudged, groups)


def compared(case: Case, truths: Truths) -> Iterator[ComparedValue]:
    """Each value of a judgeable case beside what Spark found about it."""
    groups = truths.groups(case)
    anything = case.query.target is not None and case.query.target.size >= ANYTHING
    for name, aggregate in case.aggregates():
        for key, said in case.claims(name):
            claim = replace(said, met=None) if anything else said
            facts = groups.get(key, {}).get(name, {})
            certain = claim.bound == "exact" or case.answer.confidence >= 1.0
            for verdict in _verdicts(aggregate, claim, facts, case):
                sure = certain or verdict.claim.bound == "exact"
                yield ComparedValue(name, key, aggregate, verdict, sure)


def _judged(case: Case, one: ComparedValue, made: Made) -> Judged:
    return Judged(
        case.number,
        _printed(one.key),
        aggregate_name(one.aggregate),
        case.source(one.aggregate),
        1.0 if one.verdict.claim.bound == "exact" else case.answer.confidence,
        one.verdict,
        made,
    )


def _verdicts(aggregate: Aggregate, claim: Claim, facts: Facts, case: Case) -> list[Verdict]:
    target = case.query.target
    match aggregate.function:
        case AggregateFunction.QUANTILE:
            ranks = Ranks(**facts) if facts else Ranks(0, 0, 0, 0, 0)
            return [judge_quantile(claim, aggregate.parameter or 0.0, ranks, target)]
        case AggregateFunction.TOP:
            counts = _counts(claim, facts)
            listed = judge_top(claim, counts, _outside(claim, facts), int(aggregate.parameter or 0))
            return [*judge_items(claim, counts, target), listed]
        case AggregateFunction.FREQUENT:
            assert aggregate.promise is not None, aggregate
            listed = judge_promise(claim, facts.get("frequent") or [], aggregate.promise)
            return [*judge_items(claim, _counts(claim, facts), target), listed]
        case AggregateFunction.SUM | AggregateFunction.AVG:
            return [_total(aggregate.function, claim, facts, case)]
        case (
            AggregateFunction.COUNT
            | AggregateFunction.COUNT_DISTINCT
            | AggregateFunction.DISTINCT_BOTH
            | AggregateFunction.DISTINCT_ONLY
        ) as function:
            return [judge_value(function, claim, facts.get("value") or 0, target)]
        case function if function in JOINS:
            return [judge_value(function, claim, facts.get("value") or 0.0, target)]
        case function:
            scale = float(facts.get("scale") or 0.0)
            return [judge_value(function, claim, facts.get("value"), target, scale)]


def _counts(claim: Claim, facts: Facts) -> dict[Any, int]:
    """Return the true count of each value of a list; NaN is None among the facts."""
    found = facts.get("counts") or {}
    values = [item["value"] for item in claim.value or []]
    return {v: found.get(None if v != v else v, 0) for v in values}  # noqa: PLR0124 (NaN)


def _outside(claim: Claim, facts: Facts) -> int:
    """Return how often the most frequent value is there that a list of TOP lacks."""
    listed = {None if v != v else v for v in (item["value"] for item in claim.value or [])}  # noqa: PLR0124 (NaN)
    best = facts.get("best") or {}
    return max((count for value, count in best.items() if value not in listed), default=0)


def _total(function: AggregateFunction, claim: Claim, facts: Facts, case: Case) -> Verdict:
    count, total = facts.get("count") or 0, facts.get("sum")
    absolute = float(facts.get("absolute") or 0.0)
    if function is AggregateFunction.SUM:
        truth = total if total is None or isinstance(total, float) else _bigint(int(total))
        return judge_value(function, claim, truth, case.query.target, absolute, count)
    mean = None if total is None or not count else float(total) / count
    return judge_value(function, claim, mean, case.query.target, absolute, count)


def _missing(case: Case, truths: Truths, count: GroupCount) -> Iterator[Judged]:
    """Judge the largest missing group against the answer's bound, and count missing groups."""
    query = case.query
    if not query.groups or query.having is not None or query.limit is not None:
        return
    if case.answer.others is not None:
        return
    answered = set(case.keys())
    absent = [
        facts[""]["rows"] for key, facts in truths.groups(case).items() if key not in answered
    ]
    bound, source = case.answer.missing, "+".join(case.answer.sources) or "unknown"
    least = 0.0 if bound is None else bound.weight_max
    declared = sum(least is None or rows < least for rows in absent)
    count.add(there=len(truths.groups(case)), absent=len(absent), declared=declared)
    if bound is not None and bound.weight_max is None:
        return
    # "None of weight_max tuples or more": the largest missing one must be smaller.
    high = 0 if bound is None else math.nextafter(bound.weight_max or 0.0, 0.0)
    kind = "exact" if bound is None or (bound.confidence >= 1.0 and high == 0) else "interval"
    verdict = judge_value(
        AggregateFunction.COUNT, Claim(0, 0, high, kind, None), max(absent, default=0), None
    )
    yield Judged(
        case.number, "", MISSING, source, 1.0 if bound is None else bound.confidence, verdict
    )


def _placed(case: Case, *, holds: bool) -> Judged:
    """Judge the claim that no row that is `certain` is out of its place: one claim a case."""
    source, claim = "+".join(case.answer.sources) or "unknown", Claim(0, 0, 0, "interval", None)
    verdict = judge_value(AggregateFunction.COUNT, claim, 0 if holds else 1, None)
    return Judged(case.number, "", PLACES, source, case.answer.confidence, verdict)


def _bigint(total: int) -> int | None:
    """A sum of integers is NULL beyond BIGINT."""
    return total if -(2**63) <= total < 2**63 else None


def _printed(key: Key) -> str:
    return ", ".join("NULL" if part is None else str(part) for part in key)
