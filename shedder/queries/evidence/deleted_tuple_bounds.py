"""Deleted tuples: intervals widened by tuples that synopses still count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.queries.evidence.evidence import Evidence
from synopses.model.estimate import Bound, Estimates

_REASON = "deleted rows may be among its values"

# One tuple less lowers these by at most one, and raises none of them.
_FEWER = (
    AggregateFunction.COUNT,
    AggregateFunction.COUNT_DISTINCT,
    AggregateFunction.DISTINCT_BOTH,
)


def widen_deleted(evidence: Evidence, rows: int) -> Evidence:
    """Widen every interval so that it allows for deleted tuples which the synopses still count.

    Counts are lowered by all of them. Other aggregates have no bound: any of their values may be
    of a deleted tuple, and none may be left.

    Args:
      evidence: of a window.
      rows: number of deleted tuples that any group may still count, at most; >= 0.
    """
    if not rows:
        return evidence
    return evidence.changed(lambda each: _with_fewer(each, rows))


def _with_fewer(evidence: Evidence, rows: int) -> Evidence:
    estimates = {
        aggregate: _lowered(aggregate, column, rows)
        for aggregate, column in evidence.estimates.items()
    }
    return replace(evidence, estimates=estimates)


def _lowered(aggregate: Aggregate, column: Estimates, rows: int) -> Estimates:
    if aggregate.function not in _FEWER:
        none = np.full(len(column), np.uint8(Bound.NONE))
        return replace(column, bound=none, reason=column.reason or _REASON)
    low = np.maximum(column.low - rows, 0)
    interval = np.maximum(column.bound, np.uint8(Bound.INTERVAL))
    bound = np.where(low < column.low, interval, column.bound)
    return replace(column, low=low, bound=bound)
