"""Bets on values of which only moments are kept, over strata that were read at shares of their own.

A row of a stratum that was read at the share n/N has the weight f = N/n. If u is the true mean over
all values of all strata, the product over all rows read, for a bet b that is fixed, of
  1 + b f (u - z)
has expectation at most 1: within a stratum rows are negatively associated, the factors of a row of
the stratum have the mean 1 + b f A/N, where A is the stratum's sum of u - z, these A sum to 0, and
1 + x <= exp(x). A stratum that was read in full has a known A, and the factor exp(b A). So strata
need no parts of delta of their own. Rows of other groups have the factor 1. The range of a stratum
read in full limits no bet.

Where z >= 0, a bet b = c/u makes b (u - z) grow with u, too.

Of all rows of a stratum with the moments that were found, the product is least for values at two
points: the end of the stratum's range where a row loses, and one more (Karlin & Studden 1966,
Tchebycheff Systems: the third derivative of log(1 + x) is positive). The wealth is a mixture over
bets that the sample does not decide. A bet takes part where no factor is negative. True wealth
grows with u where the bet is fixed, so a mean is ruled out with all beyond it.

Source: Waudby-Smith & Ramdas 2024, JRSS B 86(1) (betting); Spertus, Sridhar, Stark 2024, arXiv
2409.06680 (bets across strata); the weights N/n are ours.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.from_moments import Floats
from synopses.model.overflow import SQUARES_MIN

_CAP: Final = 0.95  # Of the bet that could lose all.
# Of the bet that could lose all at one end of the range, against a mean at the other end. Where
# smaller bets were best, a normal interval is certified; most values lie near one end.
_BETS: Final[Floats] = 2.0 ** np.array([0.0, -0.5, -1.0, 0.5, 1.0, 2.0, 1.5, -2.0, -3.0])
_PARTS: Final[Floats] = np.array([0.67, 0.08, 0.05, 0.05, 0.04, 0.02, 0.02, 0.02, 0.01])
# Of the bet that loses all with a row at 0, against the mean that is asked: these are the best ones
# where the rows that were read hardly differ, and only their number is uncertain.
_NEAR_BETS: Final[Floats] = 0.5 ** np.array([1.0, 3.0, 5.0])
_NEAR_PARTS: Final[Floats] = np.full(3, 0.04 / 3.0)
# For the lower end: each bet is half of the one before, the first is the cap.
_LOW_PARTS: Final[Floats] = np.arange(1.0, 8.0) ** -1.5 / (np.arange(1.0, 8.0) ** -1.5).sum()
# Of the bound where nothing is ruled out: a narrower range, or none, sets no larger bets.
_SCALE_MIN: Final = 2.0**-30
_WIDTH_MIN: Final = math.sqrt(SQUARES_MIN)  # Squares in a narrower range may all underflow.
# In logarithms, below what is needed: a bet that won less at some place counts as lost.
_HOPELESS: Final = 8.0
_HALVINGS: Final = 60  # At most, of the distance between what was read and the end of the range.
_PRECISE: Final = 0.02  # The ends are found to this part of the width, on the safe side.


class StrataMoments(NamedTuple):
    """Values z of groups at one or several places: float64.

    known: [2, places, groups], number and sum of the values in strata that were read in full.
    factors: [strata], N/n of the others. counts: [strata, groups], values read there.
    means, variances: [strata, places, groups]; not a number: as large as the range allows.
    least, most: [strata, places, groups], the range of the values there.
    """

    known: Floats
    factors: Floats
    counts: Floats
    means: Floats
    variances: Floats
    least: Floats
    most: Floats


def largest_mean(moments: StrataMoments, scale: float, most: Floats, *, tail: float) -> Floats:
    """An upper bound for a mean of z >= 0, wrong with probability `tail`: ruled out everywhere.

    Args:
      scale: the width of the range of z, a number that the sample does not decide.
      most: [groups], the bound where nothing is ruled out.
    """
    top = float(most.max(initial=0.0))
    scale = max(scale, _SCALE_MIN * top)
    moments, unit = _in_unit(moments, top, scale)
    if not scale > 0.0:
        return most
    limit = most / unit
    parts = np.log(np.concatenate([_PARTS, _NEAR_PARTS]))
    bets = np.concatenate([_BETS * (_CAP * unit / scale), _NEAR_BETS])
    near = np.arange(len(bets)) >= len(_BETS)
    found = _largest(moments, limit, bets, near, parts, -math.log(tail))
    return np.where(_are_numbers(moments) & (found < limit), unit * found, most)


def least_mean(moments: StrataMoments, curving: Floats, tail: float) -> Floats:
    """A lower bound for a mean of z >= 0, wrong with probability `tail`: ruled out everywhere.

    Args:
      curving: [groups], the squared distance of two places over 4. Between them the logarithm of
        the wealth may lie below its values at both, by as much as its second derivative allows.
    """
    top = float(moments.most.max(initial=0.0))
    moments, unit = _in_unit(moments, top, top)
    found = _least(moments, curving / unit, np.log(_LOW_PARTS), -math.log(tail))
    return np.where(_are_numbers(moments), unit * found, 0.0)


def _in_unit(moments: StrataMoments, top: float, width: float) -> tuple[StrataMoments, float]:
    """The same in a power of two near `top`, in which no square overflows; and this unit.

    Variances of values in a range of this width that may have underflowed are not known. Arrays
    are contiguous, so that the kernels are compiled once.
    """
    unit = math.ldexp(1.0, math.frexp(top)[1] - 1) if 0.0 < top < math.inf else 1.0
    divisors = np.array([1.0, unit])[:, None, None]
    variances = (
        moments.variances / unit / unit
        if width > _WIDTH_MIN
        else np.full_like(moments.variances, np.nan)
    )
    scaled = moments._replace(
        known=moments.known / divisors,
        means=moments.means / unit,
        variances=variances,
        least=moments.least / unit,
        most=moments.most / unit,
    )
    return StrataMoments(*(np.ascontiguousarray(each, np.float64) for each in scaled)), unit


def _are_numbers(moments: StrataMoments) -> NDArray[np.bool_]:
    """bool [groups], whether all sums are finite."""
    finite = np.isfinite(moments.known).all(axis=(0, 1))
    return np.asarray(finite & np.isfinite(moments.means).all(axis=(0, 1)), np.bool_)


@njit(nogil=True, cache=True, error_model="numpy")
def two_points(
    bet: float, top: float, average: float, variance: float, ends: tuple[float, float]
) -> float:
    """The least mean of log(1 + bet (top - y)) over values y in a range with these moments."""
    gap = ends[1] - average
    largest = gap * (average - ends[0])  # Bhatia & Davis 2000.
    if not variance < largest:  # Rounded, or not a number.
        variance = max(largest, 0.0)
    if not (variance > 0.0 and gap > 0.0):
        return math.log1p(bet * (top - average))
    chance = variance / (variance + gap * gap)
    far = math.log1p(bet * (top - ends[1]))
    near = math.log1p(bet * (top - average + variance / gap))
    return chance * far + (1.0 - chance) * near


@njit(nogil=True, cache=True, error_model="numpy")
def _largest(
    moments: StrataMoments,
    limit: Floats,
    bets: Floats,
    near: NDArray[np.bool_],
    parts: Floats,
    rich: float,
) -> Floats:
    """near: which of the bets are those against the mean that is asked."""
    found = limit.copy()
    heaviest, enough = moments.factors.max(), math.exp(rich)
    for group in range(len(found)):
        value = _estimate(moments, group, 1.0)
        if not value < found[group]:
            continue
        open_end = value
        for _ in range(_HALVINGS):
            if found[group] - open_end <= _PRECISE * (found[group] - value):
                break
            mean = 0.5 * (open_end + found[group])
            wealth = 0.0
            for at in range(len(bets)):
                bet = bets[at] / (heaviest * mean if near[at] else heaviest)
                if _may_lose(moments, group, mean, bet) <= _CAP:
                    gain = parts[at] + _gain_above(
                        moments, group, mean, bet, rich - parts[at] - _HOPELESS
                    )
                    wealth += math.exp(min(gain, 2.0 * rich + 9.0))
                    if wealth >= enough:
                        break
            if wealth >= enough:
                found[group] = mean
            else:
                open_end = mean
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _least(moments: StrataMoments, curving: Floats, parts: Floats, rich: float) -> Floats:
    found = np.zeros(len(curving))
    heaviest, enough = moments.factors.max(), math.exp(rich)
    for group in range(len(found)):
        value = -_estimate(moments, group, -1.0)
        if not 0.0 < value < np.inf:
            continue
        open_end = value
        for _ in range(_HALVINGS):
            if open_end - found[group] <= _PRECISE * (value - found[group]):
                break
            mean = 0.5 * (open_end + found[group])
            wealth = 0.0
            for at in range(len(parts)):
                bet = _CAP * 0.5**at / (heaviest * mean)
                gain = parts[at] + _gain_below(
                    moments, group, mean, bet, curving[group], rich - parts[at] - _HOPELESS
                )
                wealth += math.exp(min(gain, 2.0 * rich + 9.0))
                if wealth >= enough:
                    break
            if wealth >= enough:
                found[group] = mean
            else:
                open_end = mean
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _estimate(moments: StrataMoments, group: int, sign: float) -> float:
    """The largest mean of sign * z at any place; infinite where there are no values."""
    value = -np.inf
    for place in range(moments.means.shape[1]):
        count, total = moments.known[0, place, group], moments.known[1, place, group]
        for stratum in range(len(moments.factors)):
            weight = moments.factors[stratum] * moments.counts[stratum, group]
            count += weight
            total += weight * moments.means[stratum, place, group]
        value = max(value, sign * total / count if count > 0.0 else np.inf)
    return value


@njit(nogil=True, cache=True, error_model="numpy")
def _may_lose(moments: StrataMoments, group: int, mean: float, bet: float) -> float:
    """The part of the capital that one row may lose, at any place."""
    lost = 0.0
    for stratum in range(len(moments.factors)):
        for place in range(moments.means.shape[1]):
            away = moments.most[stratum, place, group] - mean
            lost = max(lost, bet * moments.factors[stratum] * away)
    return lost


@njit(nogil=True, cache=True, error_model="numpy")
def _gain_above(
    moments: StrataMoments, group: int, mean: float, bet: float, hopeless: float
) -> float:
    """Log of the least wealth of a bet on a smaller mean, at the worst place."""
    worst = np.inf
    for place in range(moments.means.shape[1]):
        gain = bet * (moments.known[0, place, group] * mean - moments.known[1, place, group])
        for stratum in range(len(moments.factors)):
            count = moments.counts[stratum, group]
            if count > 0.0:
                gain += count * two_points(
                    bet * moments.factors[stratum],
                    mean,
                    moments.means[stratum, place, group],
                    moments.variances[stratum, place, group],
                    (moments.least[stratum, place, group], moments.most[stratum, place, group]),
                )
        worst = min(worst, gain)
        if worst < hopeless:
            return -np.inf
    return worst


@njit(nogil=True, cache=True, error_model="numpy")
def _gain_below(
    moments: StrataMoments, group: int, mean: float, bet: float, curving: float, hopeless: float
) -> float:
    """Log of the least wealth of a bet on a larger mean, at the worst place or between two."""
    worst = np.inf
    for place in range(moments.means.shape[1]):
        gain = bet * (moments.known[1, place, group] - moments.known[0, place, group] * mean)
        bent = bet * moments.known[0, place, group]
        for stratum in range(len(moments.factors)):
            count, scaled = moments.counts[stratum, group], bet * moments.factors[stratum]
            if count > 0.0:
                gain += count * two_points(
                    scaled,
                    -mean,
                    -moments.means[stratum, place, group],
                    moments.variances[stratum, place, group],
                    (-moments.most[stratum, place, group], -moments.least[stratum, place, group]),
                )
                bent += count * scaled / (1.0 - scaled * mean)
        worst = min(worst, gain - curving * bent)
        if worst < hopeless:
            return -np.inf
    return worst
