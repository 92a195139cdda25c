"""Quantiles from a uniform sample: order statistics as ends, without any assumption."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.errors import BadParameter
from synopses.intervals.interval import Intervals, error_share
from synopses.intervals.sampled import SampledValues
from synopses.intervals.tails import (
    binomial_at_least,
    binomial_at_most,
    hypergeometric_at_least,
    hypergeometric_at_most,
)


def sampled_quantile(sample: SampledValues, *, rank_share: float, confidence: float) -> Intervals:
    """The discrete quantile (percentile_disc) of each group's values, read or not.

    The quantile is the K-th group member in rank ceil(q K), at least 1. Of the m sampled ones
    the number at or below it is hypergeometric (K known: `sample.everything`) or at least
    binomially spread (K unknown: the finite population's tails are the lighter ones, Uhlmann
    1966); so the a-th and b-th smallest sampled values are ends, each failing with delta/2 at
    most. Ties only help. Where there is no such order statistic the end is the known range's.
    Source: David & Nagaraja 2003, Order Statistics, 7.1 and 3.7; estimators.md 9.

    Args:
      sample: rows and range; see SampledValues.
      rank_share: q in [0, 1].
      confidence: of each interval, in (0, 1).

    Returns:
      quantiles: [groups], each end a value of the data or of the range; exact where n = N; NaN
      for a group without a matching row read.

    Raises:
      BadParameter: rank_share lies outside [0, 1].
    """
    if not 0.0 <= rank_share <= 1.0:
        raise BadParameter("rank_share", rank_share, "a number in [0, 1]")
    matched = sample.matched
    ordered = _sorted_in_groups(sample)
    middle = np.maximum(np.ceil(_exact_product(rank_share, matched)), 1).astype(np.int64)
    value = _pick(ordered, sample.starts, middle, np.full(sample.groups, np.nan))
    if sample.read == sample.population:
        return Intervals.of(value, value, value, exact=True)
    members = np.full(sample.groups, sample.population if sample.everything else 0, np.int64)
    first, last = rank_bounds(
        matched, members=members, rank_share=rank_share, confidence=confidence
    )
    low = _pick(ordered, sample.starts, first, sample.low)
    high = _pick(ordered, sample.starts, last, sample.high)
    return Intervals.of(value, low, high)


def rank_bounds(
    matched: NDArray[np.int64],
    *,
    members: NDArray[np.int64],
    rank_share: float,
    confidence: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which sampled ranks enclose the quantile.

    Args:
      matched: int64 [groups], sampled members.
      members: int64 [groups], all members K, or 0 where that is not known.
      rank_share: q in [0, 1].
      confidence: of each pair, in (0, 1).

    Returns:
      (first, last): int64 [groups], ranks from 1; 0 and matched + 1 mean the range's ends.
    """
    return _ranks(matched, members, rank_share, error_share(confidence) / 2.0)


def _exact_product(share: float, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """share * counts, not above a whole number that it ought to be (0.07 * 100 is 7.000...01)."""
    product = share * counts
    nearest = np.rint(product)
    return np.where(np.abs(product - nearest) <= 1e-12 * counts, nearest, product)


def _sorted_in_groups(sample: SampledValues) -> NDArray[np.float64]:
    ids = np.repeat(np.arange(sample.groups), sample.matched)
    return sample.values[np.lexsort((sample.values, ids))]


def _pick(
    ordered: NDArray[np.float64],
    starts: NDArray[np.int64],
    ranks: NDArray[np.int64],
    otherwise: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Each group's value of that rank; `otherwise` where it has no such rank."""
    there = (ranks >= 1) & (ranks <= np.diff(starts))
    picked = otherwise.copy()
    picked[there] = ordered[starts[:-1][there] + ranks[there] - 1]
    return picked


@njit(nogil=True, cache=True)
def _ranks(
    matched: NDArray[np.int64], members: NDArray[np.int64], share: float, tail: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first = np.empty(len(matched), np.int64)
    last = np.empty(len(matched), np.int64)
    for group in range(len(matched)):
        m, size = matched[group], members[group]
        if group > 0 and m == matched[group - 1] and size == members[group - 1]:
            first[group], last[group] = first[group - 1], last[group - 1]
            continue
        first[group] = _first(m, size, share, tail)
        last[group] = _last(m, size, share, tail)
    return first, last


@njit(nogil=True, cache=True)
def _target(members: float, share: float) -> float:
    product = share * members
    if abs(product - round(product)) <= 1e-12 * members:
        product = round(product)
    return max(1.0, math.ceil(product))


@njit(nogil=True, cache=True)
def _first(matched: int, members: int, share: float, tail: float) -> int:
    """The largest a with P(fewer than a sampled members at or below the quantile) <= tail."""
    safe, unsafe = 0, matched + 1
    while unsafe - safe > 1:
        middle = (safe + unsafe) // 2
        if members > 0:
            marked = _target(float(members), share)
            chance = hypergeometric_at_most(middle - 1.0, float(members), marked, float(matched))
        else:
            chance = binomial_at_most(middle - 1.0, float(matched), share)
        if chance <= tail:
            safe = middle
        else:
            unsafe = middle
    return safe


@njit(nogil=True, cache=True)
def _last(matched: int, members: int, share: float, tail: float) -> int:
    """The smallest b with P(at least b sampled members below the quantile) <= tail."""
    unsafe, safe = 0, matched + 1
    while safe - unsafe > 1:
        middle = (safe + unsafe) // 2
        if members > 0:
            marked = _target(float(members), share) - 1.0
            chance = hypergeometric_at_least(float(middle), float(members), marked, float(matched))
        else:
            chance = binomial_at_least(float(middle), float(matched), share)
        if chance <= tail:
            safe = middle
        else:
            unsafe = middle
    return safe
