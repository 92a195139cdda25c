"""HyperLogLog registers for many groups, byte-compatible with DataSketches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses.hll import register_kernels
from synopses.hll import sparse_kernels as coupon_kernels
from synopses.hll.datasketches_format import (
    coupons_max,
    folded,
    read_image,
    write_coupons,
    write_image,
)
from synopses.hll.profile import DISTINCT, LG_K_MAX, LG_K_MIN
from synopses.hll.sparse_coupons import SLOTS, counted
from synopses.hll.sparse_lists import CouponLists, held_by, packed
from synopses.kernels.array_inputs import as_column, as_ids, as_input, same_rows
from synopses.kernels.group_cell_map import checked_axis, checked_entries
from synopses.kernels.group_ordering import ROWS_MIN, by_group
from synopses.kernels.grouped_arrays import apart_from, grown, same_kind, scattered
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.cardinality_error import estimate_distinct
from synopses.model.errors import CannotMerge, CorruptSynopsis
from synopses.model.estimate import Estimates
from synopses.model.parameters import as_groups, as_whole
from synopses.model.resizing import Resizable

_SPARE = 12  # When dense groups grow, there is room for one in so many more of them.
_UNKNOWN = 1 << 48  # Tuples behind an image: it does not say, and thousands may be merged.


class GroupedDistinct(Resizable):
    """Distinct values per group: few one by one, more by 2^lg_k registers (HyperLogLog).

    Hashes are DataSketches' (murmur_* in hashing.py), registers those of its HLL_8: slot h1 mod
    2^lg_k holds the largest 1 + leading zeros of h2. A group of at most 2^lg_k / 16 values is
    sparse: it has a list of coupons, 4 bytes each, whose slots have 26 bits. More make it a dense
    row of registers, in the end: between questions it may still have a list, and repetitions there,
    but answers, merges and bytes do not depend on the order of arrival. Coupons and registers merge
    by maximum, so merged panes equal one pass, byte for byte.
    Source: Flajolet, Fusy, Gandouet, Meunier 2007; Heule, Nunkesser, Hall 2013 (sparse, precise
    slots); intervals: sparse_coupons.py, cardinality_error.py.
    """

    profile: ClassVar = DISTINCT

    __slots__ = (
        "_coupons",
        "_dense",
        "_dense_used",
        "_groups",
        "_rows",
        "lg_k",
    )

    def __init__(self, groups: int, lg_k: int = 12) -> None:
        """Make the registers of so many empty groups.

        Args:
          groups: how many.
          lg_k: log2 of the registers per group, 7 to 21.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        self.lg_k = as_whole("lg_k", lg_k, LG_K_MIN, LG_K_MAX)
        self._groups = as_groups(groups)
        room = max(groups, 1)
        self._rows = np.full(room, -1, np.int32)
        self._coupons = CouponLists(room, lg_k)
        self._dense = np.zeros((0, 1 << lg_k), np.uint8)
        self._dense_used = 0

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self._dense.nbytes + self._coupons.size_bytes + self._rows.nbytes

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._rows = grown(self._rows, groups, -1)
            self._coupons.grow(groups)
            self._groups = groups

    # --- taking values in --------------------------------------------------------------------

    def update(
        self, ids: NDArray[np.int32] | None, h1: NDArray[np.uint64], h2: NDArray[np.uint64]
    ) -> None:
        """Take values in by the two halves of their hashes.

        Args:
          ids: int32 [n], group of each value; None: all are of group 0.
          h1: uint64 [n].
          h2: uint64 [n].

        Raises:
          BadParameter: an id is not that of a group, or the columns differ in length.
        """
        same_rows(len(h1), h2=h2)
        if ids is None and not self._groups:
            self.grow(1)
        first, second = as_column(h1, np.uint64), as_column(h2, np.uint64)
        if ids is not None:
            groups = as_ids(ids, first.size, self._groups)
            if 2 * self._dense_used > self._groups:
                rest = self._coupons.raise_each(groups, first, second, self._rows, self._dense)
                if not rest.size:
                    return
                groups, first, second = (
                    as_input(column[rest], column.dtype) for column in (groups, first, second)
                )
            if first.size >= ROWS_MIN * self._groups:
                self._update_by_group(groups, first, second)
                return
            self._append(coupon_kernels.append_rows, first.size, groups, first, second)
            return
        at, size = 0, first.size
        while at < size and self._rows[0] < 0:
            at = self._run(
                coupon_kernels.append_hashes, at, first, second, coming=lambda at: size - at
            )
        if at < size:
            register_kernels.raise_one(self._dense[self._rows[0]], first[at:], second[at:])
            self._coupons.count(0, size - at)

    def _update_by_group(
        self, ids: NDArray[np.int32], h1: NDArray[np.uint64], h2: NDArray[np.uint64]
    ) -> None:
        """Take in many values of each group: lists of coupons that are merged, but for counting."""
        coupons = np.empty(ids.size, np.uint32)
        coupon_kernels.coupons_of(h1, h2, coupons)
        bounds, dealt = by_group(ids, coupons, self._groups)
        lists = np.zeros((self._groups, 4), np.uint32)
        lists[:, coupon_kernels.START], lists[:, coupon_kernels.END] = bounds[:-1], bounds[1:]
        self._append_lists(dealt, lists, np.zeros(self._groups, np.int64))

    def _append_lists(
        self, arena: NDArray[np.uint32], lists: NDArray[np.uint32], taken: NDArray[np.int64]
    ) -> None:
        """Take lists in, of which nearly all are empty where each pane has groups of its own."""
        at = 0
        while at < len(lists):
            at = self._run(
                coupon_kernels.append_lists, at, arena, lists, taken,
                coming=lambda at: int(held_by(lists[at:]).sum()),
            )  # fmt: skip

    def _append(self, kernel: Any, end: int, *columns: NDArray[Any]) -> None:
        """Run a kernel that appends coupons up to its end, one for each row."""
        at = 0
        while at < end:
            at = self._run(kernel, at, *columns, coming=lambda at: end - at)

    def _run(
        self, kernel: Any, start: int, *columns: NDArray[Any], coming: Callable[[int], int]
    ) -> int:
        """Run it until a list has no room, and make some; returns how far it came."""
        lists = self._coupons
        at, too_many = lists.run(kernel, self._rows, self._dense, start, *columns, coming=coming)
        if too_many:
            self._make_dense(lists.heavy(self._rows, self._dense))
        return at

    def settle(self) -> None:
        """Nothing more comes, it seems: there is no room left for coupons of dense groups, or for
        the registers of others. Answers stay."""
        self._settle()
        if self._dense_used < len(self._dense):
            self._dense = self._dense[: self._dense_used].copy()
        self._coupons.narrow(np.flatnonzero(self._rows[: self._groups] >= 0), full=True)

    def _settle(self, ids: NDArray[np.int64] | None = None) -> None:
        """Sparse groups of too many coupons become dense, lists are cleaned: no answer changes.

        ids: of these groups; None: of all.
        """
        heavy = self._coupons.heavy(self._rows, self._dense, ids)
        if heavy.size:
            self._make_dense(heavy)
        self._coupons.settle(self._rows, self._dense, ids)

    def _make_dense(self, groups: NDArray[np.int64]) -> None:
        """Give these sparse groups rows of registers and move their coupons there."""
        first, self._dense_used = self._dense_used, self._dense_used + groups.size
        if self._dense_used > len(self._dense):
            dense = np.zeros((self._dense_used + first // _SPARE, 1 << self.lg_k), np.uint8)
            dense[:first] = self._dense[:first]
            self._dense = dense
        self._rows[groups] = np.arange(first, self._dense_used, dtype=np.int32)
        self._coupons.see_to(groups, self._rows, self._dense)
        self._coupons.narrow(groups)

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place.

        Raises:
          CannotMerge: the numbers of registers differ.
        """
        same_kind(self, other)
        if self.lg_k != other.lg_k:
            raise CannotMerge("lg_k", self.lg_k, other.lg_k)
        other = apart_from(self, other)
        groups = other._groups
        if not groups:
            return self
        self.grow(groups)
        theirs = other._rows[:groups]
        if not self._dense_used and self._coupons.is_unused:  # There is nothing: a copy will do.
            self._rows[:groups] = theirs
            self._dense, self._dense_used = other._dense.copy(), other._dense_used
            self._coupons.take_over(other._coupons, groups)
            return self
        if self._coupons.raise_dense(self._rows, self._dense, other._coupons, theirs, other._dense):
            return self
        if register_kernels.raise_rows(self._dense, self._rows, other._dense, theirs):
            self._make_dense(np.flatnonzero((theirs >= 0) & (self._rows[:groups] < 0)))
            register_kernels.raise_rows(self._dense, self._rows, other._dense, theirs)
        self._append_lists(*other._coupons.lists(groups))
        return self

    def resize(self, lg_k: int, /) -> Self:
        """Keep 2^lg_k registers a group from now on, in place: as if there had never been more.

        Slot s becomes slot s mod 2^lg_k, for slots are the low bits of the hash; coupons stay.

        Raises:
          BadParameter: lg_k is more than now; what was forgotten does not come back.
        """
        lg_k = as_whole("lg_k", lg_k, LG_K_MIN, self.lg_k)
        self._settle()
        smaller = type(self)(self._groups, lg_k)
        heavy = np.flatnonzero(self._rows[: self._groups] >= 0)
        smaller._make_dense(heavy)
        registers = self._dense[self._rows[heavy]]
        smaller._dense[: heavy.size] = folded(registers, lg_k)
        groups, slots, values = self._coupons.entries()
        smaller._absorb(groups, slots, values)
        smaller._coupons.count(slice(self._groups), self._coupons.taken[: self._groups])
        return self._become(smaller)

    # --- questions ---------------------------------------------------------------------------

    def distinct(self, confidence: float) -> Estimates:
        """Distinct values per group: int64, with an interval of this confidence.

        A group of few values has the value for both ends, but where values are so many that their
        coupons may be fewer; it is exact where no value came twice.
        """
        self._settle()
        taken = self._coupons.taken[: self._groups]
        value = self._coupons.held[: self._groups].astype(np.int64)
        low = value.copy()
        high, bound = counted(value, taken, confidence)
        dense = np.flatnonzero(self._rows[: self._groups] >= 0)
        histograms = np.zeros((dense.size, 64), np.int64)
        register_kernels.histograms(self._rows[dense], self._dense, histograms)
        found = estimate_distinct(histograms, taken[dense], confidence)
        value[dense], low[dense], high[dense] = found.value, found.low, found.high
        bound[dense] = found.bound
        none = np.zeros(self._groups, np.bool_)
        return Estimates(value, low, high, bound, none, confidence, "hll")

    def registers(self, group: int) -> NDArray[np.uint8]:
        """A group's registers, dense; uint8 [2^lg_k]."""
        self._settle()
        if self._rows[group] >= 0:
            dense: NDArray[np.uint8] = self._dense[self._rows[group]].copy()
            return dense
        groups, slots, values = self._coupons.entries()
        registers = np.zeros(1 << self.lg_k, np.uint8)
        mine = groups == group
        np.maximum.at(registers, slots[mine] & (registers.size - 1), values[mine])
        return registers

    def image(self, group: int) -> bytes:
        """A group as a DataSketches HLL_8 sketch (hll_sketch.deserialize, Spark, Druid).

        Of few values its coupons, as a list or set, which the library counts one by one, too.
        """
        self._settle()
        groups, slots, registers = self._coupons.entries()
        mine = groups == group
        if self._rows[group] >= 0 or np.count_nonzero(mine) > coupons_max(self.lg_k):
            return write_image(self.registers(group), self.lg_k)
        return write_coupons(slots[mine], registers[mine], self.lg_k)

    @classmethod
    def from_images(cls, images: Sequence[bytes], lg_k: int = 12) -> Self:
        """The groups whose sketches DataSketches, Spark or Druid wrote, in this order.

        Args:
          images: HLL sketches of any mode and target, of 2^lg_k registers or more.
          lg_k: how many registers to keep; those of larger sketches are folded.

        Raises:
          CorruptSynopsis: one is no such image.
          BadParameter: one has fewer registers.
        """
        made = cls(len(images), lg_k)
        for group, image in enumerate(images):
            slots, registers, are_coupons = read_image(image, lg_k)
            if not are_coupons:
                made._make_dense(np.array([group]))
            made._absorb(np.full(slots.size, group, np.int64), slots, registers)
            made._coupons.count(group, _UNKNOWN if slots.size else 0)
        return made

    # --- groups and bytes --------------------------------------------------------------------

    def _absorb(
        self, groups: NDArray[np.int64], slots: NDArray[np.int64], registers: NDArray[np.uint8]
    ) -> None:
        coupons = packed(slots, registers)
        self._append(coupon_kernels.append_coupons, groups.size, groups, coupons)

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        self._settle(ids)
        taken = self._coupons.taken[ids]
        return self._moved(self._coupons.entries(ids), taken, self._rows[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        self._settle()
        taken = scattered(self._coupons.taken[: self._groups], ids, groups)
        of, slots, registers = self._coupons.entries()
        rows = scattered(self._rows[: self._groups], ids, groups, -1)
        return self._moved((ids[of], slots, registers), taken, rows)

    def _moved(
        self,
        coupons: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]],
        taken: NDArray[np.int64],
        rows: NDArray[np.int32],
    ) -> Self:
        """What there is of groups in a new order: their coupons, and their dense rows here."""
        made = type(self)(taken.size, self.lg_k)
        made._coupons.count(slice(taken.size), taken)
        dense = np.flatnonzero(rows >= 0)
        made._dense = self._dense[rows[dense]]
        made._dense_used = dense.size
        made._rows[dense] = np.arange(dense.size, dtype=np.int32)
        made._absorb(*coupons)
        return made

    def to_bytes(self) -> bytes:
        """Coupons and registers as bytes; the same values give equal bytes, however they came."""
        self._settle()
        groups, slots, registers = self._coupons.entries()
        rows = self._rows[: self._groups]
        heavy = np.flatnonzero(rows >= 0)
        body: list[NDArray[Any]] = [
            heavy,
            self._dense[rows[heavy]],
            groups.astype(np.int32),
            slots.astype(np.int32),
            registers,
            self._coupons.taken[: self._groups],
        ]
        return seal(Kind.DISTINCT, (self._groups, self.lg_k), body)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.DISTINCT)
        groups, lg_k = body.parameters
        if not LG_K_MIN <= lg_k <= LG_K_MAX:
            raise CorruptSynopsis("lg_k", lg_k, f"{LG_K_MIN} to {LG_K_MAX}")
        heavy = body.array(np.int64)
        dense = body.array(np.uint8, (heavy.size, 1 << lg_k))
        where = body.array(np.int32).astype(np.int64)
        slots = body.array(np.int32, (where.size,)).astype(np.int64)
        registers = body.array(np.uint8, (where.size,))
        taken = body.array(np.int64, (groups,))
        body.end()
        checked_entries(where, slots, group_count=groups, cell_count=SLOTS)
        checked_axis("group", heavy, groups)
        checked_axis("register", registers, 64)
        checked_axis("register", dense, 64)
        made = cls(groups, lg_k)
        made._rows[heavy] = np.arange(heavy.size, dtype=np.int32)
        made._dense, made._dense_used = dense, heavy.size
        if where.size:
            made._absorb(where, slots, registers)
        made._coupons.count(slice(groups), taken)
        return made
