"""The loops of distinct.py: HyperLogLog registers of dense groups, a byte each, at most 63.

`rows` says where a group's registers are, -1 while it is sparse.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.hashing import leading_zeros

_ZEROS_MAX = np.uint64(62)  # DataSketches' cap on leading zeros.

Words = NDArray[np.uint64]
Registers = NDArray[np.uint8]
Ids = NDArray[np.int32]


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
    """How many registers of each dense row hold 0 … 63; out int64 [rows, 64], zeros on entry."""
    for place in range(rows.size):
        row = rows[place]
        for slot in range(dense.shape[1]):
            out[place, dense[row, slot]] += 1
