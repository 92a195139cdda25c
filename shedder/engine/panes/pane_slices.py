"""Pane slices: a view of tuples in time order, cut at the borders of panes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from shedder.streams.frame import Frame
from shedder.streams.windows import PaneGrid

Integers = NDArray[np.int64]

_STRETCH = 256  # About the root of a batch's rows: as many ends as rows of a stretch.


def first_at(times_us: Integers, from_us: int) -> int:
    """Return the index of the first of ascending event times at or after a time."""
    if not times_us.size or times_us.item(0) >= from_us:
        return 0
    if times_us.item(-1) < from_us:
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
    ends = panes_of(times[:: max(len(times) - 1, 1)]).tolist()
    if ends[0] == ends[-1]:
        return [(ends[0], 0, len(times))]
    firsts = np.concatenate([[0], _cuts(times, panes_of)])
    lasts = [*firsts[1:].tolist(), len(view)]
    return zip(panes_of(times[firsts]).tolist(), firsts.tolist(), lasts, strict=True)


def slices_of(view: Frame, grid: PaneGrid) -> Iterable[tuple[int, int, int]]:
    """The same by the panes of a grid; of nearly every batch of a fast stream there is one."""
    if not grid.slides:
        return slices(view, None)
    times = view.times_us
    first, last = grid.pane_of(times.item(0)), grid.pane_of(times.item(-1))
    return [(first, 0, len(view))] if first == last else slices(view, grid.panes_of)


def _cuts(times: Integers, panes_of: Callable[[Integers], Integers]) -> Integers:
    """The rows with which another pane begins, ascending.

    Times ascend, so where both ends of a stretch are of one pane all of it is: only stretches
    that a pane ends in are looked at row by row.
    """
    ends = np.append(np.arange(0, len(times) - 1, _STRETCH), len(times) - 1)
    panes = panes_of(times[ends])
    cut = np.flatnonzero(panes[1:] != panes[:-1])
    rows = np.minimum(ends[cut, None] + np.arange(_STRETCH + 1), len(times) - 1)
    within = panes_of(times[rows.ravel()]).reshape(rows.shape)
    cuts: Integers = rows[:, 1:][within[:, 1:] != within[:, :-1]]
    return cuts
