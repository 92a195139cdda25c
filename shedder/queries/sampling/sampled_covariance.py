"""Covariance, correlation and regression from a sample: crosswise, from bounds of variances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, AggregateFunction, as_whole_numbers
from shedder.queries.evidence.covariance_bounds import (
    BOUNDS,
    always_bounded,
    cross_answer,
    from_scaled,
    intercept,
)
from shedder.queries.sampling.anchored_values import anchors_of, distances
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
    columns = [
        _Column.of(values, sampled.range(as_whole_numbers(part)))
        for values, part in ((pairs.first, first), (pairs.second, second))
    ]
    low = high = np.full(groups, np.nan)
    finite = bool(np.isfinite([column.ends for column in columns]).all())
    if finite:
        u, v = (column.scaled for column in columns)
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
                shuffle_seed=sampled.view.shuffle_seed,
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
            widths=(columns[0].width, columns[1].width),
            pairs=moments.sums().pairs,
        )
        if aggregate.function is AggregateFunction.REGR_INTERCEPT:
            means = (
                column.raised(sampled_mean(sample(column.values, column.ends), confidence=each))
                for column in columns
            )
            low, high = intercept((low, high), *means)
    unknown = np.isnan(low) | np.isnan(high)
    answered = Estimates(
        found.value,
        np.where(unknown, -np.inf, np.where(found.null, low, np.minimum(low, found.value))),
        np.where(unknown, np.inf, np.where(found.null, high, np.maximum(high, found.value))),
        np.where(unknown, np.uint8(Bound.NONE), np.uint8(Bound.INTERVAL)),
        found.null,
        confidence,
        _SOURCE,
        _UNSEEN if unknown.any() else "",
    )
    return always_bounded(aggregate.function, answered, finite=finite)


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One column of the pairs. values: float64, less `base`; so are the ends of the range."""

    values: NDArray[np.float64]
    ends: tuple[float, float]
    base: float

    @classmethod
    def of(cls, values: NDArray[Any], ends: tuple[float, float]) -> Self:
        if values.dtype.kind == "f" or not len(values):
            return cls(np.asarray(values, np.float64), ends, 0.0)
        base = anchors_of(values[:1], np.zeros(1, np.int64), 1)
        least, most = (end - float(base[0]) for end in ends)
        moved = float(np.nextafter(least, -np.inf)), float(np.nextafter(most, np.inf))
        return cls(distances(values, base), moved, float(base[0]))

    @property
    def width(self) -> float:
        return max(self.ends[1] / 2 - self.ends[0] / 2, 5e-324) * 2

    @property
    def scaled(self) -> NDArray[np.float64]:
        return (self.values - (self.ends[0] / 2 + self.ends[1] / 2)) / self.width

    def raised(self, means: Intervals) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Ends of the mean of the column itself, rounded outward."""
        if self.base == 0.0:
            return means.low, means.high
        low, high = self.base + means.low, self.base + means.high
        return np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
