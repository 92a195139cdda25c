"""Ranks over strata by one test: which values of groups may be a quantile."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

from synopses.intervals.interval import Intervals
from synopses.intervals.normal import rho_max
from synopses.model.parameters import error_share
from synopses.strata.joint_counts import CONTINUITY, RHO_TIMES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BISECTIONS: Final = 40


def joint_ranks(
    population: Floats,
    read: Floats,
    *,
    starts: Ints,
    below: Floats,
    rank_share: float,
    confidence: float,
) -> tuple[Ints, Ints]:
    """Return which values seen enclose the discrete q-quantile of each group, over strata.

    At the quantile, the share of the group at or below it is at least q; before it, less than q.
    Let a value at or below an edge add 1 - q, another one of the group -q, and other rows 0. The
    total over all strata is then at least 0 at the quantile, below 0 before it. An edge is left out
    if the sum of N/n times what was read is too rare for a total of 0. As in `joint_count`, its
    quantiles follow from variance and skewness (Cornish and Fisher) and a part of the largest N/n,
    and each stratum's share is the most probable one. The test of one fixed edge, the quantile's,
    may fail, with delta/2 at either end. Edges are left out from the outermost inwards.

    A group is certified where Hajek's rho, the largest N/n over the standard error at shares of q,
    is at most twice `rho_max`.
    Source: Woodruff 1952, JASA 47(260) (quantiles by tests of a share); Gart & Nam 1988,
    Biometrics 44(2) (score tests with skewness, over strata); Hajek 1960.

    Args:
      population: float64 [strata], N of each. read: float64 [strata], n, at most N.
      starts: int64 [groups + 1]; group g's edges are those from starts[g] to starts[g + 1].
      below: float64 [strata, edges], how many values of the group were read at or below each edge;
        edges ascend in a group, and all of its values are at or below the last.
      rank_share: q in [0, 1].
      confidence: of each pair, in (0, 1).

    Returns:
      (first, last): int64 [groups], edges counted from 1: the quantile lies between what the first
      edge and what the last edge bounds from above. 0 and the number of edges + 1 mean the
      range's ends; first is -1 for groups that are not certified.
    """
    z = float(-ndtri(error_share(confidence) / 2.0))
    if not (read > 0).all():
        none = np.full(len(starts) - 1, -1)
        return none, none
    how = (rank_share, z, RHO_TIMES * rho_max(confidence))
    return _enclosing(population, read, starts, np.ascontiguousarray(below), how)


def joint_quantile(
    values: Floats,
    ids: Ints,
    part: Ints,
    *,
    population: Floats,
    read: Floats,
    low: Floats,
    high: Floats,
    rank_share: float,
    confidence: float,
) -> tuple[Intervals, NDArray[np.bool_]]:
    """The discrete q-quantile of each group's values over strata, from the rows that were read.

    Args:
      values: float64 [matches]. ids, part: int64 [matches], the group and the stratum of each.
      population: float64 [strata], N of each. read: float64 [strata], n, at most N.
      low, high: float64 [groups], a range that holds all values; may be infinite.
      rank_share: q in [0, 1]. confidence: of each interval, in (0, 1).

    Returns:
      (quantiles, certified): [groups]; the value has the estimated rank. Of groups that are not
      certified nothing is said.
    """
    order = np.lexsort((values, ids))
    owners, ordered = ids[order], values[order]
    starts = np.searchsorted(owners, np.arange(len(low) + 1))
    below = np.zeros((len(read), len(order)))
    below[part[order], np.arange(len(order))] = 1.0
    running = np.concatenate((np.zeros((len(read), 1)), np.cumsum(below, axis=1)), axis=1)
    below = running[:, 1:] - running[:, starts[owners]]
    first, last = joint_ranks(
        population, read, starts=starts, below=below, rank_share=rank_share, confidence=confidence
    )
    certified = first >= 0
    # Weighted ranks: the first value at which enough of the estimated number lies at or below.
    factors = population / np.maximum(read, 1.0)
    weights = np.concatenate(([0.0], np.cumsum(factors[part[order]])))
    wanted = weights[starts[:-1]] + rank_share * np.diff(weights[starts])
    middle = np.searchsorted(weights[1:], wanted * (1 - 1e-12))
    middle = np.clip(middle, starts[:-1], np.maximum(starts[1:] - 1, starts[:-1]))
    padded = np.concatenate((ordered, [np.nan]))
    count = np.diff(starts)
    least = np.where(first > 0, padded[np.where(first > 0, starts[:-1] + first - 1, -1)], low)
    ends = np.where((last >= 1) & (last <= count), starts[:-1] + last - 1, -1)
    most = np.where(ends >= 0, padded[ends], high)
    value = padded[np.where(count > 0, middle, -1)]
    return Intervals.of(
        value, np.where(certified, least, low), np.where(certified, most, high)
    ), certified


@njit(nogil=True, cache=True, error_model="numpy")
def _enclosing(
    population: Floats, read: Floats, starts: Ints, below: Floats, how: tuple[float, float, float]
) -> tuple[Ints, Ints]:
    groups = len(starts) - 1
    first, last = np.full(groups, -1), np.full(groups, -1)
    factors = population / read
    # Of the variance of a sample without replacement, (N - n)/(N - 1): twice 1 - n/N for N = 2.
    unread = (population - read) / np.maximum(population - 1.0, 1.0)
    nothing = np.zeros(len(read))
    for group in range(groups):
        begin, end = starts[group], starts[group + 1]
        if begin == end:
            continue
        members = below[:, end - 1].copy()
        if not _is_certified(factors, unread, members, how):
            continue
        beyond = _largest_off(factors, unread, members, how)
        at = 0
        while at <= end - begin:
            found = below[:, begin + at - 1].copy() if at > 0 else nothing
            if not _is_refuted(factors, unread, found, members, how, (1.0, beyond)):
                break
            at += 1
        first[group] = at
        at = end - begin + 1
        while at > 1:
            found = below[:, begin + at - 2].copy()
            if not _is_refuted(factors, unread, found, members, how, (-1.0, beyond)):
                break
            at -= 1
        last[group] = at
    return first, last


@njit(nogil=True, cache=True, error_model="numpy")
def _is_certified(
    factors: Floats, unread: Floats, members: Floats, how: tuple[float, float, float]
) -> bool:
    share, _, rho_most = how
    heaviest = variance = 0.0
    for stratum in range(len(factors)):
        if unread[stratum] > 0.0:
            heaviest = max(heaviest, factors[stratum])
            variance += factors[stratum] ** 2 * unread[stratum] * members[stratum]
    variance *= share * (1.0 - share)
    reach = heaviest * max(share, 1.0 - share)
    return bool(0.0 < reach <= rho_most * math.sqrt(variance))


@njit(nogil=True, cache=True, error_model="numpy")
def _largest_off(
    factors: Floats, unread: Floats, members: Floats, how: tuple[float, float, float]
) -> float:
    """Return the largest deviation of the sum that the test accepts for any shares."""
    share, z, _ = how
    reach = max(share, 1.0 - share)
    heaviest = variance = 0.0
    for stratum in range(len(factors)):
        if unread[stratum] > 0.0:
            heaviest = max(heaviest, factors[stratum])
            variance += (factors[stratum] * reach) ** 2 * unread[stratum] * members[stratum]
    skew = abs(z * z - 1.0) / 6.0 * heaviest * reach
    return float(CONTINUITY * heaviest + max(z, 0.0) * math.sqrt(variance) + skew)


@njit(nogil=True, cache=True, error_model="numpy")
def _is_refuted(
    factors: Floats,
    unread: Floats,
    below: Floats,
    members: Floats,
    how: tuple[float, float, float],
    ends: tuple[float, float],
) -> bool:
    """Return whether the total is not 0 but less (side 1), or not 0 but more (side -1).

    ends: the side, and how far off nothing is believed.
    """
    share, z, _ = how
    side, beyond = ends
    heaviest = off = 0.0
    for stratum in range(len(factors)):
        if unread[stratum] > 0.0:
            heaviest = max(heaviest, factors[stratum])
        off += side * factors[stratum] * (share * members[stratum] - below[stratum])
    if off <= CONTINUITY * heaviest:
        return False
    if off > beyond:
        return True
    believed, tilted = 0.0, side / heaviest
    for _ in range(_BISECTIONS):
        if side * _moments(factors, unread, below, members, share, tilted)[0] >= 0.0:
            break
        believed, tilted = tilted, 2.0 * tilted
    for _ in range(_BISECTIONS):
        middle = (believed + tilted) / 2.0
        if side * _moments(factors, unread, below, members, share, middle)[0] >= 0.0:
            tilted = middle
        else:
            believed = middle
        if abs(tilted - believed) <= 1e-3 * abs(tilted):
            break
    _, variance, third = _moments(factors, unread, below, members, share, tilted)
    skew = side * third / variance if variance > 0.0 else 0.0
    return bool(off > CONTINUITY * heaviest + z * math.sqrt(variance) - (z * z - 1.0) / 6.0 * skew)


@njit(nogil=True, cache=True, error_model="numpy")
def _moments(
    factors: Floats, unread: Floats, below: Floats, members: Floats, share: float, tilt: float
) -> tuple[float, float, float]:
    """Mean, variance and third moment of the sum under a tilt, group members by what was read."""
    mean = variance = third = 0.0
    for stratum in range(len(factors)):
        m, factor = members[stratum], factors[stratum]
        if m == 0.0:
            continue
        p = below[stratum] / m
        if unread[stratum] > 0.0:
            c = tilt * factor * unread[stratum]
            root = math.sqrt((1.0 - c) * (1.0 - c) + 4.0 * c * p)
            p = 2.0 * p / (1.0 - c + root) if c < 1.0 else (c - 1.0 + root) / (2.0 * c)
            p = min(max(p, 0.0), 1.0)
            square = p * (1.0 - share) ** 2 + (1.0 - p) * share**2
            cube = p * (1.0 - share) ** 3 - (1.0 - p) * share**3
            part = factor * factor * unread[stratum] * m
            variance += part * square
            third += part * factor * (2.0 * unread[stratum] - 1.0) * cube
        mean += factor * m * (p - share)
    return mean, variance, third
