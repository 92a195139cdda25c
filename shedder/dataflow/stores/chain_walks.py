"""Steps of walks through chains of rows, from the newest row to the oldest; many take turns."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.prefetch import prefetch

END = -1  # End of a chain.
WALKS = 64  # Walks that take turns: as many rows as the memory system has on their way, and more.

Int64s = NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def begin_walk(walks: Int64s, walking: int, row: int, place: int, links: Int64s) -> int:
    """Begin the walk of a row at a place of its chain; return how many walks there are.

    walks: int64 [2, 1 + WALKS]: behind the first column the rows, and their next places.
    """
    prefetch(links, place)
    walks[0, walking + 1], walks[1, walking + 1] = row, place
    return walking + 1


@njit(nogil=True, cache=True, inline="always")
def end_step(walks: Int64s, walk: int, walking: int, older: int, links: Int64s) -> tuple[int, int]:
    """Let a walk go on at an older row, or end it; return the next walk, and how many there are."""
    if older == END:
        walks[0, walk], walks[1, walk] = walks[0, walking], walks[1, walking]
        walking -= 1
    else:
        prefetch(links, older)
        walks[1, walk] = older
        walk += 1
    return walk, walking


@njit(nogil=True, cache=True, inline="always")
def write_pair(
    pairs: Int64s,
    made: int,
    row: int,
    place: int,
    ts_us: int,
    born_us: int,
    expires_us: int,
    weight: int,
) -> None:
    """Write a pair: its row and the place of the other one, and what a change has beside values."""
    pairs[0, made], pairs[1, made] = row, place
    pairs[2, made], pairs[3, made] = ts_us, born_us
    pairs[4, made], pairs[5, made] = expires_us, weight
