"""The loops of pane_counts.py: counts of one pane and side, one tuple after the other.

Two hashes of a key decide all. The first decides whether the key is sampled, and nothing else.
The second decides its bucket, its cell and its register. So what is known of every tuple does not
depend on the sample.

Tables of counts are those of key_tables.py, with PARTS numbers for each expression.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.joins.key_tables import Floats, Longs, Words, home_of, is_sampled, place_of
from synopses.kernels.hashing import leading_zeros, splitmix
from synopses.kernels.prefetch import prefetch

REGISTERS = 1 << 11  # Of the count of distinct keys; its relative error is 0.8 / sqrt(2^11) = 2 %.
_LOWER_HALF = np.uint64(0xFFFFFFFF)
LEVEL, SIZE = range(2)  # Cells of `state`: keys are sampled at 2^-level; keys of their table.
DISTINCT, CHANCE = range(2)  # Cells of `estimate`: distinct keys; sum of 2^-register.

# Of the values of an expression, less its centre: sum of the positive ones, of the negative ones
# without their sign, and how many are not NULL.
POSITIVE, NEGATIVE, PRESENT, PARTS = range(4)
VALUE_BUCKET = 4  # Neighbouring buckets whose values are summed together, as the first two parts.
# Rows of `totals`: a constant, and sum and number of all values.
CENTRE, SUM, NUMBER, TOTALS = range(4)

# Rows between the fetch of a key's places and their use. Only tables with more places than this,
# of 16 bytes, are fetched: smaller ones stay in the nearest caches (benchmarks/sampled_joins).
_AHEAD, _NEAR_PLACES = 12, 1 << 18


@njit(nogil=True, cache=True)
def sampled(keys: Words, secret: np.uint64, level: int) -> NDArray[np.bool_]:
    """Return which keys are sampled at 2^-level."""
    found = np.empty(keys.size, np.bool_)
    for at in range(keys.size):
        found[at] = is_sampled(keys[at], secret, level) == 1
    return found


@njit(nogil=True, cache=True, inline="always")
def _bucket(word: np.uint64, buckets: int) -> np.uint64:
    """Return the bucket of a hash by its lower half: one of any number below 2^32."""
    return ((word & _LOWER_HALF) * np.uint64(buckets)) >> np.uint64(32)


@njit(nogil=True, cache=True)
def buckets_of(keys: Words, secret: np.uint64, buckets: int) -> Longs:
    """Return the bucket of each key."""
    found = np.empty(keys.size, np.int64)
    for at in range(keys.size):
        found[at] = np.int64(_bucket(splitmix(keys[at] ^ secret), buckets))
    return found


@njit(nogil=True, cache=True, inline="always")
def _add_to_bucket(sums: Floats, place: int, values: Floats, row: int, totals: Floats) -> None:
    """Add the values of a row to the sums of a bucket; NaN is NULL."""
    for number in range(values.shape[1]):
        value = values[row, number] - totals[CENTRE, number]
        if value >= 0.0:
            sums[place, 2 * number] += value
        elif value < 0.0:
            sums[place, 2 * number + 1] -= value


@njit(nogil=True, cache=True, inline="always")
def _add_values(sums: Floats, place: int, values: Floats, row: int, totals: Floats) -> None:
    """Add the values of a row to sums; NaN is NULL."""
    for number in range(values.shape[1]):
        value = values[row, number] - totals[CENTRE, number]
        if value >= 0.0:
            sums[place, PARTS * number + POSITIVE] += value
            sums[place, PARTS * number + PRESENT] += 1.0
        elif value < 0.0:
            sums[place, PARTS * number + NEGATIVE] -= value
            sums[place, PARTS * number + PRESENT] += 1.0


@njit(nogil=True, cache=True, inline="always")
def _count_distinct(
    word: np.uint64, registers: NDArray[np.uint8], estimate: NDArray[np.float64]
) -> int:
    """Count a key by a hash of it; return 1 if the estimate has changed, else 0.

    Each change adds the inverse of its probability (Cohen 2014, All-distances sketches, PODS; Ting
    2014, Streamed approximate counting of distinct elements, KDD).
    """
    register = word & np.uint64(REGISTERS - 1)
    rank = leading_zeros(word) + np.uint64(1)
    before = np.uint64(registers[register])
    if rank <= before:
        return 0
    estimate[DISTINCT] += REGISTERS / estimate[CHANCE]
    estimate[CHANCE] += 2.0 ** -np.float64(rank) - 2.0 ** -np.float64(before)
    registers[register] = np.uint8(rank)
    return 1


@njit(nogil=True, cache=True, inline="always")
def _add_totals(values: Floats, row: int, totals: Floats) -> None:
    """Add the values of a row to the sums and numbers of all values; NaN is NULL."""
    for number in range(values.shape[1]):
        if values[row, number] == values[row, number]:
            totals[SUM, number] += values[row, number]
            totals[NUMBER, number] += 1.0


@njit(nogil=True, cache=True, inline="always")
def _vote(cell: np.uint64, key: np.uint64, cell_keys: Words, cell_counts: Longs) -> None:
    """Count a row for the majority of its cell: a key with more than half of its rows stays.

    Source: Boyer & Moore 1991, MJRTY.
    """
    count, held = cell_counts[cell], cell_keys[cell]
    is_free = count == 0
    # Without a branch: which of the three cases it is, is seldom predicted.
    cell_counts[cell] = count + (1 if is_free or held == key else -1)
    cell_keys[cell] = key if is_free else held


@njit(nogil=True, cache=True, inline="always")
def _counted_place(key: np.uint64, keys: Words, counts: Longs, state: Longs) -> int:
    """Count a row of a sampled key; return its place in the table."""
    place = place_of(keys, counts, key)
    if counts[place] < 0:
        keys[place] = key
        counts[place] = 0
        state[SIZE] += 1
    counts[place] += 1
    return int(place)


@njit(nogil=True, cache=True)
def count_keys(
    keys: Words,
    secret: np.uint64,
    registers: NDArray[np.uint8],
    estimate: NDArray[np.float64],
) -> None:
    """Count keys that were heavy among the distinct ones. secret: of the buckets."""
    for at in range(keys.size):
        _count_distinct(splitmix(splitmix(keys[at] ^ secret)), registers, estimate)


@njit(nogil=True, cache=True)
def vote_again(
    keys: Words, votes: Longs, secret: np.uint64, cell_keys: Words, cell_counts: Longs
) -> None:
    """Put the majority of each cell, with its votes, into other cells. secret: of the buckets."""
    for at in range(keys.size):
        word = splitmix(keys[at] ^ secret)
        cell = _bucket(word >> np.uint64(32), cell_keys.size)
        if cell_keys[cell] == keys[at]:
            cell_counts[cell] += votes[at]
        elif cell_counts[cell] >= votes[at]:
            cell_counts[cell] -= votes[at]
        else:
            cell_keys[cell] = keys[at]
            cell_counts[cell] = votes[at] - cell_counts[cell]


@njit(nogil=True, cache=True, inline="always")
def _fetch(
    key: np.uint64,
    secrets: Words,
    level: int,
    heavy_keys: Words,
    heavy_counts: Longs,
    keys: Words,
    counts: Longs,
    cell_keys: Words,
    cell_counts: Longs,
    sums: Longs,
) -> None:
    """Fetch the places at which a row of a key is counted."""
    word = splitmix(key ^ secrets[1])
    cell = int(_bucket(word >> np.uint64(32), cell_keys.size))
    prefetch(cell_keys, cell)
    prefetch(cell_counts, cell)
    place = home_of(key, heavy_keys.size)
    prefetch(heavy_counts, place)
    prefetch(heavy_keys, place)
    prefetch(sums, int(_bucket(word, sums.size)))
    if is_sampled(key, secrets[0], level) == 1:
        place = home_of(key, keys.size)
        prefetch(counts, place)
        prefetch(keys, place)


@njit(nogil=True, cache=True)
def count_rows(
    hashes: Words,
    row_values: Floats,
    first: int,
    secrets: Words,
    heavy_keys: Words,
    heavy_counts: Longs,
    heavy_values: Floats,
    keys: Words,
    counts: Longs,
    values: Floats,
    cell_keys: Words,
    cell_counts: Longs,
    sums: Longs,
    value_sums: Floats,
    totals: Floats,
    registers: NDArray[np.uint8],
    estimate: NDArray[np.float64],
    state: Longs,
    keys_max: float,
) -> int:
    """Count rows from one on, until the table of sampled keys has to be made anew.

    Args:
      hashes: of the rows' keys. first: row to begin with.
      row_values: [rows, expressions], NaN for NULL.
      secrets: of the sample and of the buckets.
      heavy_keys, heavy_counts, heavy_values: table of the keys that are counted exactly.
      keys, counts, values: table of the sampled keys.
      cell_keys, cell_counts: majority vote per cell.
      sums: rows per bucket, without those of heavy keys.
      value_sums: [buckets / VALUE_BUCKET, 2 * expressions], POSITIVE and NEGATIVE of these rows.
      totals: [TOTALS, expressions], centres, sums and numbers of all values.
      registers, estimate: count of distinct keys, without heavy ones.
      state: LEVEL and SIZE of the sample.
      keys_max: sampled keys that are aimed at.

    Returns:
      the row after the last that was counted. If it is not the end, the table is three quarters
      full. It may have keys that were sampled at a lower level only.
    """
    is_far = heavy_keys.size + keys.size + cell_keys.size + sums.size > _NEAR_PLACES
    for at in range(first, hashes.size):
        key = hashes[at]
        if is_far and at + _AHEAD < hashes.size:
            _fetch(
                hashes[at + _AHEAD],
                secrets,
                state[LEVEL],
                heavy_keys,
                heavy_counts,
                keys,
                counts,
                cell_keys,
                cell_counts,
                sums,
            )
        word = splitmix(key ^ secrets[1])
        _add_totals(row_values, at, totals)
        _vote(_bucket(word >> np.uint64(32), cell_keys.size), key, cell_keys, cell_counts)
        place = place_of(heavy_keys, heavy_counts, key)
        if heavy_counts[place] >= 0:
            heavy_counts[place] += 1
            _add_values(heavy_values, place, row_values, at, totals)
            continue
        bucket = int(_bucket(word, sums.size))
        sums[bucket] += 1
        _add_to_bucket(value_sums, bucket // VALUE_BUCKET, row_values, at, totals)
        if _count_distinct(splitmix(word), registers, estimate) == 1:
            while estimate[DISTINCT] * 2.0 ** -np.float64(state[LEVEL]) > keys_max:
                state[LEVEL] += 1
        if is_sampled(key, secrets[0], state[LEVEL]) == 1:
            place = _counted_place(key, keys, counts, state)
            _add_values(values, place, row_values, at, totals)
            if 4 * state[SIZE] > 3 * keys.size:
                return at + 1
    return int(hashes.size)
