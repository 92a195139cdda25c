"""Counts, sums and averages of groups when each stratum was read at its own share.

A stratum is all that was to be read at one level; what was read of it is a simple random sample
without replacement. One that was read in full is a stratum, too: it adds no error. Where the
total is certified normal, variances add; elsewhere the union bound puts them together.
Source: estimators.md 1, 2, 4, 5 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.combine import split_confidence
from synopses.intervals.from_moments import Ends, Floats, mean_bounds
from synopses.intervals.hypergeometric import matching_count, matching_count_max
from synopses.intervals.interval import Intervals
from synopses.intervals.normal import rho_max, two_sided
from synopses.out_of_range import in_range
from synopses.parameters import error_share

Error = tuple[Floats, Floats]
_PLAIN: Final = 2.0**-230, 2.0**230  # Between them fourth powers and sums of many are doubles.
_DIGITS_LOST: Final = 1e-9  # Of a difference, beside what it is the difference of.


@dataclass(frozen=True, slots=True, eq=False)
class SquareMoments:
    """How the squares y^2 of what was read are spread, group by group: float64 [groups].

    cross: the sum of (y - mean y)(y^2 - mean y^2). squares: that of (y^2 - mean y^2)^2.
    """

    cross: Floats
    squares: Floats

    def spread_about(self, center: Floats | float, squares: Floats) -> Floats:
        """The sum of squared distances of (y - center)^2 from its mean; squares: that of y.

        NaN where the digits are lost: of values far from zero beside their spread.
        """
        terms = self.squares, -4.0 * center * self.cross, 4.0 * center**2 * squares
        found = sum(terms)
        lost = found <= _DIGITS_LOST * sum(map(np.abs, terms))
        return np.where(lost | ~np.isfinite(found), np.nan, found)


@dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """What was read of a stratum, group by group.

    population: N values that there were; read: n of them that were read, of all groups.
    counts: int64 [groups], of those read. means, squares: float64 [groups], their mean (0 where
      there is none) and the sum of squared distances from it.
    low, high: a range that holds all N values; may be infinite.
    whole: every value belongs to the one group.
    shape: what is known of the squares of these values; None: nothing.
    """

    population: int
    read: int
    counts: NDArray[np.int64]
    means: Floats
    squares: Floats
    low: float
    high: float
    whole: bool
    shape: SquareMoments | None = None

    @property
    def skipped(self) -> int:
        """Values that were not read."""
        return self.population - self.read

    @property
    def unread_share(self) -> float:
        """1 - n/N."""
        return self.skipped / self.population if self.population else 0.0

    @property
    def seen(self) -> Floats:
        """The sum of what was read."""
        return np.where(self.counts > 0, self.counts * self.means, 0.0)

    @property
    def factor(self) -> float:
        """N/n; 0 where nothing was read."""
        return self.population / self.read if self.read else 0.0

    def in_unit(self, unit: float) -> Stratum:
        """The same values in another unit, as from `unit_of`.

        Squares of which underflow or overflow took digits become the largest that the range allows.
        """
        if unit == 1.0:
            return self
        low, high = self.low / unit, self.high / unit
        most = self.counts * ((high - low) / 2.0) ** 2
        kept = in_range(self.squares)
        squares = np.where(kept, np.where(kept, self.squares, 0.0) / unit / unit, most)
        means = self.means / unit
        return replace(self, means=means, squares=squares, low=low, high=high, shape=None)

    def ends(self) -> tuple[float, float]:
        """The range of what a value adds to a group's sum: one of another group adds 0."""
        if self.whole:
            return self.low, self.high
        return min(self.low, 0.0), max(self.high, 0.0)

    def certain_sum(self) -> Ends:
        """What the sum cannot be beyond, whatever was skipped."""
        low, high = (0.0 if end == 0.0 else self.skipped * end for end in self.ends())
        if not self.skipped:
            low = high = 0.0
        return self.seen + low, self.seen + high


def unit_of(strata: Sequence[Stratum]) -> float:
    """A power of two in which fourth powers of all values are doubles: 1 but for extreme values."""
    ends = np.abs([end for s in strata for end in (s.low, s.high)])
    top = float(ends[np.isfinite(ends)].max(initial=0.0))
    if top == 0.0 or _PLAIN[0] <= top <= _PLAIN[1]:
        return 1.0
    return math.ldexp(1.0, math.frexp(top)[1] - 1)


def stratified_count(strata: Sequence[Stratum], *, confidence: float) -> Intervals:
    """How many values each group has: the hypergeometric of each stratum, by the union bound.

    Returns: counts, [groups]; exact where no stratum skipped any.
    """
    each = _each(strata, confidence)
    found = [
        matching_count(population=s.population, read=s.read, matched=s.counts, confidence=each)
        for s in strata
    ]
    value = sum(np.nan_to_num(part.value, nan=0.0) for part in found)
    low, high = sum(part.low for part in found), sum(part.high for part in found)
    return Intervals.of(_floats(value), _floats(low), _floats(high), exact=_nothing_skipped(strata))


def stratified_sum(strata: Sequence[Stratum], *, confidence: float) -> Intervals:
    """The sum of each group's values.

    Normal with the finite-population factor where the total is certified (`normal_half`, with the
    largest deviation from the known range). Elsewhere, per stratum, the best of the bounds that
    hold together: Chernoff's and Bernstein-Serfling's for the mean of what values add, and the
    largest believable number of the group's values at an end of the range.

    Returns: sums, [groups]; exact where nothing was skipped, NONE where the range is infinite on
    both sides and something was.
    """
    each = _each(strata, confidence)
    errors = [_sum_error(s) for s in strata]
    half = normal_half(strata, errors, confidence)
    certified = ~np.isnan(half)
    value = _floats(sum(s.factor * s.seen for s in strata))
    low, high = np.zeros(len(value)), np.zeros(len(value))
    for stratum, error in zip(strata, errors, strict=True):
        alone = normal_half([stratum], [error], each)
        first, last = _free_sum(stratum, 1.0 - each)
        middle, ok = stratum.factor * stratum.seen, ~np.isnan(alone)
        low += np.where(ok, middle - alone, first)
        high += np.where(ok, middle + alone, last)
    certain = [stratum.certain_sum() for stratum in strata]
    return Intervals.of(
        value,
        np.where(certified, value - half, low),
        np.where(certified, value + half, high),
        exact=_nothing_skipped(strata),
        variance=np.where(certified, _variance(errors), np.nan),
    ).clipped(_floats(sum(c[0] for c in certain)), _floats(sum(c[1] for c in certain)))


def stratified_mean(strata: Sequence[Stratum], *, confidence: float) -> Intervals:
    """The average of each group's values.

    Without groups the number of values is known, and the sum is divided by it. With groups it is
    a ratio of two estimates: linearised where the total of e = y - mean is certified. Elsewhere
    the best of two, at delta/2 each: no average is outside of those of all its strata, and bounds
    of the sum and of the number of values divided crosswise.

    Returns: means, [groups]; NaN for a group of which no value was read.
    """
    members = sum(s.population for s in strata)
    if all(s.whole for s in strata):
        if not members or not sum(s.read for s in strata):
            return _unseen(strata)
        return stratified_sum(strata, confidence=confidence).scaled(1.0 / members)
    size = _floats(sum(s.factor * s.counts for s in strata))
    known = size > 0
    value = _floats(sum(s.factor * s.seen for s in strata)) / np.where(known, size, 1.0)
    errors = [_mean_error(s, value) for s in strata]
    half = normal_half(strata, errors, confidence)
    certified = ~np.isnan(half) & known
    half = half / np.where(known, size, 1.0)
    low, high = free_mean(strata, 1.0 - confidence)
    found = Intervals.of(
        np.where(known, value, np.nan),
        np.where(certified, value - half, low),
        np.where(certified, value + half, high),
        exact=_nothing_skipped(strata) & known,
        variance=np.where(certified, _variance(errors) / np.where(known, size, 1.0) ** 2, np.nan),
    )
    return found.clipped(*_certain_mean(strata))


def free_mean(strata: Sequence[Stratum], delta: float) -> Ends:
    """Bounds for the average of each group's values, whatever their distribution."""
    if all(s.whole for s in strata):
        members = max(1, sum(s.population for s in strata))
        parts = [_free_sum(s, delta / _thinned(strata)) for s in strata]
        first, last = (_floats(sum(part[end] for part in parts)) / members for end in (0, 1))
        return first, last
    low, high = _hull(strata, delta / 2.0)
    if len([s for s in strata if s.population]) > 1:
        first, last = _crosswise(strata, delta / 2.0)
        # Without a common point one of the two has missed, as it may.
        meet = np.maximum(low, first) <= np.minimum(high, last)
        low = np.where(meet, np.maximum(low, first), low)
        high = np.where(meet, np.minimum(high, last), high)
    return low, high


def _hull(strata: Sequence[Stratum], delta: float) -> Ends:
    """No average is below the least or above the greatest of the averages of its strata."""
    groups = len(strata[0].counts)
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    for stratum in strata:
        first, last = stratum.means, stratum.means
        there = stratum.counts > 0
        if stratum.skipped:
            there = np.ones(groups, np.bool_)
            first, last = mean_bounds(
                stratum.counts.astype(np.float64),
                stratum.means,
                stratum.squares,
                low=np.full(groups, stratum.low),
                high=np.full(groups, stratum.high),
                population=None,
                delta=delta / _thinned(strata),
            )
        low = np.where(there, np.minimum(low, first), low)
        high = np.where(there, np.maximum(high, last), high)
    none = low > high
    return np.where(none, -np.inf, low), np.where(none, np.inf, high)


def _crosswise(strata: Sequence[Stratum], delta: float) -> Ends:
    parts = [_free_sum(s, delta / 2.0 / _thinned(strata)) for s in strata]
    low, high = (_floats(sum(part[end] for part in parts)) for end in (0, 1))
    count = stratified_count(strata, confidence=1.0 - delta / 2.0)
    fewest, most = np.maximum(count.low, 1.0), np.maximum(count.high, 1.0)
    return low / np.where(low >= 0, most, fewest), high / np.where(high >= 0, fewest, most)


def _sum_error(stratum: Stratum) -> Error:
    """Of the estimated sum."""
    n = max(stratum.read, 1)
    seen = stratum.seen
    spread = stratum.squares + seen * stratum.means * (1.0 - stratum.counts / n)
    low, high = stratum.ends()
    return error_of_total(stratum, seen / n, spread, (low, high))


def _mean_error(stratum: Stratum, mean: Floats) -> Error:
    """Of the total of y - mean over the group's values."""
    n = max(stratum.read, 1)
    away = np.where(stratum.counts > 0, stratum.means - mean, 0.0)
    total = stratum.counts * away
    spread = stratum.squares + total * away - total**2 / n
    low, high = np.minimum(stratum.low - mean, 0.0), np.maximum(stratum.high - mean, 0.0)
    return error_of_total(stratum, total / n, spread, (low, high))


def error_of_total(
    stratum: Stratum, average: Floats, spread: Floats, ends: tuple[Floats | float, Floats | float]
) -> Error:
    """How far a stratum's estimated total may be off, and what one value can do to it.

    Args:
      average: [groups], of what was read, per value read of any group. spread: [groups], the sum
        of squared distances from it. ends: the range that holds what each value adds.

    Returns:
      (error, influence): [groups], the standard error, and N/n times the largest distance of one
      value from the average; 0 where nothing was skipped.
    """
    groups = len(average)
    if not stratum.skipped:
        return np.zeros(groups), np.zeros(groups)
    n = stratum.read
    if n < 2:
        return np.zeros(groups), np.full(groups, np.inf)
    deviation = np.sqrt(np.maximum(spread, 0.0) / (n - 1))
    reach = np.maximum(ends[1] - average, average - ends[0])
    error = stratum.population * deviation * np.sqrt(stratum.unread_share / n)
    return error, np.asarray(stratum.factor * reach)


def normal_half(strata: Sequence[Stratum], errors: Sequence[Error], confidence: float) -> Floats:
    """Half of a normal interval for the total of all strata; NaN where it is not certified.

    Variances add. Hajek's rho, for the sum over strata: the most that one value of any of them can
    do to the total, over the standard error of the total; for one stratum it is that of normal.py.
    Student's t at the degrees of freedom of Satterthwaite.
    Source: Hajek 1960; Cochran 1977, Sampling Techniques, 5.4 (degrees of freedom).
    """
    variance = _variance(errors)
    influence = np.max([most for _, most in errors], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_degree = _floats(
            sum(error**4 / _freedom(s) for s, (error, _) in zip(strata, errors, strict=True))
        )
        freedom = np.where(per_degree > 0, variance**2 / per_degree, 1e9)
    certified = influence <= rho_max(confidence) * np.sqrt(variance)
    half = two_sided(freedom, confidence=confidence) * np.sqrt(variance)
    return np.where(certified, half, np.nan)


def _variance(errors: Sequence[Error]) -> Floats:
    """Of the total: those of strata, which were drawn apart, add."""
    return _floats(sum(error**2 for error, _ in errors))


def _freedom(stratum: Stratum) -> Floats:
    """Degrees of freedom of a stratum's variance."""
    read = np.full(len(stratum.counts), stratum.read) if stratum.whole else stratum.counts
    return np.asarray(np.maximum(read - 1.0, 1.0), np.float64)


def _free_sum(stratum: Stratum, delta: float) -> Ends:
    """Bounds for the sum over a stratum, whatever the distribution."""
    seen = stratum.seen
    if not stratum.skipped:
        return seen, seen
    groups, (low, high) = len(seen), stratum.ends()
    share = delta if stratum.whole else 2.0 * delta / 3.0
    n = max(stratum.read, 1)
    spread = stratum.squares + seen * stratum.means * (1.0 - stratum.counts / n)
    first, last = mean_bounds(
        np.full(groups, float(stratum.read)),
        seen / n,
        np.maximum(spread, 0.0),
        low=np.full(groups, low),
        high=np.full(groups, high),
        population=np.full(groups, float(stratum.population)),
        delta=share,
    )
    first, last = stratum.population * first, stratum.population * last
    if not stratum.whole:
        most = matching_count_max(
            population=stratum.population,
            read=stratum.read,
            matched=stratum.counts,
            confidence=1.0 - delta / 3.0,
        )
        rest = most - stratum.counts
        first = np.maximum(first, seen + _times(rest, low))
        last = np.minimum(last, seen + _times(rest, high))
    return np.minimum(first, last), last


def _certain_mean(strata: Sequence[Stratum]) -> Ends:
    """All skipped values are the group's and lie at one end of the range."""
    counts, seen = _floats(sum(s.counts for s in strata)), _floats(sum(s.seen for s in strata))
    skipped = sum(s.skipped for s in strata)
    lows, highs = range_of(strata)
    if not skipped:
        mean = seen / np.maximum(counts, 1.0)
        return mean, mean
    there = counts + skipped
    none = counts == 0
    low = (seen + skipped * lows) / there if np.isfinite(lows) else np.full(len(seen), -np.inf)
    high = (seen + skipped * highs) / there if np.isfinite(highs) else np.full(len(seen), np.inf)
    mean = seen / np.maximum(counts, 1.0)
    return np.where(none, lows, np.minimum(low, mean)), np.where(
        none, highs, np.maximum(high, mean)
    )


def range_of(strata: Sequence[Stratum]) -> tuple[float, float]:
    """The range of all values of the strata that skipped any; infinite if there is none."""
    thinned = [s for s in strata if s.skipped]
    if not thinned:
        return -np.inf, np.inf
    return min(s.low for s in thinned), max(s.high for s in thinned)


def _unseen(strata: Sequence[Stratum]) -> Intervals:
    low, high = range_of(strata)
    return Intervals.of(np.full(1, np.nan), np.full(1, low), np.full(1, high))


def _thinned(strata: Sequence[Stratum]) -> int:
    return max(1, sum(s.skipped > 0 for s in strata))


def _each(strata: Sequence[Stratum], confidence: float) -> float:
    error_share(confidence)
    return split_confidence(confidence, _thinned(strata))


def _nothing_skipped(strata: Sequence[Stratum]) -> NDArray[np.bool_]:
    nothing: NDArray[np.bool_] = np.full(len(strata[0].counts), not any(s.skipped for s in strata))
    return nothing


def _times(counts: Floats, end: float) -> Floats:
    """Counts times an end (0 times infinity is 0)."""
    with np.errstate(invalid="ignore"):
        product = counts * end
    return np.where((counts == 0.0) | (end == 0.0), 0.0, product)


def _floats(column: object) -> Floats:
    return np.asarray(column, np.float64)
