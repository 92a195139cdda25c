"""Dense counters for the cells that most values fall into: a row per group, found by a look-up.

Where a group touches many cells of the same stretch, plain counters side by side take less memory
than a hash map, and counting is an addition at a computed place.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.bucket_cells import cells_of_keys, farthest, keys_of_cells

_BLOCK_BITS = 6
_BLOCK = 1 << _BLOCK_BITS
_KEYS = 1 << 19  # At the finest shift: sign, exponent and 7 bits of mantissa.
_BLOCKS_MAX = (1 << 16) // _BLOCK - 1  # Places in a row are uint16.
_ENTRY_BYTES = 32  # Of a cell in the hash map: 16 bytes, and it is about half full.
_BLOCK_BYTES = 4 * _BLOCK
_CHUNK = 4096
_HOT = 64  # A block with 1/64 of the values is worth counters for the speed.
_COUNT_MAX = (1 << 32) - 1
_OFFSET = np.uint64(_BLOCK - 1)
_TO_BLOCK = np.uint64(_BLOCK_BITS)
_ONE = np.uint64(1)
_NOTHING = np.uint64(0)


@njit(nogil=True, cache=True)
def _tally_one(
    bits: NDArray[np.uint64], table: NDArray[np.uint16], counters: NDArray[Any], shift: int
) -> NDArray[np.int64]:
    """Count in row 0, the only one; returns which values have no place.

    They fall into the spare block behind the row, so that the loop has no branch; a chunk in which
    any did is looked at again.
    """
    move = np.uint64(shift) & np.uint64(63)
    spare = counters.size - _BLOCK
    rest = np.empty(0, np.int64)
    found = 0
    for start in range(0, bits.size, _CHUNK):
        end = min(start + _CHUNK, bits.size)
        for at in range(start, end):
            key = (bits[at] >> move) + np.uint64((bits[at] << _ONE) != _NOTHING)
            counters[np.uint64(table[key >> _TO_BLOCK]) + (key & _OFFSET)] += np.uint32(1)
        if not counters[spare:].any():
            continue
        counters[spare:] = 0
        if not rest.size:
            rest = np.empty(bits.size, np.int64)
        for at in range(start, end):
            key = (bits[at] >> move) + np.uint64((bits[at] << _ONE) != _NOTHING)
            if table[key >> _TO_BLOCK] == spare:
                if bits[at] << _ONE == _NOTHING and table[0] != spare:  # -0.0 is counted as 0.0.
                    counters[np.int64(table[0])] += np.uint32(1)
                    continue
                rest[found] = at
                found += 1
    return rest[:found]


@njit(nogil=True, cache=True)
def _tally_many(
    ids: NDArray[np.int32],
    bits: NDArray[np.uint64],
    values: NDArray[np.float64],
    table: NDArray[np.uint16],
    rows: NDArray[np.int64],
    counters: NDArray[Any],
    shift: int,
    nowhere: int,
    counts: NDArray[np.int64],
    extremes: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Count in the rows of the groups; returns which values have no place."""
    move = np.uint64(shift) & np.uint64(63)
    rest = np.empty(bits.size, np.int64)
    found = 0
    for at in range(bits.size):
        group = np.uint64(ids[at])
        key = (bits[at] >> move) + np.uint64((bits[at] << _ONE) != _NOTHING)
        place = table[key >> _TO_BLOCK]
        row = rows[group]
        if bits[at] << _ONE == _NOTHING:  # -0.0 is counted as 0.0.
            place = table[0]
            key = _NOTHING
        if place == nowhere or row < 0:
            rest[found] = at
            found += 1
            continue
        counters[np.uint64(row) + np.uint64(place) + (key & _OFFSET)] += np.uint32(1)
        counts[group] += 1
        x = values[at]
        if x < extremes[group, 0]:  # noqa: PLR1730 - rarely; storing each time costs a wait.
            extremes[group, 0] = x
        if x > extremes[group, 1]:  # noqa: PLR1730
            extremes[group, 1] = x
    return rest[:found]


@njit(nogil=True, cache=True)
def _add_entries(
    groups: NDArray[np.int64],
    keys: NDArray[np.int64],
    amounts: NDArray[np.int64],
    table: NDArray[np.uint16],
    rows: NDArray[np.int64],
    counters: NDArray[Any],
    nowhere: int,
    sign: int,
) -> NDArray[np.int64]:
    """Add sign * amounts; returns which entries have no place."""
    rest = np.empty(keys.size, np.int64)
    found = 0
    for at in range(keys.size):
        place = table[keys[at] >> _BLOCK_BITS]
        row = rows[groups[at]]
        if place == nowhere or row < 0:
            rest[found] = at
            found += 1
            continue
        counter = row + np.int64(place) + (keys[at] & (_BLOCK - 1))
        counters[counter] = counters[counter] + np.uint64(sign * amounts[at])
    return rest[:found]


class CellGrid:
    """Counts of (group, cell) pairs in rows of counters; made for a layout, which stays.

    blocks: int64 [b], which runs of 64 keys have counters, in the order of their cells.
    held: int64 [r], the groups that have a row, in order.
    table: uint16 [blocks of all keys], where in a row a block begins; `nowhere`: it has no place.
    rows: int64 [groups], where a group's row begins; -1: it has none.
    counters: uint32, uint64 once a count could pass 2^32; a spare block behind the last row.
    """

    __slots__ = ("_count_max", "blocks", "counters", "held", "rows", "shift", "table")

    def __init__(
        self, blocks: NDArray[np.int64], held: NDArray[np.int64], groups: int, shift: int
    ) -> None:
        """Make the empty grid of a layout."""
        self.blocks, self.held, self.shift = blocks, held, shift
        width = self.width
        self.table = np.full(_KEYS // _BLOCK + 1, width, np.uint16)
        self.table[blocks] = np.arange(blocks.size) * _BLOCK
        self.rows = np.full(groups, -1, np.int64)
        self.rows[held] = np.arange(held.size) * width
        self.counters: NDArray[Any] = np.zeros(held.size * width + _BLOCK, np.uint32)
        self._count_max = 0

    @property
    def width(self) -> int:
        """Counters in a row; as a place: nowhere."""
        return self.blocks.size * _BLOCK

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self.counters.nbytes + self.table.nbytes + self.rows.nbytes + self.held.nbytes

    def grow(self, groups: int) -> None:
        """Groups up to this many may come; the new ones have no row."""
        if groups > self.rows.size:
            more = max(groups, min(2 * self.rows.size, groups + 65_536)) - self.rows.size
            self.rows = np.append(self.rows, np.full(more, -1, np.int64))

    def expect(self, more: int) -> None:
        """No counter will grow by more than this before the next such call."""
        if self.counters.dtype == np.uint64:
            return
        self._count_max += more
        if self._count_max > _COUNT_MAX:
            self._count_max = self.counters_max + more
        if self._count_max > _COUNT_MAX:
            self.counters = self.counters.astype(np.uint64)

    def tally(
        self,
        ids: NDArray[np.int32],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Count values, in groups and extremes too; returns the rows that have no place here.

        ids: int32 [n]; size 0: all values are of group 0.
        """
        self.expect(values.size)
        bits = values.view(np.uint64)
        if ids.size or self.held.size != 1 or self.held[0] != 0:
            ids = ids if ids.size else np.zeros(values.size, np.int32)
            return _tally_many(
                ids, bits, values, self.table, self.rows, self.counters, self.shift, self.width,
                counts, extremes,
            )  # fmt: skip
        return self._tally_one(bits, values, counts, extremes)

    def _tally_one(
        self,
        bits: NDArray[np.uint64],
        values: NDArray[np.float64],
        counts: NDArray[np.int64],
        extremes: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        rest = _tally_one(bits, self.table, self.counters, self.shift)
        counts[0] += values.size - rest.size
        extremes[0, 0] = np.fmin(extremes[0, 0], np.fmin.reduce(values))  # NaN is left out.
        extremes[0, 1] = np.fmax(extremes[0, 1], np.fmax.reduce(values))
        return rest

    def add(
        self,
        groups: NDArray[np.int64],
        cells: NDArray[np.int64],
        amounts: NDArray[np.int64],
        sign: int = 1,
    ) -> NDArray[np.int64]:
        """Add sign * amounts to (group, cell) pairs; returns which of them have no place here."""
        if sign > 0:
            self.expect(int(amounts.max(initial=0)))
        keys = keys_of_cells(cells, self.shift)
        return _add_entries(
            groups, keys, amounts, self.table, self.rows, self.counters, self.width, sign
        )

    @property
    def counters_max(self) -> int:
        """The largest count."""
        return int(self.counters.max())

    def add_alike(self, other: Self, sign: int) -> bool:
        """Add sign * the other's counts if its layout is this one's; whether it was."""
        alike = (
            self.shift == other.shift
            and np.array_equal(self.blocks, other.blocks)
            and np.array_equal(self.held, other.held)
        )
        if alike and sign > 0:
            self.expect(other.counters_max)
            self.counters += other.counters.astype(self.counters.dtype)
        elif alike:
            self.counters -= other.counters.astype(self.counters.dtype)
        return alike

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Groups, cells and counts of all non-zero counters, by group, then by cell. Shapes [n]."""
        keys = (self.blocks[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        cells = cells_of_keys(keys, self.shift)
        counters = self.counters[:-_BLOCK].reshape(self.held.size, self.width)
        if (np.diff(cells) < 0).any():  # Keys of negative numbers run backwards.
            order = np.argsort(cells)
            cells, counters = cells[order], counters[:, order]
        rows, columns = np.nonzero(counters)
        return self.held[rows], cells[columns], counters[rows, columns].astype(np.int64)

    def regrouped(self, places: NDArray[np.int64], groups: int) -> Self:
        """A grid of the same blocks in which group g is group places[g]; at -1: left out."""
        moved = places[self.held]
        order = np.argsort(moved, kind="stable")
        order = order[moved[order] >= 0]
        made = type(self)(self.blocks, moved[order], groups, self.shift)
        made.expect(self.counters_max)
        rows = self.counters[:-_BLOCK].reshape(self.held.size, self.width)
        made.counters[:-_BLOCK] = rows[order].ravel()
        return made


def layout_of(
    groups: NDArray[np.int64],
    cells: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    shift: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which blocks and which groups are better held as counters than in a hash map.

    Begins with the groups that touch most cells, takes the blocks that are well filled by them or
    hold many of their values, then all groups that fill these blocks well.

    Args:
      groups, cells, counts: all entries; shapes [n], n >= 1.
      shift: of the cells.

    Returns:
      blocks: int64 [b], in the order of their cells; groups: int64 [r], ascending. Maybe none.
    """
    block_of = keys_of_cells(cells, shift) >> _BLOCK_BITS
    plain = _are_plain(block_of, shift)
    touched = np.bincount(groups)
    heavy = touched * 4 >= touched.max()
    seen = plain & heavy[groups]
    filled = np.bincount(block_of[seen], minlength=1)
    weight = np.bincount(block_of[seen], counts[seen], minlength=1)
    rows = int(np.count_nonzero(heavy))
    chosen = filled * _ENTRY_BYTES > _BLOCK_BYTES * rows
    # Blocks that fill badly but hold many values cost memory for speed: at most as much again,
    # or 32 KiB in all, for which a single group can have whatever it touches.
    hot = np.flatnonzero(~chosen & (filled > 0) & ((weight * _HOT >= weight.sum()) | (rows == 1)))
    allowed = max(int(np.count_nonzero(chosen)), 2 * _HOT // rows)
    chosen[hot[np.argsort(-weight[hot], kind="stable")[:allowed]]] = True
    if np.count_nonzero(chosen) > _BLOCKS_MAX:
        chosen[np.argsort(filled)[:-_BLOCKS_MAX]] = False
    blocks = np.flatnonzero(chosen)
    inside = plain & (block_of < chosen.size)
    inside[inside] = chosen[block_of[inside]]
    worth = np.bincount(groups[inside], minlength=1) * _ENTRY_BYTES * 2 > _BLOCK_BYTES * blocks.size
    by_cell = np.argsort(cells_of_keys(blocks << _BLOCK_BITS, shift), kind="stable")
    return blocks[by_cell], np.arange(1) if rows == 1 == touched.size else np.flatnonzero(worth)


def _are_plain(block_of: NDArray[np.int64], shift: int) -> NDArray[np.bool_]:
    """Blocks without infinity, NaN and -0.0, whose keys say too little about the value."""
    infinite = farthest(shift)
    negative = 1 << (63 - shift)
    last, first_negative = infinite >> _BLOCK_BITS, negative >> _BLOCK_BITS
    last_negative = (negative + infinite) >> _BLOCK_BITS
    return (block_of < last) | ((block_of > first_negative) & (block_of < last_negative))
