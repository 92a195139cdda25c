"""Looks: repeated evaluations of an interval that stop at a target and keep the confidence.

An interval of 95 % holds at a sample size fixed beforehand. A reader that looks again while the
interval is too wide stops, sooner or later, at one that is narrow by luck. So each look is asked
at its own part of delta, and the parts add up to delta: by the union bound the interval at which
the reader stops holds with the confidence that was asked for, whatever made it stop.

The first look is a pilot, which plans the second; most readers stop there, so it has most of
delta. Those after it, should the plan have missed, halve what is left for ever. To reach 1 % on
average a normal mean costs 1.4 times the tuples of a sample size known beforehand; six looks at
doubling sizes with a sixth of delta each cost 2.0 times, and a normal-mixture confidence sequence
(Howard et al. 2021, Ann. Stat. 49(2)), which may be looked at after every tuple, 2.4 times: the
price of looking comes off when a pilot makes few looks enough.
tests/synopses/intervals/test_sequential_looks.py simulates the three.

A look shows its intervals only where they meet the target. Where few samples meet it, those
that do are lucky, and of the intervals shown more miss than of all. An interval of a look with
the part p of delta is shown and misses with a probability of at most p delta. So at least 1 -
delta of those shown hold, where a share p of all samples meet the target; where luck has a
direction, as for a large value with a relative target, only one end can miss, and p / 2 is
enough. The first look has its part also where nothing but reading everything follows it. No
rule holds for every target: of a value far from all that meet a target, each interval that is
shown because it meets the target misses.

Where the first look meets the target `MET_OVER` times over, its intervals are shown at 0.9
delta. The intervals that one method makes of a sample are nested, so the first look shows one
that misses with a probability of at most 0.9 delta. Later looks add to that only if the first
one may also miss the target. Then one of the two errors differs from the median by a factor of
sqrt(3), which the tenth that is left pays for: that is 3.6 standard deviations of a certified
interval's width (half of `normal.rho_max` each).
"""

from __future__ import annotations

import math
from typing import Final

from scipy.special import ndtri

from synopses.model.errors import BadParameter
from synopses.model.parameters import error_share

_PILOT: Final = 0.15
_PLANNED: Final = 0.6
_ALONE: Final = 0.9  # Of delta, for a first look that no other follows.
MET_OVER: Final = 3.0
"""How many times over the first look must meet the target for 0.9 delta."""
_MARGIN: Final = 1.08  # How much narrower than needed the next look is planned.
_MUCH: Final = 0.4  # Of all tuples: as dear as reading all of them.
_MIDDLE: Final = 0.1  # Of all tuples, that a look in the middle may read.
_BLIND: Final = 4.0  # Times what was read, where nothing can be predicted.


def look_confidence(look: int, confidence: float) -> float:
    """What the intervals of one look must be asked for, so that all looks together hold.

    Args:
      look: 0 is the pilot, 1 what it planned, and so on without end.
      confidence: of the interval at which the reader stops, in (0, 1).

    Raises:
      BadParameter: the confidence is not inside (0, 1), or the look is before the first.
    """
    return 1.0 - error_share(confidence) * _part(look)


def alone_confidence(confidence: float) -> float:
    """What the first look's intervals are asked for where they meet the target `MET_OVER` times.

    Raises:
      BadParameter: the confidence is not inside (0, 1).
    """
    return 1.0 - error_share(confidence) * _ALONE


def rows_wanted(*, population: int, read: int, error: float, look: int, confidence: float) -> int:
    """Return how many tuples the next look should have read for its intervals to be narrow enough.

    Widths fall with the root of 1/n - 1/N and grow with the normal quantile of the look's part
    of delta. Where a range and not a deviation makes them wide, they fall with 1/n. So where the
    root asks for much of everything and 1/n does not, a look in the middle comes first: by 1/n,
    and at no more than a tenth of all.

    Args:
      population: N, tuples that there are. read: n of them that were read, 0 <= n <= N.
      error: the widest interval of the last look in units of what the target allows, >= 0; inf
        where some value has no interval at all. look: the number of that last look.
      confidence: as asked of `look_confidence`.

    Returns:
      rows: in (n, N], or N.
    """
    if read <= 0 or read >= population:
        return population
    if not math.isfinite(error):
        return min(population, math.ceil(_BLIND * read))
    now, then = (
        float(-ndtri((1.0 - look_confidence(each, confidence)) / 2.0)) for each in (look, look + 1)
    )
    factor = (_MARGIN * error * then / now) ** 2
    rate = 1.0 / population + (1.0 / read - 1.0 / population) / max(factor, 1e-12)
    by_root = min(population, max(read + 1, math.ceil(1.0 / rate)))
    middle = min(math.ceil(read * math.sqrt(factor)), math.floor(_MIDDLE * population))
    return middle if by_root > _MUCH * population and middle >= 2 * read else by_root


def _part(look: int) -> float:
    """The look's part of delta; all parts add up to 1."""
    if look < 0:
        raise BadParameter("look", look, "0 or more")
    if look == 0:
        return _PILOT
    if look == 1:
        return _PLANNED
    return (1.0 - _PILOT - _PLANNED) * 0.5 ** (look - 1)
