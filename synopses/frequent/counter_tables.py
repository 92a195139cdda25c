"""The counters of frequent_items.py: one small table per group, all of them in one arena."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from synopses.frequent import counter_kernels as kernels
from synopses.frequent.batch_kernels import BATCH_MIN, count_apart, count_known, left_out
from synopses.frequent.entries import Entries, ItemKind, Values, text_bytes
from synopses.kernels.array_inputs import as_ids, as_input
from synopses.kernels.grouped_arrays import grown
from synopses.kernels.string_sizes import strings_bytes

_NONE: NDArray[np.int64] = as_input(np.empty(0, np.int64), np.int64)


class Tables:
    """Counters of values by group, their values beside them, and what purges took of each group.

    A group's table is as large as it needs to be, up to `room_max` places; frequent_kernels says
    how it lies in the arena.
    Shapes: starts, rooms, active, offsets, totals: int64 [groups, or more]; arena: int64 [places,
    CELLS]; born, free, store: by the numbers of values.
    """

    __slots__ = (
        "_active", "_arena", "_born", "_free", "_items", "_offsets", "_room_max", "_rooms",
        "_starts", "_state", "_store", "_text_bytes", "_totals", "groups",
    )  # fmt: skip

    def __init__(self, groups: int, room_max: int, items: ItemKind) -> None:
        """Make the empty tables of so many groups, of up to so many places each."""
        self.groups = groups
        self._room_max = room_max
        self._items = items
        room = max(groups, 1)
        self._starts = np.zeros(room, np.int64)
        self._rooms = np.zeros(room, np.int64)
        self._active = np.zeros(room, np.int64)
        self._offsets = np.zeros(room, np.int64)
        self._totals = np.zeros(room, np.int64)
        self._state = np.zeros(4, np.int64)
        self._arena = np.zeros((0, kernels.CELLS), np.int64)
        self._born = np.full(0, -1, np.int64)
        self._free = np.zeros(0, np.int32)
        self._store = np.zeros(0, items.dtype)
        self._text_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes really held; the mean length of texts is that of up to 64 of them."""
        axes = 5 * self._starts.nbytes
        values = self._born.nbytes + self._free.nbytes + self._store.nbytes
        if self._items is ItemKind.TEXT:
            values += text_bytes(self._store[: int(self._state[kernels.NEXT])])
        return axes + self._arena.nbytes + values

    @property
    def text_bytes_most(self) -> int:
        """Upper bound of the bytes of texts; texts of purged entries may be in it."""
        return self._text_bytes

    @property
    def offsets(self) -> NDArray[np.int64]:
        """What purges took in all, per group; int64 [groups], not a copy."""
        return self._offsets[: self.groups]

    @property
    def totals(self) -> NDArray[np.int64]:
        """Weight of all values per group; int64 [groups], not a copy."""
        return self._totals[: self.groups]

    def room_of(self, group: int) -> int:
        """Places of a group's table, or of the smallest that there is."""
        return max(int(self._rooms[group]), kernels.ROOM_MIN)

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self.groups:
            self._starts = grown(self._starts, groups)
            self._rooms = grown(self._rooms, groups)
            self._active = grown(self._active, groups)
            self._offsets = grown(self._offsets, groups)
            self._totals = grown(self._totals, groups)
            self.groups = groups

    # --- taking values in --------------------------------------------------------------------

    def count(
        self,
        ids: NDArray[np.int32],
        keys: NDArray[np.uint64],
        values: Values,
        weights: NDArray[np.int64],
    ) -> None:
        """Count values; ids of size 0: all of group 0; weights of size 0: all 1."""
        if not ids.size and not weights.size and keys.size >= max(BATCH_MIN, self._room_max):
            self._take_batch(keys, values)
        else:
            self._take(ids, keys, values, weights, _NONE)

    def _take_batch(self, hashes: NDArray[np.uint64], values: Values) -> None:
        """Count many plain values of group 0: what they are is merged in, with one purge."""
        total = int(self._totals[0]) + hashes.size
        table = self._arena, int(self._starts[0]), int(self._rooms[0])
        absent, apart = np.empty(hashes.size + 1, np.int64), np.empty(table[2], np.int64)
        left, others = count_known(*table, hashes, absent, apart)
        absent, apart = absent[:left], apart[:others]
        keys, rows = np.empty(left + 1, np.uint64), np.empty(left + 1, np.int64)
        counts = np.zeros(left + 1, np.int64)
        size = count_apart(self._arena, apart, hashes, absent, keys, counts, rows)
        keys, counts, rows = keys[1 : size + 1], counts[1 : size + 1], rows[1 : size + 1]
        room, purged = self._room_max * 3 // 4, 0
        if int(self._active[0]) + size > room:
            purged = int(left_out(*table, counts, room))
            self._purge(purged)
        stay = np.flatnonzero(counts > purged)
        self._take(
            as_ids(None, stay.size, 1),
            as_input(keys[stay], np.uint64),
            values[rows[stay]],
            as_input(counts[stay] - purged, np.int64),
            as_input(np.full(stay.size, -purged), np.int64),
        )
        self._totals[0] = total

    def _purge(self, amount: int) -> None:
        """Take an amount off all counters of group 0."""
        kernels.take_off(
            self._arena,
            self._starts,
            self._rooms,
            self._active,
            self._offsets,
            self._born,
            self._free,
            self._state,
            amount,
        )

    def _take(
        self,
        groups: NDArray[np.int32],
        hashes: NDArray[np.uint64],
        values: Values,
        amounts: NDArray[np.int64],
        shifts: NDArray[np.int64],
    ) -> None:
        row = 0
        while True:
            row = self._count(row, groups, hashes, amounts, shifts, values)
            if row == hashes.size:
                return
            self._repack()

    def _count(
        self,
        first: int,
        groups: NDArray[np.int32],
        hashes: NDArray[np.uint64],
        amounts: NDArray[np.int64],
        shifts: NDArray[np.int64],
        values: Values,
    ) -> int:
        fresh = np.empty(hashes.size - first, np.int32)
        self._state[kernels.FRESH] = 0
        row = kernels.count_keys(
            self._arena,
            self._starts,
            self._rooms,
            self._active,
            self._offsets,
            self._totals,
            self._born,
            self._free,
            self._state,
            self._room_max,
            first,
            groups,
            hashes,
            amounts,
            shifts,
            fresh,
        )
        inserted = int(self._state[kernels.FRESH])
        if inserted:
            rows = np.empty(inserted, np.int64)
            kept = kernels.survivors(self._born, fresh[:inserted], rows)
            found = values[rows[:kept]]
            self._store[fresh[:kept]] = found
            if self._items is ItemKind.TEXT:
                self._text_bytes += int(strings_bytes(found).sum())
        return int(row)

    def _repack(self) -> None:
        """Give the arena more room, without the gaps that tables left when they moved."""
        rooms = self._rooms[: self.groups]
        held = int(rooms.sum())
        wider = min(max(2 * int(rooms.max(initial=0)), kernels.ROOM_MIN), self._room_max)
        capacity = held + max(held // 4, wider)
        arena = np.zeros((capacity, kernels.CELLS), np.int64)
        kernels.repack(self._arena, self._starts, rooms, arena)
        self._hold(arena, used=held)

    def _hold(self, arena: NDArray[np.int64], *, used: int) -> None:
        """Keep the tables here, and have numbers and values for all that fit in."""
        self._arena = arena
        self._state[kernels.ARENA_USED] = used
        capacity = len(arena)
        numbers = capacity * 3 // 4 + 8
        self._born = grown(self._born, numbers, -1)
        self._free = grown(self._free, numbers)
        self._store = grown(self._store, numbers, None if self._items is ItemKind.TEXT else 0)

    # --- of other tables ---------------------------------------------------------------------

    def take_over(self, other: Self) -> None:
        """Be what the other is; there is nothing in here, and room for its groups."""
        groups, rooms = other.groups, other._rooms[: other.groups]
        for mine, theirs in (
            (self._starts, other._starts),
            (self._rooms, other._rooms),
            (self._active, other._active),
            (self._offsets, other._offsets),
            (self._totals, other._totals),
        ):
            mine[:groups] = theirs[:groups]
        self._state = other._state.copy()
        self._born, self._free = other._born.copy(), other._free.copy()
        self._store = other._store.copy()
        self._text_bytes = other._text_bytes
        arena = np.empty((int(rooms.sum()), kernels.CELLS), np.int64)
        used = kernels.repack(other._arena, self._starts, rooms, arena)
        self._hold(arena, used=used)

    def add(self, other: Self) -> None:
        """Count what the other has; there is room for its groups. What purges took adds up."""
        theirs, errors = other.entries(), other.offsets
        totals = self._totals.copy()
        totals[: other.groups] += other.totals
        kernels.came_late(self._arena, self._starts, self._rooms, as_input(errors, np.int64))
        self._offsets[: other.groups] += errors
        self._take_entries(theirs, theirs.lates - errors[theirs.groups])
        self._totals = totals

    def _take_entries(self, entries: Entries, shifts: NDArray[np.int64]) -> None:
        self._take(
            as_input(entries.groups, np.int32),
            as_input(entries.keys, np.uint64),
            entries.values,
            as_input(entries.counts, np.int64),
            as_input(shifts, np.int64),
        )

    def entries(self, ids: NDArray[np.int64] | None = None) -> Entries:
        """All entries, by group, then in an order that depends on their keys alone.

        ids: only of these groups, by their places among them.
        """
        which = slice(self.groups) if ids is None else ids
        size = int(self._active[which].sum())
        groups, entries = np.empty(size, np.int64), np.empty((size, kernels.CELLS), np.int64)
        kernels.gather(self._arena, self._starts[which], self._rooms[which], groups, entries)
        keys, counts, lates, refs = entries.T
        return Entries(groups, keys.view(np.uint64), counts, lates, self._store[refs])

    def fill(self, entries: Entries, offsets: NDArray[np.int64], totals: NDArray[np.int64]) -> None:
        """Have these entries, offsets and totals; there is nothing in here."""
        self._make_room(np.bincount(entries.groups, minlength=self.groups))
        self._offsets[: self.groups] = offsets
        self._take_entries(entries, entries.lates - offsets[entries.groups])
        self._totals[: self.groups] = totals

    def _make_room(self, sizes: NDArray[np.int64]) -> None:
        """Give the groups of these empty tables room for so many entries, side by side."""
        least = np.maximum(-(-sizes * 4 // 3), kernels.ROOM_MIN)
        _, powers = np.frexp(least - 1.0)  # 2^power is the smallest power of two that is enough.
        rooms = np.where(sizes > 0, np.minimum(1 << powers.astype(np.int64), self._room_max), 0)
        self._rooms[: self.groups] = rooms
        self._starts[: self.groups] = np.cumsum(rooms) - rooms
        used = int(rooms.sum())
        self._hold(np.zeros((used, kernels.CELLS), np.int64), used=used)
