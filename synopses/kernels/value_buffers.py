"""Buffers of each group's newest values, which wait for the group's sketch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.kernels.group_ordering import ROWS_MIN, by_group, groups_of
from synopses.kernels.grouped_arrays import grown
from synopses.kernels.radix_sort import sort_into, sorted_floats

_ROOM_MIN: Final = 8
_AXES: Final = 3  # Arrays of an int64 a group.
_NOTHING: Final = np.zeros(0)
_READY: Final = 65_536  # Values of full buffers that are given away together.
_NO_GROUPS: Final = np.zeros(0, np.int64)
_NO_BUFFERS: Final = np.zeros((0, 0))
_DONE, _NO_ROOM, _ALL_READY = range(3)  # Why appending ends.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Full = Callable[[int, Floats], None]


class ValueBuffers:
    """Up to `room_max` float64 of each group, in one arena; a buffer that is full is given away.

    Rooms double as groups grow, so that small ones take little.
    """

    __slots__ = ("_arena", "_groups", "_held", "_rooms", "_starts", "_used", "room_max")

    def __init__(self, groups: int, room_max: int) -> None:
        room = max(groups, 1)
        self.room_max = room_max
        self._groups = groups
        self._arena = _NOTHING
        self._used = 0
        self._starts = np.zeros(room, np.int64)
        self._rooms = np.zeros(room, np.int64)
        self._held = np.zeros(room, np.int64)

    @property
    def held(self) -> Integers:
        """Values in each buffer; int64 [groups]."""
        return self._held[: self._groups].copy()

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return int(self._arena.nbytes + _AXES * self._held.nbytes)

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._starts = grown(self._starts, groups)
            self._rooms = grown(self._rooms, groups)
            self._held = grown(self._held, groups)
            self._groups = groups

    def add(self, ids: NDArray[np.int32], values: Floats, full: Full) -> None:
        """Append values; NaN is left out.

        Buffers that are full are sorted where they fill, all in one call that holds no lock.

        Args:
          ids: int32 [n], or [] where all are of group 0. values: float64 [n].
          full: called with a group and all of its buffer in ascending order, which is read only
            during the call.
        """
        at, ids, values = 0, as_input(ids, np.int32), as_input(values, np.float64)
        if ids.size >= max(1, ROWS_MIN * self._groups):  # A group's rows go where memory is near.
            bounds, values = by_group(ids, values, self._groups)
            ids, values = as_input(groups_of(bounds), np.int32), as_input(values, np.float64)
        groups, sorted_ = _NO_GROUPS, _NO_BUFFERS
        while True:
            at, self._used, ready, stop = _append(
                self._arena, self._starts, self._rooms, self._held, self._used, self.room_max,
                at, ids, values, groups, sorted_,
            )  # fmt: skip
            for place in range(ready):
                full(int(groups[place]), sorted_[place])
            if stop == _DONE:
                return
            if stop == _NO_ROOM:
                self._widen()
            elif not groups.size:
                groups = np.empty(max(1, _READY // self.room_max), np.int64)
                sorted_ = np.empty((groups.size, self.room_max))

    def reserve(self, coming: Integers) -> None:
        """Give groups that have no room just enough for so many values; int64 [groups]."""
        rooms = self._rooms[: coming.size]
        fresh = np.flatnonzero((rooms == 0) & (coming > 0))
        sizes = np.minimum(coming[fresh], self.room_max)
        end = self._used + int(sizes.sum())
        if end > self._arena.size:
            self._widen(end - self._used)
            end = self._used + int(sizes.sum())
        self._starts[fresh] = self._used + np.cumsum(sizes) - sizes
        self._rooms[fresh] = sizes
        self._used = end

    def drain(self, group: int, full: Full) -> None:
        """Give a group's values away, in ascending order, if it has any."""
        held = int(self._held[group])
        if held:
            start = int(self._starts[group])
            full(group, sorted_floats(self._arena[start : start + held]))
            self._held[group] = 0

    def entries(self, ids: Integers | None = None) -> tuple[NDArray[np.int32], Floats]:
        """Group and value of all that is held, by group and then as it came.

        ids: only of these groups, by their places among them.
        """
        which = slice(self._groups) if ids is None else ids
        starts, held = self._starts[which], self._held[which]
        values = np.empty(int(held.sum()))
        _gather(self._arena, starts, held, values)
        return np.repeat(np.arange(held.size, dtype=np.int32), held), values

    def trim(self) -> None:
        """Give back the room that nothing is in."""
        _, self._arena = self.entries()
        held = self._held[: self._groups]
        self._used = self._arena.size
        self._rooms[: self._groups] = held
        self._starts[: self._groups] = np.cumsum(held) - held

    def _widen(self, least: int = 0) -> None:
        """Give the arena more room, so much at least, without the gaps of buffers that moved."""
        rooms = self._rooms[: self._groups]
        room = int(rooms.sum())
        wider = np.empty(room + max(room // 4, 2 * int(rooms.max(initial=0)), 2 * _ROOM_MIN, least))
        self._used = _repack(self._arena, self._starts, rooms, self._held, wider)
        self._arena = wider


def waiting_bytes(room_max: int, tuples: int) -> int:
    """What the buffer of a group of so many tuples takes: its room may be twice its values."""
    return 8 * (_AXES + min(room_max, 2 * tuples))


def quantiles(groups: NDArray[np.int32], values: Floats, ranks: Integers) -> Floats:
    """The value of each group's rank: float64 [groups], 0 where a group has none.

    Args:
      groups, values: as `entries` gives them. ranks: int64 [groups], from 1.
    """
    counts = np.bincount(groups, minlength=ranks.size)
    starts = np.cumsum(counts) - counts
    ordered = values[np.lexsort((values, groups))]
    found = np.zeros(ranks.size)
    there = counts > 0
    found[there] = ordered[(starts + ranks - 1)[there]]
    return found


@njit(nogil=True, cache=True)
def _append(
    arena: Floats,
    starts: Integers,
    rooms: Integers,
    held: Integers,
    used: int,
    room_max: int,
    first: int,
    ids: NDArray[np.int32],
    values: Floats,
    groups: Integers,
    ready: NDArray[np.float64],
) -> tuple[int, int, int, int]:
    """Append values from `first` on until there is no place for one.

    groups: int64 [m], ready: float64 [m, room_max], receive buffers that are full, sorted.

    Returns:
      (next row, how much of the arena is used, how many buffers are ready, why it ended).
    """
    row, done, grouped = first, 0, ids.size > 0
    while row < values.size:
        group = np.int64(ids[row]) if grouped else np.int64(0)
        start, room = starts[group], rooms[group]
        to, end, is_full = start + held[group], start + room, False
        while row < values.size and (not grouped or ids[row] == group):  # All that stand together.
            value = values[row]
            if not np.isnan(value):
                if to == end:
                    is_full = True
                    break
                arena[to] = value
                to += 1
            row += 1
        held[group] = to - start
        if not is_full:
            continue
        if room >= room_max:
            if done == groups.size:
                return row, used, done, _ALL_READY
            sort_into(arena[start:to], ready[done])
            groups[done] = group
            done += 1
            held[group] = 0
            continue
        wider = min(max(2 * room, _ROOM_MIN), room_max)
        if used + wider > arena.size:
            return row, used, done, _NO_ROOM
        for at in range(room):
            arena[used + at] = arena[start + at]
        starts[group], rooms[group] = used, wider
        used += wider
    return row, used, done, _DONE


@njit(nogil=True, cache=True)
def _gather(arena: Floats, starts: Integers, held: Integers, values: Floats) -> None:
    """Copy what is held, group by group."""
    to = 0
    for group in range(held.size):
        start = starts[group]
        for at in range(held[group]):
            values[to] = arena[start + at]
            to += 1


@njit(nogil=True, cache=True)
def _repack(arena: Floats, starts: Integers, rooms: Integers, held: Integers, wider: Floats) -> int:
    """Move all buffers into another arena, without gaps; returns how much of it is used."""
    used = 0
    for group in range(rooms.size):
        start = starts[group]
        for at in range(held[group]):
            wider[used + at] = arena[start + at]
        starts[group] = used
        used += rooms[group]
    return used
