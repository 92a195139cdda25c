"""Confidence budget: the delta of an answer, divided among the estimates that it is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from shedder.cql.expressions.expression import (
    BY_TIME,
    OF_PAIRS,
    Aggregate,
    AggregateFunction,
    Expression,
    walk,
)
from shedder.cql.statements.bound_query import BoundQuery
from synopses.model.estimate import Estimates

# Their intervals, where there are any, are certain: what was read is one end, the known range the
# other. They spend no confidence, whatever was skipped.
CERTAIN_ENDS = frozenset({AggregateFunction.MIN, AggregateFunction.MAX, *BY_TIME})

SLACK = 1e-9  # for comparing sums of shares

# Kept exactly by pane synopses (counts and moments), whatever the query.
EXACT_IN_PANES = frozenset(
    {
        AggregateFunction.COUNT,
        AggregateFunction.SUM,
        AggregateFunction.AVG,
        AggregateFunction.MIN,
        AggregateFunction.MAX,
        AggregateFunction.VAR,
        AggregateFunction.STDDEV,
        *OF_PAIRS,
        *BY_TIME,
    }
)


def aggregates_of(node: Expression) -> Iterator[Aggregate]:
    """The distinct aggregates that an expression is built of, in order of appearance."""
    if isinstance(node, Aggregate):  # It contains no other one.
        yield node
        return
    seen: set[Aggregate] = set()
    for part in walk(node):
        if isinstance(part, Aggregate) and part not in seen:
            seen.add(part)
            yield part


def split_confidence(
    query: BoundQuery,
    exact: Iterable[AggregateFunction] = (),
    certain: Collection[Aggregate] = (),
) -> dict[Aggregate, float]:
    """The confidence at which to ask for each aggregate, so that every output gets the query's.

    An output of m uncertain aggregates holds with probability at least 1 - m * d when each of them
    holds with 1 - d (union bound), so each is asked at 1 - (1 - confidence) / m, at its largest m.

    Args:
      query: any bound query.
      exact: functions that the source knows exactly; they cost no confidence.
      certain: aggregates that the source knows exactly, or between ends that are certain.
    """
    known = frozenset(exact)
    most = dict.fromkeys(query.aggregates, 1)
    decisions = [output.expression for output in query.outputs]
    decisions += [key.expression for key in query.order]
    decisions += [] if query.having is None else [query.having]
    for expression in decisions:
        parts = [
            part
            for part in aggregates_of(expression)
            if part.function not in known and part not in certain
        ]
        for part in parts:
            most[part] = max(most[part], len(parts))
    return {part: 1 - (1 - query.confidence) / count for part, count in most.items()}


def at_share(query: BoundQuery, share: float) -> BoundQuery:
    """The query at a part, in (0, 1], of its delta."""
    return replace(query, confidence=1 - (1 - query.confidence) * share)


def joint_confidence(node: Expression, estimates: Mapping[Aggregate, Estimates]) -> float:
    """With which probability, at least, all intervals below an expression hold (union bound)."""
    parts = (estimates[part] for part in aggregates_of(node))
    return 1 - sum(1 - part.confidence for part in parts if part.bound.any())
