"""Counts of the keys of one pane and side of a join, in bounded bytes.

Keys that were heavy in the pane before are counted exactly. Of the others, those are counted whose
hash is below a level. One row of bucket sums counts all rows of the others, and is never thinned.
Beside each count stand sums of the values of expressions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synopses.joins.closed_panes import (
    NO_CENTRES,
    NO_KEYS,
    ClosedPane,
    KeySums,
    fewer_buckets,
    folded,
    narrowest,
    rounded_up,
)
from synopses.joins.key_merges import places_among, united
from synopses.joins.key_tables import (
    FREE,
    Floats,
    Longs,
    Words,
    held,
    move_sampled,
    ordered,
    put,
    sampled_number,
)
from synopses.joins.pane_kernels import (
    CENTRE,
    CHANCE,
    DISTINCT,
    LEVEL,
    NUMBER,
    PARTS,
    REGISTERS,
    SIZE,
    SUM,
    TOTALS,
    VALUE_BUCKET,
    count_keys,
    count_rows,
    vote_again,
)
from synopses.kernels.array_inputs import as_input
from synopses.model.errors import BadParameter

_ROOM_MIN = 64  # Places of a table.
_KEYS_MIN = 64
_HEAVY_MIN = 16
_BUCKETS_MIN = 256
_FOLDS_MIN = 64  # A number of buckets is at least this, and below twice this, times 2^i, i >= 2.
# Share of a pane's bytes, and bytes of each key or bucket without and with an expression.
_HEAVY, _SAMPLED, _BUCKETS = (0.25, 16, 40), (0.4, 16, 40), (0.35, 4, 6)
_SHORT_MAX = (1 << 16) - 1
_CELLS = 4  # Majority votes for each heavy key; a key may lose the vote of its cell.
_OPEN_PANES = 6  # Two panes that are open have tables with room, cells and registers.
PANE_BYTES_MIN = 1 << 13  # Without expressions; each needs 1.5 times as much more.
_Table = tuple[Words, Longs, Floats]


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
    def within(cls, size_bytes: int, panes: int, expressions: float = 0.0) -> PaneRoom:
        """The sizes with which so many panes need at most so many bytes.

        Fewer sampled keys and more heavy ones would widen intervals of uniform keys more than they
        narrow those of skewed keys (benchmarks/join_sizes/speed.py).

        Args:
          size_bytes: of all panes that are held at a time, of all sides. panes: their number.
          expressions: whose values are summed, on average over the panes.

        Raises:
          BadParameter: a pane would have fewer than PANE_BYTES_MIN.
        """
        least = cls.bytes_min(panes, expressions)
        if size_bytes < least:
            raise BadParameter("size_bytes", size_bytes, f"{least:,} or more for {panes:,} panes")
        pane_bytes = size_bytes // (panes + _OPEN_PANES)
        heavy, keys, buckets = (
            int(share * pane_bytes / (bare + expressions * (valued - bare)))
            for share, bare, valued in (_HEAVY, _SAMPLED, _BUCKETS)
        )
        buckets = max(buckets, _BUCKETS_MIN)
        folds = buckets.bit_length() - _FOLDS_MIN.bit_length()
        return cls(max(heavy, _HEAVY_MIN), max(keys, _KEYS_MIN), buckets >> folds << folds)

    def resized(self, to: PaneRoom) -> PaneRoom:
        """Return other sizes, with buckets that are those of these sizes together or divided."""
        buckets = fewer_buckets(self.buckets, to.buckets)
        while 2 * buckets <= to.buckets:
            buckets *= 2
        return PaneRoom(to.heavy, to.keys, buckets)

    @staticmethod
    def bytes_min(panes: int, expressions: float = 0.0) -> int:
        """Return the least bytes that so many panes of all sides need."""
        return math.ceil(PANE_BYTES_MIN * (1.0 + 1.5 * expressions)) * (panes + _OPEN_PANES)


@dataclass(slots=True, eq=False)
class PaneCounts:
    """Counts of a pane that gets rows. They depend on the rows and their order alone.

    sizes: of the pane.
    secrets: uint64 [2], of the sample and of the buckets; one pair for all panes of all sides.
    heavy: keys to count exactly, ascending; chosen before the pane's first row.
    centres: float64 [expressions], constants near the values of each expression of a row, whole for
      whole numbers; chosen before the first row. The nearer they are, the narrower are averages.
    The level rises with the estimated number of distinct keys, which does not depend on the sample.
    """

    sizes: PaneRoom
    secrets: Words
    heavy: Words
    centres: Floats = field(default_factory=lambda: NO_CENTRES)
    _heavy_table: _Table = field(init=False)
    _table: _Table = field(init=False)
    _cells: tuple[Words, Longs] = field(init=False)
    _sums: Longs = field(init=False)
    _value_sums: Floats = field(init=False)
    _ends: Floats = field(init=False)
    _totals: Floats = field(init=False)
    _registers: NDArray[np.uint8] = field(init=False)
    _estimate: Floats = field(init=False)
    _state: Longs = field(init=False)

    def __post_init__(self) -> None:
        width = PARTS * self.expressions
        none = np.empty((0, width))
        zeros = np.zeros(len(self.heavy), np.int64)
        self._heavy_table = _table_of(KeySums(self.heavy, zeros, np.zeros((len(zeros), width))))
        self._table = _table_of(KeySums(NO_KEYS, np.empty(0, np.int64), none))
        cells = _CELLS * self.sizes.heavy
        self._cells = np.zeros(cells, np.uint64), np.zeros(cells, np.int64)
        self._sums = np.zeros(self.sizes.buckets, np.int64)
        assert not self.sizes.buckets % VALUE_BUCKET
        buckets = self.sizes.buckets // VALUE_BUCKET
        self._value_sums = np.zeros((buckets, 2 * self.expressions))
        self._totals = np.zeros((TOTALS, self.expressions))
        self._totals[CENTRE] = self.centres
        self._ends = np.full((2, self.expressions), [[np.inf], [-np.inf]])
        self._registers = np.zeros(REGISTERS, np.uint8)
        self._estimate = np.zeros(2)
        self._estimate[CHANCE] = REGISTERS
        self._state = np.zeros(2, np.int64)

    @property
    def expressions(self) -> int:
        """Number of values of a row."""
        return len(self.centres)

    @property
    def level(self) -> int:
        """Keys are sampled at 2^-level."""
        return int(self._state[LEVEL])

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (*self._heavy_table, *self._table, *self._cells, self._sums, self._value_sums)
        return sum(each.nbytes for each in arrays) + self._registers.nbytes

    def update(self, hashes: Words, values: Floats | None = None) -> None:
        """Count rows.

        Args:
          hashes: uint64 [rows], of their keys; equal hashes are equal keys.
          values: float64 [rows, expressions], NaN for NULL; None: there are no expressions.
        """
        hashes = as_input(hashes, np.uint64)
        if values is None:
            values = np.empty((len(hashes), 0))
        values = np.ascontiguousarray(values, np.float64)
        assert values.shape == (len(hashes), self.expressions)
        if self.expressions and len(values):
            self._ends[0] = np.fmin(self._ends[0], np.fmin.reduce(values, axis=0))
            self._ends[1] = np.fmax(self._ends[1], np.fmax.reduce(values, axis=0))
        done = 0
        while done < len(hashes):
            done = count_rows(
                hashes,
                values,
                done,
                self.secrets,
                *self._heavy_table,
                *self._table,
                *self._cells,
                self._sums,
                self._value_sums,
                self._totals,
                self._registers,
                self._estimate,
                self._state,
                float(self.sizes.keys),
            )
            if done < len(hashes) or 4 * self._state[SIZE] > 3 * len(self._table[0]):
                self._thin()

    def holds(self, hashes: Words) -> NDArray[np.bool_]:
        """Return which keys are heavy, or are sampled at the present level."""
        heavy, counts, _ = self._heavy_table
        return held(hashes, heavy, counts, self.secrets[0], self.level)

    def closed(self) -> ClosedPane:
        """Return the counts of all rows."""
        heavy = self._entries(self._heavy_table, 0)
        if len(heavy.keys) == len(self.heavy):  # The same array as of the other sides.
            heavy = replace(heavy, keys=self.heavy)
        return ClosedPane(
            heavy,
            self._entries(self._table, self.level),
            narrowest(self._sums),
            rounded_up(self._value_sums.T),
            self._ends.copy(),
            self.centres,
            self.level,
            float(self._estimate[DISTINCT]),
        )

    def shrink(self, sizes: PaneRoom) -> None:
        """Go on in fewer bytes; sizes above the present ones change nothing.

        As of `ClosedPane.shrunk`, the choices do not depend on the sample.
        """
        before = self.sizes
        self.sizes = PaneRoom(
            min(sizes.heavy, before.heavy),
            min(sizes.keys, before.keys),
            fewer_buckets(before.buckets, sizes.buckets),
        )
        kept, light = self._entries(self._heavy_table, 0).split(self.sizes.heavy)
        self._heavy_table = _table_of(kept)
        light.add_to_buckets(self.secrets[1], self._sums, self._value_sums)
        self._table = _table_of(self._entries(self._table, 0).merged(light))
        self._sums = folded(self._sums, self.sizes.buckets)
        fewer = folded(self._value_sums.T, self.sizes.buckets // VALUE_BUCKET)
        self._value_sums = np.ascontiguousarray(fewer.T)
        count_keys(light.keys, self.secrets[1], self._registers, self._estimate)
        while self._estimate[DISTINCT] * 2.0 ** -float(self.level) > self.sizes.keys:
            self._state[LEVEL] += 1
        self._thin()
        if self.sizes.heavy < before.heavy:
            keys, votes = self._cells
            cells = _CELLS * self.sizes.heavy
            self._cells = np.zeros(cells, np.uint64), np.zeros(cells, np.int64)
            vote_again(keys, votes, self.secrets[1], *self._cells)

    def heaviest(self) -> Words:
        """Return keys for `heavy_keys` of the next pane by a summary of every row.

        Those with the most votes come first.
        """
        keys, votes = self._cells
        strong = np.flatnonzero(votes > 1)
        most = np.argsort(_falling(votes[strong]), kind="stable")[: self.sizes.heavy]
        return keys[strong[most]]

    def averages(self) -> Floats:
        """Return averages of the values of all rows, for `centres` of the next pane; or 0."""
        with np.errstate(over="ignore", invalid="ignore"):
            means = self._totals[SUM] / np.maximum(self._totals[NUMBER], 1.0)
        return np.where(np.isfinite(means), means, 0.0)

    def _thin(self) -> None:
        """Make the table of sampled keys anew, with those of the present level."""
        keys, counts, values = self._table
        secret, level = self.secrets[0], self.level
        number = sampled_number(keys, counts, secret, level)
        table = _empty_table(number, values.shape[1])
        move_sampled(keys, counts, values, secret, level, *table)
        self._table = table
        self._state[SIZE] = number

    def _entries(self, table: _Table, level: int) -> KeySums:
        """Return the keys of a table that are sampled at a level, ascending, with their sums."""
        keys, counts, values = table
        places = ordered(keys, counts, self.secrets[0], level)
        return KeySums(keys[places], counts[places], values[places])


def heavy_keys(heaviest: Sequence[Words], keys_max: int) -> Words:
    """Return the first different keys of some lists, which are read in turn; the keys ascend."""
    orders = [np.argsort(each) for each in heaviest]
    lists = [each[order] for each, order in zip(heaviest, orders, strict=True)]
    every = united(lists)
    if len(every) <= keys_max:
        return every
    turns = np.full(len(every), np.iinfo(np.int64).max)
    for number, (each, order) in enumerate(zip(lists, orders, strict=True)):
        at = places_among(each, every)
        turns[at] = np.minimum(turns[at], order * len(lists) + number)
    return every[np.sort(np.argpartition(turns, keys_max)[:keys_max])]


def _falling(votes: Longs) -> NDArray[np.integer[Any]]:
    """Return numbers that ascend where votes fall; numpy sorts short ones by radix."""
    most = int(votes.max(initial=0))
    return most - votes if most > _SHORT_MAX else (most - votes).astype(np.uint16)


def _empty_table(entries: int, columns: int) -> _Table:
    """Return a table that so many entries fill to less than three quarters."""
    room = max(_ROOM_MIN, 1 << (4 * entries // 3).bit_length())
    return np.zeros(room, np.uint64), np.full(room, FREE), np.zeros((room, columns))


def _table_of(entries: KeySums) -> _Table:
    table = _empty_table(len(entries.keys), entries.values.shape[1])
    put(*table, entries.keys, entries.counts, entries.values)
    return table
