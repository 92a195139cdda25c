"""Covariance, correlation and regression from a sample: crosswise, from bounds of variances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.queries.evidence.covariance_bounds import (
    BOUNDS,
    always_bounded,
    cross_answer,
    from_scaled,
    intercept,
)
from shedder.queries.sampling.sampled_query import Sampled
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.variance import sampled_variance
from synopses.model.estimate import Bound, Estimates
from synopses.moments.covariance import GroupedCrossMoments

_SOURCE = "sample"
_UNSEEN = "too few sampled rows match, or the range of a column has no end"


def sampled_cross(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """A function of pairs for each group.

    With u and v, x and y shifted and scaled to the middle and width of their known ranges:
    4 cov(u, v) = var(u + v) - var(u - v). Each variance has its interval (sampled_variance) at an
    equal part of delta, so by the union bound all hold at once, and with them what is made of
    their ends. Without a finite range, or where a variance that is divided by may be 0: none, but
    of a correlation [-1, 1].
    """
    first, second = aggregate.argument, aggregate.second
    assert first is not None, aggregate
    assert second is not None, aggregate
    pairs = sampled.rows.pairs(first, second)
    groups = sampled.groups.count
    ids = sampled.groups.ids if pairs.rows is None else sampled.groups.ids[pairs.rows]
    small = ids.astype(np.int32)
    moments = GroupedCrossMoments(groups)
    moments.update(small, pairs.first, pairs.second)
    found = cross_answer(aggregate.function, moments)
    if sampled.is_everything:
        return found
    ranges = sampled.range(first), sampled.range(second)
    low = high = np.full(groups, np.nan)
    if np.isfinite(ranges).all():
        scaled = [
            (values - (ends[0] / 2 + ends[1] / 2)) / _width(ends)
            for values, ends in zip((pairs.first, pairs.second), ranges, strict=True)
        ]
        u, v = scaled
        each = split_confidence(confidence, BOUNDS[aggregate.function])

        def sample(values: NDArray[np.float64], ends: tuple[float, float]) -> SampledValues:
            return SampledValues.by_group(
                values,
                ids=small,
                groups=groups,
                population=sampled.population,
                read=sampled.read,
                low=ends[0],
                high=ends[1],
            )

        def variance(values: NDArray[np.float64], end: float) -> Intervals:
            return sampled_variance(sample(values, (-end, end)), confidence=each)

        plus, minus = variance(u + v, 1.0), variance(u - v, 1.0)
        ends = (plus.low - minus.high) / 4.0, (plus.high - minus.low) / 4.0
        below = [variance(part, 0.5) for part in (u, v)]
        low, high = from_scaled(
            aggregate.function,
            ends,
            [(part.low, part.high) for part in below],
            widths=(_width(ranges[0]), _width(ranges[1])),
            pairs=moments.sums().pairs,
        )
        if aggregate.function is AggregateFunction.REGR_INTERCEPT:
            means = [
                sampled_mean(sample(values, ends), confidence=each)
                for values, ends in zip((pairs.first, pairs.second), ranges, strict=True)
            ]
            low, high = intercept((low, high), *((mean.low, mean.high) for mean in means))
    unknown = np.isnan(low) | np.isnan(high)
    column = Estimates(
        found.value,
        np.where(unknown, -np.inf, np.where(found.null, low, np.minimum(low, found.value))),
        np.where(unknown, np.inf, np.where(found.null, high, np.maximum(high, found.value))),
        np.where(unknown, np.uint8(Bound.NONE), np.uint8(Bound.INTERVAL)),
        found.null,
        confidence,
        _SOURCE,
        _UNSEEN if unknown.any() else "",
    )
    return always_bounded(aggregate.function, column, finite=bool(np.isfinite(ranges).all()))


def _width(ends: tuple[float, float]) -> float:
    return max(ends[1] / 2 - ends[0] / 2, 5e-324) * 2
