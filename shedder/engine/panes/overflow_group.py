"""Overflow group (`OTHERS`): the tuples of groups beyond a query's group limit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.pane import Pane
from shedder.streams.group_keys import OTHERS


def among_others(pane: Pane, ids: NDArray[np.int64], groups: int) -> Pane:
    """The pane in which group i is group ids[i]: of the others there may be many, which are merged.

    Args:
      pane: with a row for each of its groups; it stays what it is.
      ids: int64 [rows], as from `GroupKeys.adopt`: different, but for OTHERS.
      groups: how many there are.
    """
    lost = np.flatnonzero(ids == OTHERS)
    if len(lost) < 2:
        return pane.scatter(ids, groups)
    placed = np.flatnonzero(ids != OTHERS)
    whole = pane.select(placed).scatter(ids[placed], groups)
    others = _as_one(pane, lost)
    for segment in others.segments.values():
        segment.forget_counts()  # They are of all groups together: `whole` has them.
    return whole.merge(others)


def _as_one(pane: Pane, groups: NDArray[np.int64]) -> Pane:
    """Many groups as group 0, in log2(groups) merges."""
    while len(groups) > 1:
        half = (len(groups) + 1) // 2
        first, second = pane.select(groups[:half]), pane.select(groups[half:])
        pane, groups = first.merge(second), np.arange(half)
    return pane.select(groups)
