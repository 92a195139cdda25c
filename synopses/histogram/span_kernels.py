"""The loop of paged_counters.py for rows as they come: pages of a group that stand side by side.

Of most groups nearly all values fall into neighbouring pages. Where these stand one after the
other, a value finds its counter by an addition: one word a group and sign says which keys those
are, and where the counter of the first is. A value strictly between the cells of the group's least
and most cannot move them either, so that the same comparison answers for both.

A word is the first counter << 32 | how many keys << 20 | the first key, as a double's top bits have
it: one less than in the other loops, which tell zeros apart. Spans begin above them.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.histogram.page_kernels import (
    FIRST,
    NONE,
    NOTHING,
    ONE,
    PAGE,
    PAGE_BITS,
    PER_STRETCH,
    STRETCH_BITS,
    SUB,
    TO_PAGE,
    TO_STRETCH,
    Counters,
    Ints,
    Longs,
    Places,
    Words,
)

PAGES_MAX = 127  # Of a span: so many keys are fewer than 2^12.
_GAP = 2  # Pages that may be missing between two of a span.
_MARGIN = 16  # A span goes on at both ends for one page of so many.
_TO_WIDTH = np.uint64(20)
_TO_COUNTER = np.uint64(32)
_TO_SIGN = np.uint64(63)
_KEY = np.uint64((1 << 20) - 1)
_WIDTH = np.uint64((1 << 12) - 1)
_SUB_BITS = STRETCH_BITS - PAGE_BITS


@njit(nogil=True, cache=True)
def tally_spans(
    ids: Ints,
    bits: Words,
    inner: Words,
    counters: Counters,
    shift: int,
    counts: Longs,
    rest: Longs,
    wrapped: Longs,
) -> tuple[int, int]:
    """Count values that fall inside of their groups' spans.

    inner: uint64 [2 * groups], of each group the span of positive and of negative values. rest,
    wrapped: receive rows that were not counted, rows whose counter went round to 0.

    Returns:
      How many each holds.
    """
    move = np.uint64(shift) & _TO_SIGN
    rests, wraps = 0, 0
    for row in range(bits.size):
        word, group = bits[row], np.uint64(np.uint32(ids[row]))
        span = inner[group << ONE | word >> _TO_SIGN]
        place = (word >> move) - (span & _KEY)
        if place >= (span >> _TO_WIDTH) & _WIDTH:
            rest[rests] = row
            rests += 1
            continue
        cell = (span >> _TO_COUNTER) + place
        count = np.uint16(counters[cell] + np.uint16(1))
        counters[cell] = count
        counts[group] += 1
        if count == 0:
            wrapped[wraps] = row
            wraps += 1
    return rests, wraps


@njit(nogil=True, cache=True)
def fit(groups: Ints, laid: Words, extremes: NDArray[np.float64], shift: int, inner: Words) -> None:
    """Of these groups' spans as they are `laid`, the keys between those of the extremes."""
    bits = extremes.view(np.uint64)
    move = np.uint64(shift) & _TO_SIGN
    for group in groups:
        least, most = extremes[group, 0], extremes[group, 1]
        for side in range(2):
            span = laid[2 * group + side]
            first, counter = int(span & _KEY), int(span >> _TO_COUNTER)
            start, stop = first, first + int((span >> _TO_WIDTH) & _WIDTH)
            # From zero on: of negative values the least one is the farthest.
            near, far = (least, most) if side == 0 else (-most, -least)
            near_bits, far_bits = bits[group, side], bits[group, 1 - side]
            if near > 0.0:
                start = max(start, int(near_bits >> move) + 1)
            stop = min(stop, int(far_bits >> move)) if far > 0.0 else start
            width = max(0, stop - start)
            counter += start - first
            inner[2 * group + side] = (
                np.uint64(counter) << _TO_COUNTER | np.uint64(width) << _TO_WIDTH | np.uint64(start)
            )


@njit(nogil=True, cache=True)
def mark(
    bounds: Longs, bits: Words, columns: Places, rows: Ints, directory: Ints, shift: int
) -> None:
    """Note in the directory which pages the values of each group (group_ordering.py) will need.

    Their slots, if they had no page, get page 1, which has nothing but zeros.
    """
    move = np.uint64(shift) & _TO_SIGN
    for group in range(bounds.size - 1):
        row = np.uint64(rows[group])
        if row == 0:
            continue
        for word in bits[bounds[group] : bounds[group + 1]]:
            key = (word >> move) + np.uint64((word << ONE) != NOTHING)
            column = np.uint64(columns[key >> TO_STRETCH])
            slot = row + column + ((key >> TO_PAGE) & SUB)
            # Without a branch, which would be guessed wrong half of the time.
            directory[slot] += np.int32((directory[slot] == 0) & (column >= np.uint64(FIRST)))


@njit(nogil=True, cache=True)
def longest(
    held: Longs,
    stretches: Longs,
    columns: Places,
    rows: Ints,
    directory: Ints,
    negative: int,
    firsts: Longs,
    sizes: Longs,
) -> int:
    """The longest run of pages of each group and sign in which no more than _GAP are missing.

    stretches: in rising order. negative: the first key of negative values. firsts, sizes: receive
    the runs' first pages (keys >> PAGE_BITS) and how many pages they span, some more at both ends
    included; shape [held, 2]. A run has at most PAGES_MAX, half of which may be missing:
    else its size is 0.

    Returns:
      How many pages there are at most when those that are missing are made.
    """
    pages, begin = NONE, 0
    border = int(np.searchsorted(stretches, negative >> STRETCH_BITS))
    for side in range(2):
        end, zeros = (border, 0) if side == 0 else (stretches.size, negative >> PAGE_BITS)
        for at in range(held.size):
            row = np.uint64(rows[held[at]])
            start, last, some, first, size, most = -PAGES_MAX, -PAGES_MAX, 0, 0, 0, 0
            for stretch in stretches[begin:end]:
                slot = row + np.uint64(columns[stretch])
                for sub in range(PER_STRETCH):
                    if directory[slot + np.uint64(sub)] == 0:
                        continue
                    pages += 1
                    page = (stretch << _SUB_BITS) + sub
                    if page == zeros:
                        continue
                    if page - last > _GAP + 1:  # So all between are of stretches with columns.
                        start, some = page, 0
                    last, some = page, some + 1
                    wide = page - start + 1
                    if some > most and wide <= PAGES_MAX and 2 * some >= wide:
                        first, size, most = start, wide, some
            more = min(-(-size // _MARGIN), (PAGES_MAX - size) // 2)
            while more > 0 and not (
                first - more > zeros and _are_known(columns, first - more, first + size + more)
            ):
                more -= 1
            firsts[at, side], sizes[at, side] = first - more, size + 2 * more
            pages += size + 2 * more - most
        begin = border
    return pages


@njit(nogil=True, cache=True, inline="always")
def _are_known(columns: Places, first: int, last: int) -> bool:
    """Return whether all stretches from one page to another have columns."""
    known = True
    for stretch in range(first >> _SUB_BITS, (last >> _SUB_BITS) + 1):
        known &= columns[stretch] >= FIRST
    return known


@njit(nogil=True, cache=True)
def lay(
    held: Longs,
    columns: Places,
    rows: Ints,
    directory: Ints,
    width: int,
    counters: Counters,
    firsts: Longs,
    sizes: Longs,
    into: Counters,
    laid: Words,
) -> int:
    """Copy all pages group by group, those of a run side by side; its missing ones are made.

    width: of a row of the directory. into: zeros, with room for all. laid: receives the runs as
    spans; uint64 [2 * groups].

    Returns:
      How many pages there are then.
    """
    used = NONE
    for at in range(held.size):
        group = held[at]
        row = np.uint64(rows[group])
        for side in range(2):
            first, size = firsts[at, side], sizes[at, side]
            span = np.uint64(used) << TO_PAGE << _TO_COUNTER
            span |= np.uint64(size << PAGE_BITS) << _TO_WIDTH
            laid[2 * group + side] = span | np.uint64(max(0, (first << PAGE_BITS) - 1))
            for page in range(first, first + size):
                column = np.uint64(columns[page >> _SUB_BITS])
                slot = row + column + (np.uint64(page) & SUB)
                _move(counters, int(directory[slot]), into, used)
                directory[slot] = -used  # Until the others have been moved.
                used += 1
        for page in range(FIRST, width):
            slot = row + np.uint64(page)
            if directory[slot] < 0:
                directory[slot] = -directory[slot]
            elif directory[slot] > 0:
                _move(counters, int(directory[slot]), into, used)
                directory[slot] = used
                used += 1
    return used


@njit(nogil=True, cache=True, inline="always")
def _move(counters: Counters, page: int, into: Counters, to: int) -> None:
    """Copy a page, if it is one."""
    if page >= NONE:
        mine, theirs = counters[page << PAGE_BITS :], into[to << PAGE_BITS :]
        for cell in range(PAGE):
            theirs[cell] = mine[cell]
