"""Covariance, correlation and regression of parts that were read thinned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import AggregateFunction
from shedder.engine.panes.diagonal_ranges import PairAxes
from shedder.engine.panes.level_segment import Segment
from shedder.queries.evidence.covariance_bounds import (
    BOUNDS,
    Ends,
    always_bounded,
    cross_answer,
    from_scaled,
    intercept,
    intercept_confidences,
)
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.interval import Intervals
from synopses.model.estimate import Bound, Estimates
from synopses.moments.covariance import CrossSums, GroupedCrossMoments
from synopses.strata.pair_stratum import PairSquares, PairStratum
from synopses.strata.stratified import stratified_mean
from synopses.strata.stratified_pairs import (
    certified_correlation,
    certified_covariance,
    certified_slope,
)
from synopses.strata.stratified_variance import stratified_variance
from synopses.strata.stratum import Stratum, unit_of

SOURCE = "thinned panes"
_UNKNOWN = "too few pairs were read, or the range of a column has no end or is too narrow"
_SCALED_MAX = 1e70  # Fourth powers of what is smaller are doubles, and sums of many of them.

_ROUNDED = 2.0**-50  # Of a sum of two doubles, beside the larger one.
_APART_MAX = 2.0**-30  # Of doubles, beside the width of the column.

Floats = NDArray[np.float64]
Range = tuple[float, float]


def thinned_cross(
    function: AggregateFunction,
    whole: GroupedCrossMoments,
    segments: Sequence[Segment],
    confidence: float,
    *,
    ungrouped: bool,
) -> Estimates:
    """A function of pairs for each group.

    u and v are x and y on the axes of the diagonal ranges. Without these they are shifted and
    scaled to the middle and width of the ranges that the basics know. Normal, with the error that
    certifies it (`stratified_pairs`). Where that gives no ends, from
    4 cov(u, v) = var(u + v) - var(u - v): each variance has its interval over all strata at an
    equal part of delta (`stratified_variance`); by the union bound all hold at once, and with them
    what is made of their ends. Without a finite range, or where a variance that is divided by may
    be 0: none. Where nothing was skipped it is exact, from all pairs.
    """
    if not any(segment.skipped for segment in segments):
        moments = whole.select(np.arange(whole.groups))
        for segment in segments:
            moments.merge(segment.synopsis)
        return cross_answer(function, moments)
    parts = [_Pairs.of(whole, None), *(_Pairs.of(s.synopsis, s) for s in segments)]
    infinite = np.logical_or.reduce([part.sums.infinite for part in parts])
    strata = _PairStrata.of(parts, ungrouped=ungrouped)
    if not strata.are_usable:
        nothing = np.full(whole.groups, np.nan)
        found = _column(nothing, nothing, nothing, infinite, confidence)
        return always_bounded(function, found, finite=False)
    of_second, of_mean = confidence, confidence
    if function is AggregateFunction.REGR_INTERCEPT:
        of_second, of_mean = intercept_confidences(confidence)
    value, (low, high) = strata.crosswise(function, of_second)
    normal = _certified(function, strata.of_pairs, of_second, strata.widths)
    low, high = np.where(np.isnan(normal), (low, high), normal)
    if function in (AggregateFunction.COVAR_POP, AggregateFunction.COVAR_SAMP):
        most = _largest_covariance(_joined([part.ranges for part in strata.parts]), strata.pairs)
        low, high = np.clip(low, -most, most), np.clip(high, -most, most)
    if function is AggregateFunction.REGR_INTERCEPT:
        means = [strata.mean(weights, of_mean) for weights in ((1.0, 0.0), (0.0, 1.0))]
        low, high = intercept((low, high), *((part.low, part.high) for part in means))
        value = means[0].value - value * means[1].value
    return always_bounded(function, _column(value, low, high, infinite, confidence), finite=True)


def _certified(
    function: AggregateFunction,
    strata: Sequence[PairStratum],
    confidence: float,
    widths: Range,
) -> Ends:
    """Normal intervals in the unit of the columns, from scaled pairs; NaN where not certified."""
    match function:
        case AggregateFunction.CORR:
            found = certified_correlation(strata, confidence=confidence)
            return found.low, found.high
        case AggregateFunction.REGR_SLOPE | AggregateFunction.REGR_INTERCEPT:  # Its slope.
            found = certified_slope(strata, confidence=confidence)
            scale = np.divide(widths[0], widths[1])
            return found.low * scale, found.high * scale
        case _:
            found = certified_covariance(strata, confidence=confidence)
            scale = np.multiply(widths[0], widths[1])
            low, high = found.low * scale, found.high * scale
            if function is AggregateFunction.COVAR_POP:
                return low, high
            size = sum(s.factor * s.counts for s in strata)
            stretch = np.where(size > 1.0, size / np.maximum(size - 1.0, 1e-300), 1.0)
            return low * stretch, high * stretch


def _largest_covariance(ranges: tuple[Range, Range], pairs: NDArray[np.int64]) -> Floats:
    """The largest covariance that the ranges of all pairs allow, by Cauchy and Schwarz.

    A standard deviation is at most half the width of the range. pairs: those read, of K at least.
    """
    (low_x, high_x), (low_y, high_y) = ranges
    stretch = np.where(pairs >= 2, pairs / np.maximum(pairs - 1.0, 1.0), 2.0)
    most: Floats = (high_x / 2 - low_x / 2) * (high_y / 2 - low_y / 2) * stretch
    return np.nextafter(most, np.where(most > 0.0, np.inf, 0.0))


class _Pairs:
    """What was read of the pairs of one stratum, and the ranges that hold all of them."""

    def __init__(
        self,
        sums: CrossSums,
        population: int,
        read: int,
        ranges: tuple[Range, Range],
        segment: Segment | None = None,
    ) -> None:
        self.sums = sums
        self.diagonals = None if segment is None else segment.diagonals
        self.squares = None if segment is None else _squares(segment, sums)
        self.population = population
        self.read = read
        self.ranges = ranges

    @property
    def thinned(self) -> bool:
        return self.read < self.population

    @classmethod
    def of(cls, moments: GroupedCrossMoments, segment: Segment | None) -> _Pairs:
        sums = moments.sums()
        if segment is not None:
            ranges = (
                (_end(segment.low, -1), _end(segment.high, 1)),
                (_end(segment.low_beside, -1), _end(segment.high_beside, 1)),
            )
            return cls(sums, segment.population, segment.read, ranges, segment)
        read, there = int(sums.pairs.sum()), (sums.pairs > 0) & ~sums.infinite
        x, y = (
            _about(mean[there], squares[there])
            for mean, squares in ((sums.mean_x, sums.squares_x), (sums.mean_y, sums.squares_y))
        )
        return cls(sums, read, read, (x, y))

    def stratum(
        self, weights: tuple[float, float], scale: list[tuple[float, float]], *, ungrouped: bool
    ) -> Stratum:
        """Of the numbers weights[0] u + weights[1] v."""
        (a, b), sums = weights, self.sums
        (shift_x, width_x), (shift_y, width_y) = scale
        means = a * (sums.mean_x - shift_x) / width_x + b * (sums.mean_y - shift_y) / width_y
        squares = (
            (a / width_x) ** 2 * sums.squares_x
            + (b / width_y) ** 2 * sums.squares_y
            + 2.0 * (a / width_x) * (b / width_y) * sums.cross
        )
        ends = [
            sorted(weight * (end - shift) / width for end in ends)
            for weight, ends, (shift, width) in zip(weights, self.ranges, scale, strict=True)
        ]
        low, high = ends[0][0] + ends[1][0], ends[0][1] + ends[1][1]
        diagonals = self._diagonals(scale)
        if diagonals is not None and a == 1 and abs(b) == 1:
            along = diagonals[0 if b == 1 else 1]
            low, high = max(low, along[0]), min(high, along[1])
        return Stratum(
            self.population,
            self.read,
            sums.pairs,
            np.where(sums.pairs > 0, means, 0.0),
            np.maximum(squares, 0.0),
            low,
            high,
            ungrouped,
        )

    def _diagonals(self, scale: Sequence[Range]) -> tuple[Range, Range] | None:
        """The ranges of u + v and u - v; None where they are not known on these axes."""
        known = self.diagonals
        if known is None or list(zip(*_parts_of(known.axes), strict=True)) != list(scale):
            return None
        (shift_x, width_x), (shift_y, width_y) = scale
        largest = [max(map(abs, ends)) for ends in self.ranges]
        slack = (largest[0] + abs(shift_x)) / width_x + (largest[1] + abs(shift_y)) / width_y
        slack *= _ROUNDED
        (low, high), (low_apart, high_apart) = known.total, known.difference
        return (low - slack, high + slack), (low_apart - slack, high_apart + slack)

    def pair_stratum(self, scale: Sequence[Range], *, ungrouped: bool) -> PairStratum:
        """Of the pairs (u, v)."""
        sums, (x, y) = self.sums, scale
        there = sums.pairs > 0
        means = (sums.mean_x - x[0]) / x[1], (sums.mean_y - y[0]) / y[1]
        diagonals = self._diagonals(scale)
        first, second = (
            ((low - shift) / width, (high - shift) / width)
            for (low, high), (shift, width) in zip(self.ranges, scale, strict=True)
        )
        return PairStratum(
            self.population,
            self.read,
            sums.pairs,
            (np.where(there, means[0], 0.0), np.where(there, means[1], 0.0)),
            (sums.squares_x / x[1] / x[1], sums.squares_y / y[1] / y[1]),
            sums.cross / x[1] / y[1],
            first,
            second,
            ungrouped,
            diagonals,
            None if diagonals is None else self.squares,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _PairStrata:
    """What was read of the pairs of all strata, and the scale on which these are compared.

    scale: the shift and the width of x, and of y: u is (x - shift) / width, and v is the same of y.
    are_usable: the ranges of thinned strata are finite, and squares keep their digits.
    """

    parts: list[_Pairs]
    scale: list[Range]
    ungrouped: bool
    are_usable: bool

    @classmethod
    def of(cls, parts: list[_Pairs], *, ungrouped: bool) -> _PairStrata:
        """Strata with pairs, on the axes of the diagonal ranges where squares keep their digits."""
        parts = [part for part in parts if part.population] or parts[:1]
        ranges = _joined([part.ranges for part in parts if part.thinned])
        finite = bool(np.isfinite(np.array(ranges)).all())
        scale = [(low / 2 + high / 2, high / 2 - low / 2 or 0.5) for low, high in ranges]
        axes = _axes(parts)
        if axes is not None:
            own = list(zip(axes.centers, axes.scales, strict=True))
            scale = own if _squares_fit(parts, own) else scale
        return cls(parts, scale, ungrouped, finite and _squares_fit(parts, scale))

    @property
    def widths(self) -> Range:
        """The widths of both columns."""
        return self.scale[0][1], self.scale[1][1]

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Pairs that were read of each group, [groups]."""
        return np.asarray(sum(part.sums.pairs for part in self.parts), np.int64)

    @property
    def of_pairs(self) -> list[PairStratum]:
        """The strata of the pairs (u, v)."""
        return [part.pair_stratum(self.scale, ungrouped=self.ungrouped) for part in self.parts]

    def crosswise(self, function: AggregateFunction, confidence: float) -> tuple[Floats, Ends]:
        """The function and its interval from variances of u + v, u - v, u and v, [groups]."""
        each = split_confidence(confidence, BOUNDS[function])
        weights = (1.0, 1.0), (1.0, -1.0), (1.0, 0.0), (0.0, 1.0)
        plus, minus, u, v = (
            stratified_variance(self._strata(of, self.scale), confidence=each) for of in weights
        )
        low, high = from_scaled(
            function,
            ((plus.low - minus.high) / 4.0, (plus.high - minus.low) / 4.0),
            [(part.low, part.high) for part in (u, v)],
            widths=self.widths,
            pairs=self.pairs,
        )
        middle = (plus.value - minus.value) / 4.0
        value, _ = from_scaled(
            function,
            (middle, middle),
            [(part.value, part.value) for part in (u, v)],
            widths=self.widths,
            pairs=np.full(len(middle), np.iinfo(np.int64).max),
        )
        return value, (low, high)

    def mean(self, weights: Range, confidence: float) -> Intervals:
        """The mean of the numbers weights[0] x + weights[1] y, [groups]."""
        strata = self._strata(weights, [(0.0, 1.0), (0.0, 1.0)])
        unit = unit_of(strata)
        found = stratified_mean([each.in_unit(unit) for each in strata], confidence=confidence)
        return found.scaled(unit)

    def _strata(self, weights: Range, scale: list[Range]) -> list[Stratum]:
        return [part.stratum(weights, scale, ungrouped=self.ungrouped) for part in self.parts]


def _axes(parts: Sequence[_Pairs]) -> PairAxes | None:
    """The axes of the diagonal ranges; None: not all thinned strata have the same ones."""
    found = {
        None if part.diagonals is None else part.diagonals.axes for part in parts if part.thinned
    }
    return found.pop() if len(found) == 1 else None


def _parts_of(axes: PairAxes) -> tuple[Range, Range]:
    return axes.centers, axes.scales


def _squares(segment: Segment, sums: CrossSums) -> PairSquares | None:
    """Return how squares of sums and differences are spread; None: not known of all pairs read."""
    if segment.shape is None:
        return None
    shape = segment.shape.sums()
    if len(shape.pairs) != len(sums.pairs) or (shape.pairs != sums.pairs).any():
        return None
    means = shape.mean_x, shape.mean_y
    return PairSquares(means, (shape.squares_x, shape.squares_y), shape.cross)


def _squares_fit(parts: Sequence[_Pairs], scale: Sequence[Range]) -> bool:
    """Return whether the squares keep their digits: no value too large, no column too narrow.

    The mean of each stratum is a double: where doubles near the column are far apart beside its
    width, nothing is known of how far the strata are apart.
    """
    shifts, widths = np.array(scale).T
    sums = (s for part in parts for s in (part.sums.squares_x, part.sums.squares_y))
    if widths.min() < 1 / _SCALED_MAX or not all(np.isfinite(s).all() for s in sums):
        return False
    ends = np.array([part.ranges for part in parts])  # [stratum, column, end]
    with np.errstate(over="ignore"):
        scaled = np.abs(ends - shifts[:, None]) / widths[:, None]
        apart = np.spacing(np.abs(ends).max(axis=(0, 2))) / widths
    varies = ends[..., 1].max(axis=0) > ends[..., 0].min(axis=0)
    return bool((apart[varies] <= _APART_MAX).all()) and bool((scaled < _SCALED_MAX).all())


def _about(means: Floats, squares: Floats) -> Range:
    """Return the range of all values: mean plus and minus the root of the sum of squares."""
    if not len(means):
        return 0.0, 0.0
    away = np.sqrt(squares)
    return float((means - away).min()), float((means + away).max())


def _end(end: int | float | None, side: int) -> float:
    """An end of a range as a float, rounded outward; pairs are doubles already."""
    return side * np.inf if end is None else float(end)


def _joined(ranges: list[tuple[Range, Range]]) -> tuple[Range, Range]:
    """The ranges of x and of y that hold those of all strata."""
    if not ranges:
        return (0.0, 0.0), (0.0, 0.0)
    ends = np.array(ranges)  # [stratum, column, end]
    lows, highs = ends[..., 0].min(axis=0), ends[..., 1].max(axis=0)
    return (float(lows[0]), float(highs[0])), (float(lows[1]), float(highs[1]))


def _column(
    value: Floats, low: Floats, high: Floats, infinite: NDArray[np.bool_], confidence: float
) -> Estimates:
    null = ~np.isfinite(value) | infinite
    unknown = infinite | np.isnan(low) | np.isnan(high)
    value = np.where(null, 0.0, value)
    return Estimates(
        value,
        np.where(unknown, -np.inf, np.where(null, low, np.minimum(low, value))),
        np.where(unknown, np.inf, np.where(null, high, np.maximum(high, value))),
        np.where(unknown, np.uint8(Bound.NONE), np.uint8(Bound.INTERVAL)),
        null,
        confidence,
        SOURCE,
        _UNKNOWN if unknown.any() else "",
    )
