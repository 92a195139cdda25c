"""Kernels that count many values of one group in a window of cells (see paged_counters.py).

Where a value is counted is found for a block of values at a time, which the machine does for
several at once; then they are counted, neighbours in two tables, for the same counter again has to
wait for the time before. At the end of a run the tables are added to the pages.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.histogram.page_kernels import (
    FIRST,
    PAGE_BITS,
    PER_STRETCH,
    STRETCH_BITS,
    Counters,
    Ints,
    Longs,
    Places,
    Words,
)
from synopses.kernels.prefetch import prefetch

_RUN = 1 << 16  # Values between two additions: no counter goes round twice.
_BLOCK = 512  # Values whose places are found at once, while the next as many are fetched.
_LINE = np.uint64(7)  # Values of a cache line, less one.
_LOOK = 256  # Values that say where the window is,
_ABOVE = 4  # which ends so far above the largest of either sign,
_WIDE, _EACH = 64, 256  # and is so wide, or one stretch for each so many values.
_FEW = 32  # Values that are passed over together where all are in the window.
_LANES = 2
_STRETCH = 1 << STRETCH_BITS
_WRAP = 1 << 16
_NONE = np.int32(0)
_ONE = np.uint64(1)
_NOTHING = np.uint64(0)
_INFINITE = np.uint64(0x7FF << 53)  # Without its sign.

Doubles = NDArray[np.float64]
Starts = NDArray[np.int32]


@njit(nogil=True, cache=True)
def _first_counter(stretch: int, columns: Places, row: int, directory: Ints) -> int:
    """Return the first counter of a whole stretch; 0 if its pages are missing or several."""
    slot = row + np.int64(columns[stretch])
    page = np.int64(directory[slot])
    whole = page > 0
    for sub in range(1, PER_STRETCH):
        whole &= directory[slot + sub] == page + sub
    return int((page << PAGE_BITS) * whole)


@njit(nogil=True, cache=True)
def _window(
    bits: Words, stretches: Longs, columns: Places, row: int, directory: Ints, shift: int
) -> tuple[Longs, Longs, Longs]:
    """Return which whole stretches are counted: those that are near to the first values.

    Returns:
      lows, widths, int64 [2]: the first stretch of positive and of negative values, and how many;
      starts, int64 [1 + both widths]: where the counters of each begin, 0: it has none here, and
      so has what is first, which is no stretch.
    """
    negative = 1 << (63 - shift - STRETCH_BITS)
    most = np.full(2, -1, np.int64)
    for at in range(min(_LOOK, bits.size)):
        if bits[at] << _ONE >= _INFINITE:
            continue  # Nor does a NaN say where the others are.
        stretch = np.int64(((bits[at] >> np.uint64(shift)) + _ONE) >> np.uint64(STRETCH_BITS))
        side = int(stretch >= negative)
        most[side] = max(most[side], stretch)
    wide = max(_WIDE, bits.size // _EACH)
    lows, ends = np.full(2, 1 << 20, np.int64), np.zeros(2, np.int64)
    for stretch in stretches:
        side = int(stretch >= negative)
        is_near = most[side] + _ABOVE - wide <= stretch < most[side] + _ABOVE
        if stretch != 0 and is_near and _first_counter(stretch, columns, row, directory):
            lows[side], ends[side] = min(lows[side], stretch), max(ends[side], stretch + 1)
    widths = np.maximum(ends - lows, 0)
    starts = np.zeros(1 + widths.sum(), np.int64)
    for stretch in stretches:
        side = int(stretch >= negative)
        if lows[side] <= stretch < ends[side]:
            start = _first_counter(stretch, columns, row, directory)
            starts[1 + stretch - lows[side] + side * widths[0]] = start
    return lows, widths, starts


@njit(nogil=True, cache=True, inline="always")
def _place(key: np.int32, before: np.int32, width: np.int32) -> np.int32:
    """The place of a key in a table, from 1; 0 where it is outside."""
    place = np.int32(key - before)
    place = place if place > _NONE else _NONE
    return place if place <= width else _NONE


@njit(nogil=True, cache=True)
def _find_places(
    part: Words, move: np.uint64, befores: Starts, ends: Starts, places: NDArray[np.int32]
) -> None:
    """The places of a block of values; of one sign alone if the other has no cells."""
    before0, before1, width0, width1 = befores[0], befores[1], ends[0], ends[1]
    if width1 == 0:
        for at in range(part.size):
            places[at] = _place(np.int32(part[at] >> move), before0, width0)
        return
    for at in range(part.size):
        key = np.int32(part[at] >> move)
        other = _place(key, before1, width1)
        other = np.int32(other + width0) if other > _NONE else _NONE
        places[at] = np.int32(_place(key, before0, width0) + other)


@njit(nogil=True, cache=True)
def _widen(numbers: Doubles, extremes: Doubles) -> None:
    """Widen extremes to these; seldom do they change."""
    least, most, outside = extremes[0], extremes[1], 0
    for at in range(numbers.size):
        outside += (numbers[at] < least) | (numbers[at] > most)
    if outside:
        for x in numbers:
            least = x if x < least else least
            most = x if x > most else most
        extremes[0], extremes[1] = least, most


@njit(nogil=True, cache=True, inline="always")
def _place_of(bound: np.uint64, move: np.uint64, before: np.int32, width: np.int32) -> int:
    """The place of a bound's bits, 0 where it is below all places, one more than width above."""
    return min(max(int(bound >> move) - int(before), 0), int(width) + 1)


@njit(nogil=True, cache=True)
def _may_widen(
    tallies: NDArray[np.uint32], extremes: Doubles, move: np.uint64, befores: Starts, ends: Starts
) -> bool:
    """Return whether a counted value may lie outside the extremes.

    Such a value has no place, or a place that is not strictly between those of the extremes.
    """
    bits, outside, first = extremes.view(np.uint64), tallies[:_LANES].sum(), 1
    for side in range(2):
        least, most = (extremes[0], extremes[1]) if side == 0 else (-extremes[1], -extremes[0])
        width, near, far = int(ends[side]), 0, 1
        if least > 0.0:
            near = min(_place_of(bits[side], move, befores[side], ends[side]), width)
        if most > 0.0:
            far = max(_place_of(bits[1 - side], move, befores[side], ends[side]), 1)
        outside += tallies[_LANES * first : _LANES * (first + near)].sum()
        outside += tallies[_LANES * (first + far - 1) : _LANES * (first + width)].sum()
        first += width
    return bool(outside > 0)


@njit(nogil=True, cache=True)
def _add_up(
    tallies: NDArray[np.uint32], starts: Longs, counters: Counters, round_: Longs
) -> tuple[int, int]:
    """Add tallies to the counters they belong to, and clear them.

    round_: receives the places whose counter went round to 0; [cells].

    Returns:
      (how many these are, how many values have no counter here).
    """
    rounds, outside = 0, np.int64(0)
    for lane in range(_LANES):
        outside += np.int64(tallies[lane])
    for number in range(1, starts.size):
        first = 1 + (number - 1) * _STRETCH
        part = tallies[_LANES * first : _LANES * (first + _STRETCH)]
        if starts[number] == 0:
            outside += np.int64(part.sum())
            continue
        held = counters[starts[number] : starts[number] + _STRETCH]
        over = np.uint32(0)
        for cell in range(held.size):
            count = np.uint32(held[cell]) + part[_LANES * cell] + part[_LANES * cell + 1]
            over |= np.uint32(count)
            held[cell] = np.uint16(count)
        if over >= _WRAP:
            for cell in range(held.size):
                if np.int64(held[cell]) < np.int64(part[_LANES * cell] + part[_LANES * cell + 1]):
                    round_[rounds] = first + cell
                    rounds += 1
    tallies[:] = 0
    return rounds, int(outside)


@njit(nogil=True, cache=True)
def _rows_of(run: Words, wanted: Longs, move: np.uint64, befores: Starts, ends: Starts) -> Longs:
    """For each place a row that is counted there; there is one."""
    found, places = np.empty_like(wanted), np.empty(_BLOCK, np.int32)
    for number in range(wanted.size):
        for first in range(0, run.size, _BLOCK):
            part = run[first : first + _BLOCK]
            _find_places(part, move, befores, ends, places)
            within = np.flatnonzero(places[: part.size] == wanted[number])
            if within.size:
                found[number] = first + within[0]
                break
    return found


@njit(nogil=True, cache=True, inline="always")
def _are_outside(places: NDArray[np.int32]) -> bool:
    """Return whether any of these places is none, asked for several at once."""
    outside = 0
    for at in range(places.size):
        outside += places[at] == _NONE
    return bool(outside > 0)


@njit(nogil=True, cache=True)
def _zeros_in(run: Words) -> int:
    zeros = 0
    for at in range(run.size):
        zeros += run[at] << _ONE == _NOTHING
    return zeros


@njit(nogil=True, cache=True)
def tally_one(
    values: Doubles,
    bits: Words,
    stretches: Longs,
    columns: Places,
    row: int,
    directory: Ints,
    counters: Counters,
    shift: int,
    extremes: Doubles,
) -> tuple[Longs, Longs]:
    """Count values of the group whose directory row begins at `row`, where it has whole stretches.

    A run in which any values have no counter is looked at again. So are zeros, whose key is not one
    more than their bits.

    extremes: float64 [2], widened to all values that are no NaN.

    Returns:
      rows that were not counted; rows whose counter went round to 0.
    """
    move = np.uint64(shift) & np.uint64(63)
    lows, widths, starts = _window(bits, stretches, columns, row, directory, shift)
    zero_start = 0 if columns[0] < FIRST else _first_counter(0, columns, row, directory)
    has_holes = np.count_nonzero(starts) < starts.size - 1
    cells = (starts.size - 1) << STRETCH_BITS
    # A key is the bits plus one, a place one more than the distance to the first.
    befores = ((lows << STRETCH_BITS) - 2).astype(np.int32)
    ends = (widths << STRETCH_BITS).astype(np.int32)
    tallies = np.zeros(_LANES * (1 + cells), np.uint32)
    places, round_ = np.zeros(_BLOCK, np.int32), np.empty(cells, np.int64)
    rest, rests, wrapped = np.empty(0, np.int64), 0, np.empty(0, np.int64)
    for begin in range(0, bits.size, _RUN):
        run, numbers = bits[begin : begin + _RUN], values[begin : begin + _RUN]
        for first in range(0, run.size, _BLOCK):
            part = run[first : first + _BLOCK]
            _find_places(part, move, befores, ends, places)
            for pair in range(part.size >> 1):
                even = np.uint64(pair) << _ONE
                if even & _LINE == _NOTHING:
                    prefetch(run, first + _BLOCK + 2 * pair)
                tallies[np.uint64(places[even]) << _ONE] += np.uint32(1)
                tallies[np.uint64(places[even + _ONE]) << _ONE | _ONE] += np.uint32(1)
            if part.size & 1:
                tallies[np.uint64(places[part.size - 1]) << _ONE] += np.uint32(1)
        if _may_widen(tallies, extremes, move, befores, ends):
            _widen(numbers, extremes)
        rounds, outside = _add_up(tallies, starts, counters, round_)
        if rounds:
            again = _rows_of(run, round_[:rounds], move, befores, ends)
            wrapped = np.append(wrapped, begin + again)
        if outside and zero_start:
            zeros = _zeros_in(run)
            outside -= zeros
            zeros += int(counters[zero_start])
            counters[zero_start] = np.uint16(zeros & (_WRAP - 1))
            if zeros >= _WRAP:
                wrapped = np.append(wrapped, begin + np.flatnonzero(run << _ONE == _NOTHING)[:1])
        if not outside:
            continue
        if not rest.size:
            rest = np.empty(bits.size + 1, np.int64)
        are_few = not has_holes and outside * _FEW < run.size
        for first in range(0, run.size, _BLOCK):
            part = run[first : first + _BLOCK]
            _find_places(part, move, befores, ends, places)
            step = _FEW if are_few else _BLOCK
            for start in range(0, part.size, step):
                stop = min(start + step, part.size)
                if are_few and not _are_outside(places[start:stop]):
                    continue
                for at in range(start, stop):
                    number = np.uint64(places[at] + _STRETCH - 1) >> np.uint64(STRETCH_BITS)
                    is_counted = (zero_start != 0) & (part[at] << _ONE == _NOTHING)
                    rest[rests] = begin + first + at
                    rests += int((starts[number] == 0) & (not is_counted))
    return rest[:rests], wrapped
