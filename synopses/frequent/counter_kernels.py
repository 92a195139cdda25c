"""The loops of counter_tables.py: one open-addressing table of counters per group, in an arena.

Group g owns arena[start[g] : start[g] + room[g]]; room is 0 or a power of two up to `room_max`, and
at most 3/4 of it is used. An entry is one row of four int64 cells, so that finding and inserting
touch one cache line:

  KEY    the hash's bits
  COUNT  0 marks a free place
  LATE   what the group's purges had taken in total when the entry came in. Since then it lost
         exactly offset - late, so it was seen exactly count + offset - late times since, and before
         that at most `late` times: [seen, seen + late] holds the truth and is narrower than the
         classical [count, count + offset]
  REF    the number of its value; values live outside, numbers of dropped entries are used again

An entry that a batch inserted remembers the batch's row (`born`), so that its value can be fetched
afterwards.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.group_cell_map import SPREAD
from synopses.kernels.hashing import leading_zeros
from synopses.kernels.prefetch import prefetch

KEY, COUNT, LATE, REF = range(4)
CELLS = 4
ROOM_MIN = 8
ARENA_USED, FREE, NEXT, FRESH = range(4)  # Cells of `state`.
_AHEAD = 12  # Rows between bringing an entry near and looking at it.
_COMMON = 4  # Medians up to here are found by counting.

Words = NDArray[np.uint64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]


@njit(nogil=True, cache=True, inline="always")
def shift_of(room: int) -> np.uint64:
    """By how much to shift a spread key so that its highest bits are a place in the table."""
    return leading_zeros(np.uint64(room)) + np.uint64(1)


@njit(nogil=True, cache=True)
def _place(arena: Longs, start: int, room: int, key: int) -> int:
    """Return where the key is, or the free place where it belongs."""
    mask = np.uint64(room - 1)
    place = (np.uint64(key) * SPREAD) >> shift_of(room)
    while arena[start + int(place), COUNT] != 0 and arena[start + int(place), KEY] != key:
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
def _move(arena: Longs, old: int, old_room: int, new: int, new_room: int) -> None:
    """Move a table to a free stretch of the arena."""
    for at in range(old, old + old_room):
        if arena[at, COUNT] > 0:
            to = _place(arena, new, new_room, int(arena[at, KEY]))
            for cell in range(CELLS):
                arena[to, cell] = arena[at, cell]
            arena[at, COUNT] = 0


@njit(nogil=True, cache=True)
def _median_count(arena: Longs, start: int, room: int, size: int) -> int:
    """The upper median of `size` counters: mostly a small number, so those are tried first."""
    for guess in range(1, _COMMON + 1):
        under = 0
        for at in range(start, start + room):
            under += bool(np.uint64(arena[at, COUNT] - 1) < np.uint64(guess))
        if under > size // 2:
            return guess
    held, found = np.empty(room, np.int64), 0
    for at in range(start, start + room):
        held[found] = arena[at, COUNT]
        found += arena[at, COUNT] > 0
    return _median(held[:size])


@njit(nogil=True, cache=True)
def _purge(
    arena: Longs, start: int, room: int, amount: int, born: Longs, free: Ints, state: Longs
) -> int:
    """Take an amount off all counters, drop those left with nothing; return how many are left.

    Which counters stay is not predictable, so they are separated without a branch. They are put
    in their places again, beginning behind a free one: no counter stands before its home there.
    Homes come nearly in order, so a counter goes to its home, or next to the last one if the home
    is taken. Places are counted from there.
    """
    begin = 0
    while arena[start + begin, COUNT] != 0:
        begin += 1
    mask, shift, base = np.uint64(room - 1), shift_of(room), np.uint64(start)
    first = np.uint64(begin + 1)
    stay, staying = np.empty(room, np.uint64), 0
    free_before = freed = np.uint64(state[FREE])
    for step in range(room):
        at = base + ((first + np.uint64(step)) & mask)
        count, stays = arena[at, COUNT], arena[at, COUNT] > amount
        stay[np.uint64(staying)] = at
        staying += stays
        free[freed] = np.int32(arena[at, REF])
        freed += np.uint64((count > 0) & (count <= amount))
        arena[at, COUNT] = count if stays else 0
    for each in range(np.int64(freed - free_before)):
        born[np.uint32(free[free_before + np.uint64(each)])] = -1
    state[FREE] = np.int64(freed)
    run, end = np.uint64(0), np.uint64(0)  # Places from run on are taken, and none from end on.
    for each in range(staying):
        at = stay[np.uint64(each)]
        key, count, late, ref = arena[at, KEY], arena[at, COUNT], arena[at, LATE], arena[at, REF]
        arena[at, COUNT] = 0
        home = (((np.uint64(key) * SPREAD) >> shift) - first) & mask
        to = home if home > end else end
        if home < run:
            to = home
            while arena[base + ((first + to) & mask), COUNT] != 0:
                to += np.uint64(1)
        else:
            run = home if home > end else run
        end = to + np.uint64(1) if to >= end else end
        at = base + ((first + to) & mask)
        arena[at, KEY], arena[at, COUNT] = key, count - amount
        arena[at, LATE], arena[at, REF] = late, ref
    return staying


@njit(nogil=True, cache=True)
def take_off(
    arena: Longs,
    starts: Longs,
    rooms: Longs,
    active: Longs,
    offsets: Longs,
    born: Longs,
    free: Ints,
    state: Longs,
    amount: int,
) -> None:
    """Purge group 0 of an amount."""
    if rooms[0] > 0:
        active[0] = _purge(arena, starts[0], rooms[0], amount, born, free, state)
    offsets[0] += amount


@njit(nogil=True, cache=True)
def _widen(arena: Longs, starts: Longs, rooms: Longs, group: int, wider: int, state: Longs) -> int:
    """Give a group a larger table at the end of the arena, where there is room; where it begins."""
    begin = state[ARENA_USED]
    _move(arena, starts[group], rooms[group], begin, wider)
    starts[group], rooms[group] = begin, wider
    state[ARENA_USED] = begin + wider
    return int(begin)


@njit(nogil=True, cache=True)
def count_keys(
    arena: Longs,
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
    hashes: Words,
    weights: Longs,
    shifts: Longs,
    fresh: Ints,
) -> int:
    """Count news[first:] until the arena is full; returns the next row.

    ids of size 0: all of group 0; weights of size 0: all 1. shifts: what a merged entry's own late
    is more than its group's offset (<= 0); of size 0 for plain values. fresh receives the value
    numbers of inserted entries, state[FRESH] of them. One long loop, because functions that take
    arrays would cost a reference count per tuple (see moment_kernels.py).
    """
    grouped, weighted, merging = ids.size > 0, weights.size > 0, shifts.size > 0
    group, weight, shift = 0, 1, 0
    start, room, total = starts[0], rooms[0], 0
    last = hashes.size - 1
    for row in range(first, hashes.size):
        this = np.uint64(row)  # Unsigned: no place counts from the end.
        new = hashes[this]
        if grouped:
            soon = np.uint64(min(row + _AHEAD, last))
            far = np.uint32(ids[soon])
            home = (hashes[soon] * SPREAD) >> shift_of(max(rooms[far], ROOM_MIN))
            prefetch(arena, starts[far] + int(home))
            group = ids[this]
            start, room = starts[np.uint32(group)], rooms[np.uint32(group)]
        if weighted:
            weight = weights[this]
        if merging:
            shift = shifts[this]
        if weight <= 0:
            continue
        key, at, found = np.int64(new), np.uint64(0), False
        if room > 0:
            mask = np.uint64(room - 1)
            place = (new * SPREAD) >> shift_of(room)
            at = np.uint64(start) + place
            while arena[at, COUNT] != 0 and arena[at, KEY] != key:
                place = (place + np.uint64(1)) & mask
                at = np.uint64(start) + place
            found = arena[at, COUNT] != 0
        if found:
            arena[at, COUNT] += weight
            if merging:
                arena[at, LATE] += shift
        else:
            if room == 0 or (active[group] >= room * 3 // 4 and room < room_max):
                wider = max(2 * room, ROOM_MIN)
                if state[ARENA_USED] + wider > len(arena):
                    totals[0] += total
                    return row
                start, room = _widen(arena, starts, rooms, group, wider, state), wider
                at = np.uint64(_place(arena, start, room, int(key)))
            if state[FREE] > 0:
                state[FREE] -= 1
                ref = np.int64(free[state[FREE]])
            else:
                ref = state[NEXT]
                state[NEXT] += 1
            born[ref] = row
            fresh[state[FRESH]] = ref
            state[FRESH] += 1
            arena[at, KEY], arena[at, COUNT] = key, weight
            arena[at, LATE], arena[at, REF] = offsets[group] + shift, ref
            active[group] += 1
            if active[group] > room * 3 // 4:
                median = _median_count(arena, start, room, active[group])
                active[group] = _purge(arena, start, room, median, born, free, state)
                offsets[group] += median
        if grouped:
            totals[group] += weight
        else:
            total += weight  # Not in memory: every row would wait for the one before.
    totals[0] += total
    return hashes.size


@njit(nogil=True, cache=True)
def survivors(born: Longs, fresh: Ints, rows: Longs) -> int:
    """Return the inserted entries that are left: numbers (in fresh), rows, and their count."""
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
def repack(arena: Longs, starts: Longs, rooms: Longs, wider: Longs) -> int:
    """Copy all tables into another arena without gaps; returns how much of it is used."""
    used = 0
    for group in range(rooms.size):
        for at in range(rooms[group]):
            for cell in range(CELLS):
                wider[used + at, cell] = arena[starts[group] + at, cell]
        starts[group] = used
        used += rooms[group]
    return used


@njit(nogil=True, cache=True)
def came_late(arena: Longs, starts: Longs, rooms: Longs, errors: Longs) -> None:
    """Entries of group g may have occurred errors[g] times more, where they had no counter."""
    for group in range(errors.size):
        for at in range(starts[group], starts[group] + rooms[group]):
            arena[at, LATE] += errors[group]


@njit(nogil=True, cache=True)
def gather(arena: Longs, starts: Longs, rooms: Longs, groups: Longs, entries: Longs) -> None:
    """Copy all entries out, by group, then by spread key: tables of any size are nearly so sorted.

    That makes the order a matter of the entries alone, and the insertion sort linear.
    """
    size = 0
    for group in range(rooms.size):
        first = size
        for at in range(starts[group], starts[group] + rooms[group]):
            if arena[at, COUNT] == 0:
                continue
            spread = np.uint64(arena[at, KEY]) * SPREAD
            to = size
            while to > first and np.uint64(entries[to - 1, KEY]) * SPREAD > spread:
                for cell in range(CELLS):
                    entries[to, cell] = entries[to - 1, cell]
                to -= 1
            for cell in range(CELLS):
                entries[to, cell] = arena[at, cell]
            groups[size] = group
            size += 1
