"""Counts behind a filter: how many of N tuples match when m of the n that were read do."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.tail_probabilities import hypergeometric_at_most, two_deviations
from synopses.kernels.array_inputs import as_input
from synopses.model.errors import BadParameter
from synopses.model.parameters import error_share


def matching_count(
    *, population: ArrayLike, read: ArrayLike, matched: ArrayLike, confidence: float
) -> Intervals:
    """How many of the population match, from a simple random sample without replacement.

    The hypergeometric is inverted: low is the smallest count under which m or more matches are
    not too rare (probability over delta/2), high the largest under which m or fewer are not.
    Valid at every n and m, m = 0 included; where counts are so large that a tail is only bounded
    (tail_probabilities.py), or that not each is a double, the ends lie outside of the exact ones.
    Source: Buonaccorsi 1987, Am. Stat. 41(3) (exact bounds for a finite population).

    Args:
      population: N, tuples in the stratum; whole, >= read; scalar or [groups].
      read: n, tuples that were read; whole, >= 0; scalar or [groups].
      matched: m, tuples read that match; whole, 0 <= m <= n; scalar or [groups].
      confidence: of each interval, in (0, 1).

    Returns:
      counts: value N/n*m, ends whole numbers in [m, N - n + m]; exact where n = N. With nothing
      read the value is NaN and the ends are 0 and N.
    """
    delta = error_share(confidence)
    sizes, reads, matches = _columns(population, read, matched)
    low, high = _invert(sizes, reads, matches, delta / 2.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = matches * (sizes / reads)
    return Intervals.of(value, low, high, exact=reads == sizes)


def matching_count_max(
    *, population: ArrayLike, read: ArrayLike, matched: ArrayLike, confidence: float
) -> NDArray[np.float64]:
    """The largest count that is still believable, alone: all of delta on this side.

    Returns: float64 [groups], whole numbers; the truth is at most this with the confidence.
    """
    delta = error_share(confidence)
    sizes, reads, matches = _columns(population, read, matched)
    _, high = _invert(sizes, reads, matches, delta)
    return high


def _columns(
    population: ArrayLike, read: ArrayLike, matched: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    columns = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(x, np.float64)) for x in (population, read, matched))
    )
    sizes, reads, matches = (as_input(column, np.float64) for column in columns)
    if not ((matches >= 0) & (matches <= reads) & (reads <= sizes)).all():
        raise BadParameter(
            "matched, read, population", (matched, read, population), "0 <= m <= n <= N everywhere"
        )
    return sizes, reads, matches


@njit(nogil=True, cache=True)
def _invert(
    population: NDArray[np.float64],
    read: NDArray[np.float64],
    matched: NDArray[np.float64],
    tail: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Low and high; neighbours in the arrays are often equal (empty groups) and reused."""
    low = np.empty(len(population))
    high = np.empty(len(population))
    for group in range(len(population)):
        if (
            group > 0
            and population[group] == population[group - 1]
            and read[group] == read[group - 1]
            and matched[group] == matched[group - 1]
        ):
            low[group] = low[group - 1]
            high[group] = high[group - 1]
            continue
        n, m, size = read[group], matched[group], population[group]
        high[group] = _largest(size, n, m, tail)
        # The unmatched are hypergeometric, too: their largest count leaves our smallest.
        low[group] = size - _largest(size, n, n - m, tail)
    return low, high


@njit(nogil=True, cache=True)
def _largest(population: float, read: float, matched: float, tail: float) -> float:
    """The largest count K with P(X <= matched | K) > tail."""
    top = population - read + matched
    if read in (0.0, matched, population):
        return top
    # P falls with K. Bracket by steps of about two standard deviations from the estimate.
    share = read / population
    step = two_deviations(matched, share)
    believed: float = max(matched, np.floor(matched / share))
    believed = min(believed, top)
    if hypergeometric_at_most(matched, population, believed, read) <= tail:
        believed = matched
    refuted = believed + step
    while refuted <= top and hypergeometric_at_most(matched, population, refuted, read) > tail:
        believed = refuted
        refuted += step
    refuted = min(refuted, top + 1.0)
    while refuted - believed > 1.0:
        middle: float = np.floor(believed + (refuted - believed) / 2.0)
        if not believed < middle < refuted:  # Not every whole number is a double there.
            return min(refuted, top)
        if hypergeometric_at_most(matched, population, middle, read) > tail:
            believed = middle
        else:
            refuted = middle
    return believed
