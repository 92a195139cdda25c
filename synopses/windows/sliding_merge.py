"""Merges of stretches of panes, as a window slides: few for each slide, and as many for any."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

_FEW = 8  # Leaves that are merged anew each time.
_AHEAD = 2  # Of what is made ahead, for each leaf that a window slides by: all is made in time.


class Mergeable(Protocol):
    """What is asked of a summary: its merge with another one, in place."""

    def merge(self, other: Any, /) -> Any:
        """Add the other, which says the same afterwards."""


S = TypeVar("S", bound=Mergeable)


@dataclass(slots=True)
class _Merge(Generic[S]):
    """What start <= number < stop come to, of leaves or of blocks.

    parts: one summary; none where there is no leaf; several where there is no room for their merge,
      which is not kept then.
    size: of its own one; None if that is a leaf, or another merge.
    """

    start: int
    stop: int
    parts: list[S]
    size: NDArray[np.int64] | None = None


class WindowMerges(Generic[S]):
    """Summaries of panes, and merges of them that later windows use again.

    Leaves stand in blocks of about the square root of a window's length. A window is what is left
    of its first block, the `core` of whole blocks, and the leaves behind them. Of the block that a
    window leaves next all suffixes are made ahead, from its end on, one for each slide; so is the
    core that begins one block later, one block for each slide; the last block grows leaf by leaf.
    So a window that slides by one leaf costs 7 to 8 merges on average and 12 at most (of small
    blocks, whose leaves are merged without suffixes, 9 and 15), however long it is; this is the
    interval synopsis of Golab (2006, ch. 2) with the work of a block's end spread over its slides,
    as Tangwongsan, Hirzel and Schneider (2017, DEBS, "Low-latency sliding-window aggregation in
    worst-case constant time") do it with two stacks, which hold a merge for every leaf: here they
    are some square roots. What came at once, or was forgotten, is merged when it is asked for.

    Merges are kept while there is room; beyond it, windows are merged from what there is, from all
    leaves if it must be. Without a limit, the order of merges follows from the window alone, never
    from what was asked before: equal leaves give equal bits, after a restart too. Leaves are never
    changed once they are added, and what `merged` returns may be a leaf or a merge that is used
    again: it is to be read only.

    size: the sum of what the merges hold beside the leaves, as `size_of` says it.
    """

    __slots__ = (
        "_block", "_blocks", "_cores", "_empty", "_full", "_last", "_leaves", "_newest", "_order",
        "_room", "_seen", "_short", "_size_of", "_suffixes", "size",
    )  # fmt: skip

    def __init__(
        self, empty: Callable[[], S], size_of: Callable[[S], NDArray[np.int64]], leaves: int
    ) -> None:
        """Make merges of nothing.

        Args:
          empty: makes a summary of nothing, which merges start from.
          size_of: what a summary holds, in bytes, of one or several parts; any shape.
          leaves: how many a window has, about; another number costs time, or memory.
        """
        self._empty = empty
        self._size_of = size_of
        self._block = block_leaves(leaves)
        self._leaves: dict[int, S] = {}
        self._order: list[int] = []  # The leaves' numbers, ascending.
        self._blocks: dict[int, _Merge[S]] = {}  # Of whole blocks, by their number.
        self._newest: _Merge[S] | None = None  # Of the block that grows.
        self._suffixes: dict[int, _Merge[S]] = {}  # From a leaf to the end of its block.
        self._cores: dict[int, _Merge[S]] = {}  # Of blocks, from one on: this window's, the next's.
        self._last: int | None = None  # Where the last window began.
        self._seen: int | None = None  # One past the last leaf that a merge may know.
        self.size = np.zeros_like(size_of(empty()))
        self._room: NDArray[np.int64] | None = None
        self._full = False  # The last merge found no room, and none has been dropped since.
        self._short = False  # A merge of the last window found none.

    def add(self, number: int, summary: S) -> None:
        """Take a leaf in, or another one in its place."""
        if self._seen is not None and number < self._seen:
            self.forget_merges()
        if number not in self._leaves:
            insort(self._order, number)
        self._leaves[number] = summary

    @property
    def is_full(self) -> bool:
        """Return whether the last window's merges found no room: it was merged from more parts."""
        return self._short

    @property
    def newest(self) -> S | None:
        """The leaf with the largest number."""
        return self._leaves[self._order[-1]] if self._order else None

    def numbers_in(self, first: int | None, end: int) -> list[int]:
        """Return which leaves first <= number < end there are, ascending."""
        start = 0 if first is None else bisect_left(self._order, first)
        return self._order[start : bisect_left(self._order, end)]

    def drop_before(self, number: int) -> dict[int, S]:
        """Forget the leaves before this one, which are returned, and every merge of them."""
        at = bisect_left(self._order, number)
        dropped = {leaf: self._leaves.pop(leaf) for leaf in self._order[:at]}
        del self._order[:at]
        if at:
            first = -(-number // self._block)  # Of the blocks that are whole still.
            self._drop_below(self._blocks, first)
            self._drop_below(self._cores, first)
            self._drop_below(self._suffixes, number)
            if self._newest is not None and self._newest.start < number:
                self._drop_newest()
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
        for kept in (self._blocks, self._cores, self._suffixes):
            self._drop(kept, lambda _: True)
        self._drop_newest()
        self._seen = self._last = None

    def merged(self, first: int, end: int) -> S | None:
        """The leaves of a window, first <= number < end, as one; None where there is none."""
        start, stop = -(-first // self._block), end // self._block
        self._short = False
        if end - first <= _FEW or start >= stop:
            return self._frozen(self._leaves_in(first, end))
        self._seen = end if self._seen is None else max(self._seen, end)
        slid = 0 if self._last is None else first - self._last
        self._last = first
        self._drop_below(self._suffixes, first)
        self._drop(self._cores, lambda block: not start <= block <= start + 1)
        newest = self._behind(stop, end)  # Before the core, which may need the block it was.
        merge = self._frozen([*self._before(first), *self._core(start, stop), *newest])
        if 0 <= slid < self._block:
            self._prepare(first, end, max(1, slid))
        return merge

    def stretch(self, first: int, end: int) -> S | None:
        """The same of any leaves, with nothing made or kept for windows that come after."""
        start, stop = -(-first // self._block), end // self._block
        if start >= stop:
            return self._frozen(self._leaves_in(first, end))
        parts = self._leaves_in(first, start * self._block)
        for block in self._blocks_in(start, stop):
            held = self._blocks.get(block)
            leaves = self._leaves_in(block * self._block, (block + 1) * self._block)
            parts += leaves if held is None else held.parts
        return self._frozen(parts + self._leaves_in(stop * self._block, end))

    # --- the three parts of a window -----------------------------------------------------------

    def _before(self, first: int) -> list[S]:
        """The leaves from the first one to the end of its block, unless it begins the block."""
        end = -(-first // self._block) * self._block
        if self._block <= _FEW:
            return self._leaves_in(first, end)
        at = first
        while at < end and at not in self._suffixes:
            at += 1
        rest = self._suffixes[at].parts if at < end else []
        for number in range(at - 1, first - 1, -1):
            rest = self._prepend(number, rest)
        return rest

    def _prepend(self, number: int, rest: list[S]) -> list[S]:
        """A leaf, and what is behind it in its block."""
        suffix: _Merge[S] = _Merge(number, number, [])
        if self._take(suffix, [*self._leaves_in(number, number + 1), *rest], number + 1):
            self._suffixes[number] = suffix
        return suffix.parts

    def _core(self, start: int, stop: int) -> list[S]:
        """The blocks start <= block < stop."""
        core = self._cores.pop(start, None)
        if core is not None and core.stop > stop:
            self._release(core)
            core = None
        core = _Merge(start, start, []) if core is None else core
        more = [part for block in self._blocks_in(core.stop, stop) for part in self._whole(block)]
        if self._take(core, more, stop):
            self._cores[start] = core
        return core.parts

    def _whole(self, block: int) -> list[S]:
        """The leaves of a block."""
        if block in self._blocks:
            return self._blocks[block].parts
        first, stop = block * self._block, (block + 1) * self._block
        made: _Merge[S] = _Merge(first, first, [])
        if self._take(made, self._leaves_in(first, stop), stop):
            self._blocks[block] = made
        return made.parts

    def _behind(self, stop: int, end: int) -> list[S]:
        """The leaves from the start of block `stop` to the end; the one before it is whole now."""
        begin = stop * self._block
        newest, self._newest = self._newest, None
        if newest is not None and newest.start < begin:
            block, full = newest.start // self._block, newest.start + self._block
            if block in self._blocks:
                self._release(newest)
            elif self._take(newest, self._leaves_in(newest.stop, full), full):
                self._blocks[block] = newest
            newest = None
        elif newest is not None and (newest.start > begin or newest.stop > end):
            self._release(newest)
            newest = None
        newest = _Merge(begin, begin, []) if newest is None else newest
        if self._take(newest, self._leaves_in(newest.stop, end), end):
            self._newest = newest
        return newest.parts

    def _prepare(self, first: int, end: int, slide: int) -> None:
        """Make a slide's share of what windows need once their next block is no longer whole."""
        block, inside = divmod(first + self._block - 1, self._block)  # It is the next.
        done, stop = inside + slide, (block + 1) * self._block
        if self._full or stop > end:
            return
        if self._block > _FEW:
            at = stop - 1
            while at in self._suffixes:
                at -= 1
            self._before(max(stop - done, block * self._block + 1, at - _AHEAD * slide + 1))
        core = self._cores.get(block + 1)
        at, last = block + 1 if core is None else core.stop, end // self._block
        blocks = -(-(last - block - 1) * min(done, self._block) // self._block)
        upto = min(block + 1 + blocks, at + _AHEAD * slide)
        if upto > at and not self._full:
            self._core(block + 1, upto)

    # --- leaves and merges ---------------------------------------------------------------------

    def _leaves_in(self, first: int, end: int) -> list[S]:
        return [self._leaves[number] for number in self.numbers_in(first, end)]

    def _blocks_in(self, start: int, stop: int) -> Iterator[int]:
        """The blocks that have leaves: event time may have gaps of any length."""
        at = bisect_left(self._order, start * self._block)
        end = bisect_left(self._order, stop * self._block)
        while at < end:
            block = self._order[at] // self._block
            yield block
            at = bisect_left(self._order, (block + 1) * self._block)

    def _take(self, merge: _Merge[S], more: list[S], stop: int) -> bool:
        """Take more parts in, up to there, as one if there is room.

        Returns:
          Whether they are one, which may be kept. `merge.parts` are there for once in any case: of
          what is new as it came, for others may keep it.
        """
        merge.stop = stop
        merge.parts = parts = [*merge.parts, *more]
        if len(parts) <= 1:
            return True
        is_new = merge.size is None
        if is_new and self._full:
            self._short = True
            return False
        if merge.size is None:
            whole = self._joined(parts)
        else:
            self.size -= merge.size
            whole, *rest = parts
            for part in rest:
                whole.merge(part)
        merge.parts, merge.size = [whole], self._size_of(whole)
        if not self._fits(merge.size):  # Blocks save most for their size.
            self._drop(self._suffixes, lambda _: True)
            self._drop(self._cores, lambda _: True)
        self._full = not self._fits(merge.size)
        self._short |= self._full
        if not self._full:
            self.size += merge.size
        elif is_new:
            merge.parts = parts
        return not self._full

    def _fits(self, size: NDArray[np.int64]) -> bool:
        return self._room is None or not (self.size + size > self._room).any()

    def _release(self, merge: _Merge[S]) -> None:
        if merge.size is not None:
            self.size -= merge.size
            self._full = False

    def _drop(self, kept: dict[int, _Merge[S]], old: Callable[[int], bool]) -> None:
        for key in [key for key in kept if old(key)]:
            self._release(kept.pop(key))

    def _drop_below(self, kept: dict[int, _Merge[S]], least: int) -> None:
        while kept and (key := min(kept)) < least:  # Mostly one, or none.
            self._release(kept.pop(key))

    def _drop_newest(self) -> None:
        if self._newest is not None:
            self._release(self._newest)
            self._newest = None

    def _frozen(self, parts: list[S]) -> S | None:
        """The parts as one that does not change any more; None of none."""
        if not parts:
            return None
        if len(parts) > 1 or any(parts[0] is part for part in self._changing()):
            return self._joined(parts)
        return parts[0]

    def _changing(self) -> list[S]:
        """The merges that will take more in."""
        growing = (
            self._cores.values() if self._newest is None else (self._newest, *self._cores.values())
        )
        return [merge.parts[0] for merge in growing if merge.size is not None]

    def _joined(self, parts: list[S]) -> S:
        """The parts as one, merged in this order."""
        joined = self._empty()
        for part in parts:
            joined.merge(part)
        return joined


def block_leaves(leaves: int) -> int:
    """Return how many leaves a block has where windows have so many."""
    return max(_FEW, 1 + isqrt(max(0, leaves - 1)))


def merges_max(leaves: int) -> int:
    """Return how many merges are kept, at most, while there are so many leaves.

    Of each block one, of two beginnings of the core, of the block that grows; and the suffixes of
    two blocks, where blocks are large.
    """
    if leaves <= _FEW:
        return 0
    block = block_leaves(leaves)
    return leaves // block + 1 + 3 + (2 * block if block > _FEW else 0)
