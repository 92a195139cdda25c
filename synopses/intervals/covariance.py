"""Covariances, correlations and slopes of pairs from a uniform sample.

Each interval is certified normal where the influence function's range allows it
(linearised_pairs.py), elsewhere by betting (pair_bets.py). One end of a correlation may be normal
and the other one by betting.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from synopses.intervals.from_moments import Ends, Floats
from synopses.intervals.interval import Intervals
from synopses.intervals.linearised_pairs import (
    Certified,
    certified_correlation,
    certified_covariance,
    certified_slope,
)
from synopses.intervals.pair_bets import bounded_correlation, bounded_covariance, bounded_slope
from synopses.intervals.sampled_pairs import CertainPairs, SampledPairs


def sampled_covariance(pairs: SampledPairs, *, confidence: float) -> Intervals:
    """The sample covariance (n - 1 below the line) of each group over all its pairs.

    Returns:
      covariances: [groups]; exact where n = N; NaN for a group with fewer than two pairs read.
    """
    average = population_covariance(pairs, confidence=confidence)
    matched = pairs.matched
    # K/(K - 1) for K pairs: N/n times those read where certified, else at least those read.
    matches = matched * pairs.first.populations / np.maximum(pairs.first.reads, 1)
    most = np.where(matched >= 2.0, matched / np.maximum(matched - 1.0, 1.0), 2.0)
    least = np.where(average.certified, matches / np.maximum(matches - 1.0, 1.0), 1.0)
    stretch = np.where(average.certified, least, most)
    exact = pairs.first.complete
    value = np.where(matched >= 2.0, average.value * most, np.nan)
    return Intervals.of(
        value,
        np.where(exact, value, np.minimum(average.low * least, average.low * stretch)),
        np.where(exact, value, np.maximum(average.high * least, average.high * stretch)),
        exact=exact,
        variance=average.variance * least**2,
    )


def population_covariance(pairs: SampledPairs, *, confidence: float) -> Intervals:
    """The covariance (n below the line) of each group over all its pairs.

    Returns:
      covariances: [groups]; exact where n = N; NaN for a group without a pair read.
    """
    spreads = pairs.moments.spreads
    value = pairs.moments.correlation * spreads[:, 0] * spreads[:, 1]
    return _found(
        pairs,
        np.where(pairs.matched > 0.0, value, np.nan),
        confidence,
        certified_covariance,
        bounded_covariance,
    )


def sampled_correlation(
    pairs: SampledPairs,
    *,
    confidence: float,
    certain: CertainPairs | None = None,
) -> Intervals:
    """Pearson's correlation of each group over all its pairs, in [-1, 1].

    Args:
      certain: pairs that are known; None: no pair is.

    Returns:
      correlations: [groups]; exact where n = N; NaN where x or y of the pairs read is constant.
    """
    value = np.where(_varies(pairs).all(axis=1), pairs.moments.correlation, np.nan)
    exact = pairs.first.complete
    normal = certified_correlation(pairs, confidence=confidence)
    low, high = normal.low, normal.high
    if certain is not None:  # A normal end knows nothing of these pairs; bets for both ends do.
        aside = ~normal.holds & (np.diff(certain.starts) > 0)
        low, high = np.where(aside, np.nan, low), np.where(aside, np.nan, high)
    wanted = np.isnan(np.stack([low, high], axis=1)) & ~exact[:, None]
    if wanted.any():
        left = np.where(wanted.all(axis=1), np.nan, 1.0 - normal.share)
        least, most, estimate = bounded_correlation(
            pairs,
            parts=np.where(wanted, left[:, None], 0.0),
            confidence=confidence,
            certain=certain,
        )
        low, high = np.where(wanted[:, 0], least, low), np.where(wanted[:, 1], most, high)
        if certain is not None:
            value = np.where(wanted.any(axis=1) & ~np.isnan(estimate), estimate, value)
            # A normal end is one of the sample alone.
            low, high = np.fmin(low, value), np.fmax(high, value)
    return Intervals.of(
        value,
        np.where(exact, value, low),
        np.where(exact, value, high),
        exact=exact,
        variance=np.where(normal.holds, normal.error**2, np.nan),
    )


def sampled_slope(pairs: SampledPairs, *, confidence: float) -> Intervals:
    """The slope of the least-squares line of x over y, of each group over all its pairs.

    Returns:
      slopes: [groups]; exact where n = N; NaN where y of the pairs read is constant; infinite ends
      where y of all pairs may be.
    """
    spreads = pairs.moments.spreads
    with np.errstate(divide="ignore", invalid="ignore"):
        value = pairs.moments.correlation * spreads[:, 0] / spreads[:, 1]
    return _found(
        pairs,
        np.where(_varies(pairs)[:, 1], value, np.nan),
        confidence,
        certified_slope,
        bounded_slope,
    )


def _varies(pairs: SampledPairs) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    return np.asarray(pairs.moments.spreads > 0.0)


def _found(
    pairs: SampledPairs,
    value: Floats,
    confidence: float,
    certified: Callable[..., Certified],
    bounded: Callable[..., Ends],
) -> Intervals:
    exact = pairs.first.complete
    normal = certified(pairs, confidence=confidence)
    low, high = normal.low, normal.high
    wanted = ~normal.holds & ~exact
    if wanted.any():
        least, most = bounded(pairs, wanted=wanted, confidence=confidence)
        low, high = np.where(wanted, least, low), np.where(wanted, most, high)
    return Intervals.of(
        value,
        np.where(exact, value, low),
        np.where(exact, value, high),
        exact=exact,
        variance=np.where(normal.holds, normal.error**2, np.nan),
    )
