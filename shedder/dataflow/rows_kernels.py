"""Kernels of ROWS windows: a queue of rows per partition, linked from the oldest to the newest."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from synopses.kernels.prefetch import prefetch

OLDEST, NEWEST, COUNT = range(3)
_AHEAD = 24  # Rows between bringing a partition near and reading it.
_NEAR = 12  # Rows between bringing the oldest row of a partition near and reading it.


@njit(
    "int64(int64, int64[::1], int64, int64[:, ::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def enqueue_rows(
    first: int,
    ids: Int64s,
    rows_max: int,
    queues: NDArray[np.int64],
    newer: Int64s,
    evicted: Int64s,
    evicting: Int64s,
) -> int:
    """Put rows at positions first, first + 1, ... into the queues of their partitions.

    Args:
      first: position of the first row. ids: of the partitions of the rows.
      rows_max: of a queue; a row that comes into a full queue evicts its oldest row.
      queues: [partitions, 3], in the columns OLDEST, NEWEST and COUNT.
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
        prefetch(newer, queues[ids[min(row + _NEAR, last)], OLDEST])
        part = ids[row]
        at = first + row
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
