"""Covariance, correlation and slope of groups from cross moments, read at a share per stratum.

The functions of the pair, whose means say which t hold, are those of linearised_pairs.py, and so is
the union over the means and the ratio of the spreads. Cross moments do not have the fourth moments
of which the errors are made. Their place take upper bounds by the ranges, such as
  sum of X^2 Y^2 <= min(max X^2 * sum of Y^2, max Y^2 * sum of X^2),
  sum of g^2 <= max |g| * sum of |g|.
A normal interval with a larger spread holds all the more, and rho is that of the larger spread: of
numbers of a given range those that vary most have the heaviest tails (Bennett 1962, JASA 57(297)).
With a spread s(t) that is at least the true one at t = r and t = r + d, the true half width lies
below the chord between both, for it is convex in t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.from_moments import Ends, Floats
from synopses.intervals.linearised_pairs import (
    Certified,
    nodes,
    reach_of_correlation,
    reach_of_slope,
)
from synopses.intervals.normal import rho_max, two_sided
from synopses.intervals.range_arithmetic import minus, plus, times

_STEPS: Final = np.array([-1.0, 0.0, 1.0])
_BEYOND: Final = 1.5  # Where the chord ends: in half widths at the estimate.
_DIGITS_LOST: Final = 4e-9  # Of a product of two values of a range 2 wide, by rounded means.


@dataclass(frozen=True, slots=True, eq=False)
class PairStratum:
    """What was read of the pairs of a stratum, group by group.

    population: N pairs that there were; read: n of them that were read, of all groups.
    counts: int64 [groups], of those read. means, squares: of x and of y, float64 [groups] each, the
      mean and the sum of squared distances from it; cross: that of products of both distances.
    x, y: ranges that hold all N values.
    whole: every pair belongs to the one group.
    """

    population: int
    read: int
    counts: NDArray[np.int64]
    means: Ends
    squares: Ends
    cross: Floats
    x: tuple[float, float]
    y: tuple[float, float]
    whole: bool

    @property
    def skipped(self) -> int:
        """Pairs that were not read."""
        return self.population - self.read

    @property
    def factor(self) -> float:
        """N/n; 0 where nothing was read."""
        return self.population / self.read if self.read else 0.0


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def certified_covariance(strata: Sequence[PairStratum], *, confidence: float) -> Certified:
    """The covariance with the number of pairs below the line."""
    at = _StratumPairs.of(strata, confidence)
    average = at.correlation
    error, influence = at.error_of_product(0.0, 0.0, average)
    shift_x, shift_y = nodes(_STEPS, at.half(at.mean_error(1, 0)), at.half(at.mean_error(0, 1)))
    center = average + shift_x * shift_y
    half = at.half(at.error_of_product(shift_x, shift_y, center)[0])
    ends = (center - half).min(axis=0), (center + half).max(axis=0)
    return at.certified(ends, error, influence, at.spreads[0] * at.spreads[1])


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def certified_slope(strata: Sequence[PairStratum], *, confidence: float) -> Certified:
    """The slope of the least-squares line of x over y."""
    at = _StratumPairs.of(strata, confidence)
    slope = at.correlation
    shift_x, shift_y = nodes(_STEPS, at.half(at.mean_error(1, 0)), at.half(at.mean_error(0, 1)))
    above, below = slope + shift_x * shift_y, 1.0 + shift_y**2
    error, influence = at.error_of_slope(0.0, 0.0, slope)
    ends = at.chords(above, below, lambda t: at.error_of_slope(shift_x, shift_y, t)[0])
    return at.certified(ends, error, influence, at.spreads[0] / at.spreads[1])


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def certified_correlation(strata: Sequence[PairStratum], *, confidence: float) -> Certified:
    """Pearson's correlation, in [-1, 1]."""
    at = _StratumPairs.of(strata, confidence)
    r = at.correlation
    both, apart = at.half(at.mean_error(1, 1)), at.half(at.mean_error(1, -1))
    ratio = at.half(at.error_of_ratio()) + ((both + apart) / 2.0) ** 2
    sums, differences, ratios = nodes(_STEPS, both, apart, ratio)
    shift_x, shift_y = (sums + differences) / 2.0, (sums - differences) / 2.0
    grown, shrunk = np.exp(ratios), np.exp(-ratios)
    above = r + shift_x * shift_y
    below = ((1.0 + shift_x**2) * grown + (1.0 + shift_y**2) * shrunk) / 2.0
    error, influence = at.error_of_correlation(0.0, 0.0, 1.0, r)
    low, high = at.chords(
        above, below, lambda t: at.error_of_correlation(shift_x, shift_y, np.sqrt(grown), t)[0]
    )
    found = at.certified((low, high), error, influence, np.ones(len(r)))
    return Certified(np.clip(found.low, -1.0, 1.0), np.clip(found.high, -1.0, 1.0), found.error)


@dataclass(frozen=True, slots=True, eq=False)
class _StratumPart:
    """A stratum in units of the standardised columns: x and y less their means, over spreads."""

    stratum: PairStratum
    means: Ends
    squares: Ends
    cross: Floats
    x: Ends
    y: Ends

    def sums(self, shift_x: Floats | float, shift_y: Floats | float) -> tuple[Floats, ...]:
        """The sums of X Y, X^2 and Y^2, where X and Y are x and y less the shifts."""
        x, y, counts = self.means[0] - shift_x, self.means[1] - shift_y, self.stratum.counts
        there = counts > 0
        found = (
            self.cross + counts * x * y,
            self.squares[0] + counts * x**2,
            self.squares[1] + counts * y**2,
        )
        return tuple(np.where(there, part, 0.0) for part in found)

    def ranges(self, shift_x: Floats | float, shift_y: Floats | float) -> tuple[Ends, Ends]:
        """Of X and Y."""
        x, y = self.x, self.y
        return (x[0] - shift_x, x[1] - shift_x), (y[0] - shift_y, y[1] - shift_y)


@dataclass(frozen=True, slots=True, eq=False)
class _StratumPairs:
    """All strata in one unit: the estimated means are 0, the estimated spreads 1.

    correlation: float64 [groups]. spreads: of x and y. size: pairs that each group has, estimated.
    """

    parts: Sequence[_StratumPart]
    correlation: Floats
    spreads: Ends
    size: Floats
    factor: Floats
    limit: float

    @classmethod
    def of(cls, strata: Sequence[PairStratum], confidence: float) -> _StratumPairs:
        size = np.maximum(_total(s.factor * s.counts for s in strata), 1e-300)
        means = [
            _total(s.factor * s.counts * s.means[column] for s in strata) / size
            for column in (0, 1)
        ]
        unscaled = [
            _StratumPart(
                s,
                (s.means[0] - means[0], s.means[1] - means[1]),
                s.squares,
                s.cross,
                (np.asarray(s.x[0]), np.asarray(s.x[1])),
                (np.asarray(s.y[0]), np.asarray(s.y[1])),
            )
            for s in strata
        ]
        sums = [part.sums(0.0, 0.0) for part in unscaled]
        cross, square_x, square_y = (
            _total(p.stratum.factor * found[at] for p, found in zip(unscaled, sums, strict=True))
            / size
            for at in range(3)
        )
        x, y = np.sqrt(square_x), np.sqrt(square_y)
        parts = [
            _StratumPart(
                part.stratum,
                (part.means[0] / x, part.means[1] / y),
                (part.squares[0] / square_x, part.squares[1] / square_y),
                part.cross / (x * y),
                ((part.x[0] - means[0]) / x, (part.x[1] - means[0]) / x),
                ((part.y[0] - means[1]) / y, (part.y[1] - means[1]) / y),
            )
            for part in unscaled
        ]
        factor = two_sided(_freedom(strata), confidence=confidence)
        return cls(parts, cross / (x * y), (x, y), size, factor, rho_max(confidence))

    def half(self, error: Floats) -> Floats:
        """Half a normal interval of a mean, from the error of the total."""
        return self.factor * error / self.size

    def mean_error(self, weight_x: int, weight_y: int) -> Floats:
        """Of the total of a weighted sum of both columns."""
        variance: Floats = np.zeros(len(self.size))
        for part in self.parts:
            cross, square_x, square_y = part.sums(0.0, 0.0)
            counts = part.stratum.counts
            total = np.where(
                counts > 0, counts * (weight_x * part.means[0] + weight_y * part.means[1]), 0.0
            )
            squares = weight_x**2 * square_x + weight_y**2 * square_y
            squares = squares + 2.0 * weight_x * weight_y * cross
            variance = variance + _variance(part.stratum, total, squares)
        return np.sqrt(variance)

    def error_of_product(
        self, shift_x: Floats | float, shift_y: Floats | float, center: Floats
    ) -> Ends:
        """Of the total of X Y - center; and the largest influence of one pair."""

        def squares(part: _StratumPart) -> tuple[Floats, Floats, Ends]:
            cross, square_x, square_y = part.sums(shift_x, shift_y)
            x, y = part.ranges(shift_x, shift_y)
            product = np.minimum(_largest(x) ** 2 * square_y, _largest(y) ** 2 * square_x)
            counts = part.stratum.counts
            found = product - 2.0 * center * cross + center**2 * counts
            ends = times(x, y)
            return cross - center * counts, found, (ends[0] - center, ends[1] - center)

        return self._error(squares)

    def error_of_slope(
        self, shift_x: Floats | float, shift_y: Floats | float, slope: Floats
    ) -> Ends:
        """Of the total of (X - slope Y) Y; and the largest influence of one pair."""

        def squares(part: _StratumPart) -> tuple[Floats, Floats, Ends]:
            cross, square_x, square_y = part.sums(shift_x, shift_y)
            x, y = part.ranges(shift_x, shift_y)
            rest = square_x - 2.0 * slope * cross + slope**2 * square_y
            reach = _largest(minus(x, times((slope, slope), y)))
            found = np.minimum(_largest(y) ** 2 * rest, reach**2 * square_y)
            lowest, highest = reach_of_slope(x, y, slope)
            return cross - slope * square_y, found, (-lowest, highest)

        return self._error(squares)

    def error_of_correlation(
        self,
        shift_x: Floats | float,
        shift_y: Floats | float,
        scale: Floats | float,
        t: Floats,
    ) -> Ends:
        """Of the total of a b - t/2 (a^2 + b^2), a = scale X, b = Y/scale; and the influence.

        It is ((1 - t)(a + b)^2 - (1 + t)(a - b)^2)/4: by Minkowski its root mean square is at most
        the sum of those of both terms.
        """

        def squares(part: _StratumPart) -> tuple[Floats, Floats, Ends]:
            cross, square_a, square_b = part.sums(shift_x, shift_y)
            square_a, square_b = square_a * scale**2, square_b / scale**2
            x, y = part.ranges(shift_x, shift_y)
            a, b = (x[0] * scale, x[1] * scale), (y[0] / scale, y[1] / scale)
            both = np.maximum(square_a + square_b + 2.0 * cross, 0.0)
            apart = np.maximum(square_a + square_b - 2.0 * cross, 0.0)
            plain = (square_a + square_b) / 2.0
            lowest, highest = reach_of_correlation(a, b, t)
            reach = np.maximum(lowest, highest)
            # |g| <= ((1 - t)(a + b)^2 + (1 + t)(a - b)^2)/4 = (a^2 + b^2)/2 - t a b.
            first = reach * np.maximum(plain - t * cross, 0.0)
            root = np.abs(1.0 - t) / 4.0 * _largest(plus(a, b)) * np.sqrt(both)
            root = root + np.abs(1.0 + t) / 4.0 * _largest(minus(a, b)) * np.sqrt(apart)
            inside = np.abs(t) <= 1.0
            found = np.where(inside, np.minimum(first, root**2), root**2)
            return cross - t * plain, found, (-lowest, highest)

        return self._error(squares)

    def error_of_ratio(self) -> Floats:
        """Of the total of (x^2 - y^2)/2 = (x + y)(x - y)/2."""

        def squares(part: _StratumPart) -> tuple[Floats, Floats, Ends]:
            cross, square_x, square_y = part.sums(0.0, 0.0)
            both, apart = square_x + square_y + 2.0 * cross, square_x + square_y - 2.0 * cross
            far = _largest(plus(part.x, part.y)), _largest(minus(part.x, part.y))
            found = np.minimum(far[0] ** 2 * apart, far[1] ** 2 * both) / 4.0
            nothing = np.zeros(len(cross))
            return (square_x - square_y) / 2.0, found, (nothing, nothing)

        return self._error(squares)[0]

    def _error(self, squares: Callable[[_StratumPart], tuple[Floats, Floats, Ends]]) -> Ends:
        """The standard error of a total, and the most that one pair can do to it.

        squares: of a stratum the total of what was read, at least the sum of its squares, and the
        range of one value.
        """
        variance: Floats = np.zeros(len(self.size))
        influence: Floats = np.zeros(len(self.size))
        for part in self.parts:
            stratum = part.stratum
            if not stratum.skipped:
                continue
            total, square, ends = squares(part)
            variance = variance + _variance(stratum, total, square)
            average = total / max(stratum.read, 1)
            low, high = ends if stratum.whole else (np.minimum(ends[0], 0), np.maximum(ends[1], 0))
            reach = np.maximum(high - average, average - low)
            reach = reach if stratum.read >= 2 else np.full_like(reach, np.inf)
            influence = np.maximum(influence, stratum.factor * reach)
        return np.sqrt(variance), influence

    def chords(self, above: Floats, below: Floats, error: Callable[[Floats], Floats]) -> Ends:
        """The least and the largest t with |above - t below| <= half(error(t)) at any node."""
        middle = above / below
        half = self.half(error(middle)) / below
        ends = []
        for side in (-1.0, 1.0):
            step = _BEYOND * half
            rise = self.half(error(middle + side * step)) / below - half
            away = half / (1.0 - rise / step)
            away = np.where(half == 0.0, 0.0, away)
            ends.append(middle + side * np.where((away >= 0.0) & (away <= step), away, np.nan))
        return ends[0].min(axis=0), ends[1].max(axis=0)

    def certified(self, ends: Ends, error: Floats, influence: Floats, scale: Floats) -> Certified:
        """The ends where rho is small enough, in the unit of the values."""
        counts = _total(p.stratum.counts for p in self.parts)
        holds = (influence <= self.limit * error) & (error > 0.0) & (counts >= 2.0)
        holds &= ~np.isnan(ends[0] + ends[1])
        slack = _DIGITS_LOST / (self.spreads[0] * self.spreads[1])
        low, high = (
            np.where(holds, end * scale, np.nan) for end in (ends[0] - slack, ends[1] + slack)
        )
        return Certified(low, high, error / self.size * scale)


def _variance(stratum: PairStratum, total: Floats, squares: Floats) -> Floats:
    """Of the estimated total, from that of what was read and from its sum of squares."""
    n = max(stratum.read, 2)
    spread = np.maximum(squares - total**2 / n, 0.0) / (n - 1)
    return stratum.population * stratum.skipped / n * spread


def _freedom(strata: Sequence[PairStratum]) -> Floats:
    """Degrees of freedom after Satterthwaite, as if the spread were the same in all strata."""
    weights = [s.factor**2 * (s.skipped / max(s.population, 1)) * s.counts for s in strata]
    per_degree = _total(
        weight**2 / np.maximum(s.counts - 1.0, 1.0)
        for s, weight in zip(strata, weights, strict=True)
    )
    all_of_them = _total(weights)
    return np.where(per_degree > 0.0, all_of_them**2 / np.maximum(per_degree, 1e-300), 1e9)


def _largest(ends: Ends) -> Floats:
    return np.maximum(np.abs(ends[0]), np.abs(ends[1]))


def _total(parts: object) -> Floats:
    return np.asarray(sum(parts), np.float64)  # type: ignore[call-overload]
