"""The loops of distinct.py: HyperLogLog registers of dense groups, a byte each, at most 63.

`rows` says where a group's registers are, -1 while it is sparse.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.hashing import leading_zeros
from synopses.prefetch import prefetch

_BLOCK = 128  # Rows that are looked up before the first of them is taken in.
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
def raise_dense(
    rows: Ids,
    dense: Registers,
    counts: NDArray[np.int64],
    ids: Ids,
    h1: Words,
    h2: Words,
    rest: NDArray[np.int64],
) -> int:
    """Take in the hashes of groups with dense registers; the others' rows go to rest: how many.

    A block is looked up before any register is raised, so that many are on their way at a time;
    each is written, raised or not, for in young groups nobody can predict which.
    """
    slots = np.uint64(dense.shape[1])
    within = slots - np.uint64(1)
    registers = dense.reshape(-1)
    cells, owners = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint32)
    found = 0
    for start in range(0, ids.size, _BLOCK):
        of, places = ids[start : start + _BLOCK], h1[start : start + _BLOCK]
        for at in range(of.size):
            group = np.uint32(of[at])
            row = rows[group]
            rest[found] = start + at
            found += row < 0
            cells[at] = np.uint64(row) * slots + (places[at] & within)
            owners[at] = group
            prefetch(registers, int(cells[at]))
        words = h2[start : start + _BLOCK]
        for at in range(words.size):
            cell = cells[at]
            if np.int64(cell) < 0:
                continue
            register = np.uint8(register_of(words[at]))
            mine = registers[cell]
            registers[cell] = register if register > mine else mine
            counts[owners[at]] += 1
    return found


@njit(nogil=True, cache=True)
def raise_rows(dense: Registers, rows: Ids, others: Registers, other_rows: Ids) -> None:
    """Raise the registers of each group that is dense in the other (and so here) to theirs."""
    for group in range(other_rows.size):
        theirs = other_rows[group]
        if theirs >= 0:
            mine = rows[group]
            for slot in range(dense.shape[1]):
                register = others[theirs, slot]
                held = dense[mine, slot]
                dense[mine, slot] = register if register > held else held


@njit(nogil=True, cache=True)
def histograms(rows: Ids, dense: Registers, out: NDArray[np.int64]) -> None:
    """How many registers of each dense row hold 0 … 63; out int64 [rows, 64], zeros on entry."""
    for place in range(rows.size):
        row = rows[place]
        for slot in range(dense.shape[1]):
            out[place, dense[row, slot]] += 1
