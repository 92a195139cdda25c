"""Covariance, correlation and slope of groups from cross moments, read at a share per stratum.

The functions of the pair, whose means say which t hold, are those of linearised_pairs.py, and so is
the union over the means and the ratio of the spreads. Cross moments do not have the fourth moments
of which the errors are made. Their place take upper bounds by the ranges, such as
  sum of X^2 Y^2 <= min(max X^2 * sum of Y^2, max Y^2 * sum of X^2),
  sum of g^2 <= max |g| * sum of |g|.
A normal interval with a larger spread holds all the more, and rho is that of the larger spread: of
numbers of a given range those that vary most have the heaviest tails (Bennett 1962, JASA 57(297)).
Where the ranges of x + y and x - y are known, too, corners of the box have no pairs, and these
bounds are lower (`PairRegion`). Where the moments of (x + y)^2 and (x - y)^2 are known, they give
the error, but for a part that grows with the distance of the group's means and spreads from the
fixed axes.
Each end has an error of its own, raised until rho of what lies on its side is small enough.
With a spread s(t) that is at least the true one at t = r and t = r + d, the true half width lies
below the chord between both, for it is convex in t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from synopses.intervals.from_moments import Ends, Floats
from synopses.intervals.linearised_pairs import Certified, nodes
from synopses.intervals.normal import rho_max, two_sided
from synopses.strata.pair_stratum import PairStratum
from synopses.strata.standardised_pairs import StandardisedPairs

_STEPS: Final = np.array([-1.0, 0.0, 1.0])
_BEYOND: Final = (
    1.5,
    3.0,
    6.0,
)  # Where chords end, in half widths at the estimate: the nearest counts.
_DIGITS_LOST: Final = 4e-9  # Of a product of two values of a range 2 wide, by rounded means.


# Of a stratum: the total of what was read, two sums of its squares or more (a bound by the ranges,
# and one by the known squares), and the range of one value.
_Read = tuple[Floats, tuple[Floats, Floats], Ends]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def certified_covariance(strata: Sequence[PairStratum], *, confidence: float) -> Certified:
    """The covariance with the number of pairs below the line."""
    at = _StratumPairs.of(strata, confidence)
    average = at.correlation
    errors = at.error_of_product(0.0, 0.0, average)
    shift_x, shift_y = nodes(_STEPS, at.half(at.mean_error(1, 0)), at.half(at.mean_error(0, 1)))
    center = average + shift_x * shift_y
    below, above = map(at.half, at.error_of_product(shift_x, shift_y, center).raised)
    ends = (center - below).min(axis=0), (center + above).max(axis=0)
    return at.certified(ends, errors, at.spreads[0] * at.spreads[1])


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def certified_slope(strata: Sequence[PairStratum], *, confidence: float) -> Certified:
    """The slope of the least-squares line of x over y."""
    at = _StratumPairs.of(strata, confidence)
    slope = at.correlation
    shift_x, shift_y = nodes(_STEPS, at.half(at.mean_error(1, 0)), at.half(at.mean_error(0, 1)))
    above, below = slope + shift_x * shift_y, 1.0 + shift_y**2
    errors = at.error_of_slope(0.0, 0.0, slope)
    ends = at.chords(above, below, lambda t: at.error_of_slope(shift_x, shift_y, t))
    return at.certified(ends, errors, at.spreads[0] / at.spreads[1])


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
    errors = at.error_of_correlation(0.0, 0.0, 1.0, r)
    low, high = at.chords(
        above,
        below,
        lambda t: at.error_of_correlation(shift_x, shift_y, np.sqrt(grown), t),
        largest=1.0,
    )
    found = at.certified((low, high), errors, np.ones(len(r)))
    return Certified(np.clip(found.low, -1.0, 1.0), np.clip(found.high, -1.0, 1.0), found.error)


@dataclass(frozen=True, slots=True, eq=False)
class _Errors:
    """Standard errors of totals, and the most that one pair of a stratum may take off or add.

    error: [groups] or [nodes, groups]. reach: below the average and above it, times N/n. limit: the
      largest rho that is certified.
    """

    error: Floats
    reach: Ends
    limit: float

    @property
    def raised(self) -> Ends:
        """The errors for either end, with which rho is no larger than the limit.

        A normal interval with a larger spread holds all the more. The lower end misses where pairs
        far below the average were not read, the upper one where pairs far above it were not.
        """
        below, above = (np.maximum(self.error, each / self.limit) for each in self.reach)
        return below, above


@dataclass(frozen=True, slots=True, eq=False)
class _StratumPairs:
    """All strata in one unit: the estimated means are 0, the estimated spreads 1.

    correlation: float64 [groups]. spreads: of x and y. size: pairs that each group has, estimated.
    """

    parts: Sequence[StandardisedPairs]
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
        centred = [StandardisedPairs.centred(each, (means[0], means[1])) for each in strata]
        sums = [part.sums(0.0, 0.0) for part in centred]
        cross, square_x, square_y = (
            _total(p.stratum.factor * found[at] for p, found in zip(centred, sums, strict=True))
            / size
            for at in range(3)
        )
        x, y = np.sqrt(square_x), np.sqrt(square_y)
        units = (means[0], means[1]), (square_x, square_y)
        parts = [StandardisedPairs.of(each, *units) for each in strata]
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
    ) -> _Errors:
        """Of the total of X Y - center; and the largest influence of one pair."""

        def squares(part: StandardisedPairs) -> _Read:
            cross, square_x, square_y = part.sums(shift_x, shift_y)
            region = part.region.moved((shift_x, shift_y), 1.0)
            x, y = region.largest(lambda a, _: a), region.largest(lambda _, b: b)
            product = np.minimum(x**2 * square_y, y**2 * square_x)
            counts = part.stratum.counts
            found = product - 2.0 * center * cross + center**2 * counts
            ends = region.range_of(0.0, 1.0, 0.0)
            known = part.squares_of((0.0, 1.0, 0.0), (shift_x, shift_y), 1.0, cross)
            known = known - 2.0 * center * cross + center**2 * counts
            total = cross - center * counts
            return total, (found, known), (ends[0] - center, ends[1] - center)

        return self._error(squares)

    def error_of_slope(
        self, shift_x: Floats | float, shift_y: Floats | float, slope: Floats
    ) -> _Errors:
        """Of the total of (X - slope Y) Y; and the largest influence of one pair."""

        def squares(part: StandardisedPairs) -> _Read:
            cross, square_x, square_y = part.sums(shift_x, shift_y)
            region = part.region.moved((shift_x, shift_y), 1.0)
            rest = square_x - 2.0 * slope * cross + slope**2 * square_y
            reach = region.largest(lambda a, b: a - slope * b)
            largest_y = region.largest(lambda _, b: b)
            found = np.minimum(largest_y**2 * rest, reach**2 * square_y)
            total = cross - slope * square_y
            known = part.squares_of((0.0, 1.0, -slope), (shift_x, shift_y), 1.0, total)
            return total, (found, known), region.range_of(0.0, 1.0, -slope)

        return self._error(squares)

    def error_of_correlation(
        self,
        shift_x: Floats | float,
        shift_y: Floats | float,
        scale: Floats | float,
        t: Floats,
    ) -> _Errors:
        """Of the total of a b - t/2 (a^2 + b^2), a = scale X, b = Y/scale; and the influence.

        It is ((1 - t)(a + b)^2 - (1 + t)(a - b)^2)/4: by Minkowski its root mean square is at most
        the sum of those of both terms.
        """

        def squares(part: StandardisedPairs) -> _Read:
            cross, square_a, square_b = part.sums(shift_x, shift_y)
            square_a, square_b = square_a * scale**2, square_b / scale**2
            region = part.region.moved((shift_x, shift_y), scale)
            both = np.maximum(square_a + square_b + 2.0 * cross, 0.0)
            apart = np.maximum(square_a + square_b - 2.0 * cross, 0.0)
            plain = (square_a + square_b) / 2.0
            ends = region.range_of(-t / 2.0, 1.0, -t / 2.0)
            # |g| <= ((1 - t)(a + b)^2 + (1 + t)(a - b)^2)/4 = (a^2 + b^2)/2 - t a b.
            first = np.maximum(-ends[0], ends[1]) * np.maximum(plain - t * cross, 0.0)
            far_both, far_apart = (region.largest(each) for each in (np.add, np.subtract))
            # For |t| <= 1 both terms have their signs: g^2 is at most the sum of their squares.
            weight_both, weight_apart = np.abs(1.0 - t) / 4.0, np.abs(1.0 + t) / 4.0
            apart_only = (weight_both * far_both) ** 2 * both
            apart_only = apart_only + (weight_apart * far_apart) ** 2 * apart
            root = weight_both * far_both * np.sqrt(both)
            root = root + weight_apart * far_apart * np.sqrt(apart)
            inside = np.abs(t) <= 1.0
            found = np.where(inside, np.minimum(first, apart_only), root**2)
            form, total = (-t / 2.0, 1.0, -t / 2.0), cross - t * plain
            known = part.squares_of(form, (shift_x, shift_y), scale, total)
            return total, (found, known), ends

        return self._error(squares)

    def error_of_ratio(self) -> Floats:
        """Of the total of (x^2 - y^2)/2 = (x + y)(x - y)/2."""

        def squares(part: StandardisedPairs) -> _Read:
            cross, square_x, square_y = part.sums(0.0, 0.0)
            both, apart = square_x + square_y + 2.0 * cross, square_x + square_y - 2.0 * cross
            both, apart = np.maximum(both, 0.0), np.maximum(apart, 0.0)
            far = part.region.largest(np.add), part.region.largest(np.subtract)
            found = np.minimum(far[0] ** 2 * apart, far[1] ** 2 * both) / 4.0
            # By Cauchy and Schwarz the sum of |z| is at most half of the root of both * apart.
            ends = part.region.range_of(0.5, 0.0, -0.5)
            reach = np.maximum(-ends[0], ends[1])
            found = np.minimum(found, reach * np.sqrt(both * apart) / 2.0)
            total, nothing = (square_x - square_y) / 2.0, np.zeros(len(cross))
            known = part.squares_of((0.5, 0.0, -0.5), (0.0, 0.0), 1.0, total)
            return total, (found, known), (nothing, nothing)

        return self._error(squares).error

    def _error(self, squares: Callable[[StandardisedPairs], _Read]) -> _Errors:
        """The standard error of a total, with what one pair can do to it on either side."""
        variance: Floats = np.zeros(len(self.size))
        below: Floats = np.zeros(len(self.size))
        above: Floats = np.zeros(len(self.size))
        for part in self.parts:
            stratum = part.stratum
            if not stratum.skipped:
                continue
            total, (bound, known), (low, high) = squares(part)
            variance = variance + _variance(stratum, total, np.fmin(bound, known))
            if not stratum.whole:
                low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
            average = total / max(stratum.read, 1)
            factor = stratum.factor if stratum.read >= 2 else np.inf
            below = np.maximum(below, factor * (average - low))
            above = np.maximum(above, factor * (high - average))
        return _Errors(np.sqrt(variance), (below, above), self.limit)

    def chords(
        self,
        above: Floats,
        below: Floats,
        errors: Callable[[Floats], _Errors],
        largest: float = np.inf,
    ) -> Ends:
        """The least and the largest t with |above - t below| <= half(error(t)) at any node.

        largest: size of t; where no chord shows that all beyond is ruled out, the end is there.
        """
        middle, ends = above / below, []
        here = errors(middle).raised
        for end, side in enumerate((-1.0, 1.0)):
            half = self.half(here[end]) / below
            room = np.maximum(largest - side * middle, 0.0)
            found = np.where(half == 0.0, 0.0, np.nan)
            for beyond in _BEYOND:
                step = np.minimum(beyond * half, room)
                there = errors(middle + side * step).raised[end]
                away = half / (1.0 - (self.half(there) / below - half) / step)
                away = np.where((away >= 0.0) & (away <= step), away, np.nan)
                found = np.where(np.isnan(found), away, found)
            if largest < np.inf:
                found = np.where(np.isnan(found) & np.isfinite(half), room, found)
            ends.append(middle + side * found)
        return ends[0].min(axis=0), ends[1].max(axis=0)

    def certified(self, ends: Ends, errors: _Errors, scale: Floats) -> Certified:
        """The ends where rho is small enough, in the unit of the values."""
        counts = _total(p.stratum.counts for p in self.parts)
        holds = (errors.error > 0.0) & (counts >= 2.0)
        holds &= ~np.isnan(ends[0] + ends[1])
        slack = _DIGITS_LOST / (self.spreads[0] * self.spreads[1])
        low, high = (
            np.where(holds, end * scale, np.nan) for end in (ends[0] - slack, ends[1] + slack)
        )
        return Certified(low, high, errors.error / self.size * scale)


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


def _total(parts: object) -> Floats:
    return np.asarray(sum(parts), np.float64)  # type: ignore[call-overload]
