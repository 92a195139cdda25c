"""The loops of counter_tables.py for large batches of plain values of one group.

Count, then merge:

What has a counter is counted there; what has none is counted exactly, in a table of the batch's
own. The two are merged with one purge: the largest count that finds no room is taken off all of
them (Agarwal et al. 2012, "Mergeable summaries", PODS, Thm 2.2). Counting key by key purges anew
each time that the free half of the counters has been given away, mostly to values that come once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from synopses.frequent.counter_kernels import COUNT, KEY, ROOM_MIN, Longs, Words, shift_of
from synopses.kernels.group_cell_map import SPREAD
from synopses.kernels.radix_sort import ranked

BATCH_MIN = 4096  # Values for which a table of their own pays.
_ROOMY = 4  # Places of the index for each of the table: seldom do two want one.
_COMMON = 16  # Counts up to here are found by counting.
_ONE = np.uint64(1)


@njit(nogil=True, cache=True)
def count_known(
    arena: Longs, start: int, room: int, hashes: Words, absent: Longs, apart: Longs
) -> tuple[int, int]:
    """Count rows whose value has a counter; return how many are `absent`, and counters `apart`.

    In a table that is three quarters full a search takes several steps, and the number is not
    predictable. In a roomy index each value takes one step, without a branch. Of counters with
    the same place in the index, the largest gets it. The others are set apart, and their values
    are left to be counted, too.

    absent: receives the rows that were not counted, [n + 1].
    apart: receives the positions in the arena of the counters set apart, [room].
    """
    roomy = _ROOMY * max(room, ROOM_MIN)
    owners, there = np.zeros(roomy, np.int32), np.zeros(roomy, np.uint64)
    tallies, places = np.zeros(roomy, np.uint32), np.empty(room + 1, np.int64)
    shift, size, set_apart = shift_of(roomy), 0, 0
    for at in range(start, start + room):
        count, key = arena[at, COUNT], np.uint64(arena[at, KEY])
        if count == 0:
            continue
        size += 1
        places[size] = at
        where = (key * SPREAD) >> shift
        other, loser = owners[where], np.int64(size)
        if other == 0 or arena[places[other], COUNT] < count:
            owners[where], there[where], loser = size, key, np.int64(other)
        if loser > 0:
            apart[set_apart] = places[loser]
            set_apart += 1
    if owners[0] == 0:
        there[0] = ~np.uint64(0)  # In a free place stands 0, the one key whose own is the first.
    left = np.uint64(0)
    for row in range(hashes.size):
        key = hashes[row]
        where = (key * SPREAD) >> shift
        is_its = there[where] == key
        tallies[where] += np.uint32(is_its)
        absent[left] = row
        left += np.uint64(not is_its)
    for each in range(1, size + 1):
        at = places[each]
        where = (np.uint64(arena[at, KEY]) * SPREAD) >> shift
        if owners[where] == each:
            arena[at, COUNT] += np.int64(tallies[where])
    return int(left), set_apart


@njit(nogil=True, cache=True)
def count_apart(
    arena: Longs,
    apart: Longs,
    hashes: Words,
    absent: Longs,
    keys: Words,
    counts: Longs,
    rows: Longs,
) -> int:
    """Count the values of the absent rows; return how many are different.

    The count of a value with a counter in `apart` is added to that counter, and is 0 here. Whether
    a value is new is not predictable, so no branch depends on it. A search ends with one
    comparison, because a free place leads to keys[0], which holds the searched key.

    keys, counts, rows: receive from 1 on each value's key, its count and one of its rows;
      [absent + 1]. counts: zeros on entry.
    """
    room = 8
    while room < 2 * absent.size:
        room *= 2
    numbers = np.zeros(room, np.uint32)  # From 1; 0 marks a free place.
    mask, shift = np.uint64(room - 1), shift_of(room)
    size = np.uint64(0)
    for each in range(np.uint64(absent.size)):
        row = absent[each]
        key = hashes[np.uint64(row)]
        keys[0] = key
        place = (key * SPREAD) >> shift
        number = np.uint64(numbers[place])
        while keys[number] != key:
            place = (place + _ONE) & mask
            number = np.uint64(numbers[place])
        is_new = np.uint64(number == 0)
        keys[size + _ONE], rows[size + _ONE] = key, row
        size += is_new
        number += is_new * size
        numbers[place] = np.uint32(number)
        counts[number] += 1
    for at in apart:
        key = np.uint64(arena[at, KEY])
        keys[0] = key
        place = (key * SPREAD) >> shift
        number = np.uint64(numbers[place])
        while keys[number] != key:
            place = (place + _ONE) & mask
            number = np.uint64(numbers[place])
        arena[at, COUNT] += counts[number]  # counts[0] is 0.
        counts[number] = 0
    return int(size)


@njit(nogil=True, cache=True)
def left_out(arena: Longs, start: int, room: int, counts: Longs, kept: int) -> int:
    """The smallest number that no more than `kept` counters and counts are above.

    counts: int64 [n], of values without counter. Mostly the number is small.
    """
    for guess in range(_COMMON):
        above = 0
        for at in range(start, start + room):
            above += arena[at, COUNT] > guess
        for each in range(counts.size):
            above += counts[each] > guess
        if above <= kept:
            return guess
    every = np.zeros(room + counts.size, np.uint64)
    for at in range(room):
        every[at] = arena[start + at, COUNT]
    for each in range(counts.size):
        every[room + each] = counts[each]
    return int(ranked(every, every.size - 1 - kept))
