"""The panes that the watermark has passed, and the windows that are merged from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shedder.engine.pane import Pane
from shedder.engine.plan import Plan
from synopses.grouped import grown
from synopses.window_tree import WindowTree


class ClosedPanes:
    """Panes that do not change any more, with what the next windows need of them.

    What is counted of them is linear: it is added when a pane comes and taken off when it goes, so
    that a slide does not look at every pane.
    """

    def __init__(self, plan: Plan, *, grouped: bool) -> None:
        self._plan = plan
        self._groups_least = 0 if grouped else 1
        self._tree = WindowTree(self._empty, _bytes_of)
        self._bytes: dict[int, NDArray[np.int64]] = {}
        self._sum = self._nothing()
        self._heaviest: NDArray[np.int64] | None = None
        self._homes = np.zeros(1, np.int32)  # In how many panes each group has tuples.

    def _empty(self) -> Pane:
        return Pane(self._plan, self._groups_least)

    def _nothing(self) -> NDArray[np.int64]:
        return np.zeros(len(self._plan.parts), np.int64)

    @property
    def numbers(self) -> list[int]:
        """The panes' numbers, ascending."""
        return sorted(self._bytes)

    def add(self, number: int, pane: Pane) -> None:
        """Take a pane in; it is not changed from now on."""
        assert number not in self._bytes
        pane.grow(self._groups_least)  # A pane that was read thinned may have no group yet.
        self._bytes[number] = _bytes_of(pane)
        self._sum += self._bytes[number]
        self._heaviest = None
        self._count(pane, 1)
        self._tree.add(number, pane)

    def drop_before(self, number: int) -> list[int]:
        """Forget the panes before this one; returns which these were."""
        dead = self._tree.drop_before(number)
        for old, pane in dead.items():
            self._count(pane, -1)
            self._sum -= self._bytes.pop(old)
            self._heaviest = None
        return list(dead)

    def _count(self, pane: Pane, sign: int) -> None:
        there = np.flatnonzero(pane.present)
        if there.size:
            self._homes = grown(self._homes, int(there[-1]) + 1)
            self._homes[there] += sign

    def alive(self, groups: int) -> NDArray[np.bool_]:
        """Which of the groups 0 to groups - 1 have tuples in any of the panes."""
        self._homes = grown(self._homes, groups)
        alive: NDArray[np.bool_] = self._homes[:groups] > 0
        return alive

    def merged(self, numbers: range) -> Pane:
        """These panes as one, to be read only: it may be a pane, or be used again."""
        whole = self._tree.merged(numbers.start, numbers.stop)
        return self._empty() if whole is None else whole

    @property
    def pane_bytes(self) -> NDArray[np.int64]:
        """What each part of the plan holds in the panes; shape [parts]."""
        return self._sum.copy()

    @property
    def merge_bytes(self) -> NDArray[np.int64]:
        """What each part of the plan holds in the merges of them; shape [parts]."""
        return self._tree.size.copy()

    def limit_merges(self, room: NDArray[np.int64]) -> None:
        """Keep merges only as far as each part of the plan has room for them; shape [parts]."""
        self._tree.limit(room)

    @property
    def heaviest_bytes(self) -> NDArray[np.int64]:
        """What each part of the plan holds in its heaviest pane; shape [parts]."""
        if self._heaviest is None:
            sizes = np.array([self._nothing(), *self._bytes.values()])
            self._heaviest = sizes.max(axis=0)
        return self._heaviest


def _bytes_of(pane: Pane) -> NDArray[np.int64]:
    return np.array(pane.part_bytes, np.int64)
