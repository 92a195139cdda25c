"""The loops of theta_sketch.py: one open-addressing table of hashes per group, all in one arena.

A hash has 63 bits and is never 0, which marks a free place. Group g's table is
arena[starts[g] : starts[g] + sizes[g]], sizes a power of two (0: none yet), and holds held[g]
hashes, each below thresholds[g].
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.hashing import lowest_bit
from synopses.kernels.prefetch import prefetch
from synopses.kernels.radix_sort import ranked

SMALLEST = 4  # Places of a group's first table.
_BLOCK = 128
_BITS = 64  # Of a word.

Words = NDArray[np.uint64]
Longs = NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def _full(held: int, size: int) -> bool:
    """A table is at most three quarters full."""
    return 4 * held >= 3 * size


@njit(nogil=True, cache=True, inline="always")
def _place(arena: Words, start: int, size: int, value: np.uint64) -> int:
    """Return where in the arena a hash is, or the free place where it belongs; size >= 1."""
    mask = np.uint64(size - 1)
    place = value & mask
    found = arena[start + np.int64(place)]
    while found != np.uint64(0) and found != value:
        place = (place + np.uint64(1)) & mask
        found = arena[start + np.int64(place)]
    return start + int(place)


@njit(nogil=True, cache=True, inline="always")
def _put(arena: Words, start: int, size: int, value: np.uint64) -> int:
    """Put a hash into a table with a free place; 1 if it is new."""
    place = _place(arena, start, size, value)
    if arena[place] == value:
        return 0
    arena[place] = value
    return 1


@njit(nogil=True, cache=True)
def _kept(arena: Words, start: int, size: int, threshold: np.uint64) -> Words:
    """The hashes of a table below the threshold."""
    found = np.empty(size, np.uint64)
    count = 0
    for value in arena[start : start + size]:  # No branch: it would not be predictable.
        found[count] = value
        count += int(value != np.uint64(0)) & int(value < threshold)
    return found[:count]


@njit(nogil=True, cache=True)
def _lower(
    arena: Words,
    starts: Longs,
    sizes: Longs,
    held: Longs,
    thresholds: Words,
    at: int,
    to: np.uint64,
) -> None:
    """Bring a group's threshold down, and put out what is not below it."""
    if to >= thresholds[at]:
        return
    thresholds[at] = to
    start, size = starts[at], sizes[at]
    kept = _kept(arena, start, size, to)
    if kept.size < held[at]:
        arena[start : start + size] = np.uint64(0)
        for value in kept:
            _put(arena, start, size, value)
        held[at] = kept.size


@njit(nogil=True, cache=True)
def _cut(
    arena: Words, starts: Longs, sizes: Longs, held: Longs, thresholds: Words, at: int, k: int
) -> None:
    """Keep the k smallest hashes of a group; the next one is the threshold."""
    kept = _kept(arena, starts[at], sizes[at], thresholds[at])
    _lower(arena, starts, sizes, held, thresholds, at, ranked(kept, k))


@njit(nogil=True, cache=True)
def _widen(arena: Words, end: int, starts: Longs, sizes: Longs, at: int) -> int:
    """Give a group a table of twice the size at the end of the arena, if it fits: the new end."""
    start, size = starts[at], sizes[at]
    wider = max(SMALLEST, 2 * size)
    if end + wider > arena.size:
        return end
    for place in range(start, start + size):
        if arena[place] != np.uint64(0):
            _put(arena, end, wider, arena[place])
    starts[at] = end
    sizes[at] = wider
    return int(end + wider)


@njit(nogil=True, cache=True)
def _make_place(
    arena: Words,
    end: int,
    starts: Longs,
    sizes: Longs,
    held: Longs,
    thresholds: Words,
    at: int,
    k: int,
) -> int:
    """Make a full table take another hash: the arena's new end, -1 when the arena is full."""
    if sizes[at] >= 2 * k:
        _cut(arena, starts, sizes, held, thresholds, at, k)
        return int(end)
    wider = int(_widen(arena, end, starts, sizes, at))
    return wider if wider > end else -1


@njit(nogil=True, cache=True)
def take_many(
    arena: Words,
    end: int,
    starts: Longs,
    sizes: Longs,
    held: Longs,
    thresholds: Words,
    k: int,
    first: int,
    ids: NDArray[np.int32],
    hashes: Words,
) -> tuple[int, int]:
    """Take hashes[first:] in until the arena is full; returns (next row, end of the arena)."""
    one, free = np.uint64(1), np.uint64(0)
    for start in range(first, hashes.size, _BLOCK):
        of, words = ids[start : start + _BLOCK], hashes[start : start + _BLOCK]
        for row in range(of.size):  # All of a block are on their way before the first is needed.
            at = np.uint32(of[row])
            value = words[row] >> one
            prefetch(arena, int(np.uint64(starts[at]) + (value & np.uint64(sizes[at] - 1))))
        for row in range(of.size):
            at = np.uint32(of[row])
            value = words[row] >> one
            if value >= thresholds[at] or value == free:
                continue
            size = sizes[at]
            if size:
                mask, begin = np.uint64(size - 1), np.uint64(starts[at])
                place = value & mask
                found = arena[begin + place]
                while found not in (free, value):
                    place = (place + one) & mask
                    found = arena[begin + place]
                if found == value:
                    continue
                if not _full(held[at], size):
                    arena[begin + place] = value
                    held[at] += 1
                    continue
            moved = _make_place(arena, end, starts, sizes, held, thresholds, int(at), k)
            if moved < 0:
                return start + row, end
            end = moved
            if value < thresholds[at]:
                mask, begin = np.uint64(sizes[at] - 1), np.uint64(starts[at])
                place = value & mask
                while arena[begin + place] != free:
                    place = (place + one) & mask
                arena[begin + place] = value
                held[at] += 1
    return hashes.size, end


@njit(nogil=True, cache=True)
def take_one(
    arena: Words,
    end: int,
    starts: Longs,
    sizes: Longs,
    held: Longs,
    thresholds: Words,
    k: int,
    first: int,
    hashes: Words,
) -> tuple[int, int]:
    """The same for one group: most hashes of a long stream fail the first test.

    64 are tested at once, and set a bit each if they pass.
    """
    threshold, begin, mask = thresholds[0], np.uint64(starts[0]), np.uint64(sizes[0] - 1)
    one, free, size = np.uint64(1), np.uint64(0), sizes[0]
    count = held[0]
    for start in range(first, hashes.size, _BITS):
        words, below = hashes[start : start + _BITS], np.uint64(0)
        for row in range(np.uint64(words.size)):
            below |= np.uint64(words[row] >> one < threshold) << row
        while below != np.uint64(0):
            this = lowest_bit(below)
            below &= below - one
            value = words[this] >> one
            if value >= threshold or value == free:  # The threshold may have come down.
                continue
            if size:
                place = value & mask
                found = arena[begin + place]
                while found not in (free, value):
                    place = (place + one) & mask
                    found = arena[begin + place]
                if found == value:
                    continue
                if not _full(count, size):
                    arena[begin + place] = value
                    count += 1
                    continue
            held[0] = count
            moved = _make_place(arena, end, starts, sizes, held, thresholds, 0, k)
            if moved < 0:
                return start + int(this), end
            end = moved
            threshold, begin, mask = thresholds[0], np.uint64(starts[0]), np.uint64(sizes[0] - 1)
            size, count = sizes[0], held[0]
            if value < threshold:
                place = value & mask
                while arena[begin + place] != free:
                    place = (place + one) & mask
                arena[begin + place] = value
                count += 1
    held[0] = count
    return hashes.size, end


@njit(nogil=True, cache=True)
def take_tables(
    arena: Words,
    end: int,
    starts: Longs,
    sizes: Longs,
    held: Longs,
    thresholds: Words,
    k: int,
    first: int,
    theirs: tuple[Words, Longs, Longs, Words],
) -> tuple[int, int]:
    """Merge the groups from `first` on (arena, starts, sizes, thresholds) until the arena is full.

    Returns:
      (next group, end of the arena). A group that was left half done is done again: that changes
      nothing.
    """
    other, other_starts, other_sizes, other_thresholds = theirs
    for at in range(first, other_starts.size):
        _lower(arena, starts, sizes, held, thresholds, at, other_thresholds[at])
        for place in range(other_starts[at], other_starts[at] + other_sizes[at]):
            value = other[place]
            if value == np.uint64(0) or value >= thresholds[at]:
                continue
            if _full(held[at], sizes[at]):
                moved = _make_place(arena, end, starts, sizes, held, thresholds, at, k)
                if moved < 0:
                    return at, end
                end = moved
                if value >= thresholds[at]:
                    continue
            held[at] += _put(arena, starts[at], sizes[at], value)
    return other_starts.size, end


@njit(nogil=True, cache=True)
def settle(
    arena: Words, starts: Longs, sizes: Longs, held: Longs, thresholds: Words, k: int, groups: int
) -> None:
    """Cut every group to its k smallest hashes."""
    for at in range(groups):
        if held[at] > k:
            _cut(arena, starts, sizes, held, thresholds, at, k)


@njit(nogil=True, cache=True)
def lower_all(
    arena: Words,
    starts: Longs,
    sizes: Longs,
    held: Longs,
    thresholds: Words,
    to: np.uint64,
    groups: int,
) -> None:
    """Bring every group's threshold down to `to` at most."""
    for at in range(groups):
        _lower(arena, starts, sizes, held, thresholds, at, to)


@njit(nogil=True, cache=True)
def move_tables(
    arena: Words, starts: Longs, sizes: Longs, into: Words, new_starts: Longs, new_sizes: Longs
) -> None:
    """Put each group's hashes into its table in another arena, zeros on entry."""
    for at in range(starts.size):
        old = arena[starts[at] : starts[at] + sizes[at]]
        new = into[new_starts[at] : new_starts[at] + new_sizes[at]]
        if new.size == old.size:
            new[:] = old
            continue
        one, free, mask = np.uint64(1), np.uint64(0), np.uint64(new.size - 1)
        for value in old:
            if value != free:
                place = value & mask
                while new[place] != free:
                    place = (place + one) & mask
                new[place] = value


@njit(nogil=True, cache=True)
def put_all(arena: Words, starts: Longs, sizes: Longs, ends: Longs, hashes: Words) -> None:
    """Put hashes[ends[g - 1] : ends[g]] into the table of each group g, zeros on entry."""
    row = 0
    for at in range(starts.size):
        while row < ends[at]:
            _put(arena, starts[at], sizes[at], hashes[row])
            row += 1


@njit(nogil=True, cache=True)
def sorted_hashes(arena: Words, starts: Longs, sizes: Longs, out: Words) -> None:
    """The hashes of all tables, group by group, each ascending; out has the room."""
    row = 0
    for at in range(starts.size):
        first = row
        for place in range(starts[at], starts[at] + sizes[at]):
            if arena[place] != np.uint64(0):
                out[row] = arena[place]
                row += 1
        out[first:row] = np.sort(out[first:row])


@njit(nogil=True, cache=True)
def compare(
    left: Words, left_ends: Longs, right: Words, right_ends: Longs, thresholds: Words
) -> Longs:
    """Return how many hashes below each group's threshold are in both, in left only, in right only.

    Hashes by group, ascending in each. Returns int64 [groups, 3].
    """
    found = np.zeros((left_ends.size, 3), np.int64)
    i = j = 0
    for at in range(left_ends.size):
        threshold = thresholds[at]
        while True:
            mine = left[i] if i < left_ends[at] else threshold
            theirs = right[j] if j < right_ends[at] else threshold
            if mine >= threshold and theirs >= threshold:
                break
            found[at, 0 if mine == theirs else 1 if mine < theirs else 2] += 1
            i += mine <= theirs
            j += theirs <= mine
        i, j = left_ends[at], right_ends[at]
    return found
