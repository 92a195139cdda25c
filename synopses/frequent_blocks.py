"""The loop of frequent.py for plain values of one group: a block of keys at a time.

Most keys have their counter at the first place where it is looked for. Nobody can predict which
these are, so they are found and counted without a branch, and the others are left for a second
look. What a block leaves behind is what counting key by key would have left: additions may change
places with each other and with insertions, but not with a purge or a move to a wider table. Where
one could come, the block is counted key by key.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from synopses.cell_counts import SPREAD
from synopses.frequent_kernels import (
    COUNT,
    FREE,
    FRESH,
    KEY,
    LATE,
    NEXT,
    REF,
    Ints,
    Longs,
    Words,
    count_keys,
    shift_of,
)

_BLOCK = 128
_ONE = np.uint64(1)
_TO_CELL = np.uint64(2)  # Of an entry of 4 cells.
_KEY, _COUNT, _LATE, _REF = np.uint64(KEY), np.uint64(COUNT), np.uint64(LATE), np.uint64(REF)


@njit(nogil=True, cache=True)
def _find(
    cells: Longs, start: int, room: int, keys: Words, found: Words, missing: Longs
) -> tuple[int, int]:
    """Look for the counters of keys where they belong; returns how many are not there.

    Those whose place is free are told apart from those that must look on: who takes in each kind by
    itself knows mostly what comes.

    cells: the arena, flat. found: receives where each counter would be, times two, plus one if it
    is the key's. missing: receives which are not there: from its beginning on those whose place is
    free, from its end backwards the others. Both [_BLOCK].
    """
    first, shift = np.uint64(start), shift_of(room)
    frees, others = 0, 0
    for row in range(keys.size):
        at = (first + ((keys[row] * SPREAD) >> shift)) << _TO_CELL
        is_free = cells[at + _COUNT] == 0
        is_its = (cells[at + _KEY] == np.int64(keys[row])) & ~is_free
        found[row] = (at + _COUNT) << _ONE | np.uint64(is_its)
        missing[np.uint64(frees if is_free else _BLOCK - 1 - others)] = row
        frees += is_free
        others += not (is_free | is_its)
    return frees, others


@njit(nogil=True, cache=True, inline="always")
def _is_its(cells: Longs, at: np.uint64, key: np.int64) -> bool:
    """Whether the entry that begins here is the key's, or free."""
    return bool((cells[at + _KEY] == key) | (cells[at + _COUNT] == 0))


@njit(nogil=True, cache=True)
def count_plain(
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
    news: Words,
    weights: Longs,
    shifts: Longs,
    fresh: Ints,
) -> int:
    """As count_keys, where ids, weights and shifts are of size 0."""
    found, missing = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.int64)
    cells = arena.reshape(-1)
    row = first
    while row < news.size:
        keys = news[row : row + _BLOCK]
        start, room = starts[0], rooms[0]
        frees, others = 0, keys.size
        if room > 0:
            frees, others = _find(cells, start, room, keys, found, missing)
        if active[0] + frees + others > room * 3 // 4:
            end = row + keys.size
            row = count_keys(
                arena, starts, rooms, active, offsets, totals, born, free, state, room_max,
                row, ids, news[:end], weights, shifts, fresh,
            )  # fmt: skip
            if row < end:
                return row
            continue
        for each in range(keys.size):  # Now that it is known where: no load waits for a store.
            cells[found[each] >> _ONE] += np.int64(found[each] & _ONE)
        base, mask, shift, late = np.uint64(start), np.uint64(room - 1), shift_of(room), offsets[0]
        freed, next_, inserted = state[FREE], state[NEXT], np.uint64(state[FRESH])
        before = inserted
        for each in range(frees + others):
            which = missing[np.uint64(each if each < frees else _BLOCK - 1 - each + frees)]
            new = keys[np.uint64(which)]
            key, place = np.int64(new), (new * SPREAD) >> shift
            at = (base + place) << _TO_CELL
            while not _is_its(cells, at, key):
                place = (place + _ONE) & mask
                at = (base + place) << _TO_CELL
            if cells[at + _COUNT] != 0:
                cells[at + _COUNT] += 1
                continue
            if freed > 0:
                freed -= 1
                ref = np.int64(free[np.uint64(freed)])
            else:
                ref = next_
                next_ += 1
            born[np.uint64(ref)] = row + which
            fresh[inserted] = ref
            inserted += _ONE
            cells[at + _KEY], cells[at + _COUNT] = key, 1
            cells[at + _LATE], cells[at + _REF] = late, ref
        state[FREE], state[NEXT], state[FRESH] = freed, next_, np.int64(inserted)
        active[0] += np.int64(inserted - before)
        totals[0] += keys.size
        row += keys.size
    return row
