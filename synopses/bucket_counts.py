"""Exact counts of (group, cell) pairs: a grid of counters for the bulk, a hash map for the rest."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.bucket_cells import SHIFT_MIN, ZERO, coarser
from synopses.cell_counts import SPREAD, CellCounts, Slots
from synopses.cell_grid import CellGrid, layout_of
from synopses.inputs import as_input

_GRID_ENTRIES_MIN = 320  # Up to here the map is smaller than the table of a grid.
_GRID_SHARE = 4  # The layout is reconsidered when the map has grown to 1/4 of the grid.

Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@njit(nogil=True, cache=True)
def _add(
    slots: Slots,
    used: int,
    used_max: int,
    ids: NDArray[np.int32],
    values: NDArray[np.float64],
    bits: NDArray[np.int64],
    shift: int,
    counts: NDArray[np.int64],
    extremes: NDArray[np.float64],
) -> tuple[int, int]:
    """Count values in their cells until the map is full; returns (next row, used)."""
    mask = np.uint64(len(slots) - 1)
    grouped = ids.size > 0
    group = np.int64(0)
    for row in range(values.size):
        x = values[row]
        if np.isnan(x):
            continue
        if grouped:
            group = np.int64(ids[row])
        magnitude = bits[row] & np.int64(0x7FFFFFFFFFFFFFFF)
        away = np.int64(0) if magnitude == 0 else (magnitude >> shift) + 1
        cell = ZERO - away if bits[row] < 0 else ZERO + away
        key = np.uint64(((group << 32) | cell) + 1)
        place = ((key * SPREAD) >> np.uint64(32)) & mask
        while slots[place, 0] != key:
            if slots[place, 0] == np.uint64(0):
                if used >= used_max:
                    return row, used
                slots[place, 0] = key
                used += 1
                break
            place = (place + np.uint64(1)) & mask
        slots[place, 1] += np.uint64(1)
        counts[group] += 1
        least, most = extremes[group, 0], extremes[group, 1]
        extremes[group, 0] = x if x < least else least
        extremes[group, 1] = x if x > most else most
    return values.size, used


class BucketCounts:
    """int64 counts of (group, cell) pairs, held where they are cheapest to hold.

    A pair is in the grid if the grid has a place for it, else in the map, never in both; where it
    is says nothing about the answer. 26 to 52 bytes a touched cell in the map, 4 a counter in the
    grid, which is used for groups and cells for which that is less.
    """

    __slots__ = ("grid", "map", "shift")

    def __init__(self, shift: int = SHIFT_MIN) -> None:
        """Make no counts at all."""
        self.map = CellCounts()
        self.grid: CellGrid | None = None
        self.shift = shift

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self.map.size_bytes + (0 if self.grid is None else self.grid.size_bytes)

    @property
    def _is_map_heavy(self) -> bool:
        """Whether the map holds so much that another layout may be better."""
        if self.grid is not None and self.grid.held.size == 1:
            return True  # Its row is cheap, and its map should stay almost empty.
        held = 0 if self.grid is None else self.grid.size_bytes
        return self.map.used >= _GRID_ENTRIES_MIN and _GRID_SHARE * self.map.size_bytes >= held

    def update(
        self,
        ids: NDArray[np.int32],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> None:
        """Count values (NaN: absent) in their cells, in `counts` and in `extremes`.

        ids: int32 [n]; size 0: all values are of group 0.
        """
        while values.size:
            if self.grid is not None:
                self.grid.grow(counts.size)
                rest = self.grid.tally(ids, values, counts, extremes)
                ids, values = _only(ids, rest), _only(values, rest)
            bits = values.view(np.int64)
            row, self.map.used = _add(
                self.map.slots, self.map.used, self.map.used_max, ids, values, bits, self.shift,
                counts, extremes,
            )  # fmt: skip
            if row == values.size:
                return
            ids, values = ids[row:], values[row:]
            self._make_room(counts.size)

    def _make_room(self, groups: int) -> None:
        if self._is_map_heavy:
            self._hold(self.entries(), groups)
        if self.map.used * 2 > self.map.used_max:
            self.map.widen()

    def _hold(self, entries: Entries, groups: int) -> None:
        """Hold exactly these entries, in the layout that suits them."""
        held, cells, counts = entries
        self.grid = None
        if held.size >= _GRID_ENTRIES_MIN:
            blocks, rows = layout_of(held, cells, counts, shift=self.shift)
            if blocks.size and rows.size:
                self.grid = CellGrid(blocks, rows, groups, self.shift)
                rest = self.grid.add(held, cells, counts)
                held, cells, counts = held[rest], cells[rest], counts[rest]
        self.map = CellCounts.of(held, cells, counts)

    def merge(self, other: Self, groups: int, sign: int = 1) -> None:
        """Add sign * the other's counts; groups: of both."""
        if self.shift == other.shift and self._take_grid(other.grid, groups, sign):
            self.map.merge(other.map, sign)
            return
        slots, shift = len(self.map.slots), max(self.shift, other.shift)
        self.collapse(shift, groups)
        self._add(_wider(other.entries(), other.shift, shift), groups, sign)
        if len(self.map.slots) > slots and self._is_map_heavy:
            self._hold(self.entries(), groups)

    def _take_grid(self, grid: CellGrid | None, groups: int, sign: int) -> bool:
        """Add the other's grid counter by counter, if what it does not hold is not held here."""
        if grid is None:
            return self.grid is None
        if self.grid is None and self.map.used == 0 and sign > 0:
            self.grid = grid.regrouped(np.arange(grid.rows.size), groups)
            return True
        return self.grid is not None and self.grid.add_alike(grid, sign)

    def _add(self, entries: Entries, groups: int, sign: int) -> None:
        held, cells, amounts = entries
        if self.grid is not None and held.size:
            self.grid.grow(groups)
            rest = self.grid.add(held, cells, amounts, sign)
            held, cells, amounts = held[rest], cells[rest], amounts[rest]
        if held.size:
            self.map.merge(CellCounts.of(held, cells, amounts), sign)

    def collapse(self, shift: int, groups: int) -> None:
        """Make all cells 2^(shift - its present) times as wide; counts are as exact as before."""
        if shift > self.shift:
            entries = _wider(self.entries(), self.shift, shift)
            self.shift = shift
            self._hold(entries, groups)

    def entries(self) -> Entries:
        """Groups, cells and counts of all non-zero entries, by group, then by cell. Shapes [n]."""
        sparse = self.map.entries()
        if self.grid is None:
            return sparse
        dense = self.grid.entries()
        if not sparse[0].size:
            return dense
        groups, cells, counts = (np.concatenate(pair) for pair in zip(dense, sparse, strict=True))
        order = np.argsort((groups << 32) | cells, kind="stable")
        return groups[order], cells[order], counts[order]

    @classmethod
    def of(cls, entries: Entries, groups: int, shift: int = SHIFT_MIN) -> Self:
        """The counts of these entries; shapes [n], pairs different."""
        made = cls(shift)
        made._hold(entries, groups)
        return made

    def regrouped(self, places: NDArray[np.int64], groups: int) -> Self:
        """New counts in which group g is group places[g] of `groups`; at -1: left out."""
        made = type(self)(self.shift)
        made.map = self.map.regrouped(places)
        if self.grid is not None:
            made.grid = self.grid.regrouped(places, groups)
        return made


def _only(column: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """These rows of an input; of no ids, no ids."""
    return as_input(column[rows], column.dtype) if column.size else column


def _wider(entries: Entries, shift: int, wanted: int) -> Entries:
    """Entries at a coarser shift; those that fall together are added."""
    groups, cells, counts = entries
    wide = coarser(cells, shift, wanted)
    if not groups.size or wanted == shift:
        return groups, wide, counts
    # Coarser cells stay in order, so what falls together stands together.
    first = np.append(True, (np.diff(groups) != 0) | (np.diff(wide) != 0))
    starts = np.flatnonzero(first)
    return groups[starts], wide[starts], np.add.reduceat(counts, starts)
