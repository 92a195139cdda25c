"""The newest values of each group, as they came: what waits for the group's sketch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.grouped import grown
from synopses.inputs import as_input

_ROOM_MIN: Final = 8
_AXES: Final = 3  # Arrays of an int64 a group.
_NOTHING: Final = np.zeros(0)

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

        Args:
          ids: int32 [n], or [] where all are of group 0. values: float64 [n].
          full: called with a group and all of its buffer, which is read only during the call.
        """
        at, ids, values = 0, as_input(ids, np.int32), as_input(values, np.float64)
        while True:
            at, self._used = _append(
                self._arena, self._starts, self._rooms, self._held, self._used, self.room_max,
                at, ids, values,
            )  # fmt: skip
            if at == values.size:
                return
            group = int(ids[at]) if ids.size else 0
            if self._held[group] == self.room_max:
                self.drain(group, full)
            else:
                self._widen()

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
        """Give a group's values away, if it has any."""
        held = int(self._held[group])
        if held:
            start = int(self._starts[group])
            full(group, self._arena[start : start + held])
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
) -> tuple[int, int]:
    """The row at which a buffer or the arena is full, else n; how much of the arena is used."""
    for row in range(first, values.size):
        value = values[row]
        if np.isnan(value):
            continue
        group = ids[row] if ids.size else 0
        count = held[group]
        if count == rooms[group]:
            if count >= room_max:
                return row, used
            room = min(max(2 * count, _ROOM_MIN), room_max)
            if used + room > arena.size:
                return row, used
            start = starts[group]
            for at in range(count):
                arena[used + at] = arena[start + at]
            starts[group] = used
            rooms[group] = room
            used += room
        arena[starts[group] + count] = value
        held[group] = count + 1
    return values.size, used


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
