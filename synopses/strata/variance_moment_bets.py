"""Bets on values of which only moments are kept, over strata that were read at shares of their own.

A row of a stratum that was read at the share n/N has the weight f = N/n. If u is the true mean over
all values of all strata, the product over all rows read, for a bet b that is fixed, of
  1 + b f (u - z)
has expectation at most 1: within a stratum rows are negatively associated, the factors of a row of
the stratum have the mean 1 + b f A/N, where A is the stratum's sum of u - z, these A sum to 0, and
1 + x <= exp(x). A stratum that was read in full has a known A, and the factor exp(b A). So strata
need no parts of delta of their own. Rows of other groups have the factor 1.

Of the logarithm only a lower bound is known: for x >= -1 and 0 <= s < 1,
  log(1 + s x) >= s x + (log(1 - s) + s) x^2,
which sums to the moments of z. The wealth is a mixture over bets that the sample does not decide.
True wealth grows with u where the bet is fixed, so a mean is ruled out with all beyond it.

Source: Waudby-Smith & Ramdas 2024, JRSS B 86(1) (betting); Fan, Grama, Liu 2015, Electron. J.
Probab. 20(1), Lemma 4.1 (the logarithm); Spertus, Sridhar, Stark 2024, arXiv 2409.06680 (bets
across strata); the weights N/n are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.from_moments import Floats

_BETS: Final = 7
_CAP: Final = 0.95  # Of the bet that could lose all; each further bet is half of the one before.
_ROOM_MIN: Final = 1e-9  # Of the reach; rounding could make it negative.
_HALVINGS: Final = 60  # At most, of the distance between what was read and the end of the range.
_PRECISE: Final = 0.02  # The ends are found to this part of the width, on the safe side.


@dataclass(frozen=True, slots=True, eq=False)
class WeightedMoments:
    """Sums over the rows of groups of values z >= 0, at one or several places: [places, groups].

    counts, sums: of f and f z, where f = 1 in strata read in full.
    squares: [3, places, groups], of f^2, f^2 z, f^2 z^2, without strata read in full.
    weight: the largest f of a stratum not read in full.
    """

    counts: Floats
    sums: Floats
    squares: NDArray[np.float64]
    weight: float

    @property
    def usable(self) -> NDArray[np.bool_]:
        """bool [groups], whether all sums are finite."""
        finite = np.isfinite(self.sums) & np.isfinite(self.squares).all(axis=0)
        return np.asarray(finite.all(axis=0), np.bool_)


def largest_mean(
    moments: WeightedMoments, reach: Floats, most: Floats, *, bets_alike: int, tail: float
) -> Floats:
    """An upper bound for a mean, wrong with probability `tail`: ruled out at every place.

    Args:
      reach: [groups], no value is above it at any place.
      most: [groups], the bound where nothing is ruled out; a fixed number, it sets the bets.
      bets_alike: how many of the largest bets have the same part of the capital.
    """
    columns = moments.counts, moments.sums, moments.squares
    rich = -math.log(tail)
    found = _largest(*columns, moments.weight, reach, most, _parts(bets_alike), rich)
    return np.where(moments.usable, found, most)


def least_mean(moments: WeightedMoments, curving: Floats, tail: float) -> Floats:
    """A lower bound for a mean, at least 0, wrong with probability `tail`: ruled out everywhere.

    Args:
      curving: [groups], the squared distance of two places over 4. Between them the logarithm of
        the wealth may lie below its values at both, by as much as its second derivative allows.
    """
    columns = moments.counts, moments.sums, moments.squares
    found = _least(*columns, moments.weight, curving, _parts(1), -math.log(tail))
    return np.where(moments.usable, found, 0.0)


def _parts(alike: int) -> Floats:
    """Each bet's part of the capital."""
    parts = np.maximum(np.arange(_BETS) - alike + 2.0, 1.0) ** -1.5
    return np.asarray(parts / parts.sum(), np.float64)


@njit(nogil=True, cache=True, error_model="numpy")
def _largest(
    counts: Floats,
    sums: Floats,
    squares: NDArray[np.float64],
    weight: float,
    reach: Floats,
    most: Floats,
    parts: Floats,
    rich: float,
) -> Floats:
    found = most.copy()
    for group in range(len(most)):
        value = 0.0
        for place in range(len(sums)):
            if counts[place, group] > 0.0:
                value = max(value, sums[place, group] / counts[place, group])
        value = min(value, most[group])
        open_end = value
        for _ in range(_HALVINGS):
            if found[group] - open_end <= _PRECISE * (found[group] - value):
                break
            mean = 0.5 * (open_end + found[group])
            room = weight * max(reach[group] - mean, _ROOM_MIN * reach[group])
            wealth = 0.0
            for bet in range(len(parts)):
                size = _CAP * 0.5**bet / (weight * most[group])
                if size * room > _CAP:
                    continue
                worst = np.inf
                curve = (math.log1p(-size * room) + size * room) / (room * room)
                for place in range(len(sums)):
                    drift = counts[place, group] * mean - sums[place, group]
                    spread = _spread(squares, place, group, mean)
                    worst = min(worst, size * drift + curve * spread)
                wealth += parts[bet] * math.exp(min(worst, 2.0 * rich + 9.0))
            if math.log(max(wealth, 1e-300)) >= rich:
                found[group] = mean
            else:
                open_end = mean
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _least(
    counts: Floats,
    sums: Floats,
    squares: NDArray[np.float64],
    weight: float,
    curving: Floats,
    parts: Floats,
    rich: float,
) -> Floats:
    found = np.zeros(len(curving))
    for group in range(len(curving)):
        value = np.inf
        for place in range(len(sums)):
            if counts[place, group] > 0.0:
                value = min(value, sums[place, group] / counts[place, group])
        if not 0.0 < value < np.inf:
            continue
        open_end = value
        for _ in range(_HALVINGS):
            if open_end - found[group] <= _PRECISE * (value - found[group]):
                break
            mean = 0.5 * (open_end + found[group])
            wealth = 0.0
            for bet in range(len(parts)):
                part = _CAP * 0.5**bet
                size = part / (weight * mean)
                curve = (math.log1p(-part) + part) / (weight * mean) ** 2
                bent = size - 2.0 * curve * weight * weight * mean * mean * size / part
                worst = np.inf
                for place in range(len(sums)):
                    drift = sums[place, group] - counts[place, group] * mean
                    spread = _spread(squares, place, group, mean)
                    worst = min(worst, size * drift + curve * spread)
                worst -= curving[group] * counts[0, group] * bent
                wealth += parts[bet] * math.exp(min(worst, 2.0 * rich + 9.0))
            if math.log(max(wealth, 1e-300)) >= rich:
                found[group] = mean
            else:
                open_end = mean
    return found


@njit(nogil=True, cache=True, inline="always")
def _spread(squares: NDArray[np.float64], place: int, group: int, mean: float) -> float:
    """The sum of f^2 (mean - z)^2."""
    ones, values = squares[0, place, group], squares[1, place, group]
    return float(max(squares[2, place, group] - mean * (2.0 * values - mean * ones), 0.0))
