"""Hash tables of counts by key, in the order of keys but for the keys of one cluster.

A table of counts is three arrays of a size that is a power of two: `keys`, `counts` with 0 or more
for a key and -1 for a free place, and `values` with PARTS numbers for each expression. Keys are
hashes, so the first place of a key is by its upper half. Collisions go to the next free place. So
a scan finds the keys nearly ascending, and a larger table is filled from front to back.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.hashing import leading_zeros, splitmix

FREE = np.int64(-1)

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Longs = NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def home_of(key: np.uint64, size: int) -> int:
    """Return the first place of a key in a table of fewer than 2^32 places."""
    return np.int64(((key >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))  # type: ignore[return-value]


@njit(nogil=True, cache=True)
def place_of(keys: Words, counts: Longs, key: np.uint64) -> int:
    """Return where a key is in a table, or the free place where it belongs."""
    mask = keys.size - 1
    place = home_of(key, keys.size)
    while counts[place] >= 0 and keys[place] != key:
        place = (place + 1) & mask
    return place


@njit(nogil=True, cache=True)
def is_sampled(key: np.uint64, secret: np.uint64, level: int) -> int:
    """Return 1 for a key that is sampled at 2^-level, else 0."""
    return int(leading_zeros(splitmix(key ^ secret)) >= np.uint64(level))


@njit(nogil=True, cache=True)
def held(
    hashes: Words, keys: Words, counts: Longs, secret: np.uint64, level: int
) -> NDArray[np.bool_]:
    """Return which keys are in a table, or are sampled at 2^-level."""
    found = np.empty(hashes.size, np.bool_)
    for at in range(hashes.size):
        is_here = is_sampled(hashes[at], secret, level) == 1
        found[at] = is_here or counts[place_of(keys, counts, hashes[at])] >= 0
    return found


@njit(nogil=True, cache=True)
def put(
    keys: Words, counts: Longs, values: Floats, new_keys: Words, new_counts: Longs, new: Floats
) -> Longs:
    """Put different keys, with their counts and values, into a table that has none of them.

    Returns:
      the place of each of them.
    """
    places = np.empty(new_keys.size, np.int64)
    for at in range(new_keys.size):
        place = place_of(keys, counts, new_keys[at])
        keys[place] = new_keys[at]
        counts[place] = new_counts[at]
        for column in range(new.shape[1]):
            values[place, column] = new[at, column]
        places[at] = place
    return places


@njit(nogil=True, cache=True)
def ordered(keys: Words, counts: Longs, secret: np.uint64, level: int) -> Longs:
    """Return the places of the keys of a table that are sampled at 2^-level, by ascending key.

    The table has a free place.
    """
    size = keys.size
    cluster = 0  # Of places at the front, which may have keys that belong to the end.
    while counts[cluster] >= 0:
        cluster += 1
    found = np.empty(size, np.int64)
    number = 0
    for turn in range(size + cluster):
        place = turn if turn < size else turn - size
        if counts[place] < 0:
            continue
        if place < cluster and (home_of(keys[place], size) > place) == (turn < size):
            continue  # A key of the end, or one that was found in the first turn.
        key = keys[place]
        if is_sampled(key, secret, level) == 0:
            continue
        at = number
        while at > 0 and keys[found[at - 1]] > key:
            found[at] = found[at - 1]
            at -= 1
        found[at] = place
        number += 1
    return found[:number].copy()


@njit(nogil=True, cache=True)
def sampled_number(keys: Words, counts: Longs, secret: np.uint64, level: int) -> int:
    """Return how many keys of a table are sampled at 2^-level."""
    number = 0
    for place in range(keys.size):
        if counts[place] >= 0:
            number += is_sampled(keys[place], secret, level)
    return number


@njit(nogil=True, cache=True)
def move_sampled(
    keys: Words,
    counts: Longs,
    values: Floats,
    secret: np.uint64,
    level: int,
    new_keys: Words,
    new_counts: Longs,
    new: Floats,
) -> None:
    """Put the keys of a table that are sampled at 2^-level into another one, which is empty."""
    for at in range(keys.size):
        if counts[at] < 0 or is_sampled(keys[at], secret, level) == 0:
            continue
        place = place_of(new_keys, new_counts, keys[at])
        new_keys[place] = keys[at]
        new_counts[place] = counts[at]
        for column in range(values.shape[1]):
            new[place, column] = values[at, column]
