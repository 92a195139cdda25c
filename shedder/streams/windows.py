"""Windows as panes: which slice of event time a tuple falls in, which slices an answer covers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from shedder.cql.statement import (
    LandmarkWindow,
    RangeWindow,
    SnapshotWindow,
    UnboundedWindow,
    Window,
)
from synopses.window_tree import merges_max


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of event time, [start_us, end_us); None is open on that side."""

    start_us: int | None
    end_us: int | None


@dataclass(frozen=True, slots=True)
class PaneGrid:
    """Event time cut into panes: pane i covers [i * width_us, (i + 1) * width_us).

    A sliding window is a whole number of panes, because the width is the greatest common divisor
    of range and slide (Li et al. 2005, "No pane, no gain"). A window that does not slide has one
    pane, number 0, whose span is the window itself; its width_us is None.
    """

    span: Span
    width_us: int | None
    range_us: int | None
    slide_us: int | None

    @classmethod
    def of(cls, window: Window) -> PaneGrid:
        """The grid on which this window moves."""
        match window:
            case RangeWindow(range_us, slide_us):
                width = math.gcd(range_us, slide_us)
                return cls(Span(None, None), width, range_us, slide_us)
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
        """Whether old tuples leave the window."""
        return self.width_us is not None

    @property
    def panes_live(self) -> int:
        """How many panes stand at once: a window's, and those of the slide that is filling."""
        if self.width_us is None:
            return 1
        assert self.range_us is not None
        assert self.slide_us is not None
        return (self.range_us + self.slide_us) // self.width_us

    def panes_max(self, lateness_us: int) -> int:
        """How many panes stand at once when the watermark stays so far behind the newest tuple."""
        return self.panes_live + (0 if self.width_us is None else -(-lateness_us // self.width_us))

    @property
    def merges_max(self) -> int:
        """How many merges of panes are kept for the next windows."""
        return merges_max(self.panes_live) if self.slides else 0

    def panes_of(self, times_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pane of each event time. shape [tuples] -> [tuples]."""
        if self.width_us is None:
            return np.zeros(len(times_us), np.int64)
        return np.floor_divide(times_us, self.width_us)

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
        assert self.range_us is not None
        return Span(end_us - self.range_us, end_us)

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
        if end is None or self.range_us is None or self.width_us is None:
            return None
        return (end - self.range_us) // self.width_us
