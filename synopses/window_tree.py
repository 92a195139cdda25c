"""Merges of stretches of panes, as a window slides, in few merges each."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

_LG_FAN = 3
_FAN = 1 << _LG_FAN  # With 8 children a node, nodes are a seventh of the leaves; with 2, as many.

_AHEAD = 2  # Merges that a window makes for later ones.


class Mergeable(Protocol):
    """What the tree asks of a summary: its merge with another one, in place."""

    def merge(self, other: Any, /) -> Any:
        """Add the other, which says the same afterwards."""


S = TypeVar("S", bound=Mergeable)


class _Held(NamedTuple, Generic[S]):
    """A merge that is kept. parts: one summary, or none where there is no leaf. size: None if it is
    the object of a leaf or of another merge."""

    parts: list[S]
    size: NDArray[np.int64] | None


class WindowTree(Generic[S]):
    """Summaries of panes, and merges of them that later windows use again.

    The interval synopsis of Golab (2006, ch. 2), eight-way: node (level, i) is the merge of the
    leaves from i * 8^level to (i + 1) * 8^level, made when a window first contains all of them. A
    window [first, end) is cut at `middle_of` it. The nodes before the middle are kept as merges
    from each one's start to the middle, those behind it as merges from the middle to each one's
    end, as two stacks do (Tangwongsan, Hirzel, Schneider 2017, DEBS, "Low-latency sliding-window
    aggregation in worst-case constant time"), so that an answer merges these two and up to 7 leaves
    on each side. A window that slides by one leaf costs 10 to 11 merges on average, however long it
    is, and at most 22 for each level: O(log n) for n leaves. A window of up to 8 leaves is merged
    anew, and nothing is kept.

    Where a new middle begins all merges before it are new. So a middle counts only some leaves
    after it could, and most windows make two merges ahead, of these or of those that a window soon
    needs whose first leaf is no longer that of a large node.

    Merges are kept while there is room; beyond it, windows are merged from what there is, from all
    leaves if it must be. Without a limit, the order of merges follows from the window alone, never
    from what was asked before: equal leaves give equal bits, after a restart too. Leaves are never
    changed once they are added, and what `merged` returns may be a leaf or a merge that is used
    again: it is to be read only.

    size: the sum of what the merges hold beside the leaves, as `size_of` says it.
    """

    __slots__ = (
        "_ahead", "_before", "_behind", "_empty", "_full", "_leaves", "_middle", "_next", "_nodes",
        "_order", "_room", "_seen", "_size_of", "size",
    )  # fmt: skip

    def __init__(self, empty: Callable[[], S], size_of: Callable[[S], NDArray[np.int64]]) -> None:
        """Make a tree without leaves.

        Args:
          empty: makes a summary of nothing, which merges start from.
          size_of: what a summary holds, in bytes, of one or several parts; any shape.
        """
        self._empty = empty
        self._size_of = size_of
        self._leaves: dict[int, S] = {}
        self._order: list[int] = []  # The leaves' numbers, ascending.
        self._nodes: dict[tuple[int, int], _Held[S]] = {}
        self._middle: int | None = None
        self._before: dict[int, _Held[S]] = {}
        self._behind: dict[int, _Held[S]] = {}
        self._next: int | None = None  # The middle that comes, and merges up to it.
        self._ahead: dict[int, _Held[S]] = {}
        self._seen: int | None = None  # One past the last leaf that a merge may know.
        self.size = np.zeros_like(size_of(empty()))
        self._room: NDArray[np.int64] | None = None
        self._full = False  # The last merge found no room, and none has been dropped since.

    def add(self, number: int, summary: S) -> None:
        """Take a leaf in, or another one in its place."""
        if self._seen is not None and number < self._seen:
            self.forget_merges()
        if number not in self._leaves:
            insort(self._order, number)
        self._leaves[number] = summary

    @property
    def is_full(self) -> bool:
        """Whether a merge found no room: windows are merged from more parts than they need be."""
        return self._full

    def numbers_in(self, first: int | None, end: int) -> list[int]:
        """Which leaves first <= number < end there are, ascending."""
        start = 0 if first is None else bisect_left(self._order, first)
        return self._order[start : bisect_left(self._order, end)]

    def drop_before(self, number: int) -> dict[int, S]:
        """Forget the leaves before this one, which are returned, and every merge of them."""
        at = bisect_left(self._order, number)
        dropped = {leaf: self._leaves.pop(leaf) for leaf in self._order[:at]}
        del self._order[:at]
        if at:
            old = [key for key in self._nodes if key[1] << _LG_FAN * key[0] < number]
            self._drop(self._nodes, old)
            for kept in (self._before, self._ahead):
                self._drop(kept, [start for start in kept if start < number])
            if self._middle is not None and self._middle < number:
                self._start_at(None)
        return dropped

    def limit(self, room: NDArray[np.int64]) -> None:
        """From now on the merges hold no more than this; before the first call, anything.

        Args:
          room: in bytes, as `size_of` counts them.
        """
        self._room = room
        self._full = False
        if (self.size > room).any():
            self.forget_merges()

    def forget_merges(self) -> None:
        """Keep nothing but the leaves; the next window is merged from them."""
        self._drop(self._nodes, list(self._nodes))
        self._start_at(None)
        self._look_ahead_to(None)
        self._seen = None

    def merged(self, first: int, end: int) -> S | None:
        """The leaves first <= number < end as one; None where there is none."""
        if end - first <= _FAN:
            parts = [part for n in range(first, end) for part in self._leaf(n)]
        else:
            self._seen = end if self._seen is None else max(self._seen, end)
            middle = middle_of(first, end)
            if middle != self._middle:
                self._start_at(middle)
            parts = [*self._up_to_middle(first, middle), *self._from_middle(middle, end)]
            if end % _FAN and end - first >= _FAN**2:  # Else there is enough, or little, to merge.
                self._prepare(first, middle, _cut(first, end))
        return self._joined(parts) if parts else None

    # --- the two sides of the middle -----------------------------------------------------------

    def _start_at(self, middle: int | None) -> None:
        self._middle = middle
        self._drop(self._before, list(self._before))
        self._drop(self._behind, list(self._behind))
        if middle is not None and middle == self._next:
            self._before, self._ahead, self._next = self._ahead, self._before, None

    def _up_to_middle(self, first: int, middle: int) -> list[S]:
        """The leaves first <= number < middle: up to 7, then what is kept of the nodes."""
        self._drop(self._before, [start for start in self._before if start < first])
        leaves, missing = _way_up(first, middle, self._before)
        at = missing[-1][0] + _FAN ** missing[-1][1] if missing else first + leaves
        rest = self._before[at].parts if at < middle else []
        for start, level in reversed(missing):
            rest = self._keep_node(self._before, start, level, rest)
        return [*(part for n in range(first, first + leaves) for part in self._leaf(n)), *rest]

    def _keep_node(
        self, where: dict[int, _Held[S]], start: int, level: int, rest: list[S]
    ) -> list[S]:
        """The node that starts there, and the rest behind it."""
        return self._keep(where, start, [*self._node(level, start >> _LG_FAN * level), *rest])

    def _look_ahead_to(self, middle: int | None) -> None:
        self._next = middle
        self._drop(self._ahead, list(self._ahead))

    def _prepare(self, first: int, middle: int, coming: int) -> None:
        """Make two merges that later windows need: before the next middle, or before this one."""
        if coming > middle:
            if coming != self._next:
                self._look_ahead_to(coming)
            self._drop(self._ahead, [start for start in self._ahead if start < first])
            self._go_back(self._ahead, first, coming)
        elif self._next is None:
            self._go_back(self._before, first + _FAN, middle)

    def _go_back(self, where: dict[int, _Held[S]], first: int, middle: int) -> None:
        """Make two of the merges from there to this middle, from there backwards."""
        for _ in range(_AHEAD):
            _, missing = _way_up(first, middle, where)
            if not missing:
                return
            start, level = missing[-1]
            at = start + _FAN**level
            rest = where[at].parts if at < middle else []
            self._keep_node(where, start, level, rest)
            if self._full:  # What windows need now comes first.
                self._look_ahead_to(None)
                return

    def _from_middle(self, middle: int, end: int) -> list[S]:
        """The leaves middle <= number < end: what is kept of the nodes, then up to 7 leaves."""
        leaves: list[S] = []
        nodes: list[tuple[int, int]] = []
        at = end
        while at > middle:
            level = _level_of(at, at - middle)
            if level:
                nodes.append((at, level))
            else:
                leaves += self._leaf(at - 1)
            at -= _FAN**level
        path = {stop for stop, _ in nodes}
        self._drop(self._behind, [stop for stop in self._behind if stop not in path])
        rest: list[S] = []
        for stop, level in reversed(nodes):
            if stop in self._behind:
                rest = self._behind[stop].parts
            else:
                node = self._node(level, (stop >> _LG_FAN * level) - 1)
                rest = self._keep(self._behind, stop, [*rest, *node])
        return [*rest, *reversed(leaves)]

    # --- nodes ---------------------------------------------------------------------------------

    def _leaf(self, number: int) -> list[S]:
        leaf = self._leaves.get(number)
        return [] if leaf is None else [leaf]

    def _node(self, level: int, index: int) -> list[S]:
        """The leaves index * 8^level <= number < (index + 1) * 8^level, as one while there is room.

        Event time may have gaps of any length: for them nothing is walked through and nothing kept.
        """
        if not level:
            return self._leaf(index)
        held = self._nodes.get((level, index))
        if held is not None:
            return held.parts
        first = bisect_left(self._order, index * _FAN**level)
        inside = bisect_left(self._order, (index + 1) * _FAN**level, first) - first
        if inside <= 1:
            return [self._leaves[number] for number in self._order[first : first + inside]]
        children = range(index * _FAN, (index + 1) * _FAN)
        parts = [part for child in children for part in self._node(level - 1, child)]
        return self._keep(self._nodes, (level, index), parts)

    def _keep(self, where: dict[Any, _Held[S]], key: Any, parts: list[S]) -> list[S]:
        """The parts as one, which is kept; or as they are when there is no room."""
        if len(parts) <= 1:
            where[key] = _Held(parts, None)
            return parts
        if self._full:
            return parts
        joined = self._joined(parts)
        size = self._size_of(joined)
        self._full = self._room is not None and bool((self.size + size > self._room).any())
        if self._full:
            return parts
        where[key] = _Held([joined], size)
        self.size += size
        return [joined]

    def _drop(self, where: dict[Any, _Held[S]], keys: Iterable[Any]) -> None:
        for key in keys:
            held = where.pop(key)
            if held.size is not None:
                self.size -= held.size
                self._full = False

    def _joined(self, parts: list[S]) -> S:
        """The parts as one, merged in this order; a single one stays itself."""
        if len(parts) == 1:
            return parts[0]
        joined = self._empty()
        for part in parts:
            joined.merge(part)
        return joined


def middle_of(first: int, end: int) -> int:
    """Where a window is cut: of the numbers in (first, end], the last that 8 divides most often.

    Whole nodes lead from there to both ends, and it moves once in as many slides as it is divided.
    In windows of 64 leaves and more the last of them, an eighth to a 64th, are not looked at: so
    the next middle is known before it counts.
    """
    return _cut(first, end - _delay(end - first))


def _delay(leaves: int) -> int:
    """How many leaves after it could a middle counts: enough for what is to be merged ahead."""
    level = 0
    while _FAN ** (level + 1) <= leaves:
        level += 1
    return _FAN ** (level - 1) if level > 1 else 0


def _cut(first: int, end: int) -> int:
    """Of the numbers in (first, end], the last that 8 divides most often."""
    level, middle = 0, end
    while _FAN**level <= end - first:  # Of a higher power there is one multiple at most.
        shift = _LG_FAN * (level + 1)
        if end >> shift << shift <= first:
            break
        level, middle = level + 1, end >> shift << shift
    return middle


def merges_max(leaves: int) -> int:
    """How many merges a tree holds, at most, while it has so many leaves.

    Of nodes on each level one per 8^level leaves and one that reaches beyond them; on the sides of
    the middle, and before the next, at most 7 for each level and side, and on each side not more
    than there are nodes of 8 leaves.
    """
    nodes = levels = 0
    while _FAN ** (levels + 1) <= leaves:
        levels += 1
        nodes += leaves // _FAN**levels + 1
    ahead = min((_FAN - 1) * levels, leaves // _FAN) if levels > 1 else 0
    return nodes + min(2 * (_FAN - 1) * levels, leaves // _FAN) + ahead


def _way_up(first: int, middle: int, held: Mapping[int, Any]) -> tuple[int, list[tuple[int, int]]]:
    """How many leaves, then the starts and levels of which nodes, lead from first to the middle.

    Only up to a start that is held.
    """
    leaves = 0
    missing: list[tuple[int, int]] = []
    at = first
    while at < middle and at not in held:
        level = _level_of(at, middle - at)
        if level:
            missing.append((at, level))
        else:
            leaves += 1
        at += _FAN**level
    return leaves, missing


def _level_of(number: int, room: int) -> int:
    """The level of the widest node that may begin (or end) at this number and fits in the room."""
    level = 0
    while _FAN ** (level + 1) <= room and not number % _FAN ** (level + 1):
        level += 1
    return level
