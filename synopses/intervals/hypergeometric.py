"""Intervals of counts (COUNT) behind a filter: matches among N tuples, from m among n read."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.tail_probabilities import (
    hypergeometric_at_least,
    hypergeometric_at_most,
    log_hypergeometric,
    two_deviations,
)
from synopses.kernels.array_inputs import as_input
from synopses.model.errors import BadParameter
from synopses.model.parameters import error_share


def matching_count(
    *, population: ArrayLike, read: ArrayLike, matched: ArrayLike, confidence: float
) -> Intervals:
    """Return how many of the population match, from a simple random sample without replacement.

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


def seen_count(
    *,
    population: ArrayLike,
    read: ArrayLike,
    matched: ArrayLike,
    confidence: float,
    unread: ArrayLike = 1.0,
) -> Intervals:
    """The same of groups that are shown because at least one of their tuples was read.

    Each interval holds with the confidence if its group is shown. The law of m is then the
    hypergeometric without 0: low is the smallest count under which m or more, given that the group
    is shown, are not too rare. One tuple read says nothing about more: low is 1. That a group is
    shown makes m larger, so the high end is that of `matching_count`.
    Source: Weinstein, Fithian & Benjamini 2013, JASA 108(501) (intervals given selection).

    Args:
      population, read, matched, confidence: as in `matching_count`.
      unread: [groups], at most the probability that nothing else shows the group, in [0, 1]: of
        tuples that are counted elsewhere none was read. The bound is wider for a larger one.
    """
    found = matching_count(population=population, read=read, matched=matched, confidence=confidence)
    sizes, reads, matches = _columns(population, read, matched)
    missed = as_input(np.broadcast_to(np.asarray(unread, np.float64), sizes.shape), np.float64)
    low = _least_of_shown(sizes, reads, matches, found.low, missed, error_share(confidence) / 2.0)
    return replace(found, low=low)


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


@njit(nogil=True, cache=True)
def _least_of_shown(
    population: NDArray[np.float64],
    read: NDArray[np.float64],
    matched: NDArray[np.float64],
    low: NDArray[np.float64],
    unread: NDArray[np.float64],
    tail: float,
) -> NDArray[np.float64]:
    """The smallest count K with P(X >= matched | K) > tail P(shown | K), at most `low`.

    Their ratio grows with K: that of P(X >= m) and P(X >= 1) by the monotone likelihood ratio of
    the hypergeometric, that of P(X >= 1) and P(shown) because P(X = 0) falls.
    """
    least = low.copy()
    for group in range(len(low)):
        n, m, size = read[group], matched[group], population[group]
        if (
            group > 0
            and size == population[group - 1]
            and n == read[group - 1]
            and m == matched[group - 1]
            and unread[group] == unread[group - 1]
        ):
            least[group] = least[group - 1]
            continue
        believed, refuted = low[group], m - 1.0
        while believed - refuted > 1.0:
            # The first guess is one less: groups with many tuples read move no further.
            middle = believed - 1.0
            if believed < low[group]:
                middle = np.floor(refuted + (believed - refuted) / 2.0)
            if not refuted < middle < believed:
                break
            missed = unread[group] * math.exp(log_hypergeometric(0.0, size, middle, n))
            if hypergeometric_at_least(m, size, middle, n) > tail * (1.0 - missed):
                believed = middle
            elif believed == low[group]:
                break
            else:
                refuted = middle
        least[group] = believed
    return least
