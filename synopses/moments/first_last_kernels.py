"""The loops of first_last.py: six int64 cells per group.

  FIRST_TIME, FIRST_POSITION, FIRST   of the smallest (time, position): these, and the value's bits
  LAST_TIME, LAST_POSITION, LAST      of the largest

An empty group has the largest int64 before it and the smallest behind it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

FIRST_TIME, FIRST_POSITION, FIRST, LAST_TIME, LAST_POSITION, LAST = range(6)
CELLS = 6

Integers = NDArray[np.int64]


@njit(nogil=True, cache=True)
def add_values(
    cells: Integers, ids: NDArray[np.int32], times: Integers, positions: Integers, values: Integers
) -> None:
    """Take values in; ids of size 0: all of group 0."""
    grouped = ids.size > 0
    for row in range(values.size):
        group = ids[row] if grouped else 0
        time, position = times[row], positions[row]
        first, last = cells[group, FIRST_TIME], cells[group, LAST_TIME]
        if time < first or (time == first and position < cells[group, FIRST_POSITION]):
            cells[group, FIRST_TIME] = time
            cells[group, FIRST_POSITION] = position
            cells[group, FIRST] = values[row]
        if time > last or (time == last and position > cells[group, LAST_POSITION]):
            cells[group, LAST_TIME] = time
            cells[group, LAST_POSITION] = position
            cells[group, LAST] = values[row]


@njit(nogil=True, cache=True)
def merge_values(cells: Integers, others: Integers) -> None:
    """Join the other's first groups to those of this."""
    for group in range(len(others)):
        time, position = others[group, FIRST_TIME], others[group, FIRST_POSITION]
        first, last = cells[group, FIRST_TIME], cells[group, LAST_TIME]
        if time < first or (time == first and position < cells[group, FIRST_POSITION]):
            cells[group, FIRST_TIME] = time
            cells[group, FIRST_POSITION] = position
            cells[group, FIRST] = others[group, FIRST]
        time, position = others[group, LAST_TIME], others[group, LAST_POSITION]
        if time > last or (time == last and position > cells[group, LAST_POSITION]):
            cells[group, LAST_TIME] = time
            cells[group, LAST_POSITION] = position
            cells[group, LAST] = others[group, LAST]
