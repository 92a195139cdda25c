"""Evidence at a share of its delta, around the values that it had before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Expression
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.evidence.confidence_budget import aggregates_of
from shedder.queries.evidence.evidence import Evidence
from synopses.model.estimate import Bound, Estimates

Rows = NDArray[np.int64]

_DELTA_MIN: Final = 1e-12  # 1 less a part of it must be below 1.


def at_delta_share(
    query: BoundQuery,
    evidence: Evidence,
    share: float,
    nodes: Iterable[Expression],
    rows: Rows | None = None,
) -> Evidence:
    """Ask the aggregates of some expressions again at a part of delta; values stay.

    Intervals claim all of delta. What cannot be asked again claims less: by the part that it
    should have been asked at.

    rows: some groups, in this order; None: all.
    """
    again, delta = evidence.again, 1.0 - query.confidence
    before = found = evidence if rows is None else evidence.take(rows)
    of = {part for node in nodes for part in aggregates_of(node)}
    if again is not None and share < 1.0:
        found = again(min(1.0, max(share, _DELTA_MIN / delta)), of, rows)
    estimates = dict(before.estimates)
    for aggregate in of:
        column = before.estimates[aggregate]
        estimates[aggregate] = _claimed(column, found.estimates[aggregate], share)
    return replace(
        before, estimates=estimates, rank_errors=found.rank_errors, missing=found.missing
    )


def with_rows(evidence: Evidence, rows: Rows, some: Evidence) -> Evidence:
    """Replace some groups by those of other evidence; the claims are for these alone."""
    estimates = {
        aggregate: _put(column, rows, some.estimates[aggregate])
        for aggregate, column in evidence.estimates.items()
    }
    rank_errors = dict(evidence.rank_errors)
    for aggregate, errors in some.rank_errors.items():
        whole = rank_errors.get(aggregate)
        if whole is not None:
            rank_errors[aggregate] = whole.copy()
            rank_errors[aggregate][rows] = errors
    return replace(evidence, estimates=estimates, rank_errors=rank_errors, missing=some.missing)


def _put(column: Estimates, rows: Rows, some: Estimates) -> Estimates:
    value, low, high, bound, null = (
        _placed(whole, rows, part)
        for whole, part in (
            (column.value, some.value),
            (column.low, some.low),
            (column.high, some.high),
            (column.bound, some.bound),
            (column.null, some.null),
        )
    )
    return replace(some, value=value, low=low, high=high, bound=bound, null=null)


def _placed(whole: NDArray[Any], rows: Rows, part: NDArray[Any]) -> NDArray[Any]:
    placed = whole.astype(np.result_type(whole, part))
    placed[rows] = part
    return placed


def _claimed(before: Estimates, found: Estimates, share: float) -> Estimates:
    """Return an estimate that was asked at a part of delta, around the value of before."""
    delta = 1.0 - before.confidence
    confidence = before.confidence
    if 1.0 - found.confidence > delta * share * (1 + 1e-3):
        confidence = max(0.0, 1.0 - (1.0 - found.confidence) / share)
    bound = found.bound
    if confidence <= 0.0:
        bound = np.where(bound == Bound.INTERVAL, np.uint8(Bound.NONE), bound)
    if found.value.dtype == np.dtype(object):
        return replace(found, bound=bound, confidence=confidence)
    with np.errstate(invalid="ignore"):
        low, high = np.minimum(found.low, before.value), np.maximum(found.high, before.value)
    low, high = (
        np.where(before.null, end, inside) for end, inside in ((found.low, low), (found.high, high))
    )
    return replace(before, low=low, high=high, bound=bound, confidence=confidence)
