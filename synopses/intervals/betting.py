"""Betting: distribution-free bounds for the mean of bounded values, at any sample size.

Bets against a true mean do not make rich. For values z in [0, 1] with mean u, a wealth
W(u) made of factors 1 + b (u - z) has expectation at most 1 at the true u, so by Markov
W(u) >= 1/tail has probability at most tail; all u with W(u) < 1/tail form the interval.
There are two players:

The mixed player bets fixed amounts, W = sum_j w_j prod_i (1 + b_j (u - z_i)). Sampling without
replacement is negatively associated (Joag-Dev & Proschan 1983, Ann. Stat. 11, 3.2), which only
lowers the expectation of a product of monotone factors. The product does not depend on the order,
so zeros are raised to their number. The bets may depend on u, as long as W grows with u (then the
interval's end is one crossing): b_j = min(2^j sqrt(2 log(1/tail) / n) / sqrt(u (1 - u)),
cap / (1 - u)), the best bet when the variance is 4^-j of the largest that [0, 1] and u allow;
d/du of (u - z)/sqrt(u (1 - u)) has the sign of u/2 + z (1/2 - u) >= 0, and of (u - z)/(1 - u)
that of 1 - z >= 0.

The learning player (learned_bets.py) goes through the sample in a random order, and aims at the
wealth that rules a mean out by its last row: narrower, and it gains from a finite population. It
plays alone, but for samples of a few rows and values that know the whole sample.

Source: Waudby-Smith & Ramdas 2024, JRSS B 86(1) (betting, with and without replacement); the
mixture over bets that depend on u, and the blocks, are ours.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.learned_bets import (
    learned_upper,
    log_product,
    make_plan,
    mirrored,
    tail_share,
)
from synopses.intervals.sample_values import SampledValues
from synopses.model.parameters import error_share

_BETS: Final = 8
_CAP: Final = 0.95  # Of the bet that could lose all; it costs 5 % of width where nothing matched.
_ROWS_MIN: Final = 16  # The learning player has seen too little in a smaller sample.
_PRECISE: Final = 1e-3  # The ends are found to this part of the width, on the safe side.


def mean_of_tuples(
    sample: SampledValues,
    *,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    wanted: NDArray[np.bool_],
    confidence: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds for the mean over all N tuples, where a tuple that does not match counts as 0.

    Args:
      sample: its values, per group; of the range of its own nothing is used.
      low: float64 [groups]; high: likewise; the range of all values, zeros included.
      wanted: bool [groups]; where False nothing is computed and the range is returned.
      confidence: of each interval, in (0, 1).

    Returns:
      (low, high): float64 [groups], inside the given range; the range itself where it is
      infinite or nothing was sampled.
    """
    others = sample.read - sample.matched
    return _bounded(sample, (low, high), wanted, (others, others), confidence, learning=True)


def mean_of_matches(
    sample: SampledValues,
    *,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    wanted: NDArray[np.bool_],
    confidence: float,
    learning: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds for the mean over the matching tuples only, however many of the N these are.

    Arguments and results are those of `mean_of_tuples`, but for:
      learning: whether the learning player may play; it may not where the values themselves were
        computed from the whole sample. Each end then misses with at most delta/2.
    """
    others = sample.read - sample.matched
    return _bounded(
        sample, (low, high), wanted, (np.zeros_like(others), others), confidence, learning=learning
    )


def _bounded(
    sample: SampledValues,
    ends: tuple[NDArray[np.float64], NDArray[np.float64]],
    wanted: NDArray[np.bool_],
    others: tuple[NDArray[np.int64], NDArray[np.int64]],
    confidence: float,
    *,
    learning: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """others: int64 [groups] twice, rows that count as 0, and rows without a value in all."""
    low, high = ends
    ranges = np.stack([low, np.where(wanted, high, low)], axis=1)
    counts = np.stack(others, axis=1)
    found = _bounds(
        sample.starts,
        sample.values,
        counts,
        ranges,
        sample.populations.copy(),
        (error_share(confidence), learning, np.uint64(sample.shuffle_seed)),
    )
    return np.where(wanted, found[:, 0], low), np.where(wanted, found[:, 1], high)


@njit(nogil=True, cache=True)
def _bounds(
    starts: NDArray[np.int64],
    values: NDArray[np.float64],
    others: NDArray[np.int64],
    ranges: NDArray[np.float64],
    populations: NDArray[np.int64],
    how: tuple[float, bool, np.uint64],
) -> NDArray[np.float64]:
    delta, learning, shuffle_seed = how
    bounds = ranges.copy()
    for group in range(len(ranges)):
        first, last = starts[group], starts[group + 1]
        low, high = ranges[group]
        zeros, absent = others[group]
        width = high - low
        if last - first + zeros == 0 or not 0.0 < width < np.inf:
            continue
        shares = np.empty(last - first)
        for row in range(first, last):
            shares[row - first] = min(1.0, max(0.0, (values[row] - low) / width))
        zero = min(1.0, max(0.0, -low / width))
        if learning and last - first + absent >= _ROWS_MIN:
            rest = (absent, populations[group], zeros > 0, zero, shuffle_seed)
            plan = make_plan(shares, rest)
            part = tail_share(plan, -math.log(delta / 2.0))
            upper = learned_upper(plan, zero, part * delta)
            lower = learned_upper(mirrored(plan), 1.0 - zero, (1.0 - part) * delta)
        else:
            upper = _upper(shares, (zeros, zero), delta / 2.0)
            lower = _upper(1.0 - shares, (zeros, 1.0 - zero), delta / 2.0)
        bounds[group, 1], bounds[group, 0] = low + width * upper, high - width * lower
    return bounds


@njit(nogil=True, cache=True)
def _upper(shares: NDArray[np.float64], zeros: tuple[int, float], tail: float) -> float:
    """The smallest mean u (rounded up) at which betting on less would have made rich."""
    count = len(shares) + zeros[0]
    mean = (shares.sum() + zeros[0] * zeros[1]) / count
    rich = -math.log(tail)
    step = math.sqrt(rich * mean * (1.0 - mean) / count) + rich / count
    step = min(step, 0.5 * (1.0 - mean)) if mean < 1.0 else step
    poor, lacking = mean, -rich  # At the mean the wealth is below 1/tail; its value hardly matters.
    ruled_out, beyond = min(mean + step, 1.0), rich
    while ruled_out < 1.0:
        wealth = _mixed_wealth(shares, zeros, ruled_out, rich)
        if wealth >= rich:
            beyond = wealth - rich
            break
        poor, lacking = ruled_out, wealth - rich
        step *= 1.5
        ruled_out = min(ruled_out + step, 1.0)
    return _crossing(shares, zeros, rich, mean, (poor, lacking), (ruled_out, beyond))


@njit(nogil=True, cache=True)
def _crossing(
    shares: NDArray[np.float64],
    zeros: tuple[int, float],
    rich: float,
    mean: float,
    low: tuple[float, float],
    high: tuple[float, float],
) -> float:
    """Return where the wealth becomes enough, rounded up to a mean at which it is.

    low, high: means at which it is too little and enough, each with the log of how much it is off.
    A secant that halves what it believes of an end that stays (the Illinois method; Dowell &
    Jarratt 1971, BIT 11), and the middle now and then; it aims a little beside the crossing, at
    either side in turns, so that both ends come near. The wealth decides, wherever it looks.
    """
    poor, lacking = low
    ruled_out, beyond = high
    side, turns = 0, 0
    while ruled_out - poor > _PRECISE * (ruled_out - mean):
        turns += 1
        width, aside = ruled_out - poor, 0.45 * _PRECISE * (ruled_out - mean)
        guess = poor + width * lacking / (lacking - beyond)
        guess += -aside if side > 0 else aside
        if turns % 4 == 0 or not poor < guess < ruled_out:
            guess = poor + 0.5 * width
        if not poor < guess < ruled_out:  # No float lies in between.
            break
        off = _mixed_wealth(shares, zeros, guess, rich) - rich
        if off < 0.0:
            beyond = 0.5 * beyond if side < 0 else beyond
            poor, lacking, side = guess, off, -1
        else:
            lacking = 0.5 * lacking if side > 0 else lacking
            ruled_out, beyond, side = guess, off, 1
    return float(ruled_out)


@njit(nogil=True, cache=True)
def _mixed_wealth(
    shares: NDArray[np.float64], zeros: tuple[int, float], mean: float, rich: float
) -> float:
    count = len(shares) + zeros[0]
    unit = math.sqrt(2.0 * rich / count) / math.sqrt(mean * (1.0 - mean))
    cap = _CAP / (1.0 - mean)
    weights = 0.0
    for j in range(_BETS):
        weights += 1.0 / (j + 2.0)
    best = -np.inf
    wealth = 0.0
    for j in range(_BETS):
        bet = min(unit * 2.0**j, cap)
        log_wealth = math.log(1.0 / (j + 2.0) / weights)
        if zeros[0] > 0:
            log_wealth += zeros[0] * math.log1p(bet * (mean - zeros[1]))
        log_wealth += log_product(shares, 0, len(shares), bet, mean)
        if log_wealth > best:
            wealth = wealth * math.exp(best - log_wealth) + 1.0
            best = log_wealth
        else:
            wealth += math.exp(log_wealth - best)
        if bet == cap and j + 1 < _BETS:
            # All further bets are the same one: they share its wealth.
            rest = 0.0
            for other in range(j + 1, _BETS):
                rest += (j + 2.0) / (other + 2.0)
            wealth += rest * math.exp(log_wealth - best)
            break
    return best + math.log(wealth)
