"""Windows as panes: which slice of event time a tuple falls in, which slices an answer covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from shedder.cql.statements.pane_coarsening import PANES, Coarsening
from shedder.cql.statements.statement import (
    LandmarkWindow,
    RangeWindow,
    SnapshotWindow,
    UnboundedWindow,
    Window,
)
from synopses.windows.sliding_merge import merges_max


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of event time, [start_us, end_us); None is open on that side."""

    start_us: int | None
    end_us: int | None

    def holds(self, times_us: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which event times are inside, bool [times]."""
        inside = np.ones(len(times_us), np.bool_)
        if self.start_us is not None:
            inside &= times_us >= self.start_us
        if self.end_us is not None:
            inside &= times_us < self.end_us
        return inside


@dataclass(frozen=True, slots=True)
class PaneGrid:
    """Event time cut into panes: pane i covers [i * width_us, (i + 1) * width_us).

    A sliding window is a whole number of panes, because the width is the greatest common divisor
    of range and slide (Li et al. 2005, "No pane, no gain"). A window that does not slide has one
    pane, number 0, whose span is the window itself; its width_us is None.

    coarsening: the cells of panes, longer ones the older they are, that are kept in place of them.
    Windows then begin at a multiple of the longest, the last one at or before their range.
    """

    span: Span
    width_us: int | None
    range_us: int | None
    slide_us: int | None
    coarsening: Coarsening = PANES

    @classmethod
    def of(cls, window: Window) -> PaneGrid:
        """The grid on which this window moves."""
        match window:
            case RangeWindow(range_us=range_us, slide_us=slide_us, width_us=width):
                coarsening = Coarsening.of(range_us // width, window.collapse)
                return cls(Span(None, None), width, range_us, slide_us, coarsening)
            case LandmarkWindow(start_us):
                return cls(Span(start_us, None), None, None, None)
            case SnapshotWindow(start_us, end_us):
                return cls(Span(start_us, end_us), None, None, None)
            case UnboundedWindow():
                return cls(Span(None, None), None, None, None)
            case _:
                assert_never(window)

    @property
    def slides(self) -> bool:
        """Return whether old tuples leave the window."""
        return self.width_us is not None

    @property
    def panes_live(self) -> int:
        """Return the number of panes at once: a window's, and those of the open slide."""
        return sum(self.cells_live)

    @property
    def cells_live(self) -> tuple[int, ...]:
        """Return how many cells of each rung stand at once."""
        if self.width_us is None:
            return (1,)
        assert self.range_us is not None
        assert self.slide_us is not None
        panes, *cells = self.coarsening.cells_max(self.range_us // self.width_us)
        return panes + self.slide_us // self.width_us, *cells

    def panes_max(self, lateness_us: int) -> int:
        """Return the number of panes at once for a lag of the watermark."""
        return sum(self.cells_max(lateness_us))

    def cells_max(self, lateness_us: int) -> tuple[int, ...]:
        """Return the number of cells of each rung at once for a lag of the watermark."""
        panes, *cells = self.cells_live
        late = 0 if self.width_us is None else -(-lateness_us // self.width_us)
        return panes + late, *cells

    @property
    def merges_max(self) -> int:
        """Return how many merges of panes are kept for the next windows."""
        return sum(merges_max(cells) for cells in self.cells_live) if self.slides else 0

    def panes_of(self, times_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pane of each event time. shape [tuples] -> [tuples]."""
        if self.width_us is None:
            return np.zeros(len(times_us), np.int64)
        return np.floor_divide(times_us, self.width_us)

    def pane_of(self, time_us: int) -> int:
        """The pane of one event time."""
        return 0 if self.width_us is None else time_us // self.width_us

    def first_open(self, watermark_us: int | None) -> int | None:
        """The oldest pane that the watermark has not passed; None: all panes are open."""
        if self.width_us is None or watermark_us is None:
            return None
        return watermark_us // self.width_us

    def window_end(self, watermark_us: int | None) -> int | None:
        """The end of the newest window that the watermark has passed (RANGE windows only)."""
        if self.slide_us is None or watermark_us is None:
            return None
        return watermark_us // self.slide_us * self.slide_us

    def ends_between(self, after_us: int | None, until_us: int, most: int) -> range:
        """The window ends in (after_us, until_us], the newest `most` of them, oldest first."""
        assert self.slide_us is not None
        last = until_us // self.slide_us
        first = last if after_us is None else after_us // self.slide_us + 1
        first = max(first, last - most + 1)
        return range(first * self.slide_us, last * self.slide_us + 1, self.slide_us)

    def window(self, end_us: int) -> Span:
        """The window that ends here."""
        return Span(self.window_start(end_us), end_us)

    def window_start(self, end_us: int) -> int:
        """Return where the window begins that ends here."""
        assert self.range_us is not None
        assert self.width_us is not None
        longest_us = self.coarsening.longest * self.width_us
        return (end_us - self.range_us) // longest_us * longest_us

    def panes_in(self, span: Span) -> range:
        """The panes that make up a window. A window that does not slide is pane 0."""
        if self.width_us is None:
            return range(1)
        assert span.start_us is not None
        assert span.end_us is not None
        return range(span.start_us // self.width_us, span.end_us // self.width_us)

    def first_needed(self, watermark_us: int | None) -> int | None:
        """The oldest pane that a present or future window can contain; None: all of them."""
        end = self.window_end(watermark_us)
        return None if end is None else self.panes_in(self.window(end)).start

    def bounds(self, end_us: int) -> tuple[int, ...]:
        """Before which pane the cells of each further rung stand, when a window ends here."""
        return () if self.width_us is None else self.coarsening.bounds(end_us // self.width_us)

    def cells_of(
        self, times_us: NDArray[np.int64], end_us: int, first_open: int | None
    ) -> NDArray[np.int64]:
        """The panes that event times are counted in when no window before this end is asked for.

        Args:
          times_us: shape [tuples].
          end_us: of the window.
          first_open: panes before it do not change any more; None: all do.

        Returns:
          shape [tuples]: a pane, or the first pane of a cell that `bounds` says is one.
        """
        assert self.width_us is not None
        panes = self.panes_of(times_us)
        cells = self.coarsening.cells(panes, end_us // self.width_us)
        return cells if first_open is None else np.maximum(cells, np.minimum(panes, first_open))


def span_of(window: Window, watermark_us: int | None) -> Span:
    """The stretch that a one-time query is over: of a sliding window, the last one closed."""
    match window:
        case RangeWindow():
            grid = PaneGrid.of(window)
            end = grid.window_end(watermark_us)
            return Span(0, 0) if end is None else grid.window(end)
        case LandmarkWindow(start_us):
            return Span(start_us, None)
        case SnapshotWindow(start_us, end_us):
            return Span(start_us, end_us)
        case _:
            return Span(None, None)
