"""Estimators of aggregates from one synopsis that has read all tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.queries.evidence.covariance_bounds import cross_answer
from shedder.streams.batches import TIME_MAX_US, TIME_MIN_US
from synopses.counters.count_min import GroupedCountMin
from synopses.counters.join_size import join_size, self_join_size
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.frequent.top_lists import NONE_COUNTED
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.model.estimate import Bound, Estimates
from synopses.moments.covariance import CrossSums, GroupedCrossMoments
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.rank_sketches import RankSketches
from synopses.theta.set_operations import Compared
from synopses.theta.theta_sketch import GroupedTheta

_EXACT_INTEGER = 1 << 53  # Above it, a float64 does not tell neighbouring integers apart.


def ask(synopsis: Any, aggregate: Aggregate, confidence: float, partner: Any = None) -> Estimates:
    """One estimate per group of the synopsis, in the aggregate's type.

    partner: the synopsis of JOIN_SIZE's second argument, or of the second set of SET_FUNCTIONS.
    """
    match aggregate.function:
        case AggregateFunction.COUNT:
            answer = synopsis.count()
        case AggregateFunction.SUM:
            answer = synopsis.sum()
        case AggregateFunction.AVG:
            answer = synopsis.mean()
        case AggregateFunction.MIN:
            answer = synopsis.minimum()
        case AggregateFunction.MAX:
            answer = synopsis.maximum()
        case AggregateFunction.FIRST:
            answer = synopsis.first()
        case AggregateFunction.LAST:
            answer = synopsis.last()
        case AggregateFunction.VAR:
            answer = synopsis.variance()
        case AggregateFunction.STDDEV:
            answer = synopsis.deviation()
        case (
            AggregateFunction.COVAR_POP
            | AggregateFunction.COVAR_SAMP
            | AggregateFunction.CORR
            | AggregateFunction.REGR_SLOPE
            | AggregateFunction.REGR_INTERCEPT
        ):
            answer = cross_answer(aggregate.function, synopsis)
        case AggregateFunction.COUNT_DISTINCT:
            answer = synopsis.distinct(confidence)
        case AggregateFunction.QUANTILE:
            assert aggregate.parameter is not None
            answer = _quantile(synopsis, aggregate, confidence, aggregate.parameter)
        case AggregateFunction.TOP:
            assert aggregate.parameter is not None
            answer = _top(synopsis, int(aggregate.parameter))
        case AggregateFunction.FREQUENT:
            answer = _frequent(synopsis, aggregate)
        case AggregateFunction.SELF_JOIN_SIZE:
            answer = self_join_size(synopsis, confidence)
        case AggregateFunction.JOIN_SIZE:
            answer = join_size(synopsis, partner, confidence)
        case AggregateFunction.DISTINCT_BOTH:
            answer = Compared.of(synopsis, partner).intersection(confidence)
        case AggregateFunction.DISTINCT_ONLY:
            answer = Compared.of(synopsis, partner).difference(confidence)
        case AggregateFunction.JACCARD:
            answer = Compared.of(synopsis, partner).jaccard(confidence)
        case _:
            assert_never(aggregate.function)
    assert isinstance(answer, Estimates)
    return answer


def rank_error(
    synopsis: Any, aggregate: Aggregate, confidence: float
) -> NDArray[np.float64] | None:
    """The rank error of a quantile by rank, as a fraction of rank, per group; None for others."""
    if not isinstance(synopsis, RankSketches) or aggregate.parameter is None:
        return None
    return synopsis.rank_error(aggregate.parameter, confidence)


def share_error(synopsis: Any) -> NDArray[np.float64] | None:
    """By what share of a group's values the count of one may be too low, nan where it has none.

    None where no synopsis counts items.
    """
    if not isinstance(synopsis, GroupedFrequent):
        return None
    return np.where(synopsis.totals > 0, synopsis.error / np.maximum(synopsis.totals, 1), np.nan)


def present_counts(synopsis: Any, partner: Any = None) -> NDArray[np.int64] | None:
    """How many values each group of the synopsis (and its partner) holds, where it knows.

    Of two sets: how many different values there are of either, at the least.
    """
    match synopsis:
        case GroupedMoments() | RankSketches():
            return synopsis.counts()
        case GroupedLogBuckets():
            return synopsis.counts
        case GroupedCountMin():
            totals = synopsis.totals()
            return totals if partner is None else totals + partner.totals()
        case GroupedTheta():
            return Compared.of(synopsis, partner).found
        case _:
            return None


def cross_sums(synopsis: Any) -> CrossSums | None:
    """The sums of pairs of each group, of a synopsis of pairs."""
    return synopsis.sums() if isinstance(synopsis, GroupedCrossMoments) else None


def times_of(synopsis: Any, aggregate: Aggregate) -> NDArray[np.int64] | None:
    """When the value of a FIRST or LAST was, of each group."""
    match aggregate.function:
        case AggregateFunction.FIRST:
            times: NDArray[np.int64] = synopsis.first_times()
        case AggregateFunction.LAST:
            times = synopsis.last_times()
        case _:
            return None
    return times


def quantiles_of(
    synopses: Mapping[Aggregate, Any], confidences: Mapping[Aggregate, float]
) -> dict[Aggregate, Callable[[float], Estimates]]:
    """How to ask other quantiles of the synopses that answer quantiles."""
    return {
        aggregate: partial(_quantile, synopsis, aggregate, confidences[aggregate])
        for aggregate, synopsis in synopses.items()
        if aggregate.function is AggregateFunction.QUANTILE
    }


def _quantile(synopsis: Any, aggregate: Aggregate, confidence: float, q: float) -> Estimates:
    found = (
        synopsis.quantile(q, confidence)
        if isinstance(synopsis, RankSketches)
        else synopsis.quantile(q)
    )
    assert isinstance(found, Estimates)
    return in_type(found, aggregate)


def in_type(found: Estimates, aggregate: Aggregate) -> Estimates:
    """A quantile of doubles as the aggregate's type."""
    return found if aggregate.type is ColumnType.DOUBLE else _to_integers(found, aggregate.type)


def frequents_of(synopses: Mapping[Aggregate, Any]) -> dict[Aggregate, Callable[[int], Estimates]]:
    """How to ask for the same values of a share, with room for late tuples."""
    return {
        aggregate: partial(_frequent, synopsis, aggregate)
        for aggregate, synopsis in synopses.items()
        if aggregate.function is AggregateFunction.FREQUENT
    }


def _frequent(synopsis: GroupedFrequent, aggregate: Aggregate, late: int = 0) -> Estimates:
    assert aggregate.parameter is not None, aggregate
    assert aggregate.promise is not None, aggregate
    return synopsis.frequent(aggregate.parameter, aggregate.promise, late)


def _top(synopsis: GroupedFrequent, k: int) -> Estimates:
    lists = np.empty(synopsis.groups, object)
    items = synopsis.top(k)
    for group, found in enumerate(items):
        lists[group] = found
    certain = np.array([all(i.low == i.high and i.guaranteed for i in found) for found in items])
    sizes, error = np.array([len(found) for found in items], np.int64), synopsis.error
    certain = certain.astype(np.bool_) & ((sizes >= k) | (error == 0))  # Others may be missing.
    lost = (sizes == 0) & (error > 0)
    bound = np.where(certain, Bound.EXACT, np.where(lost, Bound.NONE, Bound.INTERVAL))
    null, reason = np.zeros(len(lists), np.bool_), NONE_COUNTED if lost.any() else ""
    return Estimates(lists, lists, lists, bound.astype(np.uint8), null, 1.0, "frequent", reason)


def _to_integers(column: Estimates, aggregate_type: ColumnType | None) -> Estimates:
    """A quantile of integers is an integer, so the interval's ends move inward to integers."""
    low, high = np.ceil(column.low), np.floor(column.high)
    large = np.maximum(np.abs(low), np.abs(high)) >= _EXACT_INTEGER
    low = np.where(large, np.nextafter(column.low, -np.inf), low)
    high = np.where(large, np.nextafter(column.high, np.inf), high)
    if aggregate_type is ColumnType.TIMESTAMP:  # No time is outside of the years 1 to 9999.
        low, high = np.clip(low, TIME_MIN_US, None), np.clip(high, None, TIME_MAX_US)
    value = np.clip(np.rint(column.value), low, high)
    exact = (low == high) & (column.confidence == 1.0)
    bound = np.where(exact, Bound.EXACT, column.bound)
    # NULL may stay what it is, but a value beyond 2^53 was rounded on its way into the buckets.
    bound = np.where(large & ~column.null, np.maximum(bound, Bound.INTERVAL), bound)
    return Estimates(
        _int64(value), _int64(low), _int64(high), bound.astype(np.uint8), column.null,
        column.confidence, column.source, column.reason,
    )  # fmt: skip


def _int64(values: NDArray[np.float64]) -> NDArray[np.int64]:
    limit = 2.0**63
    finite = np.nan_to_num(values, nan=0.0, posinf=limit, neginf=-limit)
    clipped = np.clip(finite, -limit, np.nextafter(limit, 0))
    # No float64 is the largest int64; what was rounded up to 2^63 may be it.
    return np.where(finite >= limit, np.iinfo(np.int64).max, clipped.astype(np.int64))
