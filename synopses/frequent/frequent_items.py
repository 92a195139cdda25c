"""Frequent items per group: the most frequent values, with certain bounds on their counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.frequent.counter_tables import Tables
from synopses.frequent.entries import (
    Entries,
    ItemKind,
    Values,
    check_entries,
    image_of,
    most_frequent,
    most_frequent_within,
    read_entries,
    read_image,
)
from synopses.frequent.heavy_share import Promise, check_share
from synopses.frequent.profile import ENTRIES_MAX, ENTRIES_MIN, FREQUENT
from synopses.frequent.top_lists import Counted, frequent_lists, top_lists
from synopses.kernels.array_inputs import as_column, as_ids, as_input, same_rows
from synopses.kernels.grouped_arrays import apart_from, same_kind, scattered
from synopses.kernels.string_sizes import strings_bytes
from synopses.model.binary_header import Kind, parameters_of_bytes, seal, unseal
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.estimate import Estimates, TopItem
from synopses.model.parameters import INT64_MAX, as_groups, as_whole
from synopses.model.resizing import Resizable

_WEIGHT_MAX = 2.0**63
_CUT_SHARE = 0.75  # A cut leaves a quarter of the bytes free, so that the next one is not near.
_ONCE: NDArray[np.int64] = as_input(np.empty(0, np.int64), np.int64)


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
    __slots__ = ("_tables", "entries", "items")

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
        self._tables = Tables(as_groups(groups), self.entries, items)

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._tables.groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held; the mean length of texts is that of up to 64 of them."""
        return self._tables.size_bytes

    @property
    def error(self) -> NDArray[np.int64]:
        """By how much a count may be too low, per group; int64 [groups]."""
        return self._tables.offsets.copy()

    @property
    def totals(self) -> NDArray[np.int64]:
        """Weight of all values per group; int64 [groups]."""
        return self._tables.totals.copy()

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        self._tables.grow(groups)

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
        if ids is None and not self.groups:
            self.grow(1)
        amounts = _ONCE if weights is None else as_column(weights, np.int64)
        words = as_column(keys, np.uint64)
        groups = as_ids(ids, words.size, self.groups)
        if weights is not None:
            same_rows(words.size, weights=amounts)
            self._check_weights(amounts)
        self._tables.count(groups, words, values, amounts)

    def _check_weights(self, weights: NDArray[np.int64]) -> None:
        """What they and all that was counted weigh must be an int64, in whatever group."""
        weight = float(np.maximum(weights, 0).sum(dtype=np.float64))
        total = weight + float(self._tables.totals.max(initial=0))
        if total >= _WEIGHT_MAX:
            raise BadParameter("total of the weights", total, f"< {_WEIGHT_MAX:.3g}")

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
        if self._tables.totals.any():
            self._tables.add(other._tables)
        else:  # There is nothing: a copy will do.
            self._tables.take_over(other._tables)
        return self

    def resize(self, entries: int, /) -> Self:
        """Keep tables of this size from now on, in place, with the most frequent values.

        `error` grows by the largest count that finds no room, and by no more: a list of the most
        frequent of a stretch (Golab et al. 2003), where purging on the way would have cost more.

        Raises:
          BadParameter: no power of two, 8 to 2^20.
        """
        smaller = type(self)(self.groups, entries, self.items)
        kept, error = most_frequent(self._tables.entries(), self.error, entries * 3 // 4)
        smaller._tables.fill(kept, error, self.totals)
        return self._become(smaller)

    def hold_texts(self, size_bytes: int) -> None:
        """Keep the most frequent values of each group whose texts take at most this many bytes.

        Each group keeps up to the same number of values, so that the texts take 3/4 of these
        bytes. `error` grows as in `resize`: by the largest count that finds no room. Then values
        that are dropped occurred at most `error` times, as after any purge. Source: Agarwal et al.
        2012, "Mergeable summaries", PODS, Thm 2.2.
        """
        if self._tables.text_bytes_most <= size_bytes:
            return
        entries, error = self._tables.entries(), self.error
        if strings_bytes(entries.values).sum() > size_bytes:
            entries, error = most_frequent_within(entries, error, _CUT_SHARE * size_bytes)
        self._become(self._moved(entries, error, self.totals))

    # --- questions ---------------------------------------------------------------------------

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
        entries = self._tables.entries()
        low = entries.counts + self._tables.offsets[entries.groups] - entries.lates
        return entries.keys, Counted.of(entries, low)

    def image(self, group: int) -> bytes:
        """A group as a DataSketches frequent-items sketch.

        frequent_items_sketch.deserialize reads integers with PyLongsSerDe and doubles with
        PyDoublesSerDe, frequent_strings_sketch.deserialize texts; Spark wants 8 more bytes.
        """
        tables = self._tables
        only = np.full(tables.groups, -1, np.int64)
        only[group] = 0
        return image_of(
            tables.entries().moved(only),
            self.items,
            room=tables.room_of(group),
            room_max=self.entries,
            total=int(tables.totals[group]),
            error=int(tables.offsets[group]),
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
            one._tables.fill(found, np.array([error]), np.array([total]))
            made.merge(one.scatter(np.array([group]), group + 1))
        return made

    # --- groups and bytes --------------------------------------------------------------------

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        tables = self._tables
        return self._moved(tables.entries(ids), tables.offsets[ids], tables.totals[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        offsets = scattered(self._tables.offsets, ids, groups)
        totals = scattered(self._tables.totals, ids, groups)
        return self._moved(self._tables.entries().moved(ids), offsets, totals)

    def _moved(
        self, entries: Entries, offsets: NDArray[np.int64], totals: NDArray[np.int64]
    ) -> Self:
        made = type(self)(offsets.size, self.entries, self.items)
        made._tables.fill(entries, offsets, totals)
        return made

    def to_bytes(self) -> bytes:
        """The counters as bytes; equal counters give equal bytes."""
        parameters = (self.groups, self.entries, self.items)
        body = [*self._tables.entries().parts(self.items), self.error, self.totals]
        return seal(Kind.FREQUENT, parameters, body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.FREQUENT)
        size, room_max, kind = body.parameters
        if kind not in set(ItemKind):
            raise CorruptSynopsis("item kind", kind, [int(known) for known in ItemKind])
        items = ItemKind(kind)
        entries = read_entries(body, items, size)
        offsets, totals = body.array(np.int64, (size,)), body.array(np.int64, (size,))
        body.end()
        check_entries(entries, offsets, totals)
        with parameters_of_bytes():
            made = cls(size, room_max, items)
            made._tables.fill(entries, offsets, totals)
        return made
