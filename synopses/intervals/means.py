"""Intervals of means (AVG) of groups from a uniform sample: a ratio of two estimated totals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.betting import mean_of_matches
from synopses.intervals.interval import Intervals
from synopses.intervals.normal import rho, rho_max, two_sided
from synopses.intervals.sample_values import SampledValues
from synopses.model.overflow import in_range


def sampled_mean(sample: SampledValues, *, confidence: float) -> Intervals:
    """The average of each group's values over all tuples that match, read or not.

    Given how many of the rows read match, those m are a simple random sample of the matching
    ones. Linearised, the error is that of e = y - r over the matches: normal with Student's t at
    m - 1 degrees of freedom where e's own rho is small enough. Elsewhere betting on the mean of
    the m values themselves, which needs neither the number of matches nor a bound for it, and is
    narrower than dividing the bounds of numerator and denominator crosswise. Cut to what is
    certain: the skipped tuples could all match and lie at one end of the range.
    Source: Cochran 1977, Sampling Techniques, 2.11 and 6.

    Returns:
      means: [groups]; exact where n = N; NaN for a group without a matching row read, with the
      known range as its ends.
    """
    mean, squares = sample.moments()
    matched = sample.matched.astype(np.float64)
    if sample.complete.all():
        return Intervals.of(mean, mean, mean, exact=True)
    unread_share = sample.unread_share
    deviation = np.sqrt(squares / np.maximum(matched - 1.0, 1.0))
    reach = np.maximum(sample.high - mean, mean - sample.low)
    found = rho(reach, deviation, read=matched, unread_share=unread_share)
    certified = (found <= rho_max(confidence)) & (matched >= 2) & in_range(squares)
    error = deviation * np.sqrt(unread_share / np.maximum(matched, 1.0))
    half = two_sided(matched - 1.0, confidence=confidence) * error
    low, high = mean_of_matches(
        sample,
        low=sample.low,
        high=sample.high,
        wanted=~certified & ~sample.complete,
        confidence=confidence,
        learning=True,
    )
    return Intervals.of(
        mean,
        np.where(certified, mean - half, low),
        np.where(certified, mean + half, high),
        exact=sample.complete,
        variance=np.where(certified, error**2, np.nan),
    ).clipped(*_certain(sample, mean))


def _certain(
    sample: SampledValues, mean: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends that hold whatever was skipped: all skipped tuples match, at one end of the range."""
    skipped = sample.populations - sample.reads
    matched = sample.matched
    share = skipped / np.maximum(matched + skipped, 1)
    with np.errstate(invalid="ignore"):
        low = np.where(matched > 0, mean - share * (mean - sample.low), sample.low)
        high = np.where(matched > 0, mean + share * (sample.high - mean), sample.high)
    return low, high
