"""Kernels of the windowed equi-join: chains of equal keys from the newest row to the oldest.

A key has a dense id, equal by value, so a walk compares no values. Nothing is deleted: a walk
leaves out rows that have no instant in common with the probing row.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from synopses.kernels.prefetch import prefetch

Int32s = NDArray[np.int32]

END = np.int32(-1)  # End of a chain.
_AHEAD = 16  # Rows between bringing a head near and reading it.
_NEAR = 8  # Rows between bringing the newest row of a chain near and reading it.


@njit(nogil=True, cache=True)
def insert_rows(
    first: int,
    ids: Int32s,
    row_ids: Int32s,
    lives: NDArray[np.int64],
    weight: Int64s,
    heads: Int32s,
    nexts: Int32s,
    since_us: int,
) -> None:
    """Put rows at positions first, first + 1, ... into the chains of their keys.

    A negative weight shortens the life of the newest equal row, if there is one with this weight
    and expiry; then it is in no chain itself. Its walk unlinks rows that expired before `since_us`.

    Args:
      first: position; arrays have more rows than `ids`, whose rows begin at it.
      ids: of keys, all rows. row_ids: equal where all columns are equal; empty: no negative rows.
      lives: [rows, 2], first and last instant.
      heads: newest position of each key. nexts: the next older position of each row.
    """
    for at in range(first, ids.size):
        key = ids[at]
        if row_ids.size > 0 and weight[at] < 0:
            before = END
            place = heads[key]
            while place != END:
                after = nexts[place]
                if lives[place, 1] < since_us:
                    if before == END:
                        heads[key] = after
                    else:
                        nexts[before] = after
                elif (
                    row_ids[place] == row_ids[at]
                    and weight[place] == -weight[at]
                    and lives[place, 1] == lives[at, 1]
                    and lives[place, 0] <= lives[at, 0]
                ):
                    break
                else:
                    before = place
                place = after
            if place != END:
                lives[place, 1] = lives[at, 0] - 1
                lives[at, 1] = lives[at, 0] - 1
                continue
        nexts[at] = heads[key]
        heads[key] = np.int32(at)


@njit(nogil=True, cache=True)
def probe_rows(
    row: int,
    place: int,
    ids: Int32s,
    born: Int64s,
    expires: Int64s,
    heads: Int32s,
    nexts: Int32s,
    lives: NDArray[np.int64],
    in_order: bool,
    out_rows: Int64s,
    out_places: Int64s,
) -> tuple[int, int, int]:
    """Pairs of rows with rows of the other side, until all are made or the output is full.

    Args:
      row, place: where to go on: a row, and its next position; place -2: its chain's head.
      in_order: rows of the other side expire in the order of their positions, so a walk ends
        at the first row that has left.

    Returns:
      how many pairs are in the output, and where to go on; row = len(ids): all are made.
    """
    made = 0
    last = ids.size - 1
    while row < ids.size:
        if place == -2:
            prefetch(heads, ids[min(row + _AHEAD, last)])
            soon = heads[ids[min(row + _NEAR, last)]]
            if soon >= 0:
                prefetch(lives, soon)
                prefetch(nexts, soon)
            place = heads[ids[row]]
        while place >= 0:
            if lives[place, 1] < born[row]:
                if in_order:
                    break
            elif lives[place, 0] <= min(expires[row], lives[place, 1]):
                if made == out_rows.size:
                    return made, row, place
                out_rows[made] = row
                out_places[made] = place
                made += 1
            place = nexts[place]
        row += 1
        place = -2
    return made, row, place
