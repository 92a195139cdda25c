"""The loops of distinct.py: HyperLogLog registers, dense rows and one sparse map.

A packed entry of the map is ((group << lg_k | slot) + 1) << 6 | register, 0 where free; a register
is at most 63. `rows` says where a group's dense registers are, -1 while it is sparse.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.cell_counts import SPREAD
from synopses.hashing import leading_zeros
from synopses.prefetch import prefetch

REGISTER_BITS = 6
_REGISTER = np.uint64(63)
_AHEAD = 24  # Rows between bringing a register near and looking at it.
_ZEROS_MAX = np.uint64(62)  # DataSketches' cap on leading zeros.

Words = NDArray[np.uint64]
Registers = NDArray[np.uint8]
Ids = NDArray[np.int32]


@njit(nogil=True, cache=True, inline="always")
def _register(h2: np.uint64) -> np.uint64:
    return min(leading_zeros(h2), _ZEROS_MAX) + np.uint64(1)


@njit(nogil=True, cache=True)
def raise_one(registers: Registers, h1: Words, h2: Words) -> None:
    """Take hashes into one group's dense registers, [2^lg_k]."""
    mask = np.uint64(registers.size - 1)
    for row in range(h1.size):
        slot = h1[row] & mask
        register = np.uint8(_register(h2[row]))
        held = registers[slot]
        if register > held:
            registers[slot] = register


@njit(nogil=True, cache=True)
def raise_many(
    places: Words,
    used: int,
    used_max: int,
    start: int,
    rows: Ids,
    dense: Registers,
    sparse: Ids,
    counts: NDArray[np.int64],
    ids: Ids,
    h1: Words,
    h2: Words,
) -> tuple[int, int]:
    """Take hashes[start:] in until the map is full; returns (next row, used)."""
    slots = np.uint64(dense.shape[1])
    within = slots - np.uint64(1)
    mask = np.uint64(places.size - 1)
    registers = dense.reshape(-1)
    last = ids.size - 1
    for at in range(start, ids.size):
        soon = min(at + _AHEAD, last)
        later, next_slot = np.uint32(ids[soon]), h1[soon] & within
        far = rows[later]
        if far >= 0:
            prefetch(registers, int(np.uint64(far) * slots + next_slot))
        else:
            key = np.uint64(later) * slots + next_slot + np.uint64(1)
            prefetch(places, int(((key * SPREAD) >> np.uint64(32)) & mask))
        group = np.uint32(ids[at])
        slot = h1[at] & within
        register = _register(h2[at])
        row = rows[group]
        if row >= 0:
            cell = np.uint64(row) * slots + slot
            mine = registers[cell]
            if np.uint8(register) > mine:
                registers[cell] = np.uint8(register)
            counts[group] += 1
            continue
        key = np.uint64(group) * slots + slot + np.uint64(1)
        place = ((key * SPREAD) >> np.uint64(32)) & mask
        held = places[place]
        while held != np.uint64(0) and held >> np.uint64(6) != key:
            place = (place + np.uint64(1)) & mask
            held = places[place]
        if held == np.uint64(0):
            if used >= used_max:
                return at, used
            used += 1
            sparse[group] += 1
        if register > held & _REGISTER:
            places[place] = (key << np.uint64(6)) | register
        counts[group] += 1
    return ids.size, used


@njit(nogil=True, cache=True)
def raise_entries(
    places: Words,
    used: int,
    used_max: int,
    start: int,
    rows: Ids,
    dense: Registers,
    sparse: Ids,
    entries: Words,
) -> tuple[int, int]:
    """Take packed entries[start:] (0: skip) in until the map is full; returns (next, used)."""
    slots = np.uint64(dense.shape[1])
    lg_k = np.uint64(63) - leading_zeros(slots)
    mask = np.uint64(places.size - 1)
    for at in range(start, entries.size):
        entry = entries[at]
        if entry == np.uint64(0):
            continue
        key = entry >> np.uint64(6)
        register = entry & _REGISTER
        group = np.int64((key - np.uint64(1)) >> lg_k)
        row = rows[group]
        if row >= 0:
            slot = (key - np.uint64(1)) & (slots - np.uint64(1))
            mine = dense[row, slot]
            if np.uint8(register) > mine:
                dense[row, slot] = np.uint8(register)
            continue
        place = ((key * SPREAD) >> np.uint64(32)) & mask
        held = places[place]
        while held != np.uint64(0) and held >> np.uint64(6) != key:
            place = (place + np.uint64(1)) & mask
            held = places[place]
        if held == np.uint64(0):
            if used >= used_max:
                return at, used
            used += 1
            sparse[group] += 1
        if register > held & _REGISTER:
            places[place] = entry
    return entries.size, used


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
def histograms(
    places: Words, rows: Ids, dense: Registers, sparse: Ids, out: NDArray[np.int64]
) -> None:
    """How many registers of each group hold 0 … 63; out int64 [groups, 64], zeros on entry."""
    slots = dense.shape[1]
    lg_k = np.uint64(63) - leading_zeros(np.uint64(slots))
    for group in range(len(out)):
        row = rows[group]
        if row < 0:
            out[group, 0] = slots - sparse[group]
            continue
        for slot in range(slots):
            out[group, dense[row, slot]] += 1
    for entry in places:
        if entry != np.uint64(0):
            owner = np.int64(((entry >> np.uint64(6)) - np.uint64(1)) >> lg_k)
            out[owner, np.int64(entry & _REGISTER)] += 1
