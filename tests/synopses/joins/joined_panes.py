"""Worlds of two streams whose windows are joined: panes of keys, and the exact size of the join."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.joins.join_size import join_size
from synopses.joins.pane_counts import NO_KEYS, ClosedPane, PaneCounts, PaneRoom, heavy_keys

PANES = 4  # Of a window; one more pane comes before, which names the first heavy keys.
SKEWS = (0.0, 0.5, 0.8, 1.1, 1.4)
CHANGES = ("steady", "bursts", "moving")

Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of world.

    same: hot keys of both sides are the same. change: of the rows from pane to pane; "bursts" have
    1/8 to 8 times as many, so levels differ; with "moving", hot keys are others in each pane.
    """

    skew: float
    same: bool
    change: str
    sizes: PaneRoom
    keys: int = 3_000
    rows: int = 2_000


# Of some 1,500 keys of a pane, 1/64 to all find room.
SIZES = tuple(PaneRoom(1 << lg // 2 + 1, 1 << lg, 1 << lg + 2) for lg in (5, 7, 9, 11))
CELLS = [Cell(*each) for each in itertools.product(SKEWS, (True, False), CHANGES, SIZES)]


@dataclass(frozen=True, slots=True, eq=False)
class JoinedPanes:
    """Panes of both windows, with the exact count of each key."""

    secrets: NDArray[np.uint64]
    panes: tuple[list[ClosedPane], list[ClosedPane]]
    counts: tuple[Keys, Keys]

    @property
    def truth(self) -> int:
        """Pairs of equal keys."""
        return int(self.counts[0] @ self.counts[1])

    @property
    def level(self) -> int:
        """The highest level of all panes."""
        return max(pane.level for side in self.panes for pane in side)

    def size(self, confidence: float) -> Intervals:
        """The size of the join."""
        return join_size(*self.panes, self.secrets, confidence=confidence)


def hashes_of(keys: Keys) -> NDArray[np.uint64]:
    """Hashes of keys, without collisions."""
    return (keys.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


def drawn(cell: Cell, seed: int) -> JoinedPanes:
    """A world of a kind."""
    rng = np.random.default_rng(seed)
    secrets = rng.integers(0, 1 << 64, 2, dtype=np.uint64)
    sides: tuple[list[ClosedPane], list[ClosedPane]] = ([], [])
    counts = np.zeros(cell.keys, np.int64), np.zeros(cell.keys, np.int64)
    heavy = NO_KEYS
    for number, keys in enumerate(_panes(cell, rng)):
        panes = [PaneCounts(cell.sizes, secrets, heavy) for _ in keys]
        for pane, of_side in zip(panes, keys, strict=True):
            pane.update(hashes_of(of_side))
        heavy = heavy_keys([pane.heaviest() for pane in panes], cell.sizes.heavy)
        if number:
            for at, of_side in enumerate(keys):
                sides[at].append(panes[at].closed())
                np.add.at(counts[at], of_side, 1)
    return JoinedPanes(secrets, sides, counts)


def _panes(cell: Cell, rng: np.random.Generator) -> Iterator[tuple[Keys, Keys]]:
    weights = np.cumsum(1.0 / np.arange(1, cell.keys + 1) ** cell.skew)
    names = [rng.permutation(cell.keys) for _ in range(2)]
    for _ in range(PANES + 1):
        if cell.change == "moving":
            names = [np.roll(each, cell.keys // 50) for each in names]
        found = []
        for side in range(2):
            rows = cell.rows
            if cell.change == "bursts":
                rows = int(rows * 8.0 ** rng.uniform(-1, 1))
            ranks = np.searchsorted(weights, rng.random(rows) * weights[-1])
            found.append(names[0 if cell.same else side][ranks])
        yield found[0], found[1]
