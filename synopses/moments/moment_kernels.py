"""The loops of moments.py: one cache line of state per group.

A group's state is one row of eight 8-byte cells, seen through two views of the same memory, as
float64 and as int64 (the columns below say which view a cell belongs to):

  COUNT int64     finite values
  SUM, REST       doubles: float64, their sum as an unevaluated pair (double-double);
                  integers: int64, the low and high word of the 128-bit sum
  LEAST, MOST     extremes, in the column's type (infinities of doubles included)
  ANCHOR          float64, the group's first value
  MEAN, SQUARES   float64, running mean less ANCHOR and sum of squared distances from the mean;
                  without the anchor, values far from zero would lose the digits that differ

Where the spread is kept its kernel comes first and counts; the other then counts in `step`s of 0.
Integers that doubles do not hold are taken in two parts, which they do: else neighbours beyond 2^53
would be one value.

Helpers take scalars, never arrays: an array handed to a function inside the loop costs an atomic
reference count per tuple (measured: 44 instead of 650 M/s).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.prefetch import prefetch

COUNT, SUM, REST, LEAST, MOST, MEAN, SQUARES, ANCHOR = range(8)
CELLS = 8
_NEAR = 1 << 13  # Groups whose state leaves room in a cache of a MiB.
_AHEAD = 24  # Rows between bringing a group's state near and changing it.
_LANES = 128  # Sums that grow side by side.
_BLOCK = 256  # Values whose mean is taken first, so that their spread needs no division each.
_ALL = np.zeros(0, np.bool_)
_HELD = 53  # Bits of an integer that a double holds,
REST_BITS = 1023  # and those of 63 that it has no room for.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Ids = NDArray[np.int32]


@njit(nogil=True, cache=True, inline="always")
def two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b and its rounding error, exactly (Knuth, TAOCP 2, 4.2.2, Thm B)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@njit(nogil=True, cache=True)
def add_doubles(
    floats: Floats, ints: Integers, infinite: Integers, step: int, ids: Ids, values: Floats
) -> None:
    """Count, sum, extremes of doubles per group."""
    # Two loops: to ask in one whether it is far costs a fifth.
    if len(floats) > _NEAR:
        _add_doubles(True, False, _ALL, floats, ints, infinite, step, ids, values)
    else:
        _add_doubles(False, False, _ALL, floats, ints, infinite, step, ids, values)


@njit(nogil=True, cache=True)
def add_doubles_of(
    some: NDArray[np.bool_],
    floats: Floats,
    ints: Integers,
    infinite: Integers,
    step: int,
    ids: Ids,
    values: Floats,
) -> None:
    """The same of some groups alone; bool [groups]."""
    _add_doubles(False, True, some, floats, ints, infinite, step, ids, values)


@njit(nogil=True, cache=True, inline="always")
def _add_doubles(
    far: bool,
    of_some: bool,
    some: NDArray[np.bool_],
    floats: Floats,
    ints: Integers,
    infinite: Integers,
    step: int,
    ids: Ids,
    values: Floats,
) -> None:
    last = values.size - 1
    for row in range(values.size):
        if far:
            prefetch(floats, int(ids[min(row + _AHEAD, last)]))
        group, x = np.uint32(ids[row]), values[row]  # Unsigned: no place counts from the end.
        if of_some and not some[group]:
            continue
        least, most = floats[group, LEAST], floats[group, MOST]
        # Seldom, where groups have many values: storing each time costs a wait. Not min(): its NaN
        # rules cost more.
        if far | (x < least):
            floats[group, LEAST] = x if x < least else least
        if far | (x > most):
            floats[group, MOST] = x if x > most else most
        if abs(x) < np.inf:
            total, error = two_sum(floats[group, SUM], x)
            floats[group, SUM] = total
            floats[group, REST] += error
            ints[group, COUNT] += step
        elif x > 0:
            infinite[group, 1] += 1
        elif x < 0:
            infinite[group, 0] += 1


@njit(nogil=True, cache=True)
def add_doubles_to_one(
    floats: Floats, ints: Integers, infinite: Integers, step: int, values: Floats
) -> None:
    """Count, sum, extremes of doubles, all of group 0."""
    first = _add_in_lanes(floats, ints, step, values) if values.size >= 2 * _LANES else 0
    total, rest = floats[0, SUM], floats[0, REST]
    least, most = floats[0, LEAST], floats[0, MOST]
    finite = 0
    for row in range(first, values.size):
        x = values[row]
        least = x if x < least else least
        most = x if x > most else most
        if abs(x) < np.inf:
            total, error = two_sum(total, x)
            rest += error
            finite += 1
        elif x > 0:
            infinite[0, 1] += 1
        elif x < 0:
            infinite[0, 0] += 1
    floats[0, SUM], floats[0, REST] = total, rest
    floats[0, LEAST], floats[0, MOST] = least, most
    ints[0, COUNT] += finite * step


@njit(nogil=True, cache=True)
def _add_in_lanes(floats: Floats, ints: Integers, step: int, values: Floats) -> int:
    """Add a whole number of rows of lanes to group 0; returns how many values these are.

    One sum after the other waits for the one before; each lane has a sum of its own. None are
    added where one is not finite, or a lane's sum would not be.
    """
    totals, rests = np.zeros(_LANES), np.zeros(_LANES)
    leasts, mosts = np.full(_LANES, np.inf), np.full(_LANES, -np.inf)
    whole = values.size // _LANES * _LANES
    for first in range(0, whole, _LANES):
        for lane in range(_LANES):
            x = values[first + lane]
            leasts[lane] = x if x < leasts[lane] else leasts[lane]
            mosts[lane] = x if x > mosts[lane] else mosts[lane]
            total, error = two_sum(totals[lane], x)
            totals[lane] = total
            rests[lane] += error
    total, rest = floats[0, SUM], floats[0, REST]
    least, most = floats[0, LEAST], floats[0, MOST]
    for lane in range(_LANES):
        total, error = two_sum(total, totals[lane])
        rest += error + rests[lane]
        least = leasts[lane] if leasts[lane] < least else least
        most = mosts[lane] if mosts[lane] > most else most
    if not abs(rest) < np.inf:  # Whatever was not finite on the way has made this a NaN.
        return 0
    floats[0, SUM], floats[0, REST] = total, rest
    floats[0, LEAST], floats[0, MOST] = least, most
    ints[0, COUNT] += whole * step
    return whole


@njit(nogil=True, cache=True)
def add_integers(ints: Integers, step: int, ids: Ids, values: Integers) -> None:
    """Count, sum, extremes of integers; ids of size 0: all of group 0."""
    if ids.size > 0 and len(ints) > _NEAR:
        _add_integers(True, ints, step, ids, values)
    else:
        _add_integers(False, ints, step, ids, values)


@njit(nogil=True, cache=True, inline="always")
def _add_integers(far: bool, ints: Integers, step: int, ids: Ids, values: Integers) -> None:
    grouped, last = ids.size > 0, values.size - 1
    for row in range(values.size):
        if far:
            prefetch(ints, int(ids[min(row + _AHEAD, last)]))
        group = np.uint32(ids[row]) if grouped else np.uint32(0)
        x = values[row]
        low = np.uint64(ints[group, SUM]) + np.uint64(x)
        ints[group, SUM] = np.int64(low)
        ints[group, REST] += (x >> 63) + np.int64(low < np.uint64(x))
        ints[group, COUNT] += step
        least, most = ints[group, LEAST], ints[group, MOST]
        if far | (x < least):
            ints[group, LEAST] = x if x < least else least
        if far | (x > most):
            ints[group, MOST] = x if x > most else most


@njit(nogil=True, cache=True, inline="always")
def _joined(
    seen: float, mean: float, squares: float, more: float, mean2: float, squares2: float
) -> tuple[float, float]:
    """Mean and squares of two parts together (Chan, Golub, LeVeque 1979, eq. 2.1); more > 0."""
    both = seen + more
    away = mean2 - mean
    return mean + away * (more / both), squares + squares2 + away * away * (seen * more / both)


@njit(nogil=True, cache=True)
def are_wide(values: Integers) -> bool:
    """Return whether any is beyond what a double surely holds."""
    bits = np.int64(0)
    for row in range(values.size):
        bits |= values[row] ^ (values[row] >> 63)
    return bool(bits >> _HELD != 0)


@njit(nogil=True, cache=True, inline="always")
def _parts(x: np.int64) -> tuple[np.float64, float]:
    """Two doubles whose sum an integer is."""
    rest = x & REST_BITS
    return np.float64(x - rest), np.float64(rest)


@njit(nogil=True, cache=True)
def add_spread(
    floats: Floats, ints: Integers, ids: Ids, values: Floats | Integers, wide: Integers
) -> None:
    """Count, mean and squared distances per group.

    wide: the values again where they are integers that doubles do not hold; else of size 0.
    """
    far, last, split, rest = len(floats) > _NEAR, values.size - 1, wide.size > 0, 0.0
    for row in range(values.size):
        if far:
            prefetch(floats, int(ids[min(row + _AHEAD, last)]))
        x = np.float64(values[row])
        if split:
            x, rest = _parts(wide[row])
        if abs(x) < np.inf:
            group = np.uint32(ids[row])
            seen = ints[group, COUNT] + 1
            ints[group, COUNT] = seen
            if seen == 1:
                floats[group, ANCHOR] = x
            x = x - floats[group, ANCHOR] + rest
            away = x - floats[group, MEAN]
            mean = floats[group, MEAN] + away / np.float64(seen)  # Welford 1962.
            floats[group, MEAN] = mean
            floats[group, SQUARES] += away * (x - mean)


@njit(nogil=True, cache=True)
def add_spread_to_one(
    floats: Floats, ints: Integers, values: Floats | Integers, wide: Integers
) -> None:
    """The same, all of group 0."""
    split, rest = wide.size > 0, 0.0
    all_seen, all_mean, all_squares = ints[0, COUNT], floats[0, MEAN], floats[0, SQUARES]
    anchor = floats[0, ANCHOR]
    for start in range(0, values.size, _BLOCK):
        end = min(start + _BLOCK, values.size)
        seen, total = 0, 0.0
        for row in range(start, end):
            x = np.float64(values[row])
            if split:
                x, rest = _parts(wide[row])
            if abs(x) < np.inf:
                if all_seen + seen == 0:
                    anchor = x
                seen += 1
                total += x - anchor + rest
        if seen == 0:
            continue
        mean = total / np.float64(seen)
        squares = 0.0
        for row in range(start, end):
            x = np.float64(values[row])
            if split:
                x, rest = _parts(wide[row])
            if abs(x) < np.inf:
                away = x - anchor + rest - mean
                squares += away * away
        all_mean, all_squares = _joined(
            np.float64(all_seen), all_mean, all_squares, np.float64(seen), mean, squares
        )
        all_seen += seen
    floats[0, MEAN], floats[0, SQUARES], floats[0, ANCHOR] = all_mean, all_squares, anchor
    ints[0, COUNT] = all_seen


@njit(nogil=True, cache=True)
def merge_doubles(floats: Floats, ints: Integers, others: Floats, other_ints: Integers) -> None:
    """Add the other's count, sum and extremes to the first groups of this."""
    for group in range(len(others)):
        total, error = two_sum(floats[group, SUM], others[group, SUM])
        floats[group, SUM] = total
        floats[group, REST] += others[group, REST] + error
        least, most = others[group, LEAST], others[group, MOST]
        floats[group, LEAST] = least if least < floats[group, LEAST] else floats[group, LEAST]
        floats[group, MOST] = most if most > floats[group, MOST] else floats[group, MOST]
        ints[group, COUNT] += other_ints[group, COUNT]


@njit(nogil=True, cache=True)
def merge_integers(ints: Integers, others: Integers) -> None:
    """Add the other's count, sum and extremes to the first groups of this."""
    for group in range(len(others)):
        low = np.uint64(ints[group, SUM]) + np.uint64(others[group, SUM])
        carry = np.int64(low < np.uint64(others[group, SUM]))
        ints[group, SUM] = np.int64(low)
        ints[group, REST] += others[group, REST] + carry
        ints[group, LEAST] = min(ints[group, LEAST], others[group, LEAST])
        ints[group, MOST] = max(ints[group, MOST], others[group, MOST])
        ints[group, COUNT] += others[group, COUNT]


@njit(nogil=True, cache=True)
def merge_spread(floats: Floats, ints: Integers, others: Floats, other_ints: Integers) -> None:
    """Join the other's mean and squares to those of this; before the counts are added."""
    for group in range(len(others)):
        seen, more = ints[group, COUNT], other_ints[group, COUNT]
        if more == 0:
            continue
        if seen == 0:
            floats[group, ANCHOR] = others[group, ANCHOR]
        shift = others[group, ANCHOR] - floats[group, ANCHOR]
        floats[group, MEAN], floats[group, SQUARES] = _joined(
            np.float64(seen),
            floats[group, MEAN],
            floats[group, SQUARES],
            np.float64(more),
            others[group, MEAN] + shift,
            others[group, SQUARES],
        )
