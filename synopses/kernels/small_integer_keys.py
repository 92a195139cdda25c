"""Group ids of small integers, looked up by value: a shortcut before the table of hashes."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input

VALUES_MAX = 1 << 16  # 256 KiB of ids: they stay near.


@njit(nogil=True, cache=True)
def _look_up(values: NDArray[np.int64], known: NDArray[np.int32], ids: NDArray[np.int32]) -> bool:
    size = np.uint64(known.size)
    for start in range(0, values.size, 1024):  # An unknown value ends the search within 1,024 rows.
        missing = 0
        for row in range(start, min(start + 1024, values.size)):
            value = np.uint64(values[row])
            group = known[value] if value < size else np.int32(0)
            missing += int(group == 0)
            ids[row] = group
        if missing:
            return False
    return True


@njit(nogil=True, cache=True)
def _learn(values: NDArray[np.int64], ids: NDArray[np.int32], known: NDArray[np.int32]) -> None:
    size = np.uint64(known.size)
    for row in range(values.size):
        value = np.uint64(values[row])
        if value < size:
            known[value] = ids[row]


class SmallKeys:
    """The id of each value in [0, VALUES_MAX) that has one."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Know nothing."""
        self._known = np.zeros(0, np.int32)

    def ids(self, values: NDArray[np.int64]) -> NDArray[np.int32] | None:
        """The id of each value, int32 [n]; None unless all are known."""
        if not self._known.size:
            return None
        ids = np.empty(values.size, np.int32)
        return ids if _look_up(as_input(values, np.int64), self._known, ids) else None

    def learn(self, values: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Take in which id each value has; int64 [n], int32 [n]; id 0 tells nothing."""
        if not self._known.size:
            self._known = np.zeros(VALUES_MAX, np.int32)
        _learn(as_input(values, np.int64), as_input(ids, np.int32), self._known)
