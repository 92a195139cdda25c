"""A view of tuples, cut where it goes from one pane to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from shedder.streams.frame import Frame

Integers = NDArray[np.int64]


def first_at(times_us: Integers, from_us: int) -> int:
    """Where in ascending event times the first one at or after a time is; mostly at an end."""
    if not times_us.size or times_us[0] >= from_us:
        return 0
    if times_us[-1] < from_us:
        return int(times_us.size)
    return int(np.searchsorted(times_us, from_us))


def slices(
    view: Frame, panes_of: Callable[[Integers], Integers] | None
) -> Iterable[tuple[int, int, int]]:
    """(pane, first row, last row) for each stretch of rows that fall in one pane.

    Args:
      view: in time order, not empty.
      panes_of: the pane of each event time; None: all are of pane 0.
    """
    if panes_of is None:
        return [(0, 0, len(view))]
    times = view.times_us
    first_pane, last_pane = panes_of(times[[0, -1]]).tolist()
    if first_pane == last_pane:  # Nearly every batch of a fast stream.
        return [(first_pane, 0, len(view))]
    panes = panes_of(times)
    cuts = np.flatnonzero(np.diff(panes)) + 1
    firsts = np.concatenate([[0], cuts])
    lasts = np.concatenate([cuts, [len(view)]])
    return zip(panes[firsts].tolist(), firsts.tolist(), lasts.tolist(), strict=True)
