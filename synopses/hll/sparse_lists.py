"""The latest coupons of all groups, 4 bytes each: all there is of a sparse group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synopses.hll import register_kernels
from synopses.hll import sparse_kernels as kernels
from synopses.hll.sparse_coupons import SLOT_BITS, SLOTS, gathered_max, held_max
from synopses.kernels.grouped_arrays import grown

_ARENA_MIN = 64


class CouponLists:
    """Coupons per group; one that has more different ones than `held_max` must become dense.

    arena: uint32 [places]; lists: uint32 [groups, 4]; taken: int64 [groups], as sparse_kernels.py
    says. Places are numbered by 32 bits: 16 GiB of coupons.
    """

    __slots__ = ("_arena", "_lg_k", "_lists", "_taken", "_used")

    def __init__(self, groups: int, lg_k: int) -> None:
        """Make empty lists for so many groups that have 2^lg_k registers when they are dense."""
        self._lg_k = lg_k
        self._arena = np.empty(_ARENA_MIN, np.uint32)
        self._used = 0
        self._lists = np.zeros((groups, 4), np.uint32)
        self._taken = np.zeros(groups, np.int64)

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self._arena.nbytes + self._lists.nbytes + self._taken.nbytes

    @property
    def held(self) -> NDArray[np.int64]:
        """Coupons of each group, also of dense ones, and repeated ones until they are cleaned."""
        return held_by(self._lists)

    @property
    def taken(self) -> NDArray[np.int64]:
        """Values taken in; int64 [groups]."""
        return self._taken + self.held - self._lists[:, kernels.CLEAN]

    def count(self, groups: slice | int, values: NDArray[np.int64] | int) -> None:
        """Count values that came in another way, or go again."""
        self._taken[groups] += values

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        self._lists = grown(self._lists, groups)
        self._taken = grown(self._taken, groups)

    @property
    def is_unused(self) -> bool:
        """Return whether no group has a place for coupons."""
        return self._used == 0

    def take_over(self, other: CouponLists, groups: int) -> None:
        """Be what the other's first groups are; these lists are unused and have room for them."""
        self._arena, self._used = other._arena.copy(), other._used
        self._lists[:groups], self._taken[:groups] = other._lists[:groups], other._taken[:groups]

    def raise_each(
        self,
        ids: NDArray[np.int32],
        h1: NDArray[np.uint64],
        h2: NDArray[np.uint64],
        rows: NDArray[np.int32],
        dense: NDArray[np.uint8],
    ) -> NDArray[np.int64]:
        """Take hashes of dense groups past their lists; returns the rows of the others."""
        rest = np.empty(ids.size, np.int64)
        left = register_kernels.raise_each(ids, h1, h2, rows, dense, self._taken, rest)
        return rest[:left]

    def raise_dense(
        self,
        rows: NDArray[np.int32],
        dense: NDArray[np.uint8],
        other: CouponLists,
        other_rows: NDArray[np.int32],
        other_dense: NDArray[np.uint8],
    ) -> bool:
        """Take groups that are dense in both, if all are and the others have no coupons.

        Returns:
          Whether it is so; nothing has changed else.
        """
        return bool(
            kernels.raise_dense(
                self._taken, rows, dense, other._lists, other._taken, other_rows, other_dense
            )
        )

    def run(
        self,
        kernel: Callable[..., tuple[int, int]],
        *arguments: Any,
        coming: Callable[[int], int],
    ) -> tuple[int, bool]:
        """Run a kernel that appends, as far as there is room.

        Args:
          kernel: of sparse_kernels.py.
          arguments: all but the lists themselves.
          coming: how many more it is to append, about, from where it came to.

        Returns:
          How far it came, and whether a group must become dense before it can go on; there is room
          for the rest else.
        """
        room_max = 2 * held_max(self._lg_k)  # Half is left when a full list is cleaned, or it goes.
        seats = np.empty(kernels.SEATS * room_max, np.int32)
        at, used = kernel(
            self._arena, self._used, self._lists, self._taken, gathered_max(self._lg_k), room_max,
            seats, *arguments,
        )  # fmt: skip
        if used >= 0:
            self._used = used
            return at, False
        self._used, is_heavy = divmod(-1 - used, 2)
        if not is_heavy:
            self._widen(coming(at))
        return at, bool(is_heavy)

    def _widen(self, coming: int) -> None:
        """Make a new arena with as much room again as is in use, and some for what comes."""
        rooms = self._rooms()
        used = int(rooms.sum())
        least = used + 4 * int(rooms.max()) + gathered_max(self._lg_k)
        each = kernels.first_room(1 + coming // rooms.size, 2 * held_max(self._lg_k))
        new = used + each * min(coming, rooms.size)
        self._repack(max(2 * used, least, new, _ARENA_MIN))

    def _rooms(self) -> NDArray[np.int64]:
        return (self._lists[:, kernels.LIMIT] - self._lists[:, kernels.START]).astype(np.int64)

    def _repack(self, room: int) -> None:
        arena = np.empty(room, np.uint32)
        self._used = kernels.repack(self._arena, self._lists, arena)
        self._arena = arena

    def heavy(
        self,
        rows: NDArray[np.int32],
        dense: NDArray[np.uint8],
        ids: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """The sparse groups (rows < 0), of some, with too many different coupons for a list."""
        most = held_max(self._lg_k)
        self.see_to(_where((self.held > most) & (rows < 0), ids), rows, dense)
        return _where((self.held > most) & (rows < 0), ids)

    def see_to(
        self, groups: NDArray[np.int64], rows: NDArray[np.int32], dense: NDArray[np.uint8]
    ) -> None:
        """Take the coupons of dense groups among these to dense[rows]; drop what others repeat."""
        seats = np.empty(2 * kernels.SEATS * max(1, int(self.held.max(initial=0))), np.int32)
        most = held_max(self._lg_k)
        kernels.see_to_all(self._arena, self._lists, self._taken, most, seats, rows, dense, groups)

    def settle(
        self,
        rows: NDArray[np.int32],
        dense: NDArray[np.uint8],
        ids: NDArray[np.int64] | None = None,
    ) -> None:
        """Dense groups, of some, have no coupons from now on, others no repeated ones."""
        self.see_to(_where(self.held > self._lists[:, kernels.CLEAN], ids), rows, dense)

    def narrow(self, groups: NDArray[np.int64], *, full: bool = False) -> None:
        """These dense groups, whose lists are empty, need less room; `full`: none."""
        most = 0 if full else gathered_max(self._lg_k)
        limits = self._lists[groups, kernels.START] + np.uint32(most)
        self._lists[groups, kernels.LIMIT] = np.minimum(self._lists[groups, kernels.LIMIT], limits)
        used = int(self._rooms().sum())
        if used + used // 4 + used // 16 < self._arena.size > _ARENA_MIN:
            # What is in use falls by a fifth before it is due again.
            self._repack(max(used + used // 16, _ARENA_MIN))

    def lists(
        self, groups: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.int64]]:
        """The arena, where the lists of the first groups are in it, and what these have taken."""
        return self._arena, self._lists[:groups], self._taken[:groups]

    def entries(
        self, ids: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Groups, slots and registers of all coupons, in order; shapes [n].

        ids: only of these groups, by their places among them.
        """
        lists = self._lists if ids is None else self._lists[ids]
        held = lists[:, kernels.END] - lists[:, kernels.START]
        found = np.empty(int(held.sum(dtype=np.int64)), np.uint64)
        kernels.entries_of(self._arena, lists, found)
        found.sort()
        registers = (found & np.uint64(63)).astype(np.uint8)
        slots = (found >> np.uint64(6)).astype(np.int64) & (SLOTS - 1)
        return (found >> np.uint64(32)).astype(np.int64), slots, registers


def _where(so: NDArray[np.bool_], ids: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The groups of which something is so; of these alone, each once."""
    return np.flatnonzero(so) if ids is None else np.unique(ids[so[ids]])


def held_by(lists: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return how many coupons there are in each of some lists; int64 [groups]."""
    return (lists[:, kernels.END] - lists[:, kernels.START]).astype(np.int64)


def packed(slots: NDArray[np.int64], registers: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Coupons of these slots and registers; shapes [n]."""
    return (slots | registers.astype(np.int64) << SLOT_BITS).astype(np.uint32)
