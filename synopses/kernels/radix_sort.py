"""Sorting and selecting by radix: as fast on every processor, and without the interpreter's lock.

numpy's own sorts depend on the processor's compressing stores: where these are slow (Zen 4), they
make 28 M/s of what is 180 M/s elsewhere (measured: numpy 2.4, batches of 65,536 doubles). Counting
by digits makes 90 to 140 M/s on both.
Source: Knuth, TAOCP 3, 5.2.5 (radix sorting), 5.2.2 (radix exchange, for one rank).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.kernels.group_ordering import by_group

_BITS = 11  # Of a digit: as many buckets as a cache of 32 KiB takes pointers of.
_DIGITS = -(-64 // _BITS)
_BUCKETS = 1 << _BITS
_SIGN = np.uint64(1 << 63)
_STEP_ROWS = 1 << 19  # Of a pass, some milliseconds.
_CHOICES = 1 << 10  # Buckets to choose one of.
_FEW = 64  # What is left to choose from is sorted.
_CROWD = 4096  # Values for which it pays to ask whether they lie evenly.
_ROOMY = 4  # Buckets for each of them.
_TOGETHER = 16  # Each has so many in its bucket, on average, where they do.

Words = NDArray[np.uint64]


def sorted_floats(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values in ascending order, -0.0 before 0.0, in a new array; [n], no NaN."""
    words = as_input(values, np.float64).view(np.uint64)
    counts = np.zeros((_DIGITS, _BUCKETS), np.uint32)
    return _sorted(words, np.empty_like(words), np.empty_like(words), counts).view(np.float64)


def smallest(keys: Words, k: int) -> tuple[NDArray[np.int64], np.uint64]:
    """Places (ascending) of the k smallest keys, and the (k+1)-th smallest.

    Args:
      keys: uint64 [n], n > k; of equal ones the first are taken. k: >= 0.
    """
    keys = as_input(keys, np.uint64)
    limit = np.uint64(ranked(keys, k))
    places = np.empty(k + 1, np.int64)
    _places(keys, limit, places)
    return places[:k], limit


def smallest_by_group(
    keys: Words, ids: NDArray[np.int32], limits: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Words]:
    """Places (ascending) of the limits[g] smallest keys of each group g, and the next key of each.

    Args:
      keys: uint64 [n]; of equal ones of a group the first are taken. ids: int32 [n].
      limits: int64 [groups], >= 0. Groups with no more keys than that are taken whole; their next
        key is 2^64 - 1.
    """
    keys, ids = as_input(keys, np.uint64), as_input(ids, np.int32)
    bounds, dealt = by_group(ids, keys, limits.size)
    nexts, places = np.empty(limits.size, np.uint64), np.empty(keys.size + 1, np.int64)
    size = _below(keys, ids, bounds, dealt, limits, nexts, places)
    return places[:size], nexts


def distinct_pairs(
    keys: NDArray[np.int64],
    groups: NDArray[np.uint16],
    on_progress: Callable[[], object] = lambda: None,
) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Each key with each of its groups, once, in ascending order, in new arrays; [pairs].

    Places are sorted by key, digit by digit, so that equal keys stay in the order of their groups.

    Args:
      keys: int64 [n]. groups: uint16 [n], none smaller than the one before.
      on_progress: called after some milliseconds of work each; what it raises ends it.
    """
    keys, groups = as_input(keys, np.int64), as_input(groups, np.uint16)
    steps = [slice(at, at + _STEP_ROWS) for at in range(0, keys.size, _STEP_ROWS)]
    low = int(keys.min(initial=(1 << 63) - 1))
    span = int(keys.max(initial=low)) - low
    digits = -(-span.bit_length() // _BITS)
    words, spare = np.empty(keys.size, np.uint64), np.empty(keys.size, np.uint64)
    sides, side_spare = groups.copy(), np.empty(keys.size, np.uint16)
    counts = np.zeros((digits, _BUCKETS), np.uint32)
    for step in steps:
        _digits_of(keys[step], low, words[step], counts)
        on_progress()
    for digit in range(digits):
        if counts[digit].max() == keys.size:
            continue  # All have the same digit.
        _to_starts(counts[digit])
        for step in steps:
            _deal(words[step], sides[step], digit, counts[digit], spare, side_spare)
            on_progress()
        words, spare, sides, side_spare = spare, words, side_spare, sides
    size = 0
    for step in steps:
        size = _keep(words, sides, step.start, min(step.stop, keys.size), size)
        on_progress()
    return _plus(words[:size], low), sides[:size]


@njit(nogil=True, cache=True)
def _to_starts(counts: NDArray[np.uint32]) -> None:
    """Replace the count of each digit by the place of its first key."""
    place = np.uint32(0)
    for bucket in range(counts.size):
        count = counts[bucket]
        counts[bucket] = place
        place += count


@njit(nogil=True, cache=True)
def _digits_of(keys: NDArray[np.int64], low: int, words: Words, counts: NDArray[np.uint32]) -> None:
    """Write distances of keys to the lowest into words, [n], and count each digit."""
    mask, base = np.uint64(_BUCKETS - 1), np.uint64(low)
    for row in range(keys.size):
        word = np.uint64(keys[row]) - base  # From 0, modulo 2^64.
        words[row] = word
        for digit in range(counts.shape[0]):
            counts[digit, (word >> np.uint64(digit * _BITS)) & mask] += np.uint32(1)


@njit(nogil=True, cache=True)
def _deal(
    words: Words,
    sides: NDArray[np.uint16],
    digit: int,
    places: NDArray[np.uint32],
    to: Words,
    to_sides: NDArray[np.uint16],
) -> None:
    """Each word, and what belongs to it, to the next place of its digit."""
    mask, shift = np.uint64(_BUCKETS - 1), np.uint64(digit * _BITS)
    for row in range(words.size):
        bucket = (words[row] >> shift) & mask
        to[places[bucket]] = words[row]
        to_sides[places[bucket]] = sides[row]
        places[bucket] += np.uint32(1)


@njit(nogil=True, cache=True)
def _keep(words: Words, sides: NDArray[np.uint16], begin: int, end: int, size: int) -> int:
    """Move pairs from begin to end that differ from the one before behind the first `size`."""
    for row in range(begin, end):
        new = size == 0 or words[row] != words[size - 1] or sides[row] != sides[size - 1]
        if new:
            words[size], sides[size] = words[row], sides[row]
            size += 1
    return size


@njit(nogil=True, cache=True)
def _plus(words: Words, low: int) -> NDArray[np.int64]:
    """The keys of words, as signed numbers, in their place."""
    keys = words.view(np.int64)
    for row in range(words.size):
        keys[row] = np.int64(words[row] + np.uint64(low))
    return keys


@njit(nogil=True, cache=True)
def sort_into(values: NDArray[np.float64], ordered: NDArray[np.float64]) -> None:
    """Write the values in ascending order, -0.0 before 0.0, into the other array; [n], no NaN."""
    keys, spare = np.empty(values.size, np.uint64), ordered.view(np.uint64)
    words = values.view(np.uint64)
    if values.size <= _CROWD and _sorted_by_place(words, keys, spare):
        return
    found = _sorted(words, keys, spare, np.zeros((_DIGITS, _BUCKETS), np.uint32))
    for row in range(values.size):
        spare[row] = found[row]


@njit(nogil=True, cache=True)
def _sorted_by_place(words: Words, keys: Words, spare: Words) -> bool:
    """The bits of a few doubles in the order of their values, in `spare`, if they lie evenly.

    Dealt out by where they are between the least and the most, all but neighbours are in order:
    insertion does the rest, in a third of the time that digits take. False: too many fall together.
    Source: Knuth, TAOCP 3, 5.2.1 (multiple list insertion).
    """
    least, most = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
    for row in range(words.size):
        word = words[row]
        key = word ^ (np.uint64(np.int64(word) >> np.int64(63)) | _SIGN)
        keys[row] = key
        least = key if key < least else least
        most = key if key > most else most
    shift, buckets = np.uint64(0), _ROOMY * keys.size + 1
    while (most - least) >> shift >= np.uint64(buckets) and keys.size:
        shift += np.uint64(1)
    counts = np.zeros(buckets, np.uint32)
    for row in range(keys.size):
        counts[(keys[row] - least) >> shift] += np.uint32(1)
    pairs = np.int64(0)
    for bucket in range(buckets):
        pairs += np.int64(counts[bucket]) * np.int64(counts[bucket])
    if pairs > _TOGETHER * keys.size:
        return False
    _to_starts(counts)
    for row in range(keys.size):
        key = keys[row]
        bucket = (key - least) >> shift
        spare[counts[bucket]] = key
        counts[bucket] += np.uint32(1)
    for row in range(1, spare.size):
        key, at = spare[row], row
        while at > 0 and spare[at - 1] > key:
            spare[at] = spare[at - 1]
            at -= 1
        spare[at] = key
    for row in range(spare.size):
        key = spare[row]
        spare[row] = key ^ (~np.uint64(np.int64(key) >> np.int64(63)) | _SIGN)
    return True


@njit(nogil=True, cache=True)
def _sorted(words: Words, keys: Words, spare: Words, counts: NDArray[np.uint32]) -> Words:
    """The bits of doubles in the order of their values, in one of the two arrays; counts: zeros."""
    mask = np.uint64(_BUCKETS - 1)
    for row in range(words.size):
        word = words[row]
        # As unsigned numbers: negative values turned round, then all others.
        key = word ^ (np.uint64(np.int64(word) >> np.int64(63)) | _SIGN)
        keys[row] = key
        for digit in range(_DIGITS):
            counts[digit, (key >> np.uint64(digit * _BITS)) & mask] += 1
    for digit in range(_DIGITS):
        shift, places = np.uint64(digit * _BITS), counts[digit]
        if places[(keys[0] >> shift) & mask] == keys.size if keys.size else True:
            continue  # All have the same digit.
        _to_starts(places)
        for row in range(keys.size):
            key = keys[row]
            bucket = (key >> shift) & mask
            spare[places[bucket]] = key
            places[bucket] += np.uint32(1)
        keys, spare = spare, keys
    for row in range(keys.size):
        key = keys[row]
        keys[row] = key ^ (~np.uint64(np.int64(key) >> np.int64(63)) | _SIGN)
    return keys


@njit(nogil=True, cache=True)
def ranked(keys: Words, rank: int) -> np.uint64:
    """The key of this rank, from 0; uint64 [n], n > rank. Counts by digits of what may be it."""
    left = keys
    while left.size > _FEW:
        least, most = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
        for row in range(left.size):  # Not min(): the machine compares eight at once so.
            key = left[row]
            least = key if key < least else least
            most = key if key > most else most
        if least == most:
            return np.uint64(least)
        shift = np.uint64(0)
        while (most - least) >> shift >= np.uint64(_CHOICES):
            shift += np.uint64(1)
        counts = np.zeros(_CHOICES, np.uint32)
        for row in range(left.size):
            counts[(left[row] - least) >> shift] += np.uint32(1)
        bucket = 0
        while rank >= int(counts[bucket]):
            rank -= int(counts[bucket])
            bucket += 1
        near, size = np.empty(int(counts[bucket]), np.uint64), 0
        for key in left:
            if (key - least) >> shift == np.uint64(bucket):
                near[size] = key
                size += 1
        left = near
    return np.uint64(np.sort(left)[rank])


@njit(nogil=True, cache=True)
def _places(keys: Words, limit: np.uint64, places: NDArray[np.int64]) -> None:
    """Find the places of keys below the limit, and of the first equal keys: all but one place."""
    below = 0
    for row in range(keys.size):
        below += int(keys[row] < limit)
    equal, size = places.size - 1 - below, 0
    if equal == 0:  # Nearly always: keys differ. Then no row waits for the one before.
        for row in range(keys.size):
            places[size] = row
            size += int(keys[row] < limit)
        return
    for row in range(keys.size):  # Without a branch, which would be guessed wrong every other time.
        key = keys[row]
        same = int(key == limit)
        places[size] = row
        size += int(key < limit) + (same & int(equal > 0))
        equal -= same


@njit(nogil=True, cache=True)
def _below(
    keys: Words,
    ids: NDArray[np.int32],
    bounds: NDArray[np.int64],
    dealt: Words,
    limits: NDArray[np.int64],
    nexts: Words,
    places: NDArray[np.int64],
) -> int:
    """Fill nexts and places, [n + 1], of smallest_by_group; returns how many places there are.

    dealt: keys in the order of their groups, of which bounds say where they begin.
    """
    equal = np.zeros(limits.size, np.int64)  # To be taken of those that are the next key, too.
    for group in range(limits.size):
        mine, limit = dealt[bounds[group] : bounds[group + 1]], limits[group]
        nexts[group] = np.uint64(0xFFFFFFFFFFFFFFFF)
        if limit >= mine.size:
            equal[group] = mine.size
            continue
        nexts[group] = ranked(mine, limit)
        equal[group] = limit
        for key in mine:
            equal[group] -= int(key < nexts[group])
    size = 0
    for row in range(keys.size):
        stratum = np.uint32(ids[row])
        same = int(keys[row] == nexts[stratum]) & int(equal[stratum] > 0)
        places[size] = row
        size += int(keys[row] < nexts[stratum]) + same
        equal[stratum] -= same
    return size
