"""Coarsening of a window's older panes: COLLAPSE BY rate AFTER depth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Collapse:
    """Of panes of one length the newest `depth` stay; of those behind them, `rate` become one.

    What they become collapses in the same way. rate >= 2, depth >= 1.
    """

    rate: int
    depth: int

    @classmethod
    def of(cls, panes: int) -> Self:
        """For a window of so many panes: about as many old ones as new ones, both few.

        If possible the long panes are a whole part of the window, so that some windows begin where
        they should.
        """
        least = max(2, math.isqrt(panes))
        rate = next((n for n in range(least, 2 * least) if panes % n == 0), least)
        return cls(rate, rate)


@dataclass(frozen=True, slots=True)
class Coarsening:
    """Cells of panes, longer ones the older they are: rung j has cells of grains[j] panes.

    Which cells stand follows from where the window ends, and from nothing else, so that an engine
    that has been restarted makes the same ones. A cell of grain g begins at a multiple of g.

    grains: ascending; each divides the next; the first is 1. kept: of rung j, how many of the
    window's newest panes stay in cells that are no longer; one less than there are grains.
    """

    grains: tuple[int, ...] = (1,)
    kept: tuple[int, ...] = ()

    @classmethod
    def of(cls, panes: int, collapse: Collapse | None) -> Self:
        """For a window of so many panes; without a collapse, all cells are single panes."""
        grains, kept = [1], []
        if collapse is not None:
            length = collapse.depth
            while length < panes:
                kept.append(length)
                grains.append(grains[-1] * collapse.rate)
                length += collapse.depth * grains[-1]
        return cls(tuple(grains), tuple(kept))

    @property
    def longest(self) -> int:
        """Return how many panes the longest cells have: a window begins at a multiple of it."""
        return self.grains[-1]

    def bounds(self, end: int) -> tuple[int, ...]:
        """Before which pane the cells of rung 1, 2, ... stand, when a window ends before `end`."""
        return tuple(
            (end - kept) // grain * grain
            for kept, grain in zip(self.kept, self.grains[1:], strict=True)
        )

    def cells(self, panes: NDArray[np.int64], end: int) -> NDArray[np.int64]:
        """The first pane of the cell that each pane is in. shape [panes] -> [panes]."""
        cells = panes
        for bound, grain in zip(self.bounds(end), self.grains[1:], strict=True):
            cells = np.where(panes < bound, np.floor_divide(panes, grain) * grain, cells)
        return cells

    def cells_max(self, panes: int) -> tuple[int, ...]:
        """Return how many cells of each rung a window of so many panes has, at most."""
        most = []
        oldest = panes + self.longest - 1  # It begins up to so many panes before its end.
        reach = (*(k + g - 1 for k, g in zip(self.kept, self.grains[1:], strict=True)), oldest)
        for rung, grain in enumerate(self.grains):
            since = self.kept[rung - 1] if rung else 0
            most.append(max(0, -(-(reach[rung] - since) // grain)))
        return tuple(most)


PANES = Coarsening()  # All cells are single panes.
