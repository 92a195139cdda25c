"""Windows as arithmetic on event times: the first and the last instant of each tuple.

A window stores nothing. As of e, RANGE T holds the tuples with e - T <= ts < e. With SLIDE s the
relation changes at multiples of s only. NOW is RANGE of one tick (1 us).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shedder.cql.plans.logical_plan import NowWindow
from shedder.cql.statements.statement import (
    LandmarkWindow,
    RangeWindow,
    SnapshotWindow,
    UnboundedWindow,
    Window,
)
from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s
from shedder.dataflow.update_patterns import MONOTONIC, EdgeLabel, of_range

TimeWindow = Window | NowWindow


@dataclass(frozen=True, slots=True)
class WindowLifetimes:
    """Operator of a time window; its input is a stream."""

    window: TimeWindow

    @property
    def size_bytes(self) -> int:
        """Nothing is held."""
        return 0

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:  # noqa: ARG002
        """Give each tuple its lifetime; tuples outside of the window are left out.

        The output is by event time, also where the tuples are the pairs of a join.
        """
        ts = changes.ts_us
        if bool((ts[1:] < ts[:-1]).any()):
            changes = changes.take(np.argsort(ts, kind="stable"))
            ts = changes.ts_us
        match self.window:
            case RangeWindow() as window:
                return _slid(changes, window)
            case NowWindow():
                return changes.with_lifetimes(ts + 1, ts + 1)
            case LandmarkWindow(start_us):
                return _unbounded(changes.where(ts >= start_us))
            case SnapshotWindow(start_us, end_us):
                return _unbounded(changes.where((ts >= start_us) & (ts < end_us)))
            case UnboundedWindow():
                return _unbounded(changes)


def _slid(changes: ChangeBatch, window: RangeWindow) -> ChangeBatch:
    range_us, slide_us = window.range_us, window.slide_us
    born = _next_multiple(changes.ts_us, slide_us)
    if range_us % slide_us:
        expires = _next_multiple(changes.ts_us + range_us, slide_us) - 1
    else:
        expires = born + (range_us - 1)
    if range_us < slide_us:
        return changes.with_lifetimes(born, expires)
    return replace(changes, born_us=born, expires_us=expires)  # Each tuple has an instant.


def _next_multiple(ts_us: Int64s, slide_us: int) -> Int64s:
    """Return the first multiple of the slide behind each time."""
    if slide_us == 1:
        return ts_us + 1
    return (np.floor_divide(ts_us, slide_us) + 1) * slide_us


def _unbounded(changes: ChangeBatch) -> ChangeBatch:
    return changes.with_lifetimes(changes.ts_us + 1, np.full(len(changes), NEVER_US))


def label_of(window: TimeWindow) -> EdgeLabel:
    """The update pattern of a time window over a stream."""
    match window:
        case RangeWindow(range_us=range_us, slide_us=slide_us):
            return of_range(range_us, slide_us)
        case NowWindow():
            return of_range(1, 1)
        case _:
            return MONOTONIC
