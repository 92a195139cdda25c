"""Counters for the cells that were touched: one open-addressing map keyed (group, cell)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.model.errors import BadParameter, CorruptSynopsis

SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, TAOCP 3, 6.4).
_SMALLEST = 32

Slots = NDArray[np.uint64]


@njit(nogil=True, cache=True)
def _add(
    slots: Slots, used: int, used_max: int, start: int, entries: Slots, sign: int
) -> tuple[int, int]:
    """Add sign * count of entries[start:] (key 0: skip) until full; returns (next, used)."""
    mask = np.uint64(len(slots) - 1)
    for row in range(start, len(entries)):
        key = entries[row, 0]
        if key == np.uint64(0):
            continue
        place = ((key * SPREAD) >> np.uint64(32)) & mask
        while slots[place, 0] != key:
            if slots[place, 0] == np.uint64(0):
                if used >= used_max:
                    return row, used
                slots[place, 0] = key
                used += 1
                break
            place = (place + np.uint64(1)) & mask
        slots[place, 1] += np.uint64(sign * np.int64(entries[row, 1]))
    return len(entries), used


@njit(nogil=True, cache=True)
def _look_up(slots: Slots, keys: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
    """The counts of keys that are in the map; shapes [n]."""
    mask = np.uint64(len(slots) - 1)
    for row in range(keys.size):
        place = ((keys[row] * SPREAD) >> np.uint64(32)) & mask
        while slots[place, 0] != keys[row]:
            place = (place + np.uint64(1)) & mask
        counts[row] = np.int64(slots[place, 1])


@njit(nogil=True, cache=True)
def _pack(slots: Slots, touched: Slots) -> int:
    """Copy the slots whose count is not 0 into `touched`, [used, 2]; returns how many there are."""
    size = 0
    for place in range(len(slots)):
        if slots[place, 1] != np.uint64(0):
            touched[size, 0], touched[size, 1] = slots[place, 0], slots[place, 1]
            size += 1
    return size


@njit(nogil=True, cache=True)
def _count_slots(slots: Slots, held: NDArray[np.int64]) -> None:
    """Count the slots of each group in `held`, int64 [groups]."""
    for place in range(len(slots)):
        if slots[place, 0] != np.uint64(0):
            held[(slots[place, 0] - np.uint64(1)) >> np.uint64(32)] += 1


class CellCounts:
    """int64 counts of (group, cell) pairs, held only for the pairs that were touched.

    slots: uint64 [capacity, 2]: key (0: free) and count; capacity a power of two, at most 5/8 used.
    A key is (group << 32 | cell) + 1, so that keys in order are groups in order, cells within.
    """

    __slots__ = ("slots", "used")

    def __init__(self, entries: int = 0) -> None:
        """Make an empty map with room for so many entries."""
        self.used = 0
        self.slots = _room_for(entries)

    @property
    def used_max(self) -> int:
        """Return how many slots may be used before the map must grow."""
        return len(self.slots) * 5 // 8

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self.slots.nbytes

    def widen(self) -> None:
        """Double the room (or only drop the entries that are back at zero, if these are many)."""
        touched = self._touched()
        self._refill(touched, 2 * len(touched))

    def _touched(self) -> Slots:
        touched = np.empty((self.used, 2), np.uint64)
        return touched[: _pack(self.slots, touched)]

    def _refill(self, entries: Slots, room: int) -> None:
        self.slots = _room_for(room)
        self.used = 0
        self._add(entries)

    def _add(self, entries: Slots, sign: int = 1) -> None:
        row = 0
        while True:
            row, self.used = _add(self.slots, self.used, self.used_max, row, entries, sign)
            if row == len(entries):
                return
            self.widen()

    def note_used(self, used: int) -> None:
        """Note how many slots are used, after a kernel has counted into `slots`."""
        self.used = used

    def take(self, entries: Slots) -> bool:
        """Add entries, keys and counts as in `slots`; whether the map has grown for them."""
        room = len(self.slots)
        self._add(entries)
        return len(self.slots) > room

    def merge(self, other: Self, sign: int = 1) -> None:
        """Add sign * the other's counts."""
        if len(self.slots) < len(other.slots):
            # Keys arrive in the order of their places: in a smaller map they would all cluster.
            self._refill(self._touched(), len(other.slots) * 5 // 8)
        self._add(other.slots, sign)

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Groups, cells and counts of all non-zero entries, by group, then by cell. Shapes [n]."""
        held = self.slots[:, 1] != 0
        keys = np.sort(self.slots[held, 0])  # Sorting and looking up again is 3 times argsort.
        counts = np.empty(keys.size, np.int64)
        _look_up(self.slots, keys, counts)
        plain = (keys - np.uint64(1)).view(np.int64)
        return plain >> 32, plain & 0xFFFFFFFF, counts

    def held_by_group(self, groups: int) -> NDArray[np.int64]:
        """Return how many slots each of `groups` groups has; int64 [groups]."""
        held = np.zeros(groups, np.int64)
        _count_slots(self.slots, held)
        return held

    def unordered(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Groups, cells and counts of all non-zero entries, in any order. Shapes [n]."""
        touched = self._touched()
        plain = (touched[:, 0] - np.uint64(1)).view(np.int64)
        return plain >> 32, plain & 0xFFFFFFFF, touched[:, 1].astype(np.int64)

    @classmethod
    def of(
        cls, groups: NDArray[np.int64], cells: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> Self:
        """The map of these entries; shapes [n], pairs different."""
        made = cls(counts.size)
        keys = ((groups << 32) | cells) + 1
        made._add(np.column_stack((keys, counts)).astype(np.int64).view(np.uint64))
        return made

    def regrouped(self, places: NDArray[np.int64]) -> Self:
        """A new map in which group g is group places[g]; those placed at -1 are left out."""
        groups, cells, counts = self.entries()
        moved = places[groups]
        kept = moved >= 0
        return type(self).of(moved[kept], cells[kept], counts[kept])


def _room_for(entries: int) -> Slots:
    capacity = _SMALLEST
    while capacity * 5 // 8 < entries:
        capacity *= 2
    return np.zeros((capacity, 2), np.uint64)


def placing(ids: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Return where each of `groups` groups goes when those at `ids` are selected; -1: nowhere.

    Raises:
      BadParameter: one is selected twice.
    """
    places = np.full(groups, -1, np.int64)
    places[ids] = np.arange(ids.size)
    twice = np.flatnonzero(places[ids] != np.arange(ids.size))
    if twice.size:
        raise BadParameter("ids", int(ids[twice[0]]), "each group once")
    return places


def checked_entries(
    groups: NDArray[Any], cells: NDArray[Any], *, group_count: int, cell_count: int
) -> None:
    """Entries read from bytes must lie inside their axes.

    Raises:
      CorruptSynopsis: they do not.
    """
    for what, index, size in (("group", groups, group_count), ("cell", cells, cell_count)):
        checked_axis(what, index, size)


def checked_axis(what: str, index: NDArray[Any], size: int) -> None:
    """Places on an axis that were read from bytes must lie inside of it.

    Raises:
      CorruptSynopsis: they do not.
    """
    is_inside = not index.size or index.max() < size
    if not is_inside or (index.size and index.dtype.kind != "u" and index.min() < 0):
        raise CorruptSynopsis(what, int(index.max()), f"0 to {size - 1}")
