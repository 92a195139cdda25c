"""Kernels of the rows of a stream: chains by hash bucket from the newest row to the oldest.

An index is an int64 array `links` [rows, 3]; what a walk reads of a row is in one or two cache
lines. Its columns are HASH of the key, TS (event time) and OLDER, the position of the next older
row in the bucket, or END. Rows are in the order of event time. A window of any length over the
stream walks the same chains, and ends at the first row that its own length leaves out.
Source: Kang, Naughton, Viglas 2003, Evaluating window joins over unbounded streams.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US
from synopses.kernels.prefetch import prefetch

Int32s = NDArray[np.int32]
Links = NDArray[np.int64]

HASH, TS, OLDER = range(3)
# Columns of rows that look for partners. SINCE: event time of the oldest row that can be one.
BORN, EXPIRES, SINCE, GIVEN_TS, WEIGHT = range(5)
END = -1  # End of a chain.
WALKS = 64  # Walks that take turns: as many rows as the memory system has on their way, and more.
_AHEAD = 32  # Rows between bringing a head near and reading it.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, TAOCP 3, 6.4).


@njit("int64(int64, int64)", nogil=True, cache=True, inline="always")
def _bucket(key: int, buckets: int) -> int:
    """Return the bucket of a hash. buckets: a power of two."""
    spread = (np.uint64(key) * _SPREAD) >> np.uint64(32)
    return int(spread & np.uint64(buckets - 1))


@njit("void(int64, int64, boolean[::1], int64[:, ::1], int32[::1])", nogil=True, cache=True)
def link_rows(first: int, end: int, usable: NDArray[np.bool_], links: Links, heads: Int32s) -> None:
    """Put the rows at positions [first, end) into the chains of their buckets.

    Args:
      usable: of the same rows; the others are in no chain.
      links: HASH and TS are set. heads: newest position of each bucket; a power of two.
    """
    buckets = heads.size
    for at in range(first, end):
        prefetch(heads, _bucket(links[min(at + _AHEAD, end - 1), HASH], buckets))
        links[at, OLDER] = END
        if not usable[at - first]:
            continue
        bucket = _bucket(links[at, HASH], buckets)
        links[at, OLDER] = heads[bucket]
        heads[bucket] = np.int32(at)


@njit(
    "int64(int64[:, ::1], int64[::1], int64[:, ::1], int32[::1], int64[:, ::1], int64, int64, "
    "int64, int64[:, ::1])",
    nogil=True,
    cache=True,
)
def probe_window(
    walks: NDArray[np.int64],
    hashes: NDArray[np.int64],
    given: Links,
    heads: Int32s,
    links: Links,
    end: int,
    range_us: int,
    slide_us: int,
    pairs: NDArray[np.int64],
) -> int:
    """Pairs of rows with rows of a window of equal hashes, until all are made or no room is left.

    Many walks take one step each in turn, so that many rows are on their way from memory.

    Args:
      walks: int64 [2, 1 + WALKS], zeros at first; where to go on. Its first column is the next
        row whose walk begins, and how many walks there are; then rows, and their next positions.
      hashes: of the keys of the rows. given: the rows, [rows, 5].
      heads, links: of the store. end: rows from this position on are left out.
      range_us, slide_us: of the window; range_us 0: its rows never leave.
      pairs: output, [6, pairs_max]: row, position, and ts, born, expires and weight of the pair.

    Returns:
      how many pairs are in the output; fewer than pairs_max: all are made.
    """
    made = 0
    room = pairs.shape[1]
    buckets = heads.size
    last = hashes.size - 1
    row, walking = walks[0, 0], walks[1, 0]
    while True:
        while walking < WALKS and row <= last:
            prefetch(heads, _bucket(hashes[min(row + _AHEAD, last)], buckets))
            place = int(heads[_bucket(hashes[row], buckets)])
            if place != END:
                prefetch(links, place)
                walking += 1
                walks[0, walking], walks[1, walking] = row, place
            row += 1
        if walking == 0:
            break
        walk = 1
        while walk <= walking:
            if made == room:
                walks[0, 0], walks[1, 0] = row, walking
                return made
            at, place = walks[0, walk], walks[1, walk]
            ts, older = links[place, TS], links[place, OLDER]
            if ts < given[at, SINCE]:
                older = END
            elif links[place, HASH] == hashes[at] and place < end:
                born, expires = ts + 1, NEVER_US
                if slide_us > 1:
                    born = (ts // slide_us + 1) * slide_us
                if range_us > 0:
                    expires = ts + range_us
                    if slide_us > 1:
                        expires = ((ts + range_us) // slide_us + 1) * slide_us - 1
                born = max(born, given[at, BORN])
                expires = min(expires, given[at, EXPIRES])
                if born <= expires:
                    pairs[0, made] = at
                    pairs[1, made] = place
                    pairs[2, made] = max(ts, given[at, GIVEN_TS])
                    pairs[3, made] = born
                    pairs[4, made] = expires
                    pairs[5, made] = given[at, WEIGHT]
                    made += 1
            if older == END:
                walks[0, walk], walks[1, walk] = walks[0, walking], walks[1, walking]
                walking -= 1
            else:
                prefetch(links, older)
                walks[1, walk] = older
                walk += 1
    walks[0, 0], walks[1, 0] = row, 0
    return made
