"""The loops of hybrid_counters.py: five rows of counters for large groups, exact counts for small.

A key is a 64-bit hash. In each row it is multiplied by an odd number of that row; the highest bits
of the product say where it counts: one of `width` cells, and before it, in signed tables, whether
up or down. So cells 2i and 2i + 1 are cell i of a table half as wide, sign and all, and the halves
of an unsigned table are the ups and the downs of a signed one of half its width.
Source: multiply-shift hashing (Dietzfelbinger, Hagerup, Katajainen, Penttonen 1997).

Small groups have a small open-addressing table each, in one arena: group g owns
arena[starts[g] : starts[g] + rooms[g]], rooms a power of two or 0; a count of 0 marks a free place.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.kernels.group_cell_map import SPREAD
from synopses.kernels.hashing import leading_zeros

DEPTH = 5
ROOM_MIN = 8
_WORD = (1 << 64) - 1

Words = NDArray[np.uint64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]


def multipliers(seed: int) -> Words:
    """The odd numbers that the rows multiply hashes by (splitmix64 of the seed); uint64 [DEPTH]."""
    found = []
    for row in range(DEPTH):
        x = (seed + (row + 1) * 0x9E3779B97F4A7C15) & _WORD
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
        found.append((x ^ (x >> 31)) | 1)
    return as_input(np.array(found, np.uint64), np.uint64)


@njit(nogil=True, cache=True)
def add_to_one(table: Longs, multipliers: Words, lg_width: int, bits: int, words: Words) -> None:
    """Count each key once in a table [DEPTH, width]; bits: lg_width, one more when it is signed."""
    shift, mask, sign = np.uint64(64 - bits), np.uint64((1 << lg_width) - 1), np.uint64(lg_width)
    m0, m1, m2, m3, m4 = (
        multipliers[0], multipliers[1], multipliers[2], multipliers[3], multipliers[4],
    )  # fmt: skip
    t0, t1, t2, t3, t4 = table[0], table[1], table[2], table[3], table[4]
    for row in range(words.size):
        word = words[row]
        x = (word * m0) >> shift
        t0[np.int64(x & mask)] += 1 - 2 * np.int64(x >> sign)
        x = (word * m1) >> shift
        t1[np.int64(x & mask)] += 1 - 2 * np.int64(x >> sign)
        x = (word * m2) >> shift
        t2[np.int64(x & mask)] += 1 - 2 * np.int64(x >> sign)
        x = (word * m3) >> shift
        t3[np.int64(x & mask)] += 1 - 2 * np.int64(x >> sign)
        x = (word * m4) >> shift
        t4[np.int64(x & mask)] += 1 - 2 * np.int64(x >> sign)


@njit(nogil=True, cache=True, inline="always")
def _add(
    table: Longs, multipliers: Words, lg_width: int, bits: int, word: np.uint64, count: int
) -> None:
    shift, mask, sign = np.uint64(64 - bits), np.uint64((1 << lg_width) - 1), np.uint64(lg_width)
    for depth in range(DEPTH):
        x = (word * multipliers[depth]) >> shift
        table[depth, np.int64(x & mask)] += count * (1 - 2 * np.int64(x >> sign))


@njit(nogil=True, cache=True)
def cells_of(multipliers: Words, lg_width: int, bits: int, words: Words, out: Longs) -> None:
    """The cell of each key in each row, out[DEPTH, n]; -1 - cell where it counts down."""
    shift, mask, sign = np.uint64(64 - bits), np.uint64((1 << lg_width) - 1), np.uint64(lg_width)
    for row in range(words.size):
        for depth in range(DEPTH):
            x = (words[row] * multipliers[depth]) >> shift
            cell = np.int64(x & mask)
            out[depth, row] = -1 - cell if x >> sign else cell


@njit(nogil=True, cache=True, inline="always")
def _shift(room: int) -> np.uint64:
    """By how much to shift a spread key so that its highest bits are a place in the table."""
    return leading_zeros(np.uint64(room)) + np.uint64(1)


@njit(nogil=True, cache=True, inline="always")
def _place(keys: Words, counts: Longs, start: int, room: int, key: np.uint64) -> int:
    """Return where the key is, or the free place where it belongs."""
    mask = np.uint64(room - 1)
    place = (key * SPREAD) >> _shift(room)
    while counts[start + np.int64(place)] != 0 and keys[start + np.int64(place)] != key:
        place = (place + np.uint64(1)) & mask
    return start + int(place)


@njit(nogil=True, cache=True)
def _move(keys: Words, counts: Longs, old: int, old_room: int, new: int, new_room: int) -> None:
    """Move a group's keys to a free stretch of the arena."""
    for at in range(old, old + old_room):
        if counts[at] != 0:
            to = _place(keys, counts, new, new_room, keys[at])
            keys[to], counts[to] = keys[at], counts[at]
            counts[at] = 0


@njit(nogil=True, cache=True)
def add_to_many(
    dense: Longs,
    rows: Ints,
    multipliers: Words,
    lg_width: int,
    bits: int,
    keys: Words,
    counts: Longs,
    starts: Longs,
    rooms: Longs,
    held: Longs,
    used: int,
    held_max: int,
    first: int,
    ids: Ints,
    words: Words,
    weights: Longs,
) -> tuple[int, int]:
    """Count words[first:] until a group must become dense or the arena is full.

    ids of size 0: all of group 0; weights of size 0: all 1, and no weight makes a count negative.

    Returns:
      The next row, and how much of the arena is used. The group of that row holds `held_max` keys
      when it must become dense.
    """
    grouped, weighted = ids.size > 0, weights.size > 0
    group, weight = 0, 1
    for row in range(first, words.size):
        if grouped:
            group = int(ids[row])
        if weighted:
            weight = int(weights[row])
        word = words[row]
        if rows[group] >= 0:
            _add(dense[rows[group]], multipliers, lg_width, bits, word, weight)
            continue
        room, at = int(rooms[group]), 0
        if room > 0:
            at = _place(keys, counts, starts[group], room, word)
            if counts[at] != 0:
                counts[at] += weight
                continue
        if held[group] >= held_max:
            return row, used
        if held[group] >= room * 3 // 4:
            wider = max(2 * room, ROOM_MIN)
            if used + wider > keys.size:
                return row, used
            _move(keys, counts, starts[group], room, used, wider)
            starts[group], rooms[group] = used, wider
            used += wider
            at = _place(keys, counts, starts[group], wider, word)
        keys[at], counts[at] = word, weight
        held[group] += 1
    return words.size, used


@njit(nogil=True, cache=True)
def pour(
    table: Longs, multipliers: Words, lg_width: int, bits: int, words: Words, counts: Longs
) -> None:
    """Count each key so often in a table [DEPTH, width]; free places (count 0) add nothing."""
    for at in range(words.size):
        if counts[at] != 0:
            _add(table, multipliers, lg_width, bits, words[at], counts[at])


@njit(nogil=True, cache=True)
def add_tables(dense: Longs, rows: Ints, other: Longs, theirs: Ints, sign: int) -> None:
    """Add sign * the other's dense tables to those of the same groups."""
    for group in range(theirs.size):
        if theirs[group] >= 0:
            dense[rows[group]] += sign * other[theirs[group]]


@njit(nogil=True, cache=True)
def gather(
    keys: Words,
    counts: Longs,
    starts: Longs,
    rooms: Longs,
    out_groups: Ints,
    out_keys: Words,
    out_counts: Longs,
) -> int:
    """Copy the entries of all small groups out, by group; returns how many there are."""
    size = 0
    for group in range(rooms.size):
        for at in range(starts[group], starts[group] + rooms[group]):
            if counts[at] != 0:
                out_groups[size] = group
                out_keys[size], out_counts[size] = keys[at], counts[at]
                size += 1
    return size


@njit(nogil=True, cache=True)
def repack(
    keys: Words, counts: Longs, starts: Longs, rooms: Longs, new_keys: Words, new_counts: Longs
) -> int:
    """Copy all groups into another arena without gaps; returns how much of it is used."""
    used = 0
    for group in range(rooms.size):
        for at in range(rooms[group]):
            new_keys[used + at] = keys[starts[group] + at]
            new_counts[used + at] = counts[starts[group] + at]
        starts[group] = used
        used += int(rooms[group])
    return used
