"""Covariance, correlation and regression from a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Expression,
    as_whole_numbers,
)
from shedder.queries.evidence.covariance_bounds import (
    Ends,
    always_bounded,
    cross_answer,
    intercept,
    intercept_confidences,
)
from shedder.queries.sampling.anchored_values import anchors_of, distances
from shedder.queries.sampling.interval_columns import SOURCE
from shedder.queries.sampling.sampled_query import Sampled
from synopses.intervals.certain_stratum import NARROWED_MAX
from synopses.intervals.covariance import (
    population_covariance,
    sampled_correlation,
    sampled_covariance,
    sampled_slope,
)
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.sampled_pairs import CertainPairs, SampledPairs
from synopses.model.estimate import Bound, Estimates
from synopses.moments.covariance import GroupedCrossMoments

_UNSEEN = "too few sampled rows match, or the range of a column has no end"


def sampled_cross(sampled: Sampled, aggregate: Aggregate, confidence: float) -> Estimates:
    """A function of pairs for each group.

    The columns are shifted and scaled to the middle and width of their known ranges, and bounded
    as pairs (`synopses.intervals.covariance`). Without a finite range, or where a variance that is
    divided by may be 0: none, but of a correlation [-1, 1].
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
    value = found.value
    low = high = np.full(groups, np.nan)
    finite = bool(np.isfinite([column.ends for column in columns]).all())
    if finite:
        x, y = columns
        scaled = SampledPairs.by_group(
            x.scaled,
            y.scaled,
            ids=small,
            groups=groups,
            population=sampled.population,
            read=sampled.read,
            ranges=(x.scaled_ends, y.scaled_ends),
            shuffle_seed=sampled.view.shuffle_seed,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            if aggregate.function is AggregateFunction.CORR:
                certain = _certain(sampled, (first, second), (x, y), scaled)
                one = sampled_correlation(scaled, confidence=confidence, certain=certain)
                value = value if certain is None else np.where(found.null, value, one.value)
                low, high = one.low, one.high
            else:
                low, high = _ends(aggregate.function, scaled, (x, y), confidence)
    complete = np.broadcast_to(sampled.is_complete, (groups,))
    low, high = (np.where(complete, found.value, end) for end in (low, high))
    unknown = np.isnan(low) | np.isnan(high) | (np.isinf(low) & np.isinf(high) & (low < high))
    bound = np.where(unknown, np.uint8(Bound.NONE), np.uint8(Bound.INTERVAL))
    answered = Estimates(
        value,
        np.where(unknown, -np.inf, np.where(found.null, low, np.minimum(low, value))),
        np.where(unknown, np.inf, np.where(found.null, high, np.maximum(high, value))),
        np.where(complete, found.bound, bound),
        found.null,
        confidence,
        SOURCE,
        _UNSEEN if unknown.any() else "",
    )
    return always_bounded(aggregate.function, answered, finite=finite)


def _ends(
    function: AggregateFunction,
    pairs: SampledPairs,
    columns: tuple[_Column, _Column],
    confidence: float,
) -> Ends:
    """Of scaled pairs, in the unit of the columns."""
    x, y = columns
    match function:
        case AggregateFunction.COVAR_SAMP:
            found = sampled_covariance(pairs, confidence=confidence)
            return found.low * x.width * y.width, found.high * x.width * y.width
        case AggregateFunction.COVAR_POP:
            found = population_covariance(pairs, confidence=confidence)
            return found.low * x.width * y.width, found.high * x.width * y.width
        case AggregateFunction.REGR_SLOPE:
            return _slope(pairs, columns, confidence)
        case _:
            assert function is AggregateFunction.REGR_INTERCEPT, function
            of_slope, of_mean = intercept_confidences(confidence)
            slope = _slope(pairs, columns, of_slope)
            means = [
                column.raised(sampled_mean(values, confidence=of_mean))
                for column, values in zip(columns, (pairs.first, pairs.second), strict=True)
            ]
            return intercept(slope, *means)


def gains_by_certain(sampled: Sampled, nodes: Sequence[Expression]) -> bool:
    """Return whether the range of either column is much narrower without the extreme rows.

    It depends on ranges alone, which no random key decides.
    """
    if sampled.extremes is None:
        return False
    for node in map(as_whole_numbers, nodes):
        low, high = sampled.extremes.range(node)
        least, most = sampled.range(node)
        if high - low < NARROWED_MAX * (most - least):
            return True
    return False


def _certain(
    sampled: Sampled,
    nodes: tuple[Expression, Expression],
    columns: tuple[_Column, _Column],
    pairs: SampledPairs,
) -> CertainPairs | None:
    """The pairs of the extreme rows, scaled as those of the sample; None: they gain nothing."""
    extremes = sampled.extremes
    if extremes is None or not gains_by_certain(sampled, nodes):
        return None
    ranges = [
        column.scaled_range(extremes.range(as_whole_numbers(node)))
        for node, column in zip(nodes, columns, strict=True)
    ]
    held, among = extremes.rows.pairs(*nodes), sampled.rows.pairs(*nodes).rows
    are_others = extremes.are_others if among is None else extremes.are_others[among]
    ids = sampled.groups.ids if among is None else sampled.groups.ids[among]
    x, y = (
        column.scaled_values(values)
        for column, values in zip(columns, (held.first, held.second), strict=True)
    )
    return CertainPairs.by_group(
        x,
        y,
        ids=extremes.ids if held.rows is None else extremes.ids[held.rows],
        others=SampledPairs.by_group(
            columns[0].scaled[are_others],
            columns[1].scaled[are_others],
            ids=ids[are_others].astype(np.int32),
            groups=pairs.groups,
            population=extremes.population,
            read=extremes.read,
            ranges=(ranges[0], ranges[1]),
            shuffle_seed=sampled.view.shuffle_seed,
        ),
    )


def _slope(pairs: SampledPairs, columns: tuple[_Column, _Column], confidence: float) -> Ends:
    found = sampled_slope(pairs, confidence=confidence)
    with np.errstate(over="ignore"):
        scale = np.divide(columns[0].width, columns[1].width)
    return found.low * scale, found.high * scale


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
    def middle(self) -> float:
        """Of the range."""
        return self.ends[0] / 2 + self.ends[1] / 2

    @property
    def scaled(self) -> NDArray[np.float64]:
        return (self.values - self.middle) / self.width

    def scaled_values(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Other values of the column, scaled alike."""
        if values.dtype.kind != "f" and self.base:
            base = np.array([int(self.base)])
            return (distances(values, base) - self.middle) / self.width
        return (np.asarray(values, np.float64) - self.base - self.middle) / self.width

    def scaled_range(self, ends: tuple[float, float]) -> tuple[float, float]:
        """A range of values of the column, scaled alike and rounded outward."""
        low, high = ((end - self.base - self.middle) / self.width for end in ends)
        return float(np.nextafter(low, -np.inf)), float(np.nextafter(high, np.inf))

    @property
    def scaled_ends(self) -> tuple[float, float]:
        """The range of the scaled values, rounded outward."""
        half = (self.ends[1] / 2 - self.ends[0] / 2) / self.width
        return -float(np.nextafter(half, 1.0)), float(np.nextafter(half, 1.0))

    def raised(self, means: Intervals) -> Ends:
        """Ends of the mean of the column itself, from those of scaled values, rounded outward."""
        middle = self.base + (self.ends[0] / 2 + self.ends[1] / 2)
        low, high = middle + self.width * means.low, middle + self.width * means.high
        return np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
