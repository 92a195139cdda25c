"""Kernels of ROWS windows: a queue of rows per partition, linked from the oldest to the newest."""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from synopses.kernels.prefetch import prefetch

OLDEST, NEWEST, COUNT = range(3)
QUEUE_COLUMNS = 4  # A queue has 16 bytes, so it is in one cache line. The last one is not used.
_AHEAD = 32  # Rows between bringing a partition near and reading it.
_NEAR = 16  # Rows between bringing the ends of a partition's queue near and reading them.

Int32s = NDArray[np.int32]

_TIMES = types.Array(types.int64, 1, "C", readonly=True)


@njit(
    "int64(int64, int64[::1], int64, int32[:, ::1], int32[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def enqueue_rows(
    first: int,
    ids: Int64s,
    rows_max: int,
    queues: Int32s,
    newer: Int32s,
    evicted: Int64s,
    evicting: Int64s,
) -> int:
    """Put rows at positions first, first + 1, ... into the queues of their partitions.

    Args:
      first: position of the first row. ids: of the partitions of the rows.
      rows_max: of a queue; a row that comes into a full queue evicts its oldest row.
      queues: [partitions, QUEUE_COLUMNS], in the columns OLDEST, NEWEST and COUNT.
      newer: the next newer position of each row, all rows.
      evicted, evicting: output, at least as long as ids: a position, and the number of the row
        that evicts it.

    Returns:
      how many rows were evicted.
    """
    made = 0
    last = ids.size - 1
    for row in range(ids.size):
        prefetch(queues, ids[min(row + _AHEAD, last)])
        near = ids[min(row + _NEAR, last)]
        prefetch(newer, queues[near, NEWEST])
        prefetch(newer, queues[near, OLDEST if queues[near, COUNT] == rows_max else NEWEST])
        part = ids[row]
        at = np.int32(first + row)
        if queues[part, COUNT] == 0:
            queues[part, OLDEST] = at
        else:
            newer[queues[part, NEWEST]] = at
        queues[part, NEWEST] = at
        if queues[part, COUNT] == rows_max:
            oldest = queues[part, OLDEST]
            queues[part, OLDEST] = newer[oldest]
            evicted[made] = oldest
            evicting[made] = row
            made += 1
        else:
            queues[part, COUNT] += 1
    return made


@njit(
    types.void(types.int64, _TIMES, *(types.int64[::1],) * 5),
    nogil=True,
    cache=True,
)
def merge_rows(
    first: int,
    entered_us: Int64s,
    evicted: Int64s,
    left_us: Int64s,
    positions: Int64s,
    times_us: Int64s,
    weight: Int64s,
) -> None:
    """Merge rows that enter and rows that leave by time; at one time those that enter come first.

    Args:
      first: position of the first row that enters. entered_us: ascending.
      evicted: positions of the rows that leave. left_us: when they leave; ascending.
      positions, times_us, weight: output, as long as both together.
    """
    enters = leaves = 0
    for at in range(positions.size):
        is_leaving = leaves < evicted.size
        if is_leaving and enters < entered_us.size:
            is_leaving = left_us[leaves] < entered_us[enters]
        if is_leaving:
            positions[at], times_us[at], weight[at] = evicted[leaves], left_us[leaves], -1
            leaves += 1
        else:
            positions[at], times_us[at], weight[at] = first + enters, entered_us[enters], 1
            enters += 1


@njit("void(int64, int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def number_rows(first: int, ids: Int64s, newest: Int64s, previous: Int64s) -> None:
    """Number rows first, first + 1, ..., and find the row before each in its partition.

    Args:
      first: number of the first row. ids: of the partitions of the rows.
      newest: number of the newest row of each partition; -1: there is none.
      previous: output, as long as ids: the number of the row before; -1: there is none.
    """
    for row in range(ids.size):
        previous[row] = newest[ids[row]]
        newest[ids[row]] = first + row
