"""The loops of moments.py: one cache line of state per group.

A group's state is one row of eight 8-byte cells, seen through two views of the same memory, as
float64 and as int64 (the columns below say which view a cell belongs to):

  COUNT int64     finite values
  SUM, REST       doubles: float64, their sum as an unevaluated pair (double-double);
                  integers: int64, the low and high word of the 128-bit sum
  LEAST, MOST     extremes, in the column's type (infinities of doubles included)
  MEAN, SQUARES   float64, running mean and sum of squared distances from it
  SEEN            float64, values in MEAN and SQUARES

Helpers take scalars, never arrays: an array handed to a function inside the loop costs an atomic
reference count per tuple (measured: 44 instead of 650 M/s).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

COUNT, SUM, REST, LEAST, MOST, MEAN, SQUARES, SEEN = range(8)
CELLS = 8
_BLOCK = 256  # Values whose mean is taken first, so that their spread needs no division each.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Ids = NDArray[np.int32]


@njit(nogil=True, cache=True, inline="always")
def _two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b and its rounding error, exactly (Knuth, TAOCP 2, 4.2.2, Thm B)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@njit(nogil=True, cache=True)
def add_doubles(
    floats: Floats, ints: Integers, infinite: Integers, ids: Ids, values: Floats
) -> None:
    """Count, sum, extremes of doubles per group."""
    for row in range(values.size):
        group, x = ids[row], values[row]
        least, most = floats[group, LEAST], floats[group, MOST]
        floats[group, LEAST] = x if x < least else least  # Not min(): its NaN rules cost more.
        floats[group, MOST] = x if x > most else most
        if abs(x) < np.inf:
            total, error = _two_sum(floats[group, SUM], x)
            floats[group, SUM] = total
            floats[group, REST] += error
            ints[group, COUNT] += 1
        elif x > 0:
            infinite[group, 1] += 1
        elif x < 0:
            infinite[group, 0] += 1


@njit(nogil=True, cache=True)
def add_doubles_to_one(floats: Floats, ints: Integers, infinite: Integers, values: Floats) -> None:
    """Count, sum, extremes of doubles, all of group 0."""
    total, rest = floats[0, SUM], floats[0, REST]
    least, most = floats[0, LEAST], floats[0, MOST]
    finite = 0
    for row in range(values.size):
        x = values[row]
        least = x if x < least else least
        most = x if x > most else most
        if abs(x) < np.inf:
            total, error = _two_sum(total, x)
            rest += error
            finite += 1
        elif x > 0:
            infinite[0, 1] += 1
        elif x < 0:
            infinite[0, 0] += 1
    floats[0, SUM], floats[0, REST] = total, rest
    floats[0, LEAST], floats[0, MOST] = least, most
    ints[0, COUNT] += finite


@njit(nogil=True, cache=True)
def add_integers(ints: Integers, ids: Ids, values: Integers) -> None:
    """Count, sum, extremes of integers; ids of size 0: all of group 0."""
    grouped = ids.size > 0
    for row in range(values.size):
        group = ids[row] if grouped else 0
        x = values[row]
        low = np.uint64(ints[group, SUM]) + np.uint64(x)
        ints[group, SUM] = np.int64(low)
        ints[group, REST] += (x >> 63) + np.int64(low < np.uint64(x))
        ints[group, COUNT] += 1
        least, most = ints[group, LEAST], ints[group, MOST]
        ints[group, LEAST] = x if x < least else least
        ints[group, MOST] = x if x > most else most


@njit(nogil=True, cache=True, inline="always")
def _joined(
    seen: float, mean: float, squares: float, more: float, mean2: float, squares2: float
) -> tuple[float, float, float]:
    """Spread of two parts together (Chan, Golub, LeVeque 1979, eq. 2.1)."""
    both = seen + more
    if more == 0.0:
        return seen, mean, squares
    away = mean2 - mean
    return (
        both,
        mean + away * (more / both),
        squares + squares2 + away * away * (seen * more / both),
    )


@njit(nogil=True, cache=True)
def add_spread(floats: Floats, ids: Ids, values: NDArray[np.float64] | NDArray[np.int64]) -> None:
    """Mean and squared distances; ids of size 0: all of group 0."""
    if ids.size:
        for row in range(values.size):
            x = np.float64(values[row])
            if abs(x) < np.inf:
                group = ids[row]
                seen = floats[group, SEEN] + 1.0
                away = x - floats[group, MEAN]
                mean = floats[group, MEAN] + away / seen  # Welford 1962.
                floats[group, MEAN] = mean
                floats[group, SQUARES] += away * (x - mean)
                floats[group, SEEN] = seen
        return
    all_seen, all_mean, all_squares = floats[0, SEEN], floats[0, MEAN], floats[0, SQUARES]
    for start in range(0, values.size, _BLOCK):
        end = min(start + _BLOCK, values.size)
        seen, total = 0.0, 0.0
        for row in range(start, end):
            x = np.float64(values[row])
            if abs(x) < np.inf:
                seen += 1.0
                total += x
        mean = total / seen if seen > 0.0 else 0.0
        squares = 0.0
        for row in range(start, end):
            x = np.float64(values[row])
            if abs(x) < np.inf:
                squares += (x - mean) * (x - mean)
        all_seen, all_mean, all_squares = _joined(
            all_seen, all_mean, all_squares, seen, mean, squares
        )
    floats[0, SEEN], floats[0, MEAN], floats[0, SQUARES] = all_seen, all_mean, all_squares


@njit(nogil=True, cache=True)
def merge_doubles(floats: Floats, ints: Integers, others: Floats, other_ints: Integers) -> None:
    """Add the other's count, sum and extremes to the first groups of this."""
    for group in range(len(others)):
        total, error = _two_sum(floats[group, SUM], others[group, SUM])
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
def merge_spread(floats: Floats, others: Floats) -> None:
    """Join the other's mean and squares to those of the first groups of this."""
    for group in range(len(others)):
        floats[group, SEEN], floats[group, MEAN], floats[group, SQUARES] = _joined(
            floats[group, SEEN],
            floats[group, MEAN],
            floats[group, SQUARES],
            others[group, SEEN],
            others[group, MEAN],
            others[group, SQUARES],
        )
