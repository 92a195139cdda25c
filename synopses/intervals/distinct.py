"""Distinct counts: from values kept by their hash, and what rows kept at random can say."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from synopses.intervals.hypergeometric import matching_count_max
from synopses.intervals.interval import Intervals
from synopses.intervals.tail_probabilities import (
    binomial_at_least,
    binomial_at_most,
    two_deviations,
)
from synopses.kernels.array_inputs import as_input
from synopses.model.errors import BadParameter
from synopses.model.parameters import error_share


def distinct_by_hash(*, kept: ArrayLike, share: ArrayLike, confidence: float) -> Intervals:
    """Return how many distinct values there are when `kept` of them had a hash below the threshold.

    kept is binomial(D, share); it is inverted in D, exactly. (The normal interval would cover
    0.13 for D = 1 and 0.74 for D = 10 at share 1/8.) For an adaptive threshold, which is the
    smallest hash that was put out, the low end is a little wider than it need be: that hash is
    one more value. Source: Dasgupta et al. 2016 (theta sketches), 3.

    Args:
      kept: distinct values held that match; whole, >= 0; scalar or [groups].
      share: HashSample.share (times 2^-level when thinned by hash), in [0, 1]; or [groups].
      confidence: of each interval, in (0, 1).

    Returns:
      distinct: [groups], value kept/share; exact where share is 1. Where it is 0 no value could be
      kept: the value is NaN and there is no high end. Above 2^53 ends are the next double outwards.
    """
    tail = error_share(confidence) / 2.0
    counts, shares = np.broadcast_arrays(
        np.atleast_1d(np.asarray(kept, np.float64)), np.atleast_1d(np.asarray(share, np.float64))
    )
    if not ((shares >= 0.0) & (shares <= 1.0)).all():
        raise BadParameter("share", share, "inside [0, 1]")
    low, high = _invert(as_input(counts, np.float64), as_input(shares, np.float64), tail)
    value = np.divide(counts, shares, out=np.full(shares.shape, np.nan), where=shares > 0.0)
    return Intervals.of(value, low, high, exact=shares == 1.0)


def distinct_by_rows(
    *,
    seen: ArrayLike,
    once: ArrayLike,
    matched: ArrayLike,
    population: ArrayLike,
    read: ArrayLike,
    values_max: ArrayLike = math.inf,
    confidence: float,
) -> Intervals:
    """Return how many distinct values there are, from a uniform sample of rows: little can be said.

    Low is what was seen, for certain. High is the smallest of what certainty allows (seen + rows
    skipped), of the possible matches, of the values that the type and range allow, and of
    a bound of our own: mark one row per value; the D marked rows are hit hypergeometrically and
    each hit one shows a value, so D is at most the largest count believable after `seen` hits.
    The value is the GEE estimator, sqrt(N/n) * once + the rest, whose ratio error is within a
    constant of the best possible: Charikar et al. 2000, PODS, Thm 2.

    Args:
      seen: distinct values among the matching rows read; scalar or [groups].
      once: how many of them were seen in one row only.
      matched: matching rows read, >= seen.
      population: N; read: n; scalar or [groups].
      values_max: how many values can be (2 for a BOOLEAN, max - min + 1 for whole numbers).
      confidence: of each interval, in (0, 1); delta is spent on the high end alone.

    Returns:
      distinct: [groups]; exact where n = N.
    """
    counts = np.atleast_1d(np.asarray(seen, np.float64))
    rows = np.broadcast_to(np.asarray(matched, np.float64), counts.shape)
    sizes, reads = (
        np.broadcast_to(np.asarray(x, np.float64), counts.shape) for x in (population, read)
    )
    # The two bounds that need a confidence share it.
    half = 1.0 - error_share(confidence) / 2.0
    rows_max = matching_count_max(population=sizes, read=reads, matched=rows, confidence=half)
    marked_max = matching_count_max(population=sizes, read=reads, matched=counts, confidence=half)
    high = np.minimum(np.minimum(counts + (rows_max - rows), marked_max), values_max)
    high = np.maximum(high, counts)
    more = np.sqrt(sizes / np.maximum(reads, 1.0)) - 1.0
    value = np.where(reads == 0, np.nan, counts + more * np.asarray(once, np.float64))
    return Intervals.of(value, counts, high, exact=(reads == sizes) & (reads > 0))


@njit(nogil=True, cache=True)
def _invert(
    kept: NDArray[np.float64], share: NDArray[np.float64], tail: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low = np.empty(len(kept))
    high = np.empty(len(kept))
    for group in range(len(kept)):
        low[group] = _fewest(kept[group], share[group], tail)
        high[group] = _most(kept[group], share[group], tail)
    return low, high


@njit(nogil=True, cache=True)
def _most(kept: float, share: float, tail: float) -> float:
    """The largest D with P(binomial(D, share) <= kept) > tail."""
    if share >= 1.0:
        return kept
    if share <= 0.0:
        return math.inf
    step = two_deviations(kept, share)
    believed = kept
    refuted: float = np.floor(kept / share) + step
    while binomial_at_most(kept, refuted, share) > tail:
        believed = refuted
        refuted += step
    while refuted - believed > 1.0:
        middle: float = np.floor(believed + (refuted - believed) / 2.0)
        if not believed < middle < refuted:  # Not every whole number is a double there.
            return refuted
        if binomial_at_most(kept, middle, share) > tail:
            believed = middle
        else:
            refuted = middle
    return believed


@njit(nogil=True, cache=True)
def _fewest(kept: float, share: float, tail: float) -> float:
    """The smallest D with P(binomial(D, share) >= kept) > tail."""
    if share >= 1.0 or share <= 0.0 or kept == 0.0:
        return kept
    refuted = kept - 1.0
    believed: float = np.ceil(kept / share)
    while believed - refuted > 1.0:
        middle: float = np.floor(refuted + (believed - refuted) / 2.0)
        if not refuted < middle < believed:
            return refuted
        if binomial_at_least(kept, middle, share) > tail:
            believed = middle
        else:
            refuted = middle
    return believed
