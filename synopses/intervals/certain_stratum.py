"""Sums, means and variances of a population of which some values are known for certain.

The certain stratum holds rows by their values alone (the most extreme ones, say), so the sampled
rows that are not in it are a simple random sample without replacement of all others. Their range
is narrower than that of all values: an interval for them, moved by what is certain, is one for all.

Source: Chaudhuri, Das, Datar, Motwani, Narasayya 2001, ICDE (outlier indexing); Cochran 1977,
Sampling Techniques, 5 (a stratum that is read in full adds no error).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sums import sampled_sum
from synopses.intervals.variance import sampled_variance
from synopses.model.estimate import Bound
from synopses.model.parameters import error_share

Floats = NDArray[np.float64]

# Of the range of all values, that of the others may be at most this; with a wider one, what is
# spent for the number of the others costs more than their range gains.
NARROWED_MAX: Final = 0.75
_COUNT_SHARE: Final = 0.05  # Of delta, for the number of the others: it widens a mean by 1 %.
_EPSILON: Final = 2.0**-52
_MEAN_SHARE: Final = 0.2  # Of delta, for the mean of the others in a variance.


@dataclass(frozen=True, slots=True, eq=False)
class CertainValues:
    """Values of each group that are known for certain.

    counts: float64 [groups], whole. means: float64 [groups], 0 where there is no value.
    squares: float64 [groups], the sum of squared distances from the mean.
    greatest: float64 [groups], the largest absolute value.
    """

    counts: Floats
    means: Floats
    squares: Floats
    greatest: Floats

    @classmethod
    def of(cls, values: Floats, *, ids: NDArray[np.int64], groups: int) -> Self:
        """Of finite values, each with the number of its group."""
        counts = np.bincount(ids, minlength=groups).astype(np.float64)
        firsts = np.zeros(groups)  # Distances from a value of the group round less than values.
        firsts[ids[::-1]] = values[::-1]
        with np.errstate(over="ignore", invalid="ignore"):
            shifted = np.bincount(ids, values - firsts[ids], minlength=groups)
            means = firsts + shifted / np.maximum(counts, 1.0)
            squares = np.bincount(ids, (values - means[ids]) ** 2, minlength=groups)
        greatest = np.zeros(groups)
        np.maximum.at(greatest, ids, np.abs(values))
        return cls(counts, means, squares.astype(np.float64), greatest)

    @property
    def any(self) -> NDArray[np.bool_]:
        """bool [groups], whether there is a value."""
        return self.counts > 0

    @property
    def totals(self) -> Floats:
        """float64 [groups], the sums."""
        return self.counts * self.means

    @property
    def are_finite(self) -> bool:
        """Return whether doubles hold all sums and squares."""
        return bool(np.isfinite(self.totals).all() and np.isfinite(self.squares).all())

    @property
    def rounding(self) -> Floats:
        """float64 [groups], more than the sums can be rounded by: Higham 2002, 4.2."""
        return _EPSILON * (self.counts + 4.0) * self.counts * self.greatest

    def of_groups(self, chosen: NDArray[np.bool_]) -> Self:
        """The values of some groups."""
        columns = (self.counts, self.means, self.squares, self.greatest)
        return type(self)(*(column[chosen] for column in columns))


def sum_with_certain(
    others: SampledValues, certain: CertainValues, *, confidence: float
) -> Intervals:
    """The sum of each group: what is certain, and `sampled_sum` of the others.

    Args:
      others: the sample without the certain rows; its population and range are those of the others.
      certain: of the same groups. confidence: of each interval.
    """
    found = sampled_sum(others, confidence=confidence)
    value, low, high = (end + certain.totals for end in (found.value, found.low, found.high))
    slack = certain.rounding
    return replace(found, value=value, low=low - slack, high=high + slack)


@np.errstate(over="ignore", invalid="ignore")
def mean_with_certain(
    others: SampledValues, certain: CertainValues, *, confidence: float
) -> Intervals:
    """The average of each group: (S + K u)/(k + K) of k certain values with sum S and K others.

    The interval of u, the mean of the others, is that of `sampled_mean`, and K lies between the
    hypergeometric's exact bounds, which cost a twentieth of delta (union bound). The average rises
    with u and is monotone in K, so both its ends are at corners. Where there is no certain
    value it is u, and where K is known it is linear in u: then u has all of delta.

    Arguments as of `sum_with_certain`.

    Returns:
      means: [groups]; NaN where no value was seen, with the range of the others as its ends.
    """
    if others.everything:
        return _linear(others, certain, sampled_mean(others, confidence=confidence))
    apart = certain.counts > 0
    found = _scattered(apart, sampled_mean(others.of_groups(~apart), confidence=confidence))
    if not apart.any():
        return found
    delta = error_share(confidence)
    some, known = others.of_groups(apart), certain.of_groups(apart)
    mean = sampled_mean(some, confidence=1.0 - (1.0 - _COUNT_SHARE) * delta)
    first, last = _counts(some, _COUNT_SHARE * delta)
    corners = [
        [_joined_mean(known, end, count) for count in (first, last)]
        for end in (mean.low, mean.high)
    ]
    low, high = np.minimum(*corners[0]), np.maximum(*corners[1])
    expected = some.matched * some.populations / np.maximum(some.reads, 1)
    value = _joined_mean(known, np.where(some.matched > 0, mean.value, 0.0), expected)
    slack = known.rounding / known.counts
    return _placed(found, apart, Intervals.of(value, low - slack, high + slack))


@np.errstate(over="ignore", invalid="ignore")
def variance_with_certain(
    others: SampledValues, certain: CertainValues, *, confidence: float
) -> Intervals:
    """The sample variance of each group over its k certain values and K others.

    With Q the certain sum of squares around the mean m of these, and the others' mean u and
    variance V: (Q + (K - 1) V + k K/(k + K) (m - u)^2)/(k + K - 1). u has a fifth of delta, K a
    twentieth if it is not known, V the rest. Each of the three terms is bounded by itself: in K the
    first falls, the second rises, and the third has one maximum, at sqrt(k^2 - k); for k = 1 at 1,
    as K is whole and the third is 0 at K = 0.

    Arguments as of `sum_with_certain`.

    Returns:
      variances: [groups], >= 0; NaN for a group of which fewer than two values were seen.
    """
    apart = certain.counts > 0
    if others.everything and not apart.all():
        return sampled_variance(others, confidence=confidence)
    found = _scattered(apart, sampled_variance(others.of_groups(~apart), confidence=confidence))
    if not apart.any():
        return found
    delta = error_share(confidence)
    some, known = others.of_groups(apart), certain.of_groups(apart)
    count_share = 0.0 if some.everything else _COUNT_SHARE
    mean = sampled_mean(some, confidence=1.0 - _MEAN_SHARE * delta)
    spread = sampled_variance(some, confidence=1.0 - (1.0 - _MEAN_SHARE - count_share) * delta)
    first, last = _counts(some, count_share * delta)
    apart_low = np.maximum(np.maximum(mean.low - known.means, known.means - mean.high), 0.0)
    apart_high = np.maximum(mean.high - known.means, known.means - mean.low)
    peak = np.sqrt(known.counts * (known.counts - 1.0))
    peak = np.clip(np.maximum(peak, 1.0), first, last)
    low = _terms(known, (last, first), spread.low) + apart_low**2 * np.minimum(
        _between(known.counts, first), _between(known.counts, last)
    )
    high = _terms(known, (first, last), spread.high) + apart_high**2 * _between(known.counts, peak)
    expected = some.matched * some.populations / np.maximum(some.reads, 1)
    seen = np.where(some.matched > 0, mean.value, known.means)
    value = _terms(known, (expected, expected), np.nan_to_num(spread.value, nan=0.0))
    value += (seen - known.means) ** 2 * _between(known.counts, expected)
    value[known.counts + some.matched < 2] = np.nan
    high = np.where(np.isnan(high), np.inf, high)
    slack = _EPSILON * (known.counts + 8.0) * high
    low = np.maximum(np.nan_to_num(low - slack), 0.0)
    return _placed(found, apart, Intervals.of(value, low, high + slack))


def _linear(others: SampledValues, certain: CertainValues, mean: Intervals) -> Intervals:
    """The mean of a column whose others are counted."""
    count = others.populations.astype(np.float64)
    value, low, high = (
        _joined_mean(certain, end, count) for end in (mean.value, mean.low, mean.high)
    )
    slack = certain.rounding / np.maximum(certain.counts + count, 1.0)
    share = count / np.maximum(count + certain.counts, 1.0)
    variance = mean.variance * share**2
    return replace(mean, value=value, low=low - slack, high=high + slack, variance=variance)


def _joined_mean(certain: CertainValues, mean: Floats, count: Floats) -> Floats:
    """The mean of the certain values and of `count` others."""
    share = certain.counts / np.maximum(certain.counts + count, 1.0)
    joined = certain.means * share + np.where(share < 1.0, mean * (1.0 - share), 0.0)
    return np.where(np.isinf(mean), mean, joined)


def _counts(others: SampledValues, delta: float) -> tuple[Floats, Floats]:
    """Bounds of how many others there are in each group; known ones for delta = 0."""
    if others.everything:
        count = others.populations.astype(np.float64)
        return count, count
    found = matching_count(
        population=others.populations,
        read=others.reads,
        matched=others.matched,
        confidence=1.0 - delta,
    )
    return found.low, found.high


def _terms(certain: CertainValues, counts: tuple[Floats, Floats], variance: Floats) -> Floats:
    """Q and (K - 1) V over k + K - 1; counts: K of either."""
    own = certain.squares / np.maximum(certain.counts + counts[0] - 1.0, 1.0)
    rest = np.maximum(counts[1] - 1.0, 0.0)
    share = rest / np.maximum(certain.counts + counts[1] - 1.0, 1.0)
    return own + np.where(share > 0.0, share * variance, 0.0)


def _between(certain: Floats, others: Floats) -> Floats:
    """k K/((k + K)(k + K - 1)), what the squared distance of the two means counts for."""
    both = certain + others
    return certain * others / np.maximum(both * (both - 1.0), 1.0)


def _scattered(apart: NDArray[np.bool_], found: Intervals) -> Intervals:
    """The intervals of the groups that are not apart, among those of all groups."""
    nothing = np.full(len(apart), np.nan)
    bound = np.full(len(apart), np.uint8(Bound.NONE))
    return _placed(Intervals(nothing, nothing, nothing, bound, nothing), ~apart, found)


def _placed(into: Intervals, chosen: NDArray[np.bool_], found: Intervals) -> Intervals:
    """Intervals of all groups, with those of the chosen ones put in."""
    columns = []
    for name in ("value", "low", "high", "bound", "variance"):
        column = getattr(into, name).copy()
        column[chosen] = getattr(found, name)
        columns.append(column)
    return Intervals(*columns)
