"""Lists of frequent values of each group: the k most frequent, or those above a share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from synopses.frequent.entries import Entries
from synopses.frequent.heavy_share import Promise, choose, reason_of
from synopses.model.estimate import Estimates, TopItem

NONE_COUNTED: Final = "no value occurs often enough to be told from the others"
"""Why a list of a group that has values is empty, and has no bound."""


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """How often values occur, by group; all shapes [n]: low <= count <= high."""

    groups: NDArray[np.int64]
    values: NDArray[Any]
    count: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @classmethod
    def of(cls, entries: Entries, low: NDArray[np.int64]) -> Self:
        """Entries that occur `low` times at least, at most `lates` more; as often as seen."""
        return cls(entries.groups, entries.values, low, low, low + entries.lates)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """These rows, in this order."""
        columns = (self.groups, self.values, self.count, self.low, self.high)
        return type(self)(*(column[rows] for column in columns))


def top_lists(counted: Counted, outside: NDArray[np.int64], k: int) -> list[list[TopItem]]:
    """The k largest counts of each group.

    Args:
      counted: by group. outside: int64 [groups], how often any other value occurs at most.
      k: the length of the lists.
    """
    listed = _first_of_each(k, counted, outside.size)
    unlisted = np.ones(counted.groups.size, np.bool_)
    unlisted[listed] = False
    outside = outside.copy()
    np.maximum.at(outside, counted.groups[unlisted], counted.high[unlisted])
    chosen = counted.take(listed)
    return _lists(chosen, chosen.low >= outside[chosen.groups], outside.size)


def frequent_lists(
    counted: Counted,
    outside: NDArray[np.int64],
    totals: tuple[NDArray[np.int64], NDArray[np.int64]],
    *,
    share: float,
    promise: Promise,
    late: int,
    confidence: float = 1.0,
    source: str = "frequent",
) -> Estimates:
    """The values of each group that make up a share of its total, by falling count, then by value.

    Args:
      counted, outside: as above.
      totals: int64 [groups] each, at least and at most.
      share, promise: as in `choose`.
      late: up to so much more weight in each group, of any values.
      confidence: of all bounds of a group at once. source: of them.
    """
    least, most = totals
    chosen = choose(
        counted.groups, counted.low, counted.high + late, outside=outside + late,
        totals=(least, most + late), share=share, promise=promise,
    )  # fmt: skip
    taken = counted.take(chosen.rows)
    order = np.argsort(taken.values, kind="stable")  # Equal counts: by value.
    order = order[np.lexsort((-taken.count[order], taken.groups[order]))]
    taken = taken.take(order)
    taken = replace(taken, high=taken.high + late)
    lists = np.empty(outside.size, object)
    lists[:] = _lists(taken, chosen.sure[order], outside.size)
    null = np.zeros(outside.size, np.bool_)
    reason = reason_of(chosen.bound, share)
    return Estimates(lists, lists, lists, chosen.bound, null, confidence, source, reason)


def _lists(counted: Counted, sure: NDArray[np.bool_], groups: int) -> list[list[TopItem]]:
    """Rows, by group, as a list for each group."""
    columns = (counted.values, counted.count, counted.low, counted.high, sure)
    items = [TopItem(*row) for row in zip(*(each.tolist() for each in columns), strict=True)]
    ends = np.cumsum(np.bincount(counted.groups, minlength=groups)).tolist()
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _first_of_each(k: int, counted: Counted, group_count: int) -> NDArray[np.int64]:
    """Rows of the k largest counts of each group, by group, then falling, equal ones by value.

    Values are compared only where the k-th place is tied or taken: texts compare slowly.
    """
    groups, count = counted.groups, counted.count
    starts = np.concatenate(([0], np.cumsum(np.bincount(groups, minlength=group_count))))
    order = np.lexsort((-count, groups))
    last = np.minimum(starts[:-1] + k, starts[1:]) - 1
    least = count[order][last] if order.size else count
    near = np.flatnonzero(count >= least[groups])
    near = near[np.argsort(counted.values[near], kind="stable")]
    near = near[np.lexsort((-count[near], groups[near]))]
    starts = np.concatenate(([0], np.cumsum(np.bincount(groups[near], minlength=group_count))))
    return near[np.arange(near.size) - starts[groups[near]] < k]
