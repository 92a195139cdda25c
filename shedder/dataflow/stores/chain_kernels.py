"""Kernels of the rows of a stream: chains by hash bucket from the newest row to the oldest.

An index is an int64 array `links` [rows, LINK_COLUMNS]; a row is in one cache line. Its columns are
HASH of the key, TS (event time), OLDER, the number of the next older row in the bucket, or END, and
whether the row is in a chain. Rows are in the order of event time. The row at position p has the
number base + p. It is in the place number modulo places, so new rows take the places of rows that
were dropped. A walk does not read rows that were dropped: it ends at their numbers.

A window of any length over the stream walks the same chains, and ends at the first row that its own
length leaves out.
Source: Kang, Naughton, Viglas 2003, Evaluating window joins over unbounded streams.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US
from shedder.dataflow.stores.chain_walks import END, WALKS, begin_walk, end_step, write_pair
from synopses.kernels.prefetch import prefetch

Int32s = NDArray[np.int32]
Links = NDArray[np.int64]

HASH, TS, OLDER, IS_LINKED, LINK_COLUMNS = range(5)
# Columns of rows that look for partners. SINCE: event time of the oldest row that can be one.
BORN, EXPIRES, SINCE, GIVEN_TS, WEIGHT = range(5)
_AHEAD = 32  # Rows between bringing a head near and reading it.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, TAOCP 3, 6.4).


@njit("int64(int64, int64)", nogil=True, cache=True, inline="always")
def _bucket(key: int, buckets: int) -> int:
    """Return the bucket of a hash. buckets: a power of two."""
    spread = (np.uint64(key) * _SPREAD) >> np.uint64(32)
    return int(spread & np.uint64(buckets - 1))


@njit("int64(int64, int64, int64)", nogil=True, cache=True, inline="always")
def _place(position: int, offset: int, places: int) -> int:
    """Return the place of a row. offset: place of the row at position 0."""
    place = position + offset
    return place if place < places else place - places


_READ_ONLY = types.Array(types.int64, 1, "C", readonly=True)


@njit(nogil=True, cache=True, inline="always")
def _link(number: int, place: int, bucket: int, links: Links, heads: Int32s) -> None:
    """Put a row into the chain of its bucket. place: of the row."""
    links[place, OLDER], links[place, IS_LINKED] = heads[bucket], 1
    heads[bucket] = np.int32(number)


@njit(
    types.void(
        types.int64,
        _READ_ONLY,
        _READ_ONLY,
        types.boolean[::1],
        types.int64[:, ::1],
        types.int32[::1],
    ),
    nogil=True,
    cache=True,
)
def link_rows(
    first: int,
    hashes: NDArray[np.int64],
    ts_us: NDArray[np.int64],
    usable: NDArray[np.bool_],
    links: Links,
    heads: Int32s,
) -> None:
    """Put new rows into the chains of their buckets.

    Args:
      first: number of the first row.
      hashes, ts_us: of the rows. usable: of the same rows; the others are in no chain.
      links: has a free place for each row. heads: newest row of each bucket; a power of two.
    """
    buckets, places = heads.size, links.shape[0]
    last = hashes.size - 1
    place = first % places
    for row in range(hashes.size):
        prefetch(heads, _bucket(hashes[min(row + _AHEAD, last)], buckets))
        links[place, HASH], links[place, TS] = hashes[row], ts_us[row]
        links[place, OLDER], links[place, IS_LINKED] = END, 0
        if usable[row]:
            _link(first + row, place, _bucket(hashes[row], buckets), links, heads)
        place = place + 1 if place + 1 < places else 0


@njit("void(int64, int64, int64[:, ::1], int64[:, ::1], int32[::1])", nogil=True, cache=True)
def move_rows(first: int, rows: int, old: Links, links: Links, heads: Int32s) -> None:
    """Put rows of an index into an empty one, where their numbers begin with 0.

    first: number of the first row in the old index.
    """
    buckets, places = heads.size, old.shape[0]
    for row in range(rows):
        soon = (first + min(row + _AHEAD, rows - 1)) % places
        prefetch(heads, _bucket(old[soon, HASH], buckets))
        place = (first + row) % places
        links[row, HASH], links[row, TS] = old[place, HASH], old[place, TS]
        links[row, OLDER], links[row, IS_LINKED] = END, 0
        if old[place, IS_LINKED]:
            _link(row, row, _bucket(old[place, HASH], buckets), links, heads)


@njit(
    "int64(int64[:, ::1], int64[::1], int64[:, ::1], int32[::1], int64[:, ::1], int64, int64, "
    "int64, int64, int64, int64[:, ::1])",
    nogil=True,
    cache=True,
)
def probe_window(
    walks: NDArray[np.int64],
    hashes: NDArray[np.int64],
    given: Links,
    heads: Int32s,
    links: Links,
    base: int,
    first: int,
    end: int,
    range_us: int,
    slide_us: int,
    pairs: NDArray[np.int64],
) -> int:
    """Pairs of rows with rows of a window of equal hashes, until all are made or no room is left.

    Many walks take one step each in turn, so that many rows are on their way from memory.

    Args:
      walks: int64 [2, 1 + WALKS], zeros at first; where to go on. Its first column is the next
        row whose walk begins, and how many walks there are; then rows, and their next places.
      hashes: of the keys of the rows. given: the rows, [rows, 5].
      heads, links, base: of the store.
      first, end: rows before the one and from the other position on are left out. No row before
        `first` can be a partner: a walk ends without a look at it.
      range_us, slide_us: of the window; range_us 0: its rows never leave.
      pairs: output, [6, pairs_max]: row, position, and ts, born, expires and weight of the pair.

    Returns:
      how many pairs are in the output; fewer than pairs_max: all are made.
    """
    made = 0
    room = pairs.shape[1]
    buckets, places = heads.size, links.shape[0]
    offset = base % places
    last = hashes.size - 1
    row, walking = walks[0, 0], walks[1, 0]
    while True:
        while walking < WALKS and row <= last:
            prefetch(heads, _bucket(hashes[min(row + _AHEAD, last)], buckets))
            position = int(heads[_bucket(hashes[row], buckets)]) - base
            if position >= first:
                place = _place(position, offset, places)
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
            ts, older = links[place, TS], links[place, OLDER] - base
            next_place = _place(older, offset, places) if older >= first else END
            if ts < given[at, SINCE]:
                next_place = END
            elif links[place, HASH] == hashes[at]:
                position = place - offset if place >= offset else place - offset + places
                born, expires = ts + 1, NEVER_US
                if slide_us > 1:
                    born = (ts // slide_us + 1) * slide_us
                if range_us > 0:
                    expires = ts + range_us
                    if slide_us > 1:
                        expires = ((ts + range_us) // slide_us + 1) * slide_us - 1
                born = max(born, given[at, BORN])
                expires = min(expires, given[at, EXPIRES])
                if born <= expires and position < end:
                    ts = max(ts, given[at, GIVEN_TS])
                    write_pair(pairs, made, at, position, ts, born, expires, given[at, WEIGHT])
                    made += 1
            walk, walking = end_step(walks, walk, walking, next_place, links)
    walks[0, 0], walks[1, 0] = row, 0
    return made
