"""The loops of hyperloglog.py: HyperLogLog registers of dense groups, a byte each, at most 63.

`rows` says where a group's registers are, -1 while it is sparse.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.hashing import leading_zeros
from synopses.kernels.prefetch import prefetch

_BLOCK = 128
_LINE, _TO_LINE = 64, np.uint64(6)  # Registers of a cache line; a group has two lines or more.
_ONE = np.uint64(1)
_ZEROS_MAX = np.uint64(62)  # DataSketches' cap on leading zeros.

Words = NDArray[np.uint64]
Registers = NDArray[np.uint8]
Ids = NDArray[np.int32]
Longs = NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def register_of(h2: np.uint64) -> np.uint64:
    """What a hash raises its register to."""
    return min(leading_zeros(h2), _ZEROS_MAX) + np.uint64(1)


@njit(nogil=True, cache=True)
def raise_one(registers: Registers, h1: Words, h2: Words) -> None:
    """Take hashes into one group's dense registers, [2^lg_k]."""
    mask = np.uint64(registers.size - 1)
    for row in range(h1.size):
        slot = h1[row] & mask
        register = np.uint8(register_of(h2[row]))
        held = registers[slot]
        if register > held:
            registers[slot] = register


@njit(nogil=True, cache=True)
def raise_each(
    ids: Ids, h1: Words, h2: Words, rows: Ids, dense: Registers, taken: Longs, rest: Longs
) -> int:
    """Take hashes into the registers of their groups, and count them, where these are dense.

    Which registers are wanted is found for a block of hashes before they are looked at: loads that
    wait for no store are many at a time on their way.

    rest: receives the rows of the other groups.

    Returns:
      How many they are.
    """
    lg_k = np.uint64(63) - leading_zeros(np.uint64(dense.shape[1]))
    mask, flat = np.uint64(dense.shape[1] - 1), dense.reshape(-1)
    lines = flat.reshape(-1, _LINE)
    places, values = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint8)
    rests = 0
    for first in range(0, ids.size, _BLOCK):
        of, slots = ids[first : first + _BLOCK], h1[first : first + _BLOCK]
        zeros, size = h2[first : first + _BLOCK], np.uint64(0)
        for at in range(of.size):
            group = np.uint32(of[at])
            if rows[group] < 0:
                rest[rests] = first + at
                rests += 1
                continue
            place = np.uint64(rows[group]) << lg_k | (slots[at] & mask)
            prefetch(lines, int(place >> _TO_LINE))
            places[size], values[size] = place, register_of(zeros[at])
            size += _ONE
            taken[group] += 1
        for at in range(size):
            place = places[at]
            flat[place] = max(flat[place], values[at])
    return rests


@njit(nogil=True, cache=True)
def raise_rows(dense: Registers, rows: Ids, others: Registers, other_rows: Ids) -> int:
    """Raise the registers of each group that is dense in both to the other's; how many are not."""
    sparse = 0
    for group in range(other_rows.size):
        if other_rows[group] < 0:
            continue
        if rows[group] < 0:
            sparse += 1
            continue
        mine, theirs = dense[rows[group]], others[other_rows[group]]
        for slot in range(mine.size):
            mine[slot] = max(mine[slot], theirs[slot])
    return sparse


@njit(nogil=True, cache=True)
def histograms(rows: Ids, dense: Registers, out: NDArray[np.int64]) -> None:
    """Count registers of each dense row that hold 0 … 63; out int64 [rows, 64], zeros on entry."""
    for place in range(rows.size):
        row = rows[place]
        for slot in range(dense.shape[1]):
            out[place, dense[row, slot]] += 1
