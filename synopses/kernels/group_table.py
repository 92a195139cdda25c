"""Dense group ids for 64-bit key hashes: what GROUP BY needs before any summary."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.kernels.prefetch import prefetch
from synopses.model.binary_header import Kind, parameters_of_bytes, seal, unseal
from synopses.model.parameters import as_whole

_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, TAOCP 3, 6.4).
_FREE = np.uint64(0)  # `others` is never looked up, so its id marks a free place.
_SMALLEST = 64
_GROUPS_MAX = (1 << 30) - 1
_ROOMY = 1 << 16  # Groups up to which there are four places for each; beyond, two.
_NEAR = 1 << 13  # Places that stay in the nearest caches.
_AHEAD = 32  # Rows between bringing a place near and looking at it.


@njit(nogil=True, cache=True)
def _assign(
    hashes: NDArray[np.uint64],
    start: int,
    slots: NDArray[np.uint64],
    known: NDArray[np.uint64],
    size: int,
    size_max: int,
    ids: NDArray[np.int32],
    rows: NDArray[np.int64],
) -> tuple[int, int]:
    """Ids of hashes[start:], until there is no place for a new group; returns (next row, size)."""
    mask = np.uint64(len(slots) - 1)
    one = np.uint64(1)
    room = len(known)
    first = size
    last = hashes.size - 1
    far = len(slots) > _NEAR
    for row in range(start, hashes.size):
        if far:
            soon = hashes[min(row + _AHEAD, last)]
            prefetch(slots, int(((soon * _SPREAD) >> np.uint64(32)) & mask))
        key = hashes[row]
        place = ((key * _SPREAD) >> np.uint64(32)) & mask
        group = slots[place, 1]
        while group != _FREE and slots[place, 0] != key:
            place = (place + one) & mask
            group = slots[place, 1]
        if group == _FREE:
            if size >= size_max:
                ids[row] = 0
                continue
            if size >= room:
                return row, size
            group = np.uint64(size)
            slots[place, 0] = key
            slots[place, 1] = group
            known[size] = key
            rows[size - first] = row
            size += 1
        ids[row] = np.int32(group)
    return hashes.size, size


@njit(nogil=True, cache=True)
def _find(hashes: NDArray[np.uint64], slots: NDArray[np.uint64], ids: NDArray[np.int64]) -> None:
    """Ids of hashes; 0 for those of no group."""
    mask = np.uint64(len(slots) - 1)
    one = np.uint64(1)
    last = hashes.size - 1
    far = len(slots) > _NEAR
    for row in range(hashes.size):
        if far:
            soon = hashes[min(row + _AHEAD, last)]
            prefetch(slots, int(((soon * _SPREAD) >> np.uint64(32)) & mask))
        key = hashes[row]
        place = ((key * _SPREAD) >> np.uint64(32)) & mask
        group = slots[place, 1]
        while group != _FREE and slots[place, 0] != key:
            place = (place + one) & mask
            group = slots[place, 1]
        ids[row] = np.int64(group)


@njit(nogil=True, cache=True)
def _place_all(slots: NDArray[np.uint64], known: NDArray[np.uint64], size: int) -> None:
    mask = np.uint64(len(slots) - 1)
    for group in range(1, size):
        place = ((known[group] * _SPREAD) >> np.uint64(32)) & mask
        while slots[place, 1] != _FREE:
            place = (place + np.uint64(1)) & mask
        slots[place, 0] = known[group]
        slots[place, 1] = np.uint64(group)


def _free_slots(groups: int) -> NDArray[np.uint64]:
    """Create places for so many groups; small tables have more of them, so most keys are alone.

    A branch that is not predictable costs more than the memory (measured: 155 and 310 M/s).
    """
    return np.zeros(((4 if groups <= _ROOMY else 2) * groups, 2), np.uint64)


class GroupTable:
    """Ids 1, 2, 3 … for group-key hashes in order of first sight; 0 is `others`.

    A tuple whose group found no room (there are already `groups_max`) is of group 0. Two keys with
    one 64-bit hash are one group: among a million groups that happens with probability 3e-8.

    hashes: uint64 [size]; hashes[0] is 0 and belongs to `others`.
    """

    __slots__ = ("_known", "_size", "_slots", "groups_max")

    def __init__(self, groups_max: int) -> None:
        """Make an empty table.

        Args:
          groups_max: how many groups find room, `others` not counted, 0 to 2^30 - 1.

        Raises:
          BadParameter: a parameter is outside of its range.
        """
        self.limit(groups_max)
        self._size = 1
        self._known = np.zeros(_SMALLEST, np.uint64)
        self._slots = _free_slots(_SMALLEST)

    @property
    def size(self) -> int:
        """Return how many ids there are, `others` counted."""
        return self._size

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The key hash of each id; shape [size]."""
        return self._known[: self._size]

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self._known.nbytes + self._slots.nbytes

    def limit(self, groups_max: int) -> None:
        """Set how many groups find room from now on; those that are there stay.

        Raises:
          BadParameter: the number is outside of its range.
        """
        self.groups_max = as_whole("groups_max", groups_max, 0, _GROUPS_MAX)

    def assign(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Give each tuple its group's id; new groups get new ids while there is room.

        Args:
          hashes: uint64 [n], of the group keys.

        Returns:
          ids int32 [n] in [0, size), and rows int64 [m]: rows[i] is the first row of the new group
          with id old_size + i.
        """
        keys = as_input(hashes, np.uint64)
        ids = np.empty(keys.size, np.int32)
        fresh: list[NDArray[np.int64]] = []
        row = 0
        while True:
            old = self._size
            room = self._known.size - old
            rows = np.empty(min(max(room, 0), keys.size - row), np.int64)
            row, self._size = _assign(
                keys, row, self._slots, self._known, old, self.groups_max + 1, ids, rows
            )
            fresh.append(rows[: self._size - old])
            if row == keys.size:
                return ids, fresh[0] if len(fresh) == 1 else np.concatenate(fresh)
            self._widen()

    def find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the id of each hash; 0: it is of no group. hashes: uint64 [n]."""
        keys = as_input(hashes, np.uint64)
        ids = np.empty(keys.size, np.int64)
        _find(keys, self._slots, ids)
        return ids

    def _widen(self) -> None:
        known = np.zeros(2 * self._known.size, np.uint64)
        known[: self._size] = self.hashes
        self._known = known
        self._place()

    def _place(self) -> None:
        self._slots = _free_slots(self._known.size)
        _place_all(self._slots, self._known, self._size)

    def keep(self, ids: NDArray[np.int64]) -> None:
        """Forget all groups but these, which become 1 … len(ids) in this order.

        Args:
          ids: int64 [m], different, in [1, size).
        """
        kept = self._known[ids]
        self._size = 1 + kept.size
        capacity = _SMALLEST
        while capacity < self._size:
            capacity *= 2
        self._known = np.zeros(capacity, np.uint64)
        self._known[1 : self._size] = kept
        self._place()

    def to_bytes(self) -> bytes:
        """The table as bytes; equal tables give equal bytes."""
        return seal(Kind.GROUP_TABLE, (self.groups_max,), [self.hashes])

    @classmethod
    def from_bytes(cls, data: bytes) -> GroupTable:
        """The table that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.GROUP_TABLE)
        (groups_max,) = body.parameters
        hashes = body.array(np.uint64)
        body.end()
        with parameters_of_bytes():
            table = cls(groups_max)
        table._known = hashes
        table.keep(np.arange(1, hashes.size))
        return table
