"""Betting: distribution-free bounds for the mean of bounded values, at any sample size.

Whoever bets against a true mean does not grow rich. For values z in [0, 1] with mean u, the
wealth W(u) = sum_j w_j prod_i (1 + b_j (u - z_i)) has expectation at most 1 when the bets b_j are
fixed beforehand, so by Markov W(u) >= 1/tail has probability at most tail; all u that made
nobody rich form the interval. Sampling without replacement is negatively associated
(Joag-Dev & Proschan 1983, Ann. Stat. 11, 3.2), which only lowers the expectation of a product of
monotone factors. The product does not depend on the order, so zeros are raised to their number.

The bets may depend on u, as long as W grows with u (then the interval's end is one crossing):
b_j = min(2^j sqrt(2 log(1/tail) / n) / sqrt(u (1 - u)), cap / (1 - u)): the best bet when the
variance is 4^-j of the largest that [0, 1] and u allow. d/du of (u - z)/sqrt(u (1 - u)) has the
sign of u/2 + z (1/2 - u) >= 0, and of (u - z)/(1 - u) that of 1 - z >= 0.
Source: Waudby-Smith & Ramdas 2024, JRSS B 86(1) (betting); the mixture over fixed bets is ours.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.interval import error_share
from synopses.intervals.sampled import SampledValues

_BETS: Final = 8
_CAP: Final = 0.95  # Of the bet that could lose all; it costs 5 % of width where nothing matched.
_PRECISE: Final = 1e-3  # The ends are found to this part of the width, on the safe side.


def mean_bounds(
    sample: SampledValues,
    *,
    zeros: NDArray[np.int64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    wanted: NDArray[np.bool_],
    confidence: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds for the mean that each group's rows are a sample of, delta/2 at each end.

    Args:
      sample: its values, per group; of the range of its own nothing is used.
      zeros: int64 [groups], further sampled rows whose value counts as 0.
      low: float64 [groups]; high: likewise; the range of all values, zeros included.
      wanted: bool [groups]; where False nothing is computed and the range is returned.
      confidence: of each interval, in (0, 1).

    Returns:
      (low, high): float64 [groups], inside the given range; the range itself where it is
      infinite or nothing was sampled.
    """
    ranges = np.stack([low, np.where(wanted, high, low)], axis=1)
    found = _bounds(sample.starts, sample.values, zeros, ranges, error_share(confidence) / 2.0)
    return np.where(wanted, found[:, 0], low), np.where(wanted, found[:, 1], high)


@njit(nogil=True, cache=True)
def _bounds(
    starts: NDArray[np.int64],
    values: NDArray[np.float64],
    zeros: NDArray[np.int64],
    ranges: NDArray[np.float64],
    tail: float,
) -> NDArray[np.float64]:
    bounds = ranges.copy()
    for group in range(len(ranges)):
        first, last = starts[group], starts[group + 1]
        low, high = ranges[group]
        width = high - low
        if last - first + zeros[group] == 0 or not 0.0 < width < np.inf:
            continue
        shares = np.empty(last - first)
        for row in range(first, last):
            shares[row - first] = min(1.0, max(0.0, (values[row] - low) / width))
        zero = min(1.0, max(0.0, -low / width))
        bounds[group, 1] = low + width * _upper(shares, zeros[group], zero, tail)
        bounds[group, 0] = high - width * _upper(1.0 - shares, zeros[group], 1.0 - zero, tail)
    return bounds


@njit(nogil=True, cache=True)
def _upper(shares: NDArray[np.float64], zeros: int, zero: float, tail: float) -> float:
    """The smallest mean u (rounded up) at which betting on less would have made rich."""
    count = len(shares) + zeros
    mean = (shares.sum() + zeros * zero) / count
    rich = -math.log(tail)
    step = math.sqrt(rich * mean * (1.0 - mean) / count) + rich / count
    poor = mean
    ruled_out = mean + step
    while ruled_out < 1.0 and _log_wealth(shares, zeros, zero, ruled_out, rich) < rich:
        poor = ruled_out
        step *= 1.5
        ruled_out += step
    ruled_out = min(ruled_out, 1.0)
    while ruled_out - poor > _PRECISE * (ruled_out - mean):
        middle = 0.5 * (poor + ruled_out)
        if not poor < middle < ruled_out:  # No float lies in between.
            break
        if _log_wealth(shares, zeros, zero, middle, rich) < rich:
            poor = middle
        else:
            ruled_out = middle
    return float(ruled_out)


@njit(nogil=True, cache=True)
def _log_wealth(
    shares: NDArray[np.float64], zeros: int, zero: float, mean: float, rich: float
) -> float:
    """log W(mean); see the module."""
    count = len(shares) + zeros
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
        if zeros > 0:
            log_wealth += zeros * math.log1p(bet * (mean - zero))
        product = 1.0
        for share in shares:
            product *= 1.0 + bet * (mean - share)
            if product < 1e-200 or product > 1e200:
                log_wealth += math.log(product)
                product = 1.0
        log_wealth += math.log(product)
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
