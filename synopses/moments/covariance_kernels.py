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

from synopses.kernels.borrowed import borrowed

COUNT, MEAN_X, MEAN_Y, SQUARES_X, SQUARES_Y, CROSS, ANCHOR_X, ANCHOR_Y = range(8)
CELLS = 8
_LEAST = 5e-324

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Sums = tuple[int, float, float, float, float, float]
"""The cells of one group, without the anchors."""


@njit(nogil=True, cache=True, inline="always")
def _square(square: float, distance: float) -> float:
    """The square, or the least positive number where it underflowed to nothing."""
    return _LEAST if square == 0.0 and distance != 0.0 else square


@njit(nogil=True, cache=True, inline="always")
def _are_finite(x: float, y: float) -> bool:
    return abs(x) < np.inf and abs(y) < np.inf


@njit(nogil=True, cache=True, inline="always")
def _add_in_place(
    floats: Floats,
    ints: Integers,
    infinite: Integers,
    group: int,
    x: float,
    y: float,
    rests: tuple[Floats, Floats],
    row: int,
) -> None:
    """Add a pair to the cells of its group. rests: as of `add_pairs`."""
    if not _are_finite(x, y):
        infinite[group] += x == x and y == y  # noqa: PLR0124 - NaN is not itself
        return
    seen = ints[group, COUNT] + 1
    ints[group, COUNT] = seen
    if seen == 1:
        floats[group, ANCHOR_X], floats[group, ANCHOR_Y] = x, y
    share = 1.0 / np.float64(seen)
    x -= floats[group, ANCHOR_X]
    y -= floats[group, ANCHOR_Y]
    if rests[0].size > 0:
        x += rests[0][row]
    if rests[1].size > 0:
        y += rests[1][row]
    from_x, from_y = x - floats[group, MEAN_X], y - floats[group, MEAN_Y]
    mean_x = floats[group, MEAN_X] + from_x * share
    mean_y = floats[group, MEAN_Y] + from_y * share
    floats[group, MEAN_X], floats[group, MEAN_Y] = mean_x, mean_y
    floats[group, SQUARES_X] += _square(from_x * (x - mean_x), from_x)
    floats[group, SQUARES_Y] += _square(from_y * (y - mean_y), from_y)
    floats[group, CROSS] += from_x * (y - mean_y)


@njit(nogil=True, cache=True, inline="always")
def _with_pair(
    sums: Sums,
    floats: Floats,
    infinite: Integers,
    x: float,
    y: float,
    rest_x: float,
    rest_y: float,
) -> Sums:
    """Return the sums of group 0 with one more pair; as `_add_in_place`."""
    seen, mean_x, mean_y, squares_x, squares_y, cross = sums
    if _are_finite(x, y):
        seen += 1
        if seen == 1:
            floats[0, ANCHOR_X], floats[0, ANCHOR_Y] = x, y
        share = 1.0 / np.float64(seen)
        x, y = x - floats[0, ANCHOR_X] + rest_x, y - floats[0, ANCHOR_Y] + rest_y
        from_x, from_y = x - mean_x, y - mean_y
        mean_x += from_x * share
        mean_y += from_y * share
        squares_x += _square(from_x * (x - mean_x), from_x)
        squares_y += _square(from_y * (y - mean_y), from_y)
        cross += from_x * (y - mean_y)
    else:
        infinite[0] += x == x and y == y  # noqa: PLR0124 - NaN is not itself
    return seen, mean_x, mean_y, squares_x, squares_y, cross


@njit(nogil=True, cache=True, inline="always")
def _sums_of_one(floats: Floats, ints: Integers) -> Sums:
    """The sums of group 0."""
    return (
        ints[0, COUNT],
        floats[0, MEAN_X],
        floats[0, MEAN_Y],
        floats[0, SQUARES_X],
        floats[0, SQUARES_Y],
        floats[0, CROSS],
    )


@njit(nogil=True, cache=True, inline="always")
def _set_sums_of_one(floats: Floats, ints: Integers, sums: Sums) -> None:
    ints[0, COUNT] = sums[0]
    floats[0, MEAN_X], floats[0, MEAN_Y] = sums[1], sums[2]
    floats[0, SQUARES_X], floats[0, SQUARES_Y] = sums[3], sums[4]
    floats[0, CROSS] = sums[5]


@njit(nogil=True, cache=True, error_model="numpy")
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

    The sums of one group stay in registers: a sum that is written and read again for each pair
    takes longer. first_rest, second_rest: what is to be added to each number; of size 0: nothing.
    """
    floats, ints, infinite = borrowed(floats), borrowed(ints), borrowed(infinite)
    rests = borrowed(first_rest), borrowed(second_rest)
    if ids.size > 0:
        for row in range(first.size):
            _add_in_place(floats, ints, infinite, ids[row], first[row], second[row], rests, row)
        return
    split_x, split_y = first_rest.size > 0, second_rest.size > 0
    sums = _sums_of_one(floats, ints)
    for row in range(first.size):
        rest_x = first_rest[row] if split_x else 0.0
        rest_y = second_rest[row] if split_y else 0.0
        sums = _with_pair(sums, floats, infinite, first[row], second[row], rest_x, rest_y)
    _set_sums_of_one(floats, ints, sums)


@njit(nogil=True, cache=True, error_model="numpy")
def add_pairs_and_squares(
    floats: Floats,
    ints: Integers,
    infinite: Integers,
    square_floats: Floats,
    square_ints: Integers,
    square_infinite: Integers,
    ids: NDArray[np.int32],
    first: Floats,
    second: Floats,
    first_rest: Floats,
    second_rest: Floats,
    units: Floats,
) -> None:
    """Take pairs in as `add_pairs`, and the squares of their sums and differences elsewhere.

    The chains of both are independent, so together they take hardly longer than one of them.

    Args:
      square_floats, square_ints, square_infinite: of the squares.
      units: float64 [4], the centers of x and y, and one over the scales of both.
    """
    floats, ints, infinite = borrowed(floats), borrowed(ints), borrowed(infinite)
    of_floats, of_ints = borrowed(square_floats), borrowed(square_ints)
    of_infinite = borrowed(square_infinite)
    split_x, split_y, grouped = first_rest.size > 0, second_rest.size > 0, ids.size > 0
    rests = borrowed(first_rest), borrowed(second_rest)
    none = rests[0][:0], rests[0][:0]
    center_x, center_y, each_x, each_y = units
    sums, squares = _sums_of_one(floats, ints), _sums_of_one(of_floats, of_ints)
    for row in range(first.size):
        x, y = first[row], second[row]
        rest_x = first_rest[row] if split_x else 0.0
        rest_y = second_rest[row] if split_y else 0.0
        u, v = (x + rest_x - center_x) * each_x, (y + rest_y - center_y) * each_y
        total, difference = (u + v) * (u + v), (u - v) * (u - v)
        if grouped:
            group = ids[row]
            _add_in_place(floats, ints, infinite, group, x, y, rests, row)
            _add_in_place(of_floats, of_ints, of_infinite, group, total, difference, none, row)
        else:
            sums = _with_pair(sums, floats, infinite, x, y, rest_x, rest_y)
            squares = _with_pair(squares, of_floats, of_infinite, total, difference, 0.0, 0.0)
    if not grouped:
        _set_sums_of_one(floats, ints, sums)
        _set_sums_of_one(of_floats, of_ints, squares)


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
