"""Counts of the keys of one pane and side of a join, in bounded bytes.

Keys that were heavy in the pane before are counted exactly. Of the others, those are counted whose
hash is below a level. One row of bucket sums counts all rows of the others, and is never thinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from synopses.joins.pane_kernels import (
    CHANCE,
    FREE,
    LEVEL,
    REGISTERS,
    SIZE,
    Longs,
    Words,
    count_rows,
    put,
    sampled,
)
from synopses.kernels.array_inputs import as_input
from synopses.model.errors import BadParameter

_ROOM_MIN = 64  # Places of a table.
_KEYS_MIN = 64
_HEAVY_MIN = 16
_BUCKETS_MIN = 256
# Share of a pane's bytes, and bytes of each key or bucket.
_HEAVY, _SAMPLED, _BUCKETS = (0.25, 16), (0.4, 16), (0.35, 4)
_CELLS = 4  # Majority votes for each heavy key; a key may lose the vote of its cell.
_OPEN_PANES = 6  # Two panes that are open have tables with room, cells and registers.
PANE_BYTES_MIN = 1 << 13
NO_KEYS = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class PaneRoom:
    """Sizes of a pane.

    heavy: keys that are counted exactly. keys: sampled keys that are aimed at.
    buckets: sums of rows, below 2^32.
    """

    heavy: int
    keys: int
    buckets: int

    @classmethod
    def within(cls, size_bytes: int, panes: int) -> PaneRoom:
        """The sizes with which so many panes need at most so many bytes.

        Fewer sampled keys and more heavy ones would widen intervals of uniform keys more than they
        narrow those of skewed keys (benchmarks/join_sizes/speed.py).

        Args:
          size_bytes: of all panes that are held at a time, of both sides. panes: their number.

        Raises:
          BadParameter: a pane would have fewer than PANE_BYTES_MIN.
        """
        least = cls.bytes_min(panes)
        if size_bytes < least:
            raise BadParameter("size_bytes", size_bytes, f"{least:,} or more for {panes:,} panes")
        pane_bytes = size_bytes // (panes + _OPEN_PANES)
        heavy, keys, buckets = (
            int(share * pane_bytes) // each for share, each in (_HEAVY, _SAMPLED, _BUCKETS)
        )
        return cls(max(heavy, _HEAVY_MIN), max(keys, _KEYS_MIN), max(buckets, _BUCKETS_MIN))

    @staticmethod
    def bytes_min(panes: int) -> int:
        """Return the least bytes that so many panes of both sides need."""
        return PANE_BYTES_MIN * (panes + _OPEN_PANES)


@dataclass(frozen=True, slots=True, eq=False)
class ClosedPane:
    """Counts of a pane that gets no more rows.

    heavy_keys, heavy_counts: of the keys that were counted exactly; keys ascend.
    keys, counts: of the sampled keys; keys ascend.
    sums: rows per bucket, without those of heavy keys.
    level: keys are sampled at 2^-level.
    """

    heavy_keys: Words
    heavy_counts: Longs
    keys: Words
    counts: Longs
    sums: NDArray[np.uint32] | Longs
    level: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.heavy_keys, self.heavy_counts, self.keys, self.counts, self.sums)
        return sum(each.nbytes for each in arrays)


@dataclass(slots=True, eq=False)
class PaneCounts:
    """Counts of a pane that gets rows. They depend on the rows and their order alone.

    sizes: of the pane.
    secrets: uint64 [2], of the sample and of the buckets; one pair for all panes of both sides.
    heavy: keys to count exactly, ascending; chosen before the pane's first row.
    The level rises with the estimated number of distinct keys, which does not depend on the sample.
    """

    sizes: PaneRoom
    secrets: Words
    heavy: Words
    _heavy_table: tuple[Words, Longs] = field(init=False)
    _table: tuple[Words, Longs] = field(init=False)
    _cells: tuple[Words, Longs] = field(init=False)
    _sums: Longs = field(init=False)
    _registers: NDArray[np.uint8] = field(init=False)
    _estimate: NDArray[np.float64] = field(init=False)
    _state: Longs = field(init=False)

    def __post_init__(self) -> None:
        self._heavy_table = _table_of(self.heavy, np.zeros(len(self.heavy), np.int64))
        self._table = _table_of(NO_KEYS, np.empty(0, np.int64))
        cells = _CELLS * self.sizes.heavy
        self._cells = np.zeros(cells, np.uint64), np.zeros(cells, np.int64)
        self._sums = np.zeros(self.sizes.buckets, np.int64)
        self._registers = np.zeros(REGISTERS, np.uint8)
        self._estimate = np.zeros(2)
        self._estimate[CHANCE] = REGISTERS
        self._state = np.zeros(2, np.int64)

    @property
    def level(self) -> int:
        """Keys are sampled at 2^-level."""
        return int(self._state[LEVEL])

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        tables = (*self._heavy_table, *self._table, *self._cells)
        return sum(each.nbytes for each in tables) + self._sums.nbytes + self._registers.nbytes

    def update(self, hashes: Words) -> None:
        """Count rows. hashes: uint64 [rows], of their keys; equal hashes are equal keys."""
        hashes = as_input(hashes, np.uint64)
        done = 0
        while done < len(hashes):
            done = count_rows(
                hashes,
                done,
                self.secrets,
                *self._heavy_table,
                *self._table,
                *self._cells,
                self._sums,
                self._registers,
                self._estimate,
                self._state,
                float(self.sizes.keys),
            )
            if done < len(hashes) or 4 * self._state[SIZE] > 3 * len(self._table[0]):
                self._thin()

    def closed(self) -> ClosedPane:
        """Return the counts of all rows."""
        self._thin()
        keys, counts = _entries(self._table)
        heavy_keys, heavy_counts = _entries(self._heavy_table)
        sums: NDArray[np.uint32] | Longs = self._sums
        if sums.max() <= np.iinfo(np.uint32).max:
            sums = sums.astype(np.uint32)
        return ClosedPane(heavy_keys, heavy_counts, keys, counts, sums, self.level)

    def heaviest(self) -> Words:
        """Return keys for `heavy_keys` of the next pane by a summary of every row.

        Those with the most votes come first.
        """
        keys, votes = self._cells
        most = np.argsort(-votes, kind="stable")[: self.sizes.heavy]
        return keys[most[votes[most] > 1]]

    def _thin(self) -> None:
        """Make the table of sampled keys anew, with those of the present level."""
        keys, counts = _entries(self._table)
        kept = sampled(keys, self.secrets[0], self._state[LEVEL])
        self._table = _table_of(keys[kept], counts[kept])
        self._state[SIZE] = np.count_nonzero(kept)


def heavy_keys(heaviest: Sequence[Words], keys_max: int) -> Words:
    """Return the first different keys of some lists, which are read in turn; the keys ascend."""
    ranks = np.concatenate([np.arange(len(each)) for each in (NO_KEYS, *heaviest)])
    keys = np.concatenate([NO_KEYS, *heaviest])[np.argsort(ranks, kind="stable")]
    found, first = np.unique(keys, return_index=True)
    return np.sort(found[np.argsort(first)][:keys_max])


def _table_of(keys: Words, counts: Longs) -> tuple[Words, Longs]:
    """Return a table that is less than three quarters full."""
    room = max(_ROOM_MIN, 1 << (4 * len(keys) // 3).bit_length())
    table = np.zeros(room, np.uint64), np.full(room, FREE)
    put(*table, keys, counts)
    return table


def _entries(table: tuple[Words, Longs]) -> tuple[Words, Longs]:
    """Return the keys of a table, ascending, and their counts."""
    keys, counts = table
    places = np.flatnonzero(counts >= 0)
    places = places[np.argsort(keys[places])]
    return keys[places], counts[places]
