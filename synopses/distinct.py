"""How many different values each group has: HyperLogLog, byte-compatible with DataSketches."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from synopses import register_kernels as kernels
from synopses.cardinality import estimate_distinct
from synopses.cell_counts import checked_entries, placing
from synopses.distinct_profile import DISTINCT, LG_K_MAX, LG_K_MIN
from synopses.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.estimate import Estimates
from synopses.grouped import grown, scattered
from synopses.header import Kind, seal, unseal
from synopses.hll_images import read_image, write_image
from synopses.inputs import as_input

_SMALLEST = 64
_PARAMETERS = struct.Struct("<qi")
_UNKNOWN = 1 << 48  # Tuples behind an image: it does not say, and thousands may be merged.


class GroupedDistinct:
    """Distinct values per group from 2^lg_k registers each (HyperLogLog).

    Hashes are DataSketches' (murmur_* in hashing.py), registers those of its HLL_8: slot h1 mod
    2^lg_k holds the largest 1 + leading zeros of h2. A group is sparse, its registers in one map
    of 8-byte entries shared by all groups, until a sixteenth of them are set; then it is a dense
    row of bytes. Registers merge by maximum, so merged panes equal one pass, byte for byte.
    Source: Flajolet, Fusy, Gandouet, Meunier 2007; interval: cardinality.py.
    """

    profile: ClassVar = DISTINCT

    __slots__ = (
        "_dense",
        "_dense_used",
        "_groups",
        "_places",
        "_rows",
        "_sparse",
        "_taken",
        "_used",
        "lg_k",
    )

    def __init__(self, groups: int, lg_k: int = 12) -> None:
        """Make the registers of so many empty groups.

        Args:
          groups: how many.
          lg_k: log2 of the registers per group, 7 to 21.
        """
        if not LG_K_MIN <= lg_k <= LG_K_MAX:
            raise BadParameter("lg_k", lg_k, f"{LG_K_MIN} to {LG_K_MAX}")
        self.lg_k = lg_k
        self._groups = groups
        room = max(groups, 1)
        self._rows = np.full(room, -1, np.int32)
        self._sparse = np.zeros(room, np.int32)
        self._taken = np.zeros(room, np.int64)
        self._dense = np.zeros((0, 1 << lg_k), np.uint8)
        self._dense_used = 0
        self._places = np.zeros(_SMALLEST, np.uint64)
        self._used = 0

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        axes = self._rows.nbytes + self._sparse.nbytes + self._taken.nbytes
        return self._dense.nbytes + self._places.nbytes + axes

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._rows = grown(self._rows, groups, -1)
            self._sparse = grown(self._sparse, groups)
            self._taken = grown(self._taken, groups)
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
        """
        assert ids is None or len(ids) == len(h1)
        if ids is None and not self._groups:
            self.grow(1)
        first, second = as_input(h1, np.uint64), as_input(h2, np.uint64)
        if ids is None:
            if self._rows[0] < 0:
                self._make_dense(np.zeros(1, np.int64))
            kernels.raise_one(self._dense[self._rows[0]], first, second)
            self._taken[0] += first.size
            return
        groups, at = as_input(ids, np.int32), 0
        while True:
            at, self._used = kernels.raise_many(
                self._places,
                self._used,
                self._used_max,
                at,
                self._rows,
                self._dense,
                self._sparse,
                self._taken,
                groups,
                first,
                second,
            )
            if at == groups.size:
                return
            self._make_room()

    @property
    def _used_max(self) -> int:
        return self._places.size * 5 // 8

    def _raise(self, entries: NDArray[np.uint64]) -> None:
        """Take packed entries in; zeros are skipped."""
        at = 0
        while True:
            at, self._used = kernels.raise_entries(
                self._places,
                self._used,
                self._used_max,
                at,
                self._rows,
                self._dense,
                self._sparse,
                entries,
            )
            if at == entries.size:
                return
            self._make_room()

    def _make_room(self) -> None:
        """The map is full: groups that use much of it become dense, and it doubles if it must."""
        heavy = self._sparse[: self._groups] >= (1 << self.lg_k) // 16
        if heavy.any():
            self._make_dense(np.flatnonzero(heavy))
        if self._used > self._used_max // 2:
            self._rebuild(2 * self._places.size)

    def _make_dense(self, groups: NDArray[np.int64]) -> None:
        """Give these sparse groups rows of registers and move their entries there."""
        first, self._dense_used = self._dense_used, self._dense_used + groups.size
        if self._dense_used > len(self._dense):
            dense = np.zeros((self._dense_used + first // 4, 1 << self.lg_k), np.uint8)
            dense[:first] = self._dense[:first]
            self._dense = dense
        self._rows[groups] = np.arange(first, self._dense_used, dtype=np.int32)
        if self._sparse[groups].any():
            self._sparse[groups] = 0
            self._rebuild(self._places.size)

    def _rebuild(self, capacity: int) -> None:
        entries, self._places, self._used = self._places, np.zeros(capacity, np.uint64), 0
        self._sparse[:] = 0
        self._raise(entries)

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place.

        Raises:
          CannotMerge: the numbers of registers differ.
        """
        if self.lg_k != other.lg_k:
            raise CannotMerge("lg_k", self.lg_k, other.lg_k)
        self.grow(other.groups)
        theirs = other._rows[: other.groups]
        newly = np.flatnonzero((theirs >= 0) & (self._rows[: other.groups] < 0))
        if newly.size:
            self._make_dense(newly)
        kernels.raise_rows(self._dense, self._rows, other._dense, theirs)
        if self._places.size < other._places.size:
            # Entries arrive in the order of their places: in a smaller map they would all cluster.
            self._rebuild(other._places.size)
        self._raise(other._places)
        self._taken[: other.groups] += other._taken[: other.groups]
        return self

    def resize(self, lg_k: int) -> Self:
        """Keep 2^lg_k registers a group from now on, in place: as if there had never been more.

        Slot s becomes slot s mod 2^lg_k, for slots are the low bits of the hash.

        Raises:
          BadParameter: lg_k is more than now; what was forgotten does not come back.
        """
        if not LG_K_MIN <= lg_k <= self.lg_k:
            raise BadParameter("lg_k", lg_k, f"{LG_K_MIN} to {self.lg_k}")
        folded = type(self)(self._groups, lg_k)
        heavy = np.flatnonzero(self._rows[: self._groups] >= 0)
        folded._make_dense(heavy)
        registers = self._dense[self._rows[heavy]]
        folded._dense[: heavy.size] = _folded(registers, lg_k)
        groups, slots, values = self._entries()
        folded._absorb(groups, slots & ((1 << lg_k) - 1), values)
        folded._taken[: self._groups] = self._taken[: self._groups]
        for name in self.__slots__:
            setattr(self, name, getattr(folded, name))
        return self

    # --- questions ---------------------------------------------------------------------------

    def distinct(self, confidence: float) -> Estimates:
        """Distinct values per group: int64, with an interval of this confidence."""
        return estimate_distinct(self.histograms(), self._taken[: self._groups], confidence)

    def histograms(self) -> NDArray[np.int64]:
        """How many registers of each group hold 0 … 63; int64 [groups, 64]."""
        out = np.zeros((self._groups, 64), np.int64)
        kernels.histograms(self._places, self._rows, self._dense, self._sparse, out)
        return out

    def registers(self, group: int) -> NDArray[np.uint8]:
        """A group's registers, dense; uint8 [2^lg_k]."""
        if self._rows[group] >= 0:
            dense: NDArray[np.uint8] = self._dense[self._rows[group]].copy()
            return dense
        groups, slots, values = self._entries()
        registers = np.zeros(1 << self.lg_k, np.uint8)
        mine = groups == group
        registers[slots[mine]] = values[mine]
        return registers

    def image(self, group: int) -> bytes:
        """A group as a DataSketches HLL_8 sketch (hll_sketch.deserialize, Spark, Druid)."""
        return write_image(self.registers(group), self.lg_k)

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
            slots, registers = read_image(image, lg_k)
            made._absorb(np.full(slots.size, group, np.int64), slots, registers)
            made._taken[group] = _UNKNOWN if slots.size else 0
        return made

    # --- groups and bytes --------------------------------------------------------------------

    def _entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Groups, slots and registers of the sparse part, in order; shapes [n]."""
        packed = np.sort(self._places[self._places != 0])
        keys = (packed >> np.uint64(kernels.REGISTER_BITS)).astype(np.int64) - 1
        registers = (packed & np.uint64(63)).astype(np.uint8)
        return keys >> self.lg_k, keys & ((1 << self.lg_k) - 1), registers

    def _absorb(
        self, groups: NDArray[np.int64], slots: NDArray[np.int64], registers: NDArray[np.uint8]
    ) -> None:
        keys = ((groups << self.lg_k) | slots) + 1
        self._raise(((keys << kernels.REGISTER_BITS) | registers).astype(np.uint64))

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order."""
        return self._moved(placing(ids, self._groups), self._taken[ids], self._rows[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        taken = scattered(self._taken[: self._groups], ids, groups)
        return self._moved(ids, taken, scattered(self._rows[: self._groups], ids, groups, -1))

    def _moved(
        self, places: NDArray[np.int64], taken: NDArray[np.int64], rows: NDArray[np.int32]
    ) -> Self:
        """Group g goes to places[g] (-1: nowhere); rows are its dense rows here, in new order."""
        made = type(self)(taken.size, self.lg_k)
        made._taken[: taken.size] = taken
        dense = np.flatnonzero(rows >= 0)
        made._dense = self._dense[rows[dense]]
        made._dense_used = dense.size
        made._rows[dense] = np.arange(dense.size, dtype=np.int32)
        groups, slots, registers = self._entries()
        kept = places[groups] >= 0
        made._absorb(places[groups][kept], slots[kept], registers[kept])
        return made

    def to_bytes(self) -> bytes:
        """Registers as bytes: those set, while they are few, else all of a group's.

        Equal registers give equal bytes, however a group is held in memory.
        """
        groups, slots, registers = self._entries()
        rows = self._rows[: self._groups]
        heavy = np.flatnonzero(rows >= 0)
        held = np.count_nonzero(self._dense[rows[heavy]], axis=1)
        light = heavy[held < self._wide]
        wide_sparse = np.flatnonzero(self._sparse[: self._groups] >= self._wide)
        if light.size or wide_sparse.size:
            return self._settled(light, wide_sparse).to_bytes()
        body: list[NDArray[Any]] = [
            heavy,
            self._dense[rows[heavy]],
            groups.astype(np.int32),
            slots.astype(np.int32),
            registers,
            self._taken[: self._groups],
        ]
        return seal(Kind.DISTINCT, _PARAMETERS.pack(self._groups, self.lg_k), body)

    @property
    def _wide(self) -> int:
        """From how many set registers on a group is written densely."""
        return max(1, (1 << self.lg_k) // 16)

    def _settled(self, light: NDArray[np.int64], wide: NDArray[np.int64]) -> Self:
        """The same registers, with exactly those groups dense that are written so."""
        made = type(self)(self._groups, self.lg_k)
        rows = self._rows[: self._groups]
        stay = np.flatnonzero(rows >= 0)
        stay = stay[~np.isin(stay, light)]
        made._make_dense(np.union1d(stay, wide))
        made._dense[made._rows[stay]] = self._dense[rows[stay]]
        at, slots = np.nonzero(self._dense[rows[light]])
        made._absorb(light[at], slots, self._dense[rows[light]][at, slots])
        made._raise(self._places)
        made._taken[: self._groups] = self._taken[: self._groups]
        return made

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.DISTINCT)
        groups, lg_k = body.unpack(_PARAMETERS)
        if not LG_K_MIN <= lg_k <= LG_K_MAX:
            raise CorruptSynopsis("lg_k", lg_k, f"{LG_K_MIN} to {LG_K_MAX}")
        heavy = body.array(np.int64, (-1,))
        dense = body.array(np.uint8, (heavy.size, 1 << lg_k))
        where = body.array(np.int32, (-1,)).astype(np.int64)
        slots = body.array(np.int32, (where.size,)).astype(np.int64)
        registers = body.array(np.uint8, (where.size,))
        taken = body.array(np.int64, (groups,))
        body.end()
        checked_entries(where, slots, group_count=groups, cell_count=1 << lg_k)
        checked_entries(heavy, registers, group_count=groups, cell_count=64)
        checked_entries(heavy, dense.ravel(), group_count=groups, cell_count=64)
        made = cls(groups, lg_k)
        made._make_dense(heavy)
        made._dense[: heavy.size] = dense
        made._absorb(where, slots, registers)
        made._taken[:groups] = taken
        return made


def _folded(registers: NDArray[np.uint8], lg_k: int) -> NDArray[np.uint8]:
    """Rows of 2^lg_k registers that say what these longer rows said of the same values."""
    times = registers.shape[1] >> lg_k
    folded: NDArray[np.uint8] = registers.reshape(len(registers), times, 1 << lg_k).max(axis=1)
    return folded
