"""Most frequent values of a window of panes, from a list of k values of each pane.

Of a pane the k most frequent values are kept with their counts. A value that is not among them
occurs in the pane at most as often as the last of them, and never if the pane has at most k values.
So a value occurs in the window at least as often as the lists say. It occurs at most more often by
the sum of these last counts, over the panes that do not list it.

Source: Golab 2006, Sliding window query processing over data streams, chapter 6 (Algorithm 6).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.model.errors import BadParameter

Int64s = NDArray[np.int64]

_IDS_MIN = 1024


@dataclass(frozen=True, slots=True, eq=False)
class PaneList:
    """The k most frequent values of a pane.

    ids: int64 [at most k], of the values; different. counts: int64, how often they occur, falling.
    outside: how often any other value occurs at most.
    """

    ids: Int64s
    counts: Int64s
    outside: int


@dataclass(frozen=True, slots=True, eq=False)
class ListedValues:
    """The most frequent values of a window; shapes [n].

    ids: of the values. low, high: how often they occur, at least and at most. The order is by
      falling `low`, then by id.
    guaranteed: bool, no value that is left out occurs more often.
    """

    ids: Int64s
    low: Int64s
    high: Int64s
    guaranteed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)


def listed_places(counts: Int64s, k: int) -> tuple[Int64s, int]:
    """Return which values of a pane are listed, and how often any other occurs at most.

    counts: int64 [values], how often each value occurs. Of equal counts the first are listed.
    """
    places = np.argsort(-counts, kind="stable")[:k]
    return places, int(counts[places[-1]]) if len(counts) > k else 0


class PaneLists:
    """The lists of the newest panes, and their sums by value."""

    def __init__(self, panes: int) -> None:
        """No lists yet. panes: of the window, > 0.

        Raises:
          BadParameter: there are no panes.
        """
        if panes < 1:
            raise BadParameter("panes", panes, "at least 1")
        self._panes = panes
        self._lists: deque[PaneList] = deque()
        self._sums = np.zeros((3, _IDS_MIN), np.int64)  # Count, `outside` and lists of each id.
        self._outside = 0
        self._entries = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the lists and of the sums."""
        return self._sums.nbytes + 16 * self._entries + 8 * len(self._lists)

    @property
    def outside(self) -> int:
        """The most occurrences that a value can have which no pane lists."""
        return self._outside

    @property
    def ids(self) -> Int64s:
        """Values that some pane lists, ascending."""
        return np.flatnonzero(self._sums[2])

    def append(self, pane: PaneList) -> None:
        """Add the newest pane; the oldest leaves once there are more than the window has."""
        most = int(pane.ids.max(initial=0)) + 1
        if most > self._sums.shape[1]:
            sums = np.zeros((3, 2 * most), np.int64)
            sums[:, : self._sums.shape[1]] = self._sums
            self._sums = sums
        self._add(pane, 1)
        self._lists.append(pane)
        if len(self._lists) > self._panes:
            self._add(self._lists.popleft(), -1)

    def top(self, k: int) -> ListedValues:
        """Return the k values that the lists count most often; fewer if fewer are listed."""
        ids = self.ids
        low = self._sums[0, ids]
        high = low + self._outside - self._sums[1, ids]
        order = np.argsort(-low, kind="stable")
        first, others = order[:k], order[k:]
        outside = max(self._outside, int(high[others].max(initial=0)))
        return ListedValues(ids[first], low[first], high[first], low[first] >= outside)

    def keep(self, ids: Int64s) -> None:
        """Number values anew: `ids`, ascending and all that are listed, become 1, 2, ..."""
        sums = np.zeros((3, max(_IDS_MIN, 2 * len(ids))), np.int64)
        sums[:, 1 : len(ids) + 1] = self._sums[:, ids]
        self._sums = sums
        self._lists = deque(
            PaneList(np.searchsorted(ids, it.ids) + 1, it.counts, it.outside) for it in self._lists
        )

    def _add(self, pane: PaneList, sign: int) -> None:
        self._sums[0, pane.ids] += sign * pane.counts
        self._sums[1, pane.ids] += sign * pane.outside
        self._sums[2, pane.ids] += sign
        self._outside += sign * pane.outside
        self._entries += sign * len(pane.ids)
