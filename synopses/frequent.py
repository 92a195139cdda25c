"""Which values are the most frequent in each group, and how often they occur, for certain."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses import frequent_kernels as kernels
from synopses.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.estimate import Estimates, TopItem
from synopses.frequent_batches import BATCH_MIN, count_apart, count_known, left_out
from synopses.frequent_entries import (
    Entries,
    ItemKind,
    Values,
    image_of,
    most_frequent,
    read_entries,
    read_image,
    text_bytes,
)
from synopses.frequent_lists import Counted, frequent_lists, top_lists
from synopses.frequent_profile import ENTRIES_MAX, ENTRIES_MIN, FREQUENT
from synopses.grouped import apart_from, grown, same_kind, scattered
from synopses.header import Kind, parameters_of_bytes, seal, unseal
from synopses.inputs import as_column, as_ids, as_input, same_rows
from synopses.parameters import INT64_MAX, as_groups, as_whole
from synopses.resizing import Resizable
from synopses.threshold import Promise, check_share

_PARAMETERS = struct.Struct("<qqB")
_WEIGHT_MAX = 2.0**63
_NONE: NDArray[np.int64] = as_input(np.empty(0, np.int64), np.int64)


class GroupedFrequent(Resizable):
    """Most frequent values per group with certain bounds (Misra-Gries, as in DataSketches).

    A group has counters for at most 3/4 of `entries` values. When they run out, the median counter
    is taken off all of them and those left with nothing are dropped; `error` adds these medians
    up. A value without counter occurs at most `error` times, and error <= 8/3 * total / entries:
    each purge takes its median from at least half of 3/4 * entries counters. A large batch of one
    group is counted first and merged in with one purge, which takes from more than 3/4 * entries.
    A value with a counter was seen exactly `low` times since it got it, and before that at most as
    often as `error` was then; so values that were frequent from the start are counted exactly.
    Merging keeps all this.
    Source: Anderson et al. 2017, "A high-performance algorithm for identifying frequent items in
    data streams", IMC 2017, with the exact median. Keys are 64-bit hashes: two values with one
    hash would be counted as one.
    """

    profile: ClassVar = FREQUENT
    __slots__ = (
        "_active", "_arena", "_born", "_free", "_groups", "_offsets", "_rooms", "_starts", "_state",
        "_store", "_totals", "entries", "items",
    )  # fmt: skip

    def __init__(self, groups: int, entries: int, items: ItemKind = ItemKind.INTEGER) -> None:
        """Make the counters of so many empty groups.

        Args:
          groups: how many.
          entries: size of a group's table, a power of two, 8 to 2^20.
          items: what the counted values are.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        powers = "a power of two, 8 to 2^20"
        self.entries = as_whole("entries", entries, ENTRIES_MIN, ENTRIES_MAX, expected=powers)
        if entries & (entries - 1):
            raise BadParameter("entries", entries, powers)
        if not isinstance(items, ItemKind):
            raise BadParameter("items", items, "INTEGER, DOUBLE or TEXT of ItemKind")
        self.items = items
        self._groups = as_groups(groups)
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

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held; the mean length of texts is that of up to 64 of them."""
        axes = 5 * self._starts.nbytes
        values = self._born.nbytes + self._free.nbytes + self._store.nbytes
        if self.items is ItemKind.TEXT:
            values += text_bytes(self._store[: int(self._state[kernels.NEXT])])
        return axes + self._arena.nbytes + values

    @property
    def error(self) -> NDArray[np.int64]:
        """By how much a count may be too low, per group; int64 [groups]."""
        return self._offsets[: self._groups].copy()

    @property
    def totals(self) -> NDArray[np.int64]:
        """Weight of all values per group; int64 [groups]."""
        return self._totals[: self._groups].copy()

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._starts = grown(self._starts, groups)
            self._rooms = grown(self._rooms, groups)
            self._active = grown(self._active, groups)
            self._offsets = grown(self._offsets, groups)
            self._totals = grown(self._totals, groups)
            self._groups = groups

    # --- taking values in --------------------------------------------------------------------

    def update(
        self,
        ids: NDArray[np.int32] | None,
        keys: NDArray[np.uint64],
        values: Values,
        weights: NDArray[np.int64] | None = None,
    ) -> None:
        """Count values.

        Args:
          ids: int32 [n], group of each value; None: all are of group 0.
          keys: uint64 [n], hashes of the values.
          values: the values; only values[rows] is called, for the rows whose value gets a counter
            (a numpy array of `items.dtype`, or a wrapper that decodes these rows only).
          weights: int64 [n], how often each occurs (<= 0 is skipped); None: once.

        Raises:
          BadParameter: an id is not that of a group, the columns differ in length, or the weights
            add up to more than int64 holds.
        """
        if ids is None and not self._groups:
            self.grow(1)
        amounts = _NONE if weights is None else as_column(weights, np.int64)
        words = as_column(keys, np.uint64)
        groups = as_ids(ids, words.size, self._groups)
        if weights is not None:
            same_rows(words.size, weights=amounts)
            self._check_weights(amounts)
        if ids is None and weights is None and words.size >= max(BATCH_MIN, self.entries):
            self._take_batch(words, values)
        else:
            self._take(groups, words, values, amounts, _NONE)

    def _take_batch(self, news: NDArray[np.uint64], values: Values) -> None:
        """Count many plain values of group 0: what they are is merged in, with one purge."""
        total = int(self._totals[0]) + news.size
        table = self._arena, int(self._starts[0]), int(self._rooms[0])
        absent, apart = np.empty(news.size + 1, np.int64), np.empty(table[2], np.int64)
        left, others = count_known(*table, news, absent, apart)
        absent, apart = absent[:left], apart[:others]
        keys, counts, rows = np.empty(left, np.uint64), np.empty_like(absent), np.empty_like(absent)
        size = count_apart(self._arena, apart, news, absent, keys, counts, rows)
        room, purged = self.entries * 3 // 4, 0
        if int(self._active[0]) + size > room:
            purged = int(left_out(*table, counts[:size], room))
            self._purge(purged)
        stay = np.flatnonzero(counts[:size] > purged)
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

    def _check_weights(self, weights: NDArray[np.int64]) -> None:
        """What they and all that was counted weigh must be an int64, in whatever group."""
        weight = float(np.maximum(weights, 0).sum(dtype=np.float64))
        total = weight + float(self._totals.max(initial=0))
        if total >= _WEIGHT_MAX:
            raise BadParameter("total of the weights", total, f"< {_WEIGHT_MAX:.3g}")

    def _take(
        self,
        groups: NDArray[np.int32],
        news: NDArray[np.uint64],
        values: Values,
        amounts: NDArray[np.int64],
        shifts: NDArray[np.int64],
    ) -> None:
        row = 0
        while True:
            row = self._count(row, groups, news, amounts, shifts, values)
            if row == news.size:
                return
            self._repack()

    def _count(
        self,
        first: int,
        groups: NDArray[np.int32],
        news: NDArray[np.uint64],
        amounts: NDArray[np.int64],
        shifts: NDArray[np.int64],
        values: Values,
    ) -> int:
        fresh = np.empty(news.size - first, np.int32)
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
            self.entries,
            first,
            groups,
            news,
            amounts,
            shifts,
            fresh,
        )
        inserted = int(self._state[kernels.FRESH])
        if inserted:
            rows = np.empty(inserted, np.int64)
            kept = kernels.survivors(self._born, fresh[:inserted], rows)
            self._store[fresh[:kept]] = values[rows[:kept]]
        return int(row)

    def _repack(self) -> None:
        """Give the arena more room, without the gaps that tables left when they moved."""
        rooms = self._rooms[: self._groups]
        held = int(rooms.sum())
        wider = min(max(2 * int(rooms.max(initial=0)), kernels.ROOM_MIN), self.entries)
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
        self._store = grown(self._store, numbers, None if self.items is ItemKind.TEXT else 0)

    def merge(self, other: Self) -> Self:
        """Add the other's counters, in place; errors add up.

        Raises:
          CannotMerge: table sizes or kinds of values differ.
          BadParameter: a total would be more than int64 holds.
        """
        same_kind(self, other)
        if self.entries != other.entries:
            raise CannotMerge("entries", self.entries, other.entries)
        if self.items != other.items:
            raise CannotMerge("items", self.items.name, other.items.name)
        other = apart_from(self, other)
        if not other.groups:
            return self
        self._check_weights(other.totals.max(initial=0, keepdims=True))
        self.grow(other.groups)
        if not self._totals.any():  # There is nothing: a copy will do.
            self._take_over(other)
            return self
        theirs = other._entries()
        totals = self._totals.copy()
        totals[: other.groups] += other.totals
        kernels.came_late(self._arena, self._starts, self._rooms, as_input(other.error, np.int64))
        self._offsets[: other.groups] += other.error
        self._take_entries(theirs, theirs.lates - other.error[theirs.groups])
        self._totals = totals
        return self

    def _take_over(self, other: Self) -> None:
        """Be what the other is; there is nothing in here, and room for its groups."""
        groups, rooms = other._groups, other._rooms[: other._groups]
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
        arena = np.empty((int(rooms.sum()), kernels.CELLS), np.int64)
        used = kernels.repack(other._arena, self._starts, rooms, arena)
        self._hold(arena, used=used)

    def _take_entries(self, entries: Entries, shifts: NDArray[np.int64]) -> None:
        self._take(
            as_input(entries.groups, np.int32),
            as_input(entries.keys, np.uint64),
            entries.values,
            as_input(entries.counts, np.int64),
            as_input(shifts, np.int64),
        )

    def resize(self, entries: int, /) -> Self:
        """Keep tables of this size from now on, in place, with the most frequent values.

        `error` grows by the largest count that finds no room, and by no more: a list of the most
        frequent of a stretch (Golab et al. 2003), where purging on the way would have cost more.

        Raises:
          BadParameter: no power of two, 8 to 2^20.
        """
        smaller = type(self)(self._groups, entries, self.items)
        kept, error = most_frequent(self._entries(), self.error, entries * 3 // 4)
        smaller._absorb(kept, error, self.totals)
        return self._become(smaller)

    # --- questions ---------------------------------------------------------------------------

    def _entries(self, ids: NDArray[np.int64] | None = None) -> Entries:
        """All entries, by group, then in an order that depends on their keys alone.

        ids: only of these groups, by their places among them.
        """
        which = slice(self._groups) if ids is None else ids
        size = int(self._active[which].sum())
        groups, entries = np.empty(size, np.int64), np.empty((size, kernels.CELLS), np.int64)
        kernels.gather(self._arena, self._starts[which], self._rooms[which], groups, entries)
        keys, counts, lates, refs = entries.T
        return Entries(groups, keys.view(np.uint64), counts, lates, self._store[refs])

    def top(self, k: int) -> list[list[TopItem]]:
        """The k most frequent values of each group: most often seen first, then by value.

        `count` is `low`, how often the value was seen since it has a counter. A group with fewer
        counters gives fewer items.

        Raises:
          BadParameter: k < 1.
        """
        k = as_whole("k", k, 1, INT64_MAX, expected=">= 1")
        _, counted = self.tracked()
        return top_lists(counted, self.error, min(k, self.entries))

    def frequent(self, share: float, promise: Promise, late: int = 0) -> Estimates:
        """The values that make up `share`, in (0, 1], of their group's weight, as `top` lists them.

        An item is `guaranteed` where it is frequent for certain. The bound of a list is NONE where
        none must be missing and one may be: `error` reaches the threshold. late: so much more
        weight, of any values, is allowed for in each group.
        """
        check_share(share)
        _, counted = self.tracked()
        totals = self.totals, self.totals
        return frequent_lists(counted, self.error, totals, share=share, promise=promise, late=late)

    def tracked(self) -> tuple[NDArray[np.uint64], Counted]:
        """Every value that has a counter, by group: their keys, and how often they were seen.

        Any other value of a group was seen `error` times at most.
        """
        entries = self._entries()
        low = entries.counts + self._offsets[entries.groups] - entries.lates
        return entries.keys, Counted.of(entries, low)

    def image(self, group: int) -> bytes:
        """A group as a DataSketches frequent-items sketch.

        frequent_items_sketch.deserialize reads integers with PyLongsSerDe and doubles with
        PyDoublesSerDe, frequent_strings_sketch.deserialize texts; Spark wants 8 more bytes.
        """
        only = np.full(self._groups, -1, np.int64)
        only[group] = 0
        return image_of(
            self._entries().moved(only),
            self.items,
            room=max(int(self._rooms[group]), kernels.ROOM_MIN),
            room_max=self.entries,
            total=int(self._totals[group]),
            error=int(self._offsets[group]),
        )

    @classmethod
    def from_images(
        cls, images: Sequence[bytes], entries: int, items: ItemKind = ItemKind.INTEGER
    ) -> Self:
        """The groups whose frequent-items sketches DataSketches or Druid wrote, in this order.

        Args:
          images: of sketches of any size; what does not fit is purged, and in `error`.
          entries: size of a group's table.
          items: what the counted values are.

        Raises:
          CorruptSynopsis: one is no such image.
        """
        made = cls(0, entries, items)
        for group, image in enumerate(images):
            found, total, error = read_image(image, items)
            one = cls(1, entries, items)
            one._absorb(found, np.array([error]), np.array([total]))
            made.merge(one.scatter(np.array([group]), group + 1))
        return made

    # --- groups and bytes --------------------------------------------------------------------

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        return self._moved(self._entries(ids), self._offsets[ids], self._totals[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        offsets = scattered(self._offsets[: self._groups], ids, groups)
        totals = scattered(self._totals[: self._groups], ids, groups)
        return self._moved(self._entries().moved(ids), offsets, totals)

    def _moved(
        self, entries: Entries, offsets: NDArray[np.int64], totals: NDArray[np.int64]
    ) -> Self:
        made = type(self)(offsets.size, self.entries, self.items)
        made._absorb(entries, offsets, totals)
        return made

    def _absorb(
        self, entries: Entries, offsets: NDArray[np.int64], totals: NDArray[np.int64]
    ) -> None:
        """Take another summary's state into this empty one."""
        self._make_room(np.bincount(entries.groups, minlength=self._groups))
        self._offsets[: self._groups] = offsets
        self._take_entries(entries, entries.lates - offsets[entries.groups])
        self._totals[: self._groups] = totals

    def _make_room(self, sizes: NDArray[np.int64]) -> None:
        """Give the groups of this empty summary tables for so many entries, side by side."""
        least = np.maximum(-(-sizes * 4 // 3), kernels.ROOM_MIN)
        _, powers = np.frexp(least - 1.0)  # 2^power is the smallest power of two that is enough.
        rooms = np.where(sizes > 0, np.minimum(1 << powers.astype(np.int64), self.entries), 0)
        self._rooms[: self._groups] = rooms
        self._starts[: self._groups] = np.cumsum(rooms) - rooms
        used = int(rooms.sum())
        self._hold(np.zeros((used, kernels.CELLS), np.int64), used=used)

    def to_bytes(self) -> bytes:
        """The counters as bytes; equal counters give equal bytes."""
        parameters = _PARAMETERS.pack(self._groups, self.entries, self.items)
        body = [*self._entries().parts(self.items), self.error, self.totals]
        return seal(Kind.FREQUENT, parameters, body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.FREQUENT)
        size, room_max, kind = body.unpack(_PARAMETERS)
        if kind not in set(ItemKind):
            raise CorruptSynopsis("item kind", kind, [int(known) for known in ItemKind])
        items = ItemKind(kind)
        entries = read_entries(body, items, size)
        offsets, totals = body.array(np.int64, (size,)), body.array(np.int64, (size,))
        body.end()
        with parameters_of_bytes():
            made = cls(size, room_max, items)
            made._absorb(entries, offsets, totals)
        return made
