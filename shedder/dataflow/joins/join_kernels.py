"""Kernels of the windowed equi-join: chains of equal keys from the newest row to the oldest.

A key has a dense id, equal by value, so a walk compares no values. Nothing is deleted: a walk
leaves out rows that have no instant in common with the probing row.

A side is an int64 array `links` [rows, 5]; what a walk reads of a row is in one cache line. Its
columns are BORN, EXPIRES, OLDER, TS and WEIGHT. OLDER is the position of the next older row of
the key, or END.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.stores.chain_walks import END, WALKS, begin_walk, end_step, write_pair
from synopses.kernels.prefetch import prefetch

Int32s = NDArray[np.int32]
Links = NDArray[np.int64]

BORN, EXPIRES, OLDER, TS, WEIGHT = range(5)
_AHEAD = 32  # Rows between bringing a head near and reading it.


@njit(
    "int64(int64, int32[::1], int32[::1], int64[:, ::1], int32[::1], int64)",
    nogil=True,
    cache=True,
)
def insert_rows(
    first: int, ids: Int32s, row_ids: Int32s, links: Links, heads: Int32s, since_us: int
) -> int:
    """Put rows at positions first, first + 1, ... into the chains of their keys.

    A negative weight shortens the life of the newest equal row, if there is one with this weight
    and expiry; then it is in no chain itself. Its walk unlinks rows that expired before `since_us`.

    Args:
      first: position. ids: of the keys of all rows, those before `first` included.
      row_ids: equal where all columns are equal; empty: there are no negative weights.
      heads: newest position of each key.

    Returns:
      how many rows the walks of negative weights looked at.
    """
    walked = 0
    last = ids.size - 1
    for at in range(first, ids.size):
        prefetch(heads, ids[min(at + _AHEAD, last)])
        key = ids[at]
        if row_ids.size > 0 and links[at, WEIGHT] < 0:
            before = END
            place = int(heads[key])
            while place != END:
                walked += 1
                older = links[place, OLDER]
                if links[place, EXPIRES] < since_us:
                    if before == END:
                        heads[key] = np.int32(older)
                    else:
                        links[before, OLDER] = older
                elif (
                    row_ids[place] == row_ids[at]
                    and links[place, WEIGHT] == -links[at, WEIGHT]
                    and links[place, EXPIRES] == links[at, EXPIRES]
                    and links[place, BORN] <= links[at, BORN]
                ):
                    break
                else:
                    before = place
                place = older
            if place != END:
                links[place, EXPIRES] = links[at, BORN] - 1
                links[at, EXPIRES] = links[at, BORN] - 1
                continue
        links[at, OLDER] = heads[key]
        heads[key] = np.int32(at)
    return walked


@njit(
    "int64(int64[:, ::1], int32[::1], int64[:, ::1], int32[::1], int64[:, ::1], boolean, "
    "int64[:, ::1])",
    nogil=True,
    cache=True,
)
def probe_rows(
    walks: NDArray[np.int64],
    ids: Int32s,
    given: Links,
    heads: Int32s,
    links: Links,
    in_order: bool,
    pairs: NDArray[np.int64],
) -> int:
    """Pairs of rows with rows of the other side, until all are made or the output is full.

    Many walks take one step each in turn, so that many rows are on their way from memory.

    Args:
      walks: int64 [2, 1 + WALKS], zeros at first; where to go on. Its first column is the next
        row whose walk begins, and how many walks there are; then rows, and their next positions.
      ids: of the keys of the rows. given: the rows, in the columns of `links`, without OLDER.
      heads, links: of the other side.
      in_order: rows of the other side expire in the order of their positions, so a walk ends
        at the first row that has left.
      pairs: output, [6, pairs_max]: row, position, and ts, born, expires and weight of the pair.

    Returns:
      how many pairs are in the output; fewer than pairs_max: all are made.
    """
    made = 0
    room = pairs.shape[1]
    last = ids.size - 1
    row, walking = walks[0, 0], walks[1, 0]
    while True:
        while walking < WALKS and row <= last:
            prefetch(heads, ids[min(row + _AHEAD, last)])
            place = int(heads[ids[row]])
            if place != END:
                walking = begin_walk(walks, walking, row, place, links)
            row += 1
        if walking == 0:
            break
        walk = 1
        while walk <= walking:
            if made == room:
                walks[0, 0], walks[1, 0] = row, walking
                return made
            at, place = walks[0, walk], walks[1, walk]
            born = max(links[place, BORN], given[at, BORN])
            expires = min(links[place, EXPIRES], given[at, EXPIRES])
            older = links[place, OLDER]
            if born <= expires:
                ts, weight = max(links[place, TS], given[at, TS]), links[place, WEIGHT]
                write_pair(pairs, made, at, place, ts, born, expires, weight * given[at, WEIGHT])
                made += 1
            elif in_order and links[place, EXPIRES] < given[at, BORN]:
                older = END
            walk, walking = end_step(walks, walk, walking, older, links)
    walks[0, 0], walks[1, 0] = row, 0
    return made
