"""Kernel of operators over counts per key: DISTINCT, set operations, changes of a relation.

At the first touch of a key at an instant the kernel saves the old result. After the last event
of the instant it emits the difference of results, so its output is consolidated.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from shedder.dataflow.pending_events import Events
from synopses.kernels.prefetch import prefetch

_AHEAD = 16  # Events between bringing a key near and reading it.


class Multiplicity(IntEnum):
    """Result of a key that has v1 copies on the left and v2 on the right."""

    BAG = 0  # v1 + v2: also UNION ALL
    DISTINCT = 1  # 1 if v1 + v2 > 0: also UNION
    EXCEPT_ALL = 2  # max(0, v1 - v2)
    EXCEPT = 3  # 1 if v1 > 0 and v2 = 0
    INTERSECT_ALL = 4  # min(v1, v2)
    INTERSECT = 5  # 1 if v1 > 0 and v2 > 0


@njit(nogil=True, cache=True, inline="always")
def _result(kind: int, left: int, right: int) -> int:
    if kind == 0:
        return left + right
    if kind == 1:
        return 1 if left + right > 0 else 0
    if kind == 2:
        return max(0, left - right)
    if kind == 3:
        return 1 if left > 0 and right == 0 else 0
    if kind == 4:
        return min(left, right)
    return 1 if left > 0 and right > 0 else 0


@njit(
    "int64(int64, int64[::1], int64[::1], int64[::1], int8[::1], int64[:, ::1], int64[::1], "
    "int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def _count(
    kind: int,
    instants: Int64s,
    ids: Int64s,
    weight: Int64s,
    sides: NDArray[np.int8],
    counts: NDArray[np.int64],
    olds: Int64s,
    touched: Int64s,
    out_instants: Int64s,
    out_ids: Int64s,
    out_weight: Int64s,
) -> int:
    """Apply events by instant; returns how many differences were emitted, at most one an event.

    instants: ascending. ids, weight, sides: key, copies and input of each event.
    olds [keys]: scratch, -1 for keys that are not touched; and so left behind.
    """
    made, row, end = 0, 0, ids.size
    while row < end:
        instant, some = instants[row], 0
        while row < end and instants[row] == instant:
            soon = ids[min(row + _AHEAD, end - 1)]
            prefetch(counts, soon)
            prefetch(olds, soon)
            key = ids[row]
            if olds[key] < 0:
                olds[key] = _result(kind, counts[key, 0], counts[key, 1])
                touched[some] = key
                some += 1
            counts[key, sides[row]] += weight[row]
            row += 1
        for at in range(some):
            key = touched[at]
            difference = _result(kind, counts[key, 0], counts[key, 1]) - olds[key]
            olds[key] = -1
            if difference != 0:
                out_instants[made] = instant
                out_ids[made] = key
                out_weight[made] = difference
                made += 1
    return made


class KeyCounts:
    """Copies of each key on two sides. counts: int64 [keys, 2]."""

    def __init__(self, kind: Multiplicity) -> None:
        self._kind = kind
        self._counts = np.zeros((64, 2), np.int64)
        self._olds = np.full(64, -1, np.int64)

    @property
    def size_bytes(self) -> int:
        """Bytes of the counts."""
        return self._counts.nbytes + self._olds.nbytes

    def apply(
        self, size: int, events: Events, sides: NDArray[np.int8]
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Count events in the order of their instants.

        size: more than any id. sides: input of each event.

        Returns:
          instants, ids and differences of the results that changed.
        """
        if size > len(self._olds):
            room = max(size, 2 * len(self._olds))
            counts = np.zeros((room, 2), np.int64)
            counts[: len(self._counts)] = self._counts
            self._counts = counts
            self._olds = np.full(room, -1, np.int64)
        touched, at, of, by = (np.empty(len(events), np.int64) for _ in range(4))
        made = _count(
            int(self._kind),
            events.instant_us,
            events.ids,
            events.weight,
            sides,
            self._counts,
            self._olds,
            touched,
            at,
            of,
            by,
        )
        return at[:made], of[:made], by[:made]

    def held(self, size: int) -> NDArray[np.bool_]:
        """Return which ids below `size` have copies."""
        held = np.zeros(size, np.bool_)
        known = self._counts[:size]
        held[: len(known)] = known.any(axis=1)
        return held

    def keep(self, ids: Int64s) -> None:
        """Forget all other keys but 0; the kept ones get ids 1, 2, ... in this order."""
        counts = np.zeros((max(64, len(ids) + 1), 2), np.int64)
        counts[0] = self._counts[0]
        counts[1 : len(ids) + 1] = self._counts[ids]
        self._counts = counts
        self._olds = np.full(len(counts), -1, np.int64)
