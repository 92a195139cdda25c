"""Frequencies of keys per group: exact while a group is small, then a fixed table of counters."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.counters import kernels
from synopses.counters.exact_small_groups import Entries, check_entries, less, readable
from synopses.counters.kernels import DEPTH, multipliers
from synopses.kernels.array_inputs import as_column, as_ids, as_input
from synopses.kernels.grouped_arrays import grown, same_kind, scattered
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import CannotMerge, CannotSubtract, CorruptSynopsis
from synopses.model.parameters import COUNTED_MAX, WORD_MAX, as_groups, as_whole
from synopses.model.profile import Statistics
from synopses.model.resizing import Resizable

LG_WIDTH_MIN, LG_WIDTH_MAX = 4, 24
_KEYS_PER_CELL = 4  # 16 bytes a place, at most 3/4 used: no larger than the 8-byte cells.
_ARENA_MIN = 64
_MOSTLY_FREE = 4  # Times what is in use: an arena that is larger once a group has its table.
_GROUP_BYTES = 28
_UNWEIGHTED: NDArray[np.int64] = as_input(np.empty(0, np.int64), np.int64)
_SMALL = np.int32(-1)


def keys_max(lg_width: int) -> int:
    """Return how many different keys a group may have and still be counted exactly."""
    return (DEPTH << lg_width) // _KEYS_PER_CELL


def bytes_of(lg_width: int, statistics: Statistics) -> int:
    """Bytes that one group holds: that of its table, or for few keys about that of their own."""
    while lg_width > LG_WIDTH_MIN and keys_max(lg_width - 1) >= statistics.tuples:
        lg_width -= 1
    return (DEPTH * 8 << lg_width) + _GROUP_BYTES


class GroupedHashedCounters(Resizable):
    """What Count-Min and CountSketch share: state, updating, merging, resizing, bytes.

    dense: int64 [large groups, DEPTH, width]. A group is counted key by key, exactly, until it has
    more than `keys_max` different ones; then it is poured into a table of its own. That is a matter
    of its keys alone, so merged parts equal one pass, byte for byte. Everything is linear.
    """

    __slots__ = (
        "_arena_used", "_counts", "_dense", "_dense_used", "_groups", "_held", "_keys",
        "_multipliers", "_rooms", "_rows", "_starts", "lg_width", "seed",
    )  # fmt: skip
    _kind: ClassVar[Kind]
    _signed: ClassVar[int]

    def __init__(self, groups: int, lg_width: int = 12, seed: int = 0) -> None:
        """Make the counters of so many empty groups.

        Args:
          groups: how many.
          lg_width: log2 of the cells per row, 4 to 24.
          seed: of the rows' hashes, 0 to 2^64 - 1; only summaries of one seed can be merged or
            compared.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        self.lg_width = as_whole("lg_width", lg_width, LG_WIDTH_MIN, LG_WIDTH_MAX)
        self.seed = as_whole("seed", seed, 0, WORD_MAX)
        self._multipliers = multipliers(self.seed)
        self._groups = as_groups(groups)
        room = max(groups, 1)
        self._rows = np.full(room, _SMALL, np.int32)
        self._starts = np.zeros(room, np.int64)
        self._rooms = np.zeros(room, np.int64)
        self._held = np.zeros(room, np.int64)
        self._dense = np.zeros((0, DEPTH, 1 << lg_width), np.int64)
        self._dense_used = 0
        self._keys = np.zeros(_ARENA_MIN, np.uint64)
        self._counts = np.zeros(_ARENA_MIN, np.int64)
        self._arena_used = 0

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._groups

    @property
    def width(self) -> int:
        """Cells per row."""
        return 1 << self.lg_width

    @property
    def size_bytes(self) -> int:
        """Bytes really held: of the arena what is in use, as nothing has touched the rest."""
        axes = self._rows.nbytes + self._starts.nbytes + self._rooms.nbytes + self._held.nbytes
        arena = self._arena_used * (self._keys.itemsize + self._counts.itemsize)
        return self._dense.nbytes + arena + axes

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Return which groups are counted key by key; bool [groups]."""
        return self._rows[: self._groups] < 0

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._rows = grown(self._rows, groups, _SMALL)
            self._starts = grown(self._starts, groups)
            self._rooms = grown(self._rooms, groups)
            self._held = grown(self._held, groups)
            self._groups = groups

    # --- taking keys in ----------------------------------------------------------------------

    @property
    def _bits(self) -> int:
        return self.lg_width + self._signed

    def update(self, ids: NDArray[np.int32] | None, hashes: NDArray[np.uint64]) -> None:
        """Count keys by their hashes.

        Args:
          ids: int32 [n], group of each; None: all are of group 0.
          hashes: uint64 [n], of which every bit must be good (murmur_* in hashing.py, first half).

        Raises:
          BadParameter: an id is not that of a group, or there are not as many as hashes.
        """
        if ids is None and not self._groups:
            self.grow(1)
        words = as_column(hashes, np.uint64)
        if ids is None and self._rows[0] >= 0:
            table = self._dense[self._rows[0]]
            kernels.add_to_one(table, self._multipliers, self.lg_width, self._bits, words)
            return
        self._add(as_ids(ids, words.size, self._groups), words, _UNWEIGHTED)

    def _add(
        self, ids: NDArray[np.int32], words: NDArray[np.uint64], weights: NDArray[np.int64]
    ) -> None:
        at, held_max = 0, keys_max(self.lg_width)
        while True:
            at, self._arena_used = kernels.add_to_many(
                self._dense, self._rows, self._multipliers, self.lg_width, self._bits,
                self._keys, self._counts, self._starts, self._rooms, self._held,
                self._arena_used, held_max, at, ids, words, weights,
            )  # fmt: skip
            if at == words.size:
                return
            group = int(ids[at]) if ids.size else 0
            if self._held[group] >= held_max:
                self._make_dense(np.array([group]))
            else:
                self._widen_arena()

    def _make_dense(self, groups: NDArray[np.int64]) -> None:
        """Give these small groups tables and pour their keys there."""
        first, self._dense_used = self._dense_used, self._dense_used + groups.size
        if self._dense_used > len(self._dense):
            room = self._dense_used + first // 4
            dense = np.zeros((room, DEPTH, self.width), np.int64)
            dense[:first] = self._dense[:first]
            self._dense = dense
        self._rows[groups] = np.arange(first, self._dense_used, dtype=np.int32)
        for group in groups.tolist():
            mine = slice(self._starts[group], self._starts[group] + self._rooms[group])
            kernels.pour(
                self._dense[self._rows[group]], self._multipliers, self.lg_width, self._bits,
                self._keys[mine], self._counts[mine],
            )  # fmt: skip
        self._rooms[groups] = self._held[groups] = 0
        used = int(self._rooms.sum())
        if _MOSTLY_FREE * max(used, _ARENA_MIN) < len(self._keys):
            self._repack(max(2 * used, _ARENA_MIN))

    def _widen_arena(self) -> None:
        """Make a new arena with as much room again as is in use."""
        used = int(self._rooms.sum())
        self._repack(max(2 * used, used + 2 * int(self._rooms.max()), _ARENA_MIN))

    def settle(self) -> None:
        """Nothing more is counted: give back the room for what would come. No answer changes."""
        self._repack(max(int(self._rooms.sum()), 1))
        if self._dense_used < len(self._dense):
            self._dense = self._dense[: self._dense_used].copy()

    def _repack(self, room: int) -> None:
        """Make a new arena without gaps."""
        keys, counts = np.zeros(room, np.uint64), np.zeros(room, np.int64)
        self._arena_used = kernels.repack(
            self._keys, self._counts, self._starts, self._rooms, keys, counts
        )
        self._keys, self._counts = keys, counts

    def merge(self, other: Self) -> Self:
        """Add the other's counts, in place.

        Raises:
          CannotMerge: widths or seeds differ.
        """
        self.check(other)
        self._add_tables(other, 1)
        self._add(*other.entries())
        return self

    def subtract(self, other: Self) -> Self:
        """Take the other's counts out again, in place; they must be in.

        A group that has become large stays so, whatever is left of it. Of large groups, what was
        not in shows only in Count-Min's tables, whose counters are never negative.

        Raises:
          CannotMerge: widths or seeds differ.
          CannotSubtract: a group was not given these keys; nothing is taken out then.
        """
        self.check(other)
        self._check_taken(other)
        groups, keys, counts = other.entries()
        small = self._rows[groups] < 0
        left = less(self.entries(), (groups[small], keys[small], counts[small]))
        self._add_tables(other, -1)
        self._add(*readable(groups[~small], keys[~small], -counts[~small]))
        if small.any():
            self._hold_keys(left)
        return self

    def _check_taken(self, other: Self) -> None:
        """A small group has no large part, and no counter of a Count-Min may become negative."""
        large = ~other.exact
        poor = np.flatnonzero(large & self.exact[: other.groups])
        if poor.size:
            held, taken = self._held[poor[0]], keys_max(self.lg_width) + 1
            raise CannotSubtract(f"number of keys of group {poor[0]}", int(held) - taken)
        large[other.entries()[0]] = True
        for group in np.flatnonzero(large & ~self.exact[: other.groups]).tolist():
            least = int((self.tables(group) - other.tables(group)).min())
            if least < 0 and not self._signed:
                raise CannotSubtract(f"a counter of group {group}", least)

    def check(self, other: Self) -> None:
        """Two that are put together must be alike; room is made for the other's groups.

        Raises:
          CannotMerge: widths or seeds differ.
        """
        same_kind(self, other)
        if self.lg_width != other.lg_width:
            raise CannotMerge("lg_width", self.lg_width, other.lg_width)
        if self.seed != other.seed:
            raise CannotMerge("seed", self.seed, other.seed)
        self.grow(other.groups)

    def _add_tables(self, other: Self, sign: int) -> None:
        theirs = other._rows[: other.groups]
        newly = np.flatnonzero((theirs >= 0) & (self._rows[: other.groups] < 0))
        if newly.size:
            self._make_dense(newly)
        kernels.add_tables(self._dense, self._rows, other._dense, theirs, sign)

    def _hold_keys(self, entries: Entries) -> None:
        """These are the counts of small groups now; places of other keys are free."""
        self._counts[:] = 0
        self._rooms[:] = self._held[:] = self._arena_used = 0
        self._add(*entries)

    def resize(self, lg_width: int, /) -> Self:
        """Fold the tables to this width, in place; groups with too many keys for it get tables.

        Folding gives the very table that had always been so narrow.

        Raises:
          BadParameter: wider than it is, or narrower than 2^4.
        """
        lg_width = as_whole("lg_width", lg_width, LG_WIDTH_MIN, self.lg_width)
        folded = self._dense[: self._dense_used].reshape(
            self._dense_used, DEPTH, 1 << lg_width, 1 << (self.lg_width - lg_width)
        )
        self._dense, self.lg_width = folded.sum(axis=3), lg_width
        large = np.flatnonzero(self._held[: self._groups] > keys_max(lg_width))
        if large.size:
            self._make_dense(large)
        self._repack(int(self._rooms.sum()))
        return self

    # --- what questions read -----------------------------------------------------------------

    def entries(self) -> Entries:
        """Groups, keys and counts of the small groups, by group."""
        size = int(self._held[: self._groups].sum())
        groups, keys = np.empty(size, np.int32), np.empty(size, np.uint64)
        counts = np.empty(size, np.int64)
        axes = self._starts[: self._groups], self._rooms[: self._groups]
        size = kernels.gather(self._keys, self._counts, *axes, groups, keys, counts)
        return readable(groups[:size], keys[:size], counts[:size])

    def tables(self, group: int) -> NDArray[np.int64]:
        """A group's counters, whatever its size; int64 [DEPTH, width]."""
        if self._rows[group] >= 0:
            table: NDArray[np.int64] = self._dense[self._rows[group]]
            return table
        table = np.zeros((DEPTH, self.width), np.int64)
        mine = slice(self._starts[group], self._starts[group] + self._rooms[group])
        kernels.pour(
            table, self._multipliers, self.lg_width, self._bits,
            self._keys[mine], self._counts[mine],
        )  # fmt: skip
        return table

    def cells(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return where keys count in each row, -1 - cell for down; int64 [DEPTH, n]."""
        out = np.empty((DEPTH, hashes.size), np.int64)
        words = as_column(hashes, np.uint64)
        kernels.cells_of(self._multipliers, self.lg_width, self._bits, words, out)
        return out

    # --- groups and bytes --------------------------------------------------------------------

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        return self._moved(self._rows[ids], self._starts[ids], self._rooms[ids], self._held[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        axes = (self._rows, self._starts, self._rooms, self._held)
        rows, *others = (axis[: self._groups] for axis in axes)
        moved = (scattered(axis, ids, groups) for axis in others)
        return self._moved(scattered(rows, ids, groups, _SMALL), *moved)

    def _moved(
        self,
        rows: NDArray[np.int32],
        starts: NDArray[np.int64],
        rooms: NDArray[np.int64],
        held: NDArray[np.int64],
    ) -> Self:
        """Groups with these tables and these stretches of the arena here, in new order."""
        made = type(self)(rows.size, self.lg_width, self.seed)
        dense = np.flatnonzero(rows >= 0)
        made._dense = self._dense[rows[dense]]
        made._dense_used = dense.size
        made._rows[dense] = np.arange(dense.size, dtype=np.int32)
        made._starts[: rows.size], made._rooms[: rows.size] = starts, rooms
        made._held[: rows.size] = held
        made._keys, made._counts = self._keys, self._counts
        made._widen_arena()
        return made

    def _adopt(self, other: GroupedHashedCounters) -> None:
        """Hold the other's small groups, and its large ones' places, in an arena of its own."""
        self._rows, self._starts = other._rows.copy(), other._starts.copy()
        self._rooms, self._held = other._rooms.copy(), other._held.copy()
        self._keys, self._counts = other._keys, other._counts
        self._widen_arena()

    def to_bytes(self) -> bytes:
        """Tables of the large groups, keys and counts of the others; equal state, equal bytes."""
        groups, keys, counts = self.entries()
        order = np.lexsort((keys, groups))
        large = ~self.exact
        body = [
            large,
            self._dense[self._rows[: self._groups][large]],
            groups[order],
            keys[order],
            counts[order],
        ]
        return seal(self._kind, (self._groups, self.lg_width), body, self.seed)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, cls._kind)
        groups, lg_width = body.parameters
        if not LG_WIDTH_MIN <= lg_width <= LG_WIDTH_MAX:
            raise CorruptSynopsis("lg_width", lg_width, f"{LG_WIDTH_MIN} to {LG_WIDTH_MAX}")
        large = np.flatnonzero(body.array(np.uint8, (groups,)))
        dense = body.array(np.int64, (large.size, DEPTH, 1 << lg_width))
        ids = body.array(np.int32)
        keys = body.array(np.uint64, (ids.size,))
        counts = body.array(np.int64, (ids.size,))
        body.end()
        cls._check(dense)
        made = cls(groups, lg_width, body.seed)
        made._dense, made._dense_used = dense, large.size
        made._rows[large] = np.arange(large.size, dtype=np.int32)
        check_entries((ids, keys, counts), small=made.exact, keys_max=keys_max(lg_width))
        made._add(*readable(ids, keys, counts))
        return made

    @classmethod
    def _check(cls, dense: NDArray[np.int64]) -> None:
        """Tables read from bytes: no row may count more than fits.

        Raises:
          CorruptSynopsis: one does.
        """
        most = float(np.abs(dense.astype(np.float64)).sum(axis=2).max(initial=0.0))
        if most >= COUNTED_MAX:
            raise CorruptSynopsis("counters of a row", most, f"< {COUNTED_MAX} together")
