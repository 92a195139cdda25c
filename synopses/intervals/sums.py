"""Intervals of sums (SUM) from a uniform sample: normal where certified, else by betting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.betting import mean_of_tuples
from synopses.intervals.hypergeometric import matching_count
from synopses.intervals.interval import Intervals
from synopses.intervals.normal import rho, rho_max, two_sided
from synopses.intervals.sample_values import SampledValues
from synopses.model.overflow import in_range


@np.errstate(over="ignore", invalid="ignore")
def sampled_sum(sample: SampledValues, *, confidence: float) -> Intervals:
    """The sum over all N tuples of each group's values (0 where a tuple does not match).

    The estimate is N/n times the sampled sum. Its interval is normal with variance
    N^2 (1 - n/N) s^2 / n where Hajek's rho, with the largest deviation taken from the known
    range, is small enough (`normal.rho_max`; coverage then 0.93 to 0.96 at 95 %). Elsewhere it
    is distribution-free: betting on the mean (betting.py), or, where all values are one, the
    exact bounds of the count. Every interval is cut to what the range makes certain: the sum of
    what was read, and at worst the range's ends for what was not.
    Source: Cochran 1977, Sampling Techniques, 2.8; Hajek 1960 (see `normal.rho_max`).

    Returns:
      sums: [groups]; exact where n = N; with a variance where certified; NONE where the range is
      infinite on both sides and tuples were skipped; NaN where nothing at all was read.
    """
    population, read = sample.populations, sample.reads
    mean, squares = sample.moments()
    seen = np.where(sample.matched > 0, sample.matched * mean, 0.0)
    if sample.complete.all():
        return Intervals.of(seen, seen, seen, exact=True)
    low, high = _range_of_tuples(sample)
    certain = seen + _times(population - read, low), seen + _times(population - read, high)
    nothing = read == 0
    if nothing.all():
        return Intervals.of(np.full(len(seen), np.nan), *certain)
    reads = np.maximum(read, 1).astype(np.float64)
    average = seen / reads
    # Squared deviations of all n rows: those of the matches, and between matches and zeros.
    spread = squares + np.where(sample.matched > 0, seen * mean, 0.0) * (1 - sample.matched / reads)
    deviation = np.sqrt(spread / np.maximum(reads - 1, 1))
    unread_share = sample.unread_share
    reach = np.maximum(high - average, average - low)
    found = rho(reach, deviation, read=reads, unread_share=unread_share)
    certified = (found <= rho_max(confidence)) & ~nothing & in_range(spread)
    error = population * deviation * np.sqrt(unread_share / reads)
    half = two_sided(reads - 1.0, confidence=confidence) * error
    free_low, free_high = _free(sample, (low, high), ~certified & ~sample.complete, confidence)
    return Intervals.of(
        np.where(nothing, np.nan, population * average),
        np.where(certified, population * average - half, free_low),
        np.where(certified, population * average + half, free_high),
        exact=sample.complete,
        variance=np.where(certified, error**2, np.nan),
    ).clipped(*certain)


def _free(
    sample: SampledValues,
    ends: tuple[NDArray[np.float64], NDArray[np.float64]],
    wanted: NDArray[np.bool_],
    confidence: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distribution-free ends of the sums, where wanted."""
    low, high = mean_of_tuples(
        sample, low=ends[0], high=ends[1], wanted=wanted, confidence=confidence
    )
    low, high = _times(sample.populations, low), _times(sample.populations, high)
    constant = wanted & (sample.low == sample.high) & (not sample.everything)
    if constant.any():
        counts = matching_count(
            population=sample.populations[constant],
            read=sample.reads[constant],
            matched=sample.matched[constant],
            confidence=confidence,
        )
        products = np.stack([counts.low, counts.high]) * sample.low[constant]
        low[constant], high[constant] = products.min(axis=0), products.max(axis=0)
    return low, high


def _range_of_tuples(sample: SampledValues) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The range of what a tuple adds to the sum: a tuple that does not match adds 0."""
    if sample.everything:
        return sample.low, sample.high
    return np.minimum(sample.low, 0.0), np.maximum(sample.high, 0.0)


def _times(counts: NDArray[np.int64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Counts times ends (0 times infinity is 0)."""
    with np.errstate(invalid="ignore"):
        return np.where((ends == 0.0) | (counts == 0), 0.0, counts * ends)
