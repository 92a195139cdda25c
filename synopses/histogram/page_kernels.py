"""Kernels of paged_counters.py: counters in pages of one cache line, found through two tables.

The key of a value is the top bits of its double, plus one unless it is zero (bucket_index.py). 128
keys are a stretch, 32 a page. `columns` says where in a directory row a stretch begins, `rows`
where in the directory a group's row does, `directory` which page holds the counters. Page 0 is no
page. Row 0 of the directory belongs to all groups without pages, and the first columns to all
stretches without pages. They hold only page 0, so one branch finds every key without a counter.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.histogram.bucket_index import ZERO
from synopses.kernels.prefetch import prefetch

PAGE_BITS = 5
PAGE = 1 << PAGE_BITS
STRETCH_BITS = 7  # An octave at the finest shift.
PER_STRETCH = 1 << (STRETCH_BITS - PAGE_BITS)
UNKNOWN = 0  # Columns of a stretch that was not requested yet,
NOWHERE = PER_STRETCH  # and of one that gets no pages.
FIRST = 2 * PER_STRETCH

NONE = PER_STRETCH  # The first pages count what has no place; of them only page 0 is in a table.

_BLOCK = 128
WITHIN = np.uint64(PAGE - 1)
SUB = np.uint64(PER_STRETCH - 1)
TO_PAGE = np.uint64(PAGE_BITS)
TO_STRETCH = np.uint64(STRETCH_BITS)
ONE = np.uint64(1)
NOTHING = np.uint64(0)
_WRAP = 1 << 16

Words = NDArray[np.uint64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Places = NDArray[np.uint16]
Counters = NDArray[np.uint16]
Flags = NDArray[np.bool_]


@njit(nogil=True, cache=True, inline="always")
def opened_page(
    directory: Ints, start: np.uint64, sub: np.uint64, used: int, whole: bool
) -> tuple[int, int]:
    """Give a part of the stretch that begins at `start` a page, or the whole stretch its pages.

    Inlined: called, it costs loops that seldom come here a tenth.

    Returns:
      (the part's page, pages used).
    """
    if whole:
        for each in range(PER_STRETCH):
            directory[start + np.uint64(each)] = np.int32(used + each)
        return used + int(sub), used + PER_STRETCH
    directory[start + sub] = np.int32(used)
    return used, used + 1


@njit(nogil=True, cache=True)
def tally_many(
    first: int,
    ids: Ints,
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
    """Count values from `first` on until one needs a column or a page that there is no room for.

    A block of them is looked up before any is counted: loads that wait for no store are many at a
    time on their way (measured: 172 instead of 85 M/s where counters take 6 MB).

    whole: a stretch gets all its pages at once. rest, wrapped: receive rows that have no page, rows
    whose counter went round to 0; found says how many each holds.

    Returns:
      (next row, pages used).
    """
    move = np.uint64(shift) & np.uint64(63)
    lines = counters.reshape(-1, PAGE)
    room = len(lines)
    cells = np.empty(_BLOCK, np.uint64)
    rests, wraps = found[0], found[1]
    for start in range(first, bits.size, _BLOCK):
        # Slices, for an index that may be negative costs a fifth.
        part, of = bits[start : start + _BLOCK], ids[start : start + _BLOCK]
        done = part.size
        for at in range(part.size):
            key = (part[at] >> move) + np.uint64((part[at] << ONE) != NOTHING)
            group = np.uint32(of[at])
            column = np.uint64(columns[key >> TO_STRETCH])
            row = np.uint64(rows[group])
            sub = (key >> TO_PAGE) & SUB
            page = np.uint64(directory[row + column + sub])
            if page == 0:
                if row == 0 or column == NOWHERE:
                    rest[rests] = start + at
                    rests += 1
                elif column == UNKNOWN or used + PER_STRETCH > room:
                    done = at
                    break
                else:
                    opened, used = opened_page(directory, row + column, sub, used, whole)
                    page = np.uint64(opened)
            prefetch(lines, int(page))
            cells[at] = (page << TO_PAGE) | (key & WITHIN)
        numbers = values[start : start + _BLOCK]
        for at in range(done):
            cell = cells[at]
            if cell < PAGE:
                continue
            group = np.uint32(of[at])
            count = np.uint16(counters[cell] + np.uint16(1))
            counters[cell] = count
            if count == 0:
                wrapped[wraps] = start + at
                wraps += 1
            counts[group] += 1
            x = numbers[at]
            if x < extremes[group, 0]:  # noqa: PLR1730 - rarely; storing each time costs a wait.
                extremes[group, 0] = x
            if x > extremes[group, 1]:  # noqa: PLR1730
                extremes[group, 1] = x
        if done < part.size:
            found[0], found[1] = rests, wraps
            return start + done, used
    found[0], found[1] = rests, wraps
    return bits.size, used


@njit(nogil=True, cache=True)
def touch(bits: Words, shift: int, touched: Flags) -> None:
    """Mark the stretches that the values are in; touched: bool [stretches of all keys]."""
    move = np.uint64(shift)
    for row in range(bits.size):
        key = (bits[row] >> move) + np.uint64((bits[row] << ONE) != NOTHING)
        touched[key >> TO_STRETCH] = True


@njit(nogil=True, cache=True)
def differ(bounds: Longs, bits: Words, shift: int, rows: int, first: int, least: int) -> Flags:
    """Return which groups have so many rows, and at least so many cells among the first of them.

    Returns:
      bool [groups].
    """
    found = np.zeros(bounds.size - 1, np.bool_)
    for group in range(found.size):
        begin = bounds[group]
        if bounds[group + 1] - begin < rows:
            continue
        different = 0
        for at in range(begin, begin + first):
            is_new = True
            for other in range(begin, at):
                is_new &= (bits[at] ^ bits[other]) >> np.uint64(shift) != NOTHING
            different += is_new
        found[group] = different >= least
    return found


@njit(nogil=True, cache=True)
def add_entries(
    start: int,
    groups: Longs,
    keys: Longs,
    amounts: Longs,
    columns: Places,
    rows: Ints,
    directory: Ints,
    counters: Counters,
    used: int,
    whole: bool,
    sign: int,
) -> tuple[int, int]:
    """Add sign * amounts from `start` on; what finds no counter, or is too much, stays in amounts.

    Returns:
      (next entry, pages used), when there is no room for another page.
    """
    room = counters.size >> PAGE_BITS
    for at in range(start, keys.size):
        row, column = np.int64(rows[groups[at]]), np.int64(columns[keys[at] >> STRETCH_BITS])
        sub = (keys[at] >> PAGE_BITS) & (PER_STRETCH - 1)
        page = np.int64(directory[row + column + sub])
        if page == 0:
            if row == 0 or column < FIRST or sign < 0:
                continue
            if used + PER_STRETCH > room:
                return at, used
            first = np.uint64(row + column)
            opened, used = opened_page(directory, first, np.uint64(sub), used, whole)
            page = np.int64(opened)
        cell = (page << PAGE_BITS) | (keys[at] & (PAGE - 1))
        low = amounts[at] & (_WRAP - 1)
        now = np.int64(counters[cell]) + sign * low
        over = np.int64(now < 0) if sign < 0 else np.int64(now >= _WRAP)
        counters[cell] = np.uint16(now & (_WRAP - 1))
        amounts[at] += over * _WRAP - low
    return keys.size, used


@njit(nogil=True, cache=True)
def are_known(held: Longs, stretches: Longs, rows: Ints, columns: Places) -> bool:
    """Return whether all these groups have rows, and all these stretches columns or no place.

    Most merges find it so, and are told in a microsecond.
    """
    known = True
    for group in held:
        known &= rows[group] != 0
    for stretch in stretches:
        known &= columns[stretch] != UNKNOWN
    return known


@njit(nogil=True, cache=True)
def add_pages(
    start: int,
    held: Longs,
    stretches: Longs,
    columns: Places,
    rows: Ints,
    directory: Ints,
    counters: Counters,
    used: int,
    other_columns: Places,
    other_rows: Ints,
    other_directory: Ints,
    other_counters: Counters,
    sign: int,
    left: Ints,
) -> tuple[int, int, int]:
    """Add sign * the other's pages of the groups held[start:], which have a row here.

    left: receives the other's slots (in its directory) whose page has no place here, or would
    bring a counter outside of 0 to 2^16 - 1.

    Returns:
      (next group, pages used, how many are left); it ends early where there may be no room.
    """
    room = counters.size >> PAGE_BITS
    lefts = 0
    for at in range(start, held.size):
        if used + stretches.size * PER_STRETCH > room:
            return at, used, lefts
        row, other_row = np.int64(rows[held[at]]), np.int64(other_rows[held[at]])
        for stretch in stretches:
            column, other_column = np.int64(columns[stretch]), np.int64(other_columns[stretch])
            for sub in range(PER_STRETCH):
                other = np.int64(other_directory[other_row + other_column + sub])
                if other == 0:
                    continue
                slot = row + column + sub
                page = np.int64(directory[slot])
                if page == 0 and (sign < 0 or column < FIRST):
                    left[lefts] = np.int32(other_row + other_column + sub)
                    lefts += 1
                    continue
                if page == 0:
                    page = np.int64(used)
                    directory[slot] = np.int32(used)
                    used += 1
                mine, theirs = page << PAGE_BITS, other << PAGE_BITS
                outside = np.int32(0)
                for cell in range(PAGE):
                    sum_ = np.int32(counters[mine + cell]) + np.int32(sign) * np.int32(
                        other_counters[theirs + cell]
                    )
                    outside |= sum_ >> np.int32(16)
                if outside != 0:
                    left[lefts] = np.int32(other_row + other_column + sub)
                    lefts += 1
                    continue
                for cell in range(PAGE):
                    counters[mine + cell] += np.uint16(sign) * other_counters[theirs + cell]
    return held.size, used, lefts


@njit(nogil=True, cache=True)
def gather(
    held: Longs,
    stretches: Longs,
    columns: Places,
    rows: Ints,
    directory: Ints,
    counters: Counters,
    negative: int,
    groups: Longs,
    cells: Longs,
    counts: Longs,
) -> None:
    """All counts that are not 0, by group, then by cell.

    stretches: in the order of their cells. negative: the key of -0.0; from there on keys run
    backwards.
    """
    size = 0
    for group in held:
        for stretch in stretches:
            first = stretch << STRETCH_BITS
            backwards = first >= negative
            for step in range(PER_STRETCH):
                sub = PER_STRETCH - 1 - step if backwards else step
                slot = np.int64(rows[group]) + np.int64(columns[stretch]) + sub
                page = np.int64(directory[slot])
                if page == 0:
                    continue
                for one in range(PAGE):
                    cell = PAGE - 1 - one if backwards else one
                    count = counters[(page << PAGE_BITS) + cell]
                    key = first + (sub << PAGE_BITS) + cell
                    groups[size] = group
                    cells[size] = ZERO + negative - key if backwards else ZERO + key
                    counts[size] = np.int64(count)
                    size += count > 0
