"""The loops of covariance.py: one cache line of state per group.

A group's state is one row of eight 8-byte cells, seen as float64 and as int64:

  COUNT int64       pairs of which both are finite
  MEAN_X, MEAN_Y    running means less the anchors
  SQUARES_X, _Y     sums of squared distances from the means
  CROSS             sum of the products of both distances
  ANCHOR_X, _Y      the group's first pair: far from zero, the digits that differ would be lost

The squares of a column with two different values are never 0, whatever underflows, so that 0 says
"constant". Recurrences: Pebay 2008, SAND2008-6212, eqs. 2.1 and 3.11-3.12.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

COUNT, MEAN_X, MEAN_Y, SQUARES_X, SQUARES_Y, CROSS, ANCHOR_X, ANCHOR_Y = range(8)
CELLS = 8
_LEAST = 5e-324

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def _square(square: float, distance: float) -> float:
    """The square, or the least positive number where it underflowed to nothing."""
    return _LEAST if square == 0.0 and distance != 0.0 else square


@njit(nogil=True, cache=True)
def add_pairs(
    floats: Floats,
    ints: Integers,
    infinite: Integers,
    ids: NDArray[np.int32],
    first: Floats,
    second: Floats,
    first_rest: Floats,
    second_rest: Floats,
) -> None:
    """Take pairs in; ids of size 0: all of group 0. A NaN makes its pair absent.

    first_rest, second_rest: what is to be added to each number; of size 0: nothing.
    """
    grouped = ids.size > 0
    split_x, split_y = first_rest.size > 0, second_rest.size > 0
    for row in range(first.size):
        group = ids[row] if grouped else 0
        x, y = first[row], second[row]
        if not (abs(x) < np.inf and abs(y) < np.inf):
            infinite[group] += x == x and y == y  # noqa: PLR0124 - NaN is not itself
            continue
        seen = ints[group, COUNT] + 1
        ints[group, COUNT] = seen
        if seen == 1:
            floats[group, ANCHOR_X], floats[group, ANCHOR_Y] = x, y
        share = 1.0 / np.float64(seen)
        x -= floats[group, ANCHOR_X]
        y -= floats[group, ANCHOR_Y]
        if split_x:
            x += first_rest[row]
        if split_y:
            y += second_rest[row]
        from_x, from_y = x - floats[group, MEAN_X], y - floats[group, MEAN_Y]
        mean_x = floats[group, MEAN_X] + from_x * share
        mean_y = floats[group, MEAN_Y] + from_y * share
        floats[group, MEAN_X], floats[group, MEAN_Y] = mean_x, mean_y
        floats[group, SQUARES_X] += _square(from_x * (x - mean_x), from_x)
        floats[group, SQUARES_Y] += _square(from_y * (y - mean_y), from_y)
        floats[group, CROSS] += from_x * (y - mean_y)


@njit(nogil=True, cache=True)
def merge_pairs(floats: Floats, ints: Integers, others: Floats, other_ints: Integers) -> None:
    """Join the other's first groups to those of this."""
    for group in range(len(others)):
        seen, more = ints[group, COUNT], other_ints[group, COUNT]
        if more == 0:
            continue
        if seen == 0:
            floats[group] = others[group]
            continue
        both = seen + more
        share = np.float64(more) / np.float64(both)
        weight = np.float64(seen) * share
        shift_x = others[group, ANCHOR_X] - floats[group, ANCHOR_X]
        shift_y = others[group, ANCHOR_Y] - floats[group, ANCHOR_Y]
        from_x = others[group, MEAN_X] + shift_x - floats[group, MEAN_X]
        from_y = others[group, MEAN_Y] + shift_y - floats[group, MEAN_Y]
        floats[group, MEAN_X] += from_x * share
        floats[group, MEAN_Y] += from_y * share
        floats[group, SQUARES_X] += others[group, SQUARES_X] + _square(
            from_x * from_x * weight, from_x
        )
        floats[group, SQUARES_Y] += others[group, SQUARES_Y] + _square(
            from_y * from_y * weight, from_y
        )
        floats[group, CROSS] += others[group, CROSS] + from_x * from_y * weight
        ints[group, COUNT] = both
