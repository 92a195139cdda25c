"""Intervals of variances (VAR) from a uniform sample: normal where certified, else by betting."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.betting import mean_of_matches
from synopses.intervals.from_moments import Floats
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.interval import Intervals
from synopses.intervals.normal import rho, rho_max, two_sided
from synopses.intervals.proportions import binomial_share
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.unknown_mean import over_means
from synopses.intervals.variance_bets import variances_by_bets
from synopses.model.overflow import in_range
from synopses.model.parameters import error_share

Integers = NDArray[np.int64]

# Parts of delta, for what hardly moves the ends: the interval of the mean, the number of matches.
_MEAN_SHARE: Final = 0.04
_COUNT_SHARE: Final = 0.02
_FINITE_FACTOR: Final = 0.5  # Unread share below which the factor 1 - n/N narrows by more.


@np.errstate(over="ignore", invalid="ignore")
def sampled_variance(sample: SampledValues, *, confidence: float) -> Intervals:
    """The sample variance (n - 1 below the line) of each group over all its tuples.

    Certified: the average of e = (y - mean)^2, normal where e's own rho is small enough, united
    over the means that may be (`over_means`). The least e is 0, so rho counts a value at the mean.
    Elsewhere betting on squared distances from the mean of earlier rows (`variances_by_bets`), with
    no approximation: it reads nothing but the range. Small parts of delta pay for an interval of
    the mean, which the lower end needs, and for the least number of matches.
    Of two whole numbers in a row: from exact bounds of the share of the larger (`_of_two_values`).

    Returns:
      variances: [groups], >= 0; exact where n = N; NaN for a group with fewer than two
      matching rows read, its ends 0 and what the range allows; infinite where squares are beyond
      the range of doubles.
    """
    mean, squares = sample.moments()
    matched = sample.matched.astype(np.float64)
    value = np.where(matched >= 2, squares / np.maximum(matched - 1.0, 1.0), np.nan)
    value[(matched >= 2) & ~(in_range(squares) | _constant(sample))] = np.inf
    if sample.complete.all():
        return Intervals.of(value, value, value, exact=True)
    rows = np.maximum(matched, 1.0)
    average = squares / rows
    spread, cross = _spread(sample.starts, sample.values, mean, average)
    reach = np.maximum(sample.high - mean, mean - sample.low) ** 2
    unread_share = sample.unread_share
    freedom = np.maximum(matched - 1.0, 1.0)
    found = rho(
        np.maximum(reach - average, average),
        np.sqrt(spread / freedom),
        read=matched,
        unread_share=unread_share,
    )
    certified = (found <= rho_max(confidence)) & (matched >= 2) & in_range(spread)
    share = unread_share / rows / freedom  # Of a sum of squares, for the variance of the average.
    error = np.sqrt(share * spread)
    factor = two_sided(matched - 1.0, confidence=confidence)
    away = factor * np.sqrt(share * squares)
    below, above = (
        factor * np.sqrt(share * np.maximum(spread - 4.0 * step * (cross - step * squares), 0.0))
        for step in (-away, away)
    )
    normal = over_means(average, away, factor * error, (below, above))
    low, high = _by_betting(sample, wanted=~certified & ~sample.complete, confidence=confidence)
    low, high = np.nan_to_num(low, posinf=np.inf), np.where(np.isnan(high), np.inf, high)
    # From the average of squares to the sample variance: K/(K - 1) for K = N/n times m matches.
    matches = matched * sample.populations / np.maximum(sample.reads, 1)
    stretch = matches / np.maximum(matches - 1.0, 1.0)
    limit = (sample.high - sample.low) ** 2 / 4.0 * rows / freedom
    low = np.where(certified, normal[0] * stretch, low)
    high = np.where(certified, np.minimum(normal[1] * stretch, limit), high)
    if sample.two_valued.any():
        # Without the number of matches the exact bounds lack the factor of a finite population.
        narrower = sample.everything | ~certified | (unread_share >= _FINITE_FACTOR)
        chosen = sample.two_valued & narrower & ~sample.complete
        first, last = _of_two_values(sample, confidence=confidence)
        low, high = np.where(chosen, first, low), np.where(chosen, last, high)
        certified &= ~chosen
    return Intervals.of(
        value,
        np.where(sample.complete, value, low),
        np.where(sample.complete, value, high),
        exact=sample.complete,
        variance=np.where(certified, error**2, np.nan),
    ).clipped(np.zeros(sample.groups), np.full(sample.groups, np.inf))


def sampled_deviation(sample: SampledValues, *, confidence: float) -> Intervals:
    """The sample standard deviation."""
    return deviation(sampled_variance(sample, confidence=confidence))


def deviation(variance: Intervals) -> Intervals:
    """Of the variance the roots, and those of its ends."""
    exact = variance.bound == 0
    return Intervals.of(
        np.sqrt(variance.value), np.sqrt(variance.low), np.sqrt(variance.high), exact=exact
    )


def _constant(sample: SampledValues) -> NDArray[np.bool_]:
    """Return whether the values of each group are one and the same; so are none."""
    matched = np.diff(sample.starts)
    firsts = sample.values[np.repeat(sample.starts[:-1], matched)]
    differing = np.concatenate([[0], np.cumsum(sample.values != firsts)])
    found: NDArray[np.bool_] = np.diff(differing[sample.starts]) == 0
    return found


def _of_two_values(sample: SampledValues, *, confidence: float) -> tuple[Floats, Floats]:
    """Bounds for the variance of a column of two values that are 1 apart.

    K values of which a share p is the larger one have the sample variance p (1 - p) K/(K - 1). The
    exact bounds of p are the hypergeometric's where K = N, else the binomial's: draws without
    replacement vary less. p (1 - p) is largest at 1/2 and falls to both sides.
    """
    larger = np.concatenate(
        [[0], np.cumsum(np.repeat(sample.high, sample.matched) == sample.values)]
    )
    ones, matched = np.diff(larger[sample.starts]), sample.matched
    if sample.everything:
        size = sample.populations.astype(np.float64)
        counts = matching_count(
            population=sample.populations, read=sample.reads, matched=ones, confidence=confidence
        )
        shares, middle = counts.scaled(1.0 / float(size[0])), np.floor(size / 2.0) / size
        stretch = least = size / np.maximum(size - 1.0, 1.0)
    else:
        shares = binomial_share(drawn=matched, matched=ones, confidence=confidence)
        middle, least = np.full(sample.groups, 0.5), np.ones(sample.groups)
        # K is at least m, and at least 2 if there is a variance.
        stretch = np.where(matched >= 2, matched / np.maximum(matched - 1.0, 1.0), 2.0)
    nearest = np.clip(middle, shares.low, shares.high)
    low = np.minimum(shares.low * (1.0 - shares.low), shares.high * (1.0 - shares.high))
    return low * least, nearest * (1.0 - nearest) * stretch


def _by_betting(
    sample: SampledValues, *, wanted: NDArray[np.bool_], confidence: float
) -> tuple[Floats, Floats]:
    """Bounds for the variance, whatever the distribution in the known range."""
    delta = error_share(confidence)
    wide = np.where(wanted, sample.high, sample.low)
    first, last = mean_of_matches(
        sample,
        low=sample.low,
        high=sample.high,
        wanted=wanted,
        confidence=1.0 - _MEAN_SHARE * delta,
        learning=False,
    )
    found = variances_by_bets(
        sample.starts,
        sample.values,
        sample.reads - sample.matched,
        np.stack([sample.low, wide], axis=1),
        np.stack([first, last], axis=1),
        sample.populations.copy(),
        ((1.0 - _MEAN_SHARE - _COUNT_SHARE) * delta, np.uint64(sample.shuffle_seed)),
    )
    low, high = found[:, 0], found[:, 1]
    # Bhatia & Davis 2000: no variance is above (high - m)(m - low), for every mean m that may be.
    mean = np.clip((sample.low + sample.high) / 2.0, first, last)
    high = np.minimum(high, (sample.high - mean) * (mean - sample.low))
    # From the average of squares to the sample variance: K/(K - 1) for K matches of all tuples.
    fewest = _fewest(sample, 2.0 * _COUNT_SHARE * delta)
    return low, high * np.where(fewest >= 2.0, fewest / np.maximum(fewest - 1.0, 1.0), 2.0)


def _fewest(sample: SampledValues, delta: float) -> Floats:
    """The least number of matches that is believable, with probability 1 - delta/2."""
    if sample.everything:
        return sample.populations.astype(np.float64)
    return matching_count(
        population=sample.populations,
        read=sample.reads,
        matched=sample.matched,
        confidence=1.0 - delta,
    ).low


@njit(nogil=True, cache=True)
def _spread(
    starts: Integers, values: Floats, mean: Floats, average: Floats
) -> tuple[Floats, Floats]:
    """With a = y - mean and e = a^2 - average: each group's sum of e^2, and of e a."""
    spread = np.zeros(len(mean))
    cross = np.zeros(len(mean))
    for group in range(len(mean)):
        for row in range(starts[group], starts[group + 1]):
            away = values[row] - mean[group]
            e = away * away - average[group]
            spread[group] += e * e
            cross[group] += e * away
    return spread, cross
