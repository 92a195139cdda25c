"""Estimators of panes that were read in full: the synopsis has all values of the window."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import OF_PAIRS, Aggregate, AggregateFunction
from shedder.queries.evidence.confidence_budget import EXACT_IN_PANES
from shedder.queries.evidence.covariance_bounds import cross_answer
from shedder.queries.evidence.estimators import Estimator, Estimators
from shedder.queries.sampling.delta_by_group import at_parts
from shedder.streams.batches import TIME_MAX_US, TIME_MIN_US
from synopses.counters.count_min import GroupedCountMin
from synopses.counters.join_size import join_size, self_join_size
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.frequent.top_lists import NONE_COUNTED
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.intervals.seen_groups import shown_delta
from synopses.model.estimate import Bound, Estimates
from synopses.moments.covariance import CrossSums, GroupedCrossMoments
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.rank_sketches import RankSketches
from synopses.theta.set_operations import Compared
from synopses.theta.theta_sketch import GroupedTheta

_EXACT_INTEGER = 1 << 53  # Above it, a float64 does not tell neighbouring integers apart.


@dataclass(frozen=True, slots=True, eq=False)
class FullPart:
    """A part of a window: the synopsis of all its values.

    partner: synopsis of JOIN_SIZE's second argument, or of the second set of SET_FUNCTIONS.
    shown_by_chance: whether theta sketches were thinned, so that their values show the groups.
    """

    synopsis: Any
    partner: Any = None
    shown_by_chance: bool = field(default=False, kw_only=True)

    def is_certain(self, aggregate: Aggregate) -> bool:
        """Return whether the synopsis keeps the aggregate exactly."""
        return aggregate.function in EXACT_IN_PANES

    def estimate(self, aggregate: Aggregate, confidence: float) -> Estimates:
        """Estimate an aggregate of each group, in the aggregate's type."""
        estimator = FULL.answered[aggregate.function].estimate
        if not self.shown_by_chance:
            return estimator(self, aggregate, confidence)
        # Either sketch alone shows a group: the smaller part of delta holds by that one.
        sides = (self.synopsis, self.partner)
        each = [shown_delta(side.held, side.shares, confidence=confidence) for side in sides]
        return at_parts(
            np.min(each, axis=0),
            confidence,
            lambda groups, at: estimator(self._only(groups), aggregate, at),
        )

    def _only(self, groups: NDArray[np.int64] | None) -> FullPart:
        """Of some groups, in this order; None: of all."""
        if groups is None:
            return self
        return FullPart(self.synopsis.select(groups), self.partner.select(groups))

    def rank_error(self, aggregate: Aggregate, confidence: float) -> NDArray[np.float64] | None:
        """Return the rank error of a quantile by rank, as a fraction of rank; None for others."""
        if not isinstance(self.synopsis, RankSketches) or aggregate.parameter is None:
            return None
        return self.synopsis.rank_error(aggregate.parameter, confidence)

    @property
    def share_error(self) -> NDArray[np.float64] | None:
        """By what share of a group's values the count of one may be too low; nan: has no values.

        None where no synopsis counts items.
        """
        items = self.synopsis
        if not isinstance(items, GroupedFrequent):
            return None
        return np.where(items.totals > 0, items.error / np.maximum(items.totals, 1), np.nan)

    @property
    def known_counts(self) -> NDArray[np.int64] | None:
        """Return the values that each group of the synopsis (and its partner) holds, if known.

        Of two sets: how many different values there are of either, at the least.
        """
        match self.synopsis:
            case GroupedMoments() | RankSketches():
                return self.synopsis.counts()
            case GroupedLogBuckets():
                return self.synopsis.counts
            case GroupedCountMin():
                totals = self.synopsis.totals()
                return totals if self.partner is None else totals + self.partner.totals()
            case GroupedTheta():
                return self.compared.found
            case _:
                return None

    @property
    def crosses(self) -> CrossSums | None:
        """The sums of pairs of each group, of a synopsis of pairs."""
        return self.synopsis.sums() if isinstance(self.synopsis, GroupedCrossMoments) else None

    def times(self, aggregate: Aggregate) -> NDArray[np.int64] | None:
        """Return the event time of each group's FIRST or LAST."""
        return times_of(self.synopsis, aggregate)

    def quantile(self, aggregate: Aggregate, confidence: float, q: float) -> Estimates:
        """The q-quantile, in the aggregate's type."""
        ranked = isinstance(self.synopsis, RankSketches)
        found = self.synopsis.quantile(q, confidence) if ranked else self.synopsis.quantile(q)
        return in_type(found, aggregate)

    def frequent(self, aggregate: Aggregate, confidence: float, late: int = 0) -> Estimates:  # noqa: ARG002 - bounds are certain
        """The values of a share; `late` more tuples are allowed for."""
        assert aggregate.parameter is not None, aggregate
        assert aggregate.promise is not None, aggregate
        found = self.synopsis.frequent(aggregate.parameter, aggregate.promise, late)
        assert isinstance(found, Estimates)
        return found

    @property
    def compared(self) -> Compared:
        """Both sets of SET_FUNCTIONS."""
        return Compared.of(self.synopsis, self.partner)


def _own_quantile(part: FullPart, aggregate: Aggregate, confidence: float) -> Estimates:
    assert aggregate.parameter is not None, aggregate
    return part.quantile(aggregate, confidence, aggregate.parameter)


def _pairs(part: FullPart, aggregate: Aggregate, _: float) -> Estimates:
    return cross_answer(aggregate.function, part.synopsis)


def times_of(synopsis: Any, aggregate: Aggregate) -> NDArray[np.int64] | None:
    """Return the event time of each group's FIRST or LAST."""
    match aggregate.function:
        case AggregateFunction.FIRST:
            times: NDArray[np.int64] = synopsis.first_times()
        case AggregateFunction.LAST:
            times = synopsis.last_times()
        case _:
            return None
    return times


def in_type(found: Estimates, aggregate: Aggregate) -> Estimates:
    """A quantile of doubles as the aggregate's type."""
    return found if aggregate.type is ColumnType.DOUBLE else _to_integers(found, aggregate.type)


def _top(part: FullPart, aggregate: Aggregate, _: float) -> Estimates:
    assert aggregate.parameter is not None, aggregate
    synopsis, k = part.synopsis, int(aggregate.parameter)
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


FULL: Final[Estimators[FullPart]] = Estimators(
    {
        AggregateFunction.COUNT: Estimator(lambda part, *_: part.synopsis.count()),
        AggregateFunction.SUM: Estimator(lambda part, *_: part.synopsis.sum()),
        AggregateFunction.AVG: Estimator(lambda part, *_: part.synopsis.mean()),
        AggregateFunction.MIN: Estimator(lambda part, *_: part.synopsis.minimum()),
        AggregateFunction.MAX: Estimator(lambda part, *_: part.synopsis.maximum()),
        AggregateFunction.FIRST: Estimator(lambda part, *_: part.synopsis.first()),
        AggregateFunction.LAST: Estimator(lambda part, *_: part.synopsis.last()),
        AggregateFunction.VAR: Estimator(lambda part, *_: part.synopsis.variance()),
        AggregateFunction.STDDEV: Estimator(lambda part, *_: part.synopsis.deviation()),
        **dict.fromkeys(OF_PAIRS, Estimator(_pairs)),
        AggregateFunction.COUNT_DISTINCT: Estimator(lambda part, _, at: part.synopsis.distinct(at)),
        AggregateFunction.QUANTILE: Estimator(_own_quantile),
        AggregateFunction.TOP: Estimator(_top),
        AggregateFunction.FREQUENT: Estimator(FullPart.frequent),
        AggregateFunction.SELF_JOIN_SIZE: Estimator(
            lambda part, _, at: self_join_size(part.synopsis, at)
        ),
        AggregateFunction.JOIN_SIZE: Estimator(
            lambda part, _, at: join_size(part.synopsis, part.partner, at)
        ),
        AggregateFunction.DISTINCT_BOTH: Estimator(
            lambda part, _, at: part.compared.intersection(at)
        ),
        AggregateFunction.DISTINCT_ONLY: Estimator(
            lambda part, _, at: part.compared.difference(at)
        ),
        AggregateFunction.JACCARD: Estimator(lambda part, _, at: part.compared.jaccard(at)),
    },
    refused={},
)
