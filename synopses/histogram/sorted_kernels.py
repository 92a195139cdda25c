"""The loop of paged_counters.py for values in the order of their groups (group_ordering.py).

What is of the group alone is looked up once, and its part of the tables stays near. What seldom
happens stands outside of the loop that counts: within, it took a third of the time, for its numbers
then leave no registers to those of the loop.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.histogram.page_kernels import (
    NOTHING,
    NOWHERE,
    ONE,
    PAGE_BITS,
    PER_STRETCH,
    SUB,
    TO_PAGE,
    TO_STRETCH,
    UNKNOWN,
    WITHIN,
    Counters,
    Ints,
    Longs,
    Places,
    Words,
    opened_page,
)


@njit(nogil=True, cache=True)
def tally_runs(
    first: int,
    bounds: Longs,
    values: NDArray[np.float64],
    bits: Words,
    columns: Places,
    rows: Ints,
    directory: Ints,
    counters: Counters,
    used: int,
    whole: bool,
    shift: int,
    counts: Longs,
    extremes: NDArray[np.float64],
    rest: Longs,
    wrapped: Longs,
    found: Longs,
) -> tuple[int, int]:
    """Do what `tally_many` does, for values of which bounds say where each group's begin."""
    move = np.uint64(shift) & np.uint64(63)
    room = counters.size >> PAGE_BITS
    rests, wraps, at = found[0], found[1], first
    for group in range(np.searchsorted(bounds, first, "right") - 1, bounds.size - 1):
        start, stop, row, missing = at, bounds[group + 1], np.uint64(rows[group]), 0
        if row == 0:
            missing = stop - at
            while at < stop:
                rest[rests] = at
                rests += 1
                at += 1
        while at < stop:
            at = _count_until(at, stop, bits, move, columns, row, directory, counters)
            if at == stop:
                break
            key = (bits[at] >> move) + np.uint64((bits[at] << ONE) != NOTHING)
            column, sub = np.uint64(columns[key >> TO_STRETCH]), (key >> TO_PAGE) & SUB
            if directory[row + column + sub] != 0:
                wrapped[wraps] = at
                wraps += 1
                at += 1
            elif column == NOWHERE:
                rest[rests] = at
                rests += 1
                missing += 1
                at += 1
            elif column == UNKNOWN or used + PER_STRETCH > room:
                break
            else:
                _, used = opened_page(directory, row + column, sub, used, whole)
        least, most = _widened(values[start:at], extremes[group, 0], extremes[group, 1])
        extremes[group, 0], extremes[group, 1] = least, most
        counts[group] += at - start - missing
        if at < stop:
            break
    found[0], found[1] = rests, wraps
    return at, used


@njit(nogil=True, cache=True, inline="always")
def _widened(numbers: NDArray[np.float64], least: float, most: float) -> tuple[float, float]:
    """Extremes widened to these numbers; seldom do they change: several are compared at once."""
    outside = 0
    for at in range(numbers.size):
        outside += (numbers[at] < least) | (numbers[at] > most)
    if outside:
        for x in numbers:
            least = x if x < least else least
            most = x if x > most else most
    return least, most


@njit(nogil=True, cache=True, inline="always")
def _count_until(
    first: int,
    stop: int,
    bits: Words,
    move: np.uint64,
    columns: Places,
    row: np.uint64,
    directory: Ints,
    counters: Counters,
) -> int:
    """Count values up to one that has no page, or whose counter has gone round to 0.

    Returns:
      Where that one is, or stop.
    """
    for at in range(first, stop):
        word = bits[np.uint64(at)]
        key = (word >> move) + np.uint64((word << ONE) != NOTHING)
        column = np.uint64(columns[key >> TO_STRETCH])
        page = np.uint64(directory[row + column + ((key >> TO_PAGE) & SUB)])
        if page == 0:
            return at
        cell = (page << TO_PAGE) | (key & WITHIN)
        count = np.uint16(counters[cell] + np.uint16(1))
        counters[cell] = count
        if count == 0:
            return at
    return stop
