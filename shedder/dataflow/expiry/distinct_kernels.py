"""Kernels of duplicate elimination by expiry: the latest expiry of each value, and a calendar.

A value is in the output while one of its rows lives. So its row that expires latest decides, and
all others are forgotten. The calendar is a ring of buckets by instant. Each present value is in the
bucket of an instant at which it may leave; a value whose latest expiry has moved on is put into a
later bucket when its bucket is visited.
Source: Golab 2006, sections 3.5.2 (operator delta*, calendar queue).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, Int64s
from synopses.kernels.prefetch import prefetch

Int32s = NDArray[np.int32]

ABSENT = int(np.iinfo(np.int64).min)  # UNTIL of a value that is not in the output.
# Latest expiry of a value, the number of the first row with it, and the next value in its bucket.
UNTIL, SEQUENCE, NEXT = range(3)
END = -1  # End of a bucket's chain.
UNLISTED = -2  # NEXT of a value that is in no bucket.
_AHEAD = 16  # Rows between bringing a value near and reading it.
_TIES_MAX = 32  # Values that leave at one instant, up to which they are sorted by insertion.
_WALKS = 16  # Chains that are walked in turns, so that many values are on their way from memory.


@njit("void(int64, int64, int64[:, ::1], int32[::1])", nogil=True, cache=True)
def _list(value: int, width: int, latest: NDArray[np.int64], heads: Int32s) -> None:
    bucket = ((latest[value, UNTIL] + 1) // width) & (heads.size - 1)
    latest[value, NEXT] = heads[bucket]
    heads[bucket] = np.int32(value)


@njit(
    "UniTuple(int64, 2)(int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int32[::1],"
    " int64, int64[:, ::1], int64[:, ::1])",
    nogil=True,
    cache=True,
)
def enter_rows(
    ids: Int64s,
    born: Int64s,
    ends: NDArray[np.int64],
    latest: NDArray[np.int64],
    heads: Int32s,
    width: int,
    entered: NDArray[np.int64],
    left: NDArray[np.int64],
) -> tuple[int, int]:
    """Take rows in the order of births; write the values that enter, or that left in between.

    Args:
      ids: of the values. born: first instant of each row. ends [rows, 2]: expiry and number.
      latest [values, 3]: UNTIL, SEQUENCE and NEXT of each value.
      heads: of the buckets, a power of two. width: of a bucket, us.
      entered [rows, 2]: instant and value. left [rows, 3]: instant, value and number.

    Returns:
      how many values are in `entered`, and in `left`.
    """
    some, others = 0, 0
    last = ids.size - 1
    for row in range(ids.size):
        prefetch(latest, ids[min(row + _AHEAD, last)])
        value = ids[row]
        until, end = latest[value, UNTIL], ends[row, UNTIL]
        if until == ABSENT or until < born[row] - 1:
            if until != ABSENT:
                left[others, 0], left[others, 1] = until + 1, value
                left[others, 2] = latest[value, SEQUENCE]
                others += 1
            entered[some, 0], entered[some, 1] = born[row], value
            some += 1
            latest[value, UNTIL], latest[value, SEQUENCE] = end, ends[row, SEQUENCE]
            if latest[value, NEXT] == UNLISTED and end != NEVER_US:
                _list(value, width, latest, heads)
        elif end > until:
            latest[value, UNTIL], latest[value, SEQUENCE] = end, ends[row, SEQUENCE]
        elif end == until:
            latest[value, SEQUENCE] = min(latest[value, SEQUENCE], ends[row, SEQUENCE])
    return some, others


@njit(
    "int64(int64, int64, int64[:, ::1], int32[::1], int64, int64[:, ::1])",
    nogil=True,
    cache=True,
)
def leave_values(
    since_us: int,
    as_of_us: int,
    latest: NDArray[np.int64],
    heads: Int32s,
    width: int,
    left: NDArray[np.int64],
) -> int:
    """Write the values that leave up to an instant, in any order.

    since_us: instant of the step before; all values that leave are listed behind it.
    left [values, 3]: as of `enter_rows`, as are the other arguments.
    """
    made = 0
    walks = np.empty(_WALKS, np.int64)
    bucket = since_us // width
    end = min(as_of_us // width, bucket + heads.size - 1) + 1
    walking = 0
    while True:
        while walking < _WALKS and bucket < end:
            place = bucket & (heads.size - 1)
            if heads[place] != END:
                walks[walking] = heads[place]
                prefetch(latest, walks[walking])
                heads[place] = END
                walking += 1
            bucket += 1
        if walking == 0:
            return made
        walk = 0
        while walk < walking:
            value = walks[walk]
            until, after = latest[value, UNTIL], latest[value, NEXT]
            latest[value, NEXT] = UNLISTED
            if until < as_of_us:
                left[made, 0], left[made, 1] = until + 1, value
                left[made, 2] = latest[value, SEQUENCE]
                made += 1
                latest[value, UNTIL] = ABSENT
            elif until != NEVER_US:
                _list(value, width, latest, heads)
            if after == END:
                walking -= 1
                walks[walk] = walks[walking]
            else:
                prefetch(latest, after)
                walks[walk] = after
                walk += 1


@njit(
    "boolean(int64[:, ::1], int64, int32[::1], int64[:, ::1])",
    nogil=True,
    cache=True,
)
def sort_by_instant(
    left: NDArray[np.int64], since_us: int, counts: Int32s, ordered: NDArray[np.int64]
) -> bool:
    """Order values that leave by instant, and those of one instant by number.

    Args:
      left: as of `enter_rows`. since_us: instant before all of them.
      counts: zeros; one for each instant from `since_us` to the last one.
      ordered: output, as `left`.

    Returns:
      False: more than `_TIES_MAX` values leave at one instant, and nothing is in the output.
    """
    for row in range(left.shape[0]):
        counts[left[row, 0] - since_us] += 1
    before = 0
    for at in range(counts.size):
        here = counts[at]
        if here > _TIES_MAX:
            return False
        counts[at] = before
        before += here
    for row in range(left.shape[0]):
        at = counts[left[row, 0] - since_us]
        counts[left[row, 0] - since_us] += 1
        for column in range(3):
            ordered[at, column] = left[row, column]
    for at in range(1, ordered.shape[0]):
        to = at
        while to > 0 and ordered[to, 0] == ordered[to - 1, 0]:
            if ordered[to, 2] > ordered[to - 1, 2]:
                break
            for column in range(1, 3):
                before = ordered[to - 1, column]
                ordered[to - 1, column], ordered[to, column] = ordered[to, column], before
            to -= 1
    return True


@njit(
    "void(int64[:, ::1], int64[:, ::1], int64[:, ::1])",
    nogil=True,
    cache=True,
)
def merge_changes(
    left: NDArray[np.int64], entered: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    """Merge values that leave and values that enter, each by instant; those that leave come first.

    out [3, changes]: instant, value and weight.
    """
    some = 0
    for at in range(out.shape[1]):
        leaves = some < left.shape[0]
        other = at - some
        if leaves and other < entered.shape[0]:
            leaves = left[some, 0] <= entered[other, 0]
        if leaves:
            out[0, at], out[1, at], out[2, at] = left[some, 0], left[some, 1], -1
            some += 1
        else:
            out[0, at], out[1, at], out[2, at] = entered[other, 0], entered[other, 1], 1


@njit("void(int64[:, ::1], int32[::1], int64)", nogil=True, cache=True)
def list_all(latest: NDArray[np.int64], heads: Int32s, width: int) -> None:
    """List all present values in empty buckets. Arguments: as of `enter_rows`."""
    for value in range(latest.shape[0]):
        until = latest[value, UNTIL]
        latest[value, NEXT] = UNLISTED
        if until not in (ABSENT, NEVER_US):
            _list(value, width, latest, heads)


@njit(
    "int64(int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[::1])",
    nogil=True,
    cache=True,
)
def needed_rows(
    ids: Int64s,
    born: Int64s,
    ends: NDArray[np.int64],
    newest: NDArray[np.int64],
    kept: Int64s,
) -> int:
    """Write the places of rows that are born later, without those that another one covers.

    newest [values, 2]: birth and expiry of the newest such row of each value.
    """
    made = 0
    for row in range(ids.size):
        value = ids[row]
        if newest[value, 0] != born[row] or newest[value, 1] < ends[row, UNTIL]:
            newest[value, 0], newest[value, 1] = born[row], ends[row, UNTIL]
            kept[made] = row
            made += 1
    return made
