"""Kernels of the table join: chains of row versions by join key.

`spans` is int64 [rows, 2]: a version is valid at the places [from, to). `older` has, for each row,
the position of the next row in the chain of its key, or END.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from synopses.kernels.prefetch import prefetch

END = -1  # End of a chain.
BEGIN = -2  # The walk of a row begins at the head of its chain.
_AHEAD = 64  # Rows between bringing a head near and reading it.
_NEAR = 32  # Rows between bringing a version near and reading it.
# Places may be those of an Arrow column, which cannot be written.
_PLACES = types.Array(types.int64, 1, "C", readonly=True)


@njit("void(int32[::1], int64[::1], int32[::1], int32[::1])", nogil=True, cache=True)
def link_versions(
    ids: NDArray[np.int32],
    positions: NDArray[np.int64],
    heads: NDArray[np.int32],
    older: NDArray[np.int32],
) -> None:
    """Put versions at the head of the chains of their keys, in this order.

    Args:
      ids: of the join keys. positions: of the versions; as many.
      heads: first position of each key's chain. older: of all versions.
    """
    for row in range(ids.size):
        older[positions[row]] = heads[ids[row]]
        heads[ids[row]] = np.int32(positions[row])


@njit(
    types.int64(
        types.int64[::1],
        types.int64[::1],
        _PLACES,
        types.int32[::1],
        types.int32[::1],
        types.int64[:, ::1],
        types.boolean,
        types.int64[:, ::1],
    ),
    nogil=True,
    cache=True,
)
def probe_versions(
    walk: NDArray[np.int64],
    ids: NDArray[np.int64],
    places: NDArray[np.int64],
    heads: NDArray[np.int32],
    older: NDArray[np.int32],
    spans: NDArray[np.int64],
    first_only: bool,
    pairs: NDArray[np.int64],
) -> int:
    """Pairs of rows with versions that are valid at their places, until the output is full.

    Args:
      walk: int64 [2], (0, BEGIN) at first; the next row, and where its walk goes on.
      ids: of the rows' join keys; 0: no key. places: of the rows.
      heads, older, spans: of the versions.
      first_only: at most one pair for each row.
      pairs: output, [2, pairs_max]: row and position.

    Returns:
      how many pairs are in the output; fewer than pairs_max: all are made.
    """
    made = 0
    room = pairs.shape[1]
    last = ids.size - 1
    row, at = walk[0], walk[1]
    while row <= last:
        prefetch(heads, ids[min(row + _AHEAD, last)])
        soon = heads[ids[min(row + _NEAR, last)]]
        if soon != END:
            prefetch(spans, soon)
        if at == BEGIN:
            at = np.int64(heads[ids[row]])
        while at != END:
            if spans[at, 0] <= places[row] and places[row] < spans[at, 1]:
                if made == room:
                    walk[0], walk[1] = row, at
                    return made
                pairs[0, made] = row
                pairs[1, made] = at
                made += 1
                if first_only:
                    break
            at = np.int64(older[at])
        row += 1
        at = BEGIN
    walk[0], walk[1] = row, at
    return made


@njit("int64(int64[::1], int32[::1], int64[:, ::1])", nogil=True, cache=True)
def probe_newest(ids: NDArray[np.int64], heads: NDArray[np.int32], pairs: NDArray[np.int64]) -> int:
    """Pairs of rows with the first version of the chain of their key, which is valid.

    Args:
      ids: of the rows' join keys; 0: no key. heads: of the versions.
      pairs: output, [2, at least as many as rows]: row and position.

    Returns:
      how many pairs are in the output.
    """
    made = 0
    last = ids.size - 1
    for row in range(ids.size):
        prefetch(heads, ids[min(row + _AHEAD, last)])
        position = np.int64(heads[np.uint64(ids[row])])
        pairs[0, made], pairs[1, made] = row, position
        made += position != END
    return made
