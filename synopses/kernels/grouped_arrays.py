"""Arrays with a group axis, whose rows grow and move, for all grouped summaries."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.model.errors import CannotMerge, CannotSubtract

_Summary = TypeVar("_Summary")


def grown(rows: NDArray[Any], groups: int, fill: Any = 0) -> NDArray[Any]:
    """The same rows with room for at least `groups`; capacity doubles, new rows hold `fill`.

    rows: shape [capacity, ...], first axis the group.
    """
    if groups <= len(rows):
        return rows
    capacity = max(groups, min(2 * len(rows), groups + 65_536))
    wider = np.empty((capacity, *rows.shape[1:]), rows.dtype)
    wider[: len(rows)] = rows
    wider[len(rows) :] = fill
    return wider


def scattered(
    rows: NDArray[Any], ids: NDArray[np.int64], groups: int, fill: Any = 0
) -> NDArray[Any]:
    """Rows moved to the groups `ids` among `groups`; the others hold `fill`."""
    moved = np.empty((groups, *rows.shape[1:]), rows.dtype)
    if ids.size and _is_stretch(as_input(ids, np.int64)):
        first, end = int(ids[0]), int(ids[-1]) + 1  # One after another: rows are moved at once.
        moved[:first], moved[first:end], moved[end:] = fill, rows, fill
        return moved
    moved[:] = fill
    moved[ids] = rows
    return moved


@njit(nogil=True, cache=True)
def _is_stretch(ids: NDArray[np.int64]) -> bool:
    """Return whether each is one more than the one before."""
    steps = 0
    for place in range(1, ids.size):
        steps += ids[place] == ids[place - 1] + 1
    return steps == ids.size - 1


def united(
    left: NDArray[np.int32], right: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Ids that are in either of two ascending columns, and where those of each are among them.

    Returns:
      ids int32 [groups], ascending; int64 [left.size] and int64 [right.size].
    """
    ids = np.empty(left.size + right.size, np.int32)
    places = np.empty(left.size, np.int64), np.empty(right.size, np.int64)
    size = _unite(as_input(left, np.int32), as_input(right, np.int32), ids, *places)
    return ids[:size].copy(), *places


@njit(nogil=True, cache=True)
def _unite(
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    ids: NDArray[np.int32],
    of_left: NDArray[np.int64],
    of_right: NDArray[np.int64],
) -> int:
    mine, theirs, size = 0, 0, 0
    while mine < left.size or theirs < right.size:
        takes = mine < left.size and (theirs == right.size or left[mine] <= right[theirs])
        ids[size] = left[mine] if takes else right[theirs]
        if theirs < right.size and right[theirs] == ids[size]:
            of_right[theirs] = size
            theirs += 1
        if takes:
            of_left[mine] = size
            mine += 1
        size += 1
    return size


def place_new(
    places: NDArray[np.int32], groups: NDArray[np.integer[Any]], rows: int
) -> NDArray[np.int32]:
    """Give each of these groups that has no row the next one; returns which these were, in order.

    Args:
      places: int32, the row of each group, -1: none; written to. rows: how many there are.
    """
    fresh = np.empty(groups.size, np.int32)
    return fresh[: _place_new(places, as_input(groups, np.int32), rows, fresh)].copy()


@njit(nogil=True, cache=True)
def _place_new(
    places: NDArray[np.int32], groups: NDArray[np.int32], rows: int, fresh: NDArray[np.int32]
) -> int:
    found = 0
    for group in groups:
        if places[group] < 0:
            places[group] = rows + found
            fresh[found] = group
            found += 1
    return found


def same_kind(left: object, right: object) -> None:
    """Only summaries of one kind can be put together.

    Raises:
      CannotMerge: these are of two.
    """
    if type(left) is not type(right):
        raise CannotMerge("kind", type(left).__name__, type(right).__name__)


def apart_from(summary: _Summary, other: _Summary) -> _Summary:
    """The other, to be read while the summary changes: a copy of it where they are one."""
    if other is not summary:
        return other
    whole: Any = other
    copy: _Summary = whole.select(np.arange(whole.groups))
    return copy


def check_taken(held: NDArray[np.int64], taken: NDArray[np.int64]) -> None:
    """No group may lose more tuples than it has; shapes [groups] and [other groups].

    Raises:
      CannotSubtract: one would.
    """
    had = np.zeros(taken.size, np.int64)
    had[: held.size] = held[: taken.size]
    short = np.flatnonzero(had < taken)
    if short.size:
        group = int(short[0])
        raise CannotSubtract(f"count of group {group}", int(had[group] - taken[group]))
