"""The loops of frequent.py: one small open-addressing table of counters per group, in one arena.

Group g owns arena[start[g] : start[g] + room[g]]; room is 0 or a power of two up to `room_max`, and
at most 3/4 of it is used. A count of 0 marks a free place. Every entry holds the number of its
value (`refs`); values live outside, numbers of dropped entries are used again. An entry that a
batch inserted remembers the batch's row (`born`), so that its value can be fetched afterwards.

An entry also keeps what the group's purges had taken in total when it came in (`lates`). Since then
it lost exactly offset - late, so it was seen exactly count + offset - late times since, and before
that at most `late` times: [seen, seen + late] holds the truth and is narrower than the classical
[count, count + offset].
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.cell_counts import SPREAD
from synopses.hashing import leading_zeros

ROOM_MIN = 8
ARENA_USED, FREE, NEXT, FRESH = range(4)  # Cells of `state`.

Words = NDArray[np.uint64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]


@njit(nogil=True, cache=True, inline="always")
def _shift(room: int) -> np.uint64:
    """By how much to shift a spread key so that its highest bits are a place in the table."""
    return leading_zeros(np.uint64(room)) + np.uint64(1)


@njit(nogil=True, cache=True)
def _place(keys: Words, counts: Longs, start: int, room: int, key: np.uint64) -> int:
    """Where the key is, or the free place where it belongs."""
    mask = np.uint64(room - 1)
    place = (key * SPREAD) >> _shift(room)
    while counts[start + int(place)] != 0 and keys[start + int(place)] != key:
        place = (place + np.uint64(1)) & mask
    return start + int(place)


@njit(nogil=True, cache=True)
def _median(values: Longs) -> int:
    """The upper median of at least one value; reorders them (Hoare's quickselect)."""
    wanted = values.size // 2
    low, high = 0, values.size - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if wanted <= right:
            high = right
        elif wanted >= left:
            low = left
        else:
            break
    return int(values[wanted])


@njit(nogil=True, cache=True)
def _move(
    keys: Words,
    counts: Longs,
    lates: Longs,
    refs: Ints,
    old: int,
    old_room: int,
    new: int,
    new_room: int,
) -> None:
    """Move a table to a free stretch of the arena."""
    for at in range(old, old + old_room):
        if counts[at] > 0:
            to = _place(keys, counts, new, new_room, keys[at])
            keys[to], counts[to], refs[to] = keys[at], counts[at], refs[at]
            lates[to] = lates[at]
            counts[at] = 0


@njit(nogil=True, cache=True)
def _purge(
    keys: Words,
    counts: Longs,
    lates: Longs,
    refs: Ints,
    start: int,
    room: int,
    born: Longs,
    free: Ints,
    state: Longs,
) -> tuple[int, int]:
    """Take the median off every counter, drop those left with nothing; returns (median, left)."""
    stretch = slice(start, start + room)
    inside = counts[stretch] > 0
    old_keys, old_counts = keys[stretch][inside], counts[stretch][inside]
    old_lates, old_refs = lates[stretch][inside], refs[stretch][inside]
    counts[stretch] = 0
    median = _median(old_counts.copy())
    left = 0
    for entry in range(old_counts.size):
        if old_counts[entry] > median:
            at = _place(keys, counts, start, room, old_keys[entry])
            keys[at], lates[at], refs[at] = old_keys[entry], old_lates[entry], old_refs[entry]
            counts[at] = old_counts[entry] - median
            left += 1
        else:
            ref = old_refs[entry]
            born[ref] = -1
            free[state[FREE]] = ref
            state[FREE] += 1
    return median, left


@njit(nogil=True, cache=True)
def count_keys(
    keys: Words,
    counts: Longs,
    lates: Longs,
    refs: Ints,
    starts: Longs,
    rooms: Longs,
    active: Longs,
    offsets: Longs,
    totals: Longs,
    born: Longs,
    free: Ints,
    state: Longs,
    room_max: int,
    first: int,
    ids: Ints,
    news: Words,
    weights: Longs,
    shifts: Longs,
    fresh: Ints,
) -> int:
    """Count news[first:] until the arena is full; returns the next row.

    ids of size 0: all of group 0; weights of size 0: all 1. shifts: what a merged entry's own late
    is more than its group's offset (<= 0); of size 0 for plain values. fresh receives the value
    numbers of inserted entries, state[FRESH] of them.
    """
    grouped, weighted, merging = ids.size > 0, weights.size > 0, shifts.size > 0
    group, weight, shift = np.int64(0), np.int64(1), np.int64(0)
    for row in range(first, news.size):
        if grouped:
            group = np.int64(ids[row])
        if weighted:
            weight = weights[row]
        if merging:
            shift = shifts[row]
        if weight <= 0:
            continue
        room = rooms[group]
        if room > 0:
            mask = np.uint64(room - 1)
            place = (news[row] * SPREAD) >> _shift(room)
            at = starts[group] + np.int64(place)
            while counts[at] != 0 and keys[at] != news[row]:
                place = (place + np.uint64(1)) & mask
                at = starts[group] + np.int64(place)
            if counts[at] != 0:
                counts[at] += weight
                lates[at] += shift
                totals[group] += weight
                continue
        if room == 0 or (active[group] >= room * 3 // 4 and room < room_max):
            wider = max(2 * room, ROOM_MIN)
            begin = state[ARENA_USED]
            if begin + wider > keys.size:
                return row
            _move(keys, counts, lates, refs, starts[group], room, begin, wider)
            starts[group], rooms[group] = begin, wider
            state[ARENA_USED] = begin + wider
            room = wider
            at = _place(keys, counts, begin, wider, news[row])
        if state[FREE] > 0:
            state[FREE] -= 1
            ref = free[state[FREE]]
        else:
            ref = np.int32(state[NEXT])
            state[NEXT] += 1
        keys[at], counts[at], refs[at] = news[row], weight, ref
        lates[at] = offsets[group] + shift
        born[ref] = row
        fresh[state[FRESH]] = ref
        state[FRESH] += 1
        active[group] += 1
        totals[group] += weight
        if active[group] > room * 3 // 4:
            median, left = _purge(keys, counts, lates, refs, starts[group], room, born, free, state)
            offsets[group] += median
            active[group] = left
    return news.size


@njit(nogil=True, cache=True)
def survivors(born: Longs, fresh: Ints, rows: Longs) -> int:
    """Which inserted entries are still there: their numbers (in fresh) and rows, how many."""
    size = 0
    for at in range(fresh.size):
        ref = fresh[at]
        if born[ref] >= 0:
            fresh[size] = ref
            rows[size] = born[ref]
            born[ref] = -1
            size += 1
    return size


@njit(nogil=True, cache=True)
def repack(
    keys: Words,
    counts: Longs,
    lates: Longs,
    refs: Ints,
    starts: Longs,
    rooms: Longs,
    new_keys: Words,
    new_counts: Longs,
    new_lates: Longs,
    new_refs: Ints,
) -> int:
    """Copy all tables into another arena without gaps; returns how much of it is used."""
    used = 0
    for group in range(rooms.size):
        for at in range(rooms[group]):
            new_keys[used + at] = keys[starts[group] + at]
            new_counts[used + at] = counts[starts[group] + at]
            new_lates[used + at] = lates[starts[group] + at]
            new_refs[used + at] = refs[starts[group] + at]
        starts[group] = used
        used += rooms[group]
    return used


@njit(nogil=True, cache=True)
def came_late(lates: Longs, starts: Longs, rooms: Longs, errors: Longs) -> None:
    """Entries of group g may have occurred errors[g] times more, where they had no counter."""
    for group in range(errors.size):
        for at in range(starts[group], starts[group] + rooms[group]):
            lates[at] += errors[group]


@njit(nogil=True, cache=True)
def gather(
    keys: Words,
    counts: Longs,
    lates: Longs,
    refs: Ints,
    starts: Longs,
    rooms: Longs,
    out_groups: Longs,
    out_keys: Words,
    out_counts: Longs,
    out_lates: Longs,
    out_refs: Ints,
) -> None:
    """Copy all entries out, by group, then by spread key: tables of any size are nearly so sorted.

    That makes the order a matter of the entries alone, and the insertion sort linear.
    """
    size = 0
    for group in range(rooms.size):
        first = size
        for at in range(starts[group], starts[group] + rooms[group]):
            if counts[at] == 0:
                continue
            to = size
            while to > first and out_keys[to - 1] * SPREAD > keys[at] * SPREAD:
                out_keys[to], out_counts[to] = out_keys[to - 1], out_counts[to - 1]
                out_lates[to], out_refs[to] = out_lates[to - 1], out_refs[to - 1]
                to -= 1
            out_keys[to], out_counts[to] = keys[at], counts[at]
            out_lates[to], out_refs[to] = lates[at], refs[at]
            out_groups[size] = group
            size += 1
