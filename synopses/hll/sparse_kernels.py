"""The loops of sparse_lists.py: each group's latest coupons in a list, which is seen to when full.

A coupon is register << 26 | slot, uint32, as in DataSketches; of two with one slot the larger has
the larger register. lists[g] says where in the arena group g's list starts and ends and up to where
it has room, and that the first `clean` of a sparse group have different slots; those behind may
repeat them. A full list of a
dense group (rows >= 0) goes to its registers; another's is cleaned, and moves to a wider place if
more than half of it is left. So a hash is appended without a look, and looked at with many others
of its group, when what they are compared with is near. `taken` counts the values of each group but
for those behind `clean`, which are counted when they are looked at.

A kernel that finds no room returns how far it came, and a negative number that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.hll.register_kernels import Ids, Registers, Words, register_of
from synopses.hll.sparse_coupons import SLOT_BITS, SLOTS
from synopses.kernels.group_cell_map import SPREAD
from synopses.kernels.hashing import leading_zeros
from synopses.kernels.prefetch import prefetch
from synopses.kernels.unowned_arrays import borrowed

ROOM_MIN = 8
SEATS = 4  # Places per coupon while a list is cleaned: few collide.
_AT_ONCE_MAX = 32  # Room that coupons which come together are given before they are looked at.
_NEAR = 4096  # Groups whose lists' ends are near to the processor without being asked for.
_BLOCK = 256  # Rows whose coupons are made at once: so the compiler makes several in one step.
_AHEAD = 16  # Rows between bringing the end of a list near and writing there.
_SLOT = np.uint32(SLOTS - 1)
_SLOT_BITS = np.uint32(SLOT_BITS)

START, END, LIMIT, CLEAN = range(4)  # Of a group in `lists`.

_signed = cast("Callable[[Any], int]", np.int64)  # What is unsigned wraps around below 0.

Coupons = NDArray[np.uint32]
Lists = NDArray[np.uint32]
Longs = NDArray[np.int64]


@njit(nogil=True, cache=True, inline="always")
def _coupon(h1: np.uint64, h2: np.uint64) -> np.uint32:
    return np.uint32(register_of(h2) << np.uint64(SLOT_BITS) | (h1 & np.uint64(SLOTS - 1)))


@njit(nogil=True, cache=True, inline="always")
def _copy(source: Coupons, start: int, target: Coupons, to: int, size: int) -> None:
    """Slices, for indices that may be negative are not copied several at a time."""
    there, here = target[to : to + size], source[start : start + size]
    for at in range(here.size):
        there[at] = here[at]


@njit(nogil=True, cache=True)
def _low_bits(coupons: Coupons, seats: Ids, mask: np.uint64) -> int:
    """Return the number of different lowest bits (mask), a cheap bound on the coupons."""
    for at in range(_signed(mask) + 1):
        seats[at] = 0
    different = 0
    for at in range(coupons.size):
        seat = np.uint64(coupons[at]) & mask
        different += 1 - seats[seat]
        seats[seat] = 1
    return different


@njit(nogil=True, cache=True)
def _are_many(coupons: Coupons, seats: Ids) -> bool:
    """Return whether more than half of them are different for sure."""
    lg_seats = np.uint64(64) - leading_zeros(np.uint64(2 * coupons.size - 1))
    mask = (np.uint64(1) << lg_seats) - np.uint64(1)
    return _low_bits(coupons, seats, mask) > coupons.size // 2


@njit(nogil=True, cache=True)
def _clean(coupons: Coupons, start: int, size: int, seats: Ids, most: int) -> int:
    """Keep the largest coupon of each slot, in the order of the first ones; returns how many.

    Where there are more than `most`, which are too many for a list, it stays as long as it is, and
    may repeat coupons: returns its length.

    seats: int32, at least SEATS places per coupon; what is in there does not matter.
    """
    lg_seats = np.uint64(64) - leading_zeros(np.uint64(max(SEATS * size, 2) - 1))
    mask, shift = (np.uint64(1) << lg_seats) - np.uint64(1), np.uint64(64) - lg_seats
    if size > most and _low_bits(coupons[start : start + size], seats, mask) > most:
        return size
    for at in range(_signed(mask) + 1):
        seats[at] = 0
    kept = 0
    for at in range(start, start + size):
        coupon = coupons[at]
        seat = (np.uint64(coupon & _SLOT) * SPREAD) >> shift
        sitting = _signed(seats[seat]) - 1
        while sitting >= 0 and (coupons[start + sitting] ^ coupon) & _SLOT != 0:
            seat = (seat + np.uint64(1)) & mask
            sitting = _signed(seats[seat]) - 1
        if sitting < 0:
            coupons[start + kept] = coupon
            kept += 1
            if kept > most:
                return size
            seats[seat] = kept
        elif coupon > coupons[start + sitting]:
            coupons[start + sitting] = coupon
    return kept


@njit(nogil=True, cache=True)
def _raise(dense: Registers, row: int, coupons: Coupons, start: int, end: int) -> None:
    """Take coupons[start:end] into a group's registers, dense[row].

    All are brought near first: few loads overtake the stores before them (measured: 1.0 instead of
    2.6 ns a coupon where registers take 4 MB).
    """
    registers, mask = dense[row], np.uint32(dense.shape[1] - 1)
    some = coupons[start:end]
    for at in range(some.size):
        prefetch(registers, _signed(some[at] & mask))
    for at in range(some.size):
        slot = np.uint64(some[at] & mask)
        mine = registers[slot]
        registers[slot] = max(mine, np.uint8(some[at] >> _SLOT_BITS))


@njit(nogil=True, cache=True)
def _see_to(
    arena: Coupons, lists: Lists, taken: Longs, most: int, seats: Ids, rows: Ids, dense: Registers,
    group: int,
) -> int:  # fmt: skip
    """Drop what a list repeats, or take all of it into registers; returns how much is left of it.

    More than `most` different coupons are too many for a list: of these none is dropped.
    """
    start, clean = _signed(lists[group, START]), _signed(lists[group, CLEAN])
    size = _signed(lists[group, END]) - start
    left = size
    if rows[group] >= 0:
        _raise(dense, rows[group], arena, start, start + size)
        left = 0
    elif clean < size:
        left = _clean(arena, start, size, seats, most)
    taken[group] += size - clean
    lists[group, END] = start + left
    lists[group, CLEAN] = left
    return left


@njit(nogil=True, cache=True)
def first_room(coming: int, room_max: int) -> int:
    """Return the first places of the list of a group that gets so many coupons at once."""
    room = ROOM_MIN
    while room < min(coming, _AT_ONCE_MAX, room_max):
        room *= 2
    return room


@njit(nogil=True, cache=True)
def _make_room(
    arena: Coupons, used: int, lists: Lists, taken: Longs, gathered_max: int, room_max: int,
    seats: Ids, rows: Ids, dense: Registers, group: int, coming: int,
) -> int:  # fmt: skip
    """See to a full list; returns how much of the arena is used.

    -1 - 2 * used: it must be widened; one less: this group has too many coupons for a list.
    """
    start = _signed(lists[group, START])
    room, left = _signed(lists[group, LIMIT]) - start, 0
    if 0 < room < room_max and rows[group] < 0 and _are_many(arena[start : start + room], seats):
        left = room  # More than half would stay: it is cleaned when it is wider.
    elif room > 0:
        left = _see_to(arena, lists, taken, room_max // 2, seats, rows, dense, group)
        if left <= room // 2:
            return used
    if room == room_max:
        return -2 - 2 * used
    if rows[group] >= 0:
        wider = gathered_max
    elif room > 0:
        wider = min(room_max, room * (2 if room < _AT_ONCE_MAX else 4))
    else:
        wider = first_room(coming, room_max)
    if used + wider > arena.size:
        return -1 - 2 * used
    _copy(arena, start, arena, used, left)
    lists[group, START], lists[group, END] = used, used + left
    lists[group, LIMIT] = used + wider
    return used + wider


@njit(nogil=True, cache=True)
def append_rows(
    arena: Coupons, used: int, lists: Lists, taken: Longs, gathered_max: int, room_max: int,
    seats: Ids, rows: Ids, dense: Registers,
    start: int, ids: Ids, h1: Words, h2: Words,
) -> tuple[int, int]:  # fmt: skip
    """Take hashes[start:] in by group until a list has no room; returns (next, used)."""
    arena, lists, taken = borrowed(arena), borrowed(lists), borrowed(taken)
    seats, rows, dense = borrowed(seats), borrowed(rows), borrowed(dense)
    coming, last = 1 + ids.size // len(lists), ids.size - 1
    are_far = len(lists) > _NEAR
    coupons = np.empty(_BLOCK, np.uint32)
    for first in range(start, ids.size, _BLOCK):
        of = ids[first : first + _BLOCK]
        slots, zeros = h1[first : first + _BLOCK], h2[first : first + _BLOCK]
        for at in range(of.size):
            coupons[at] = _coupon(slots[at], zeros[at])
        for at in range(of.size):
            if are_far:
                prefetch(lists, _signed(ids[min(first + at + 2 * _AHEAD, last)]))
                soon = ids[min(first + at + _AHEAD, last)]
                prefetch(arena, _signed(lists[soon, END]))
            group = np.uint64(np.uint32(of[at]))
            to = lists[group, END]
            if to == lists[group, LIMIT]:
                used = _make_room(
                    arena, used, lists, taken, gathered_max, room_max, seats, rows, dense,
                    _signed(group), coming,
                )  # fmt: skip
                if used < 0:
                    return first + at, used
                to = lists[group, END]
            arena[to] = coupons[at]
            lists[group, END] = to + np.uint32(1)
    return ids.size, used


@njit(nogil=True, cache=True)
def coupons_of(h1: Words, h2: Words, coupons: Coupons) -> None:
    """The coupon of each hash; out uint32 [n]."""
    for row in range(coupons.size):
        coupons[row] = _coupon(h1[row], h2[row])


@njit(nogil=True, cache=True)
def append_hashes(
    arena: Coupons, used: int, lists: Lists, taken: Longs, gathered_max: int, room_max: int,
    seats: Ids, rows: Ids, dense: Registers,
    start: int, h1: Words, h2: Words,
) -> tuple[int, int]:  # fmt: skip
    """Take hashes[start:] into group 0, a sparse one, until it has no room: (next, used)."""
    arena, lists, taken = borrowed(arena), borrowed(lists), borrowed(taken)
    seats, rows, dense = borrowed(seats), borrowed(rows), borrowed(dense)
    at, limit = _signed(lists[0, END]), _signed(lists[0, LIMIT])
    for row in range(start, h1.size):
        if at == limit:
            lists[0, END] = at
            used = _make_room(
                arena, used, lists, taken, gathered_max, room_max, seats, rows, dense,
                0, h1.size - row,
            )  # fmt: skip
            if used < 0:
                return row, used
            at, limit = _signed(lists[0, END]), _signed(lists[0, LIMIT])
        arena[at] = _coupon(h1[row], h2[row])
        at += 1
    lists[0, END] = at
    return h1.size, used


@njit(nogil=True, cache=True)
def append_coupons(
    arena: Coupons, used: int, lists: Lists, taken: Longs, gathered_max: int, room_max: int,
    seats: Ids, rows: Ids, dense: Registers,
    start: int, groups: Longs, coupons: Coupons,
) -> tuple[int, int]:  # fmt: skip
    """Take coupons[start:], which are no values anew, in until a list has no room: (next, used)."""
    arena, lists, taken = borrowed(arena), borrowed(lists), borrowed(taken)
    seats, rows, dense = borrowed(seats), borrowed(rows), borrowed(dense)
    for at in range(start, coupons.size):
        group = groups[at]
        if lists[group, END] == lists[group, LIMIT]:
            used = _make_room(
                arena, used, lists, taken, gathered_max, room_max, seats, rows, dense,
                group, 1,
            )  # fmt: skip
            if used < 0:
                return at, used
        arena[lists[group, END]] = coupons[at]
        lists[group, END] += 1
        taken[group] -= 1
    return coupons.size, used


@njit(nogil=True, cache=True)
def append_lists(
    arena: Coupons, used: int, lists: Lists, taken: Longs, gathered_max: int, room_max: int,
    seats: Ids, rows: Ids, dense: Registers,
    start: int, others: Coupons, other_lists: Lists, other_taken: Longs,
) -> tuple[int, int]:  # fmt: skip
    """Take another's lists, and what it counted, in from group `start` on: (next, used)."""
    arena, lists, taken = borrowed(arena), borrowed(lists), borrowed(taken)
    seats, rows, dense = borrowed(seats), borrowed(rows), borrowed(dense)
    others = borrowed(others)
    for group in range(start, len(other_lists)):
        first, last = _signed(other_lists[group, START]), _signed(other_lists[group, END])
        counted = other_taken[group] + last - first - _signed(other_lists[group, CLEAN])
        if rows[group] >= 0:
            _raise(dense, rows[group], others, first, last)
            taken[group] += counted
            continue
        while first < last:
            to = _signed(lists[group, END])
            some = min(_signed(lists[group, LIMIT]) - to, last - first)
            _copy(others, first, arena, to, some)
            lists[group, END] = to + some
            taken[group] -= some
            first += some
            if first < last:
                used = _make_room(
                    arena, used, lists, taken, gathered_max, room_max, seats, rows, dense,
                    group, last - first,
                )  # fmt: skip
                if used < 0:
                    return group, used
        taken[group] += counted
    return len(other_lists), used


@njit(nogil=True, cache=True)
def raise_dense(
    taken: Longs, rows: Ids, dense: Registers,
    other_lists: Lists, other_taken: Longs, other_rows: Ids, other_dense: Registers,
) -> bool:  # fmt: skip
    """Merge the other's groups in one go where all are dense in both and the other has no coupons.

    Returns:
      Whether it is so, as it is in most merges of panes; nothing has changed else.
    """
    for group in range(other_rows.size):
        has_some = other_lists[group, START] != other_lists[group, END]
        if has_some or other_rows[group] < 0 or rows[group] < 0:
            return False
    for group in range(other_rows.size):
        mine, theirs = dense[rows[group]], other_dense[other_rows[group]]
        for slot in range(mine.size):
            mine[slot] = max(mine[slot], theirs[slot])
        taken[group] += other_taken[group] - _signed(other_lists[group, CLEAN])
    return True


@njit(nogil=True, cache=True)
def see_to_all(
    arena: Coupons, lists: Lists, taken: Longs, most: int, seats: Ids, rows: Ids, dense: Registers,
    groups: Longs,
) -> None:  # fmt: skip
    """Clean the lists of these groups up to `most` coupons; empty those of dense ones."""
    arena, lists, taken = borrowed(arena), borrowed(lists), borrowed(taken)
    seats, rows, dense = borrowed(seats), borrowed(rows), borrowed(dense)
    for group in groups:
        _see_to(arena, lists, taken, most, seats, rows, dense, group)


@njit(nogil=True, cache=True)
def repack(arena: Coupons, lists: Lists, new: Coupons) -> int:
    """Copy all lists into another arena without gaps; returns how much of it is used."""
    used = 0
    for group in range(len(lists)):
        start, size = lists[group, START], _signed(lists[group, END] - lists[group, START])
        _copy(arena, _signed(start), new, used, size)
        room = _signed(lists[group, LIMIT] - start)
        lists[group, START], lists[group, END] = used, used + size
        lists[group, LIMIT] = used + room
        used += room
    return used


@njit(nogil=True, cache=True)
def entries_of(arena: Coupons, lists: Lists, out: Words) -> None:
    """All coupons as group << 32 | slot << 6 | register, by group; out uint64 [coupons]."""
    size = 0
    for group in range(len(lists)):
        for at in range(lists[group, START], lists[group, END]):
            coupon = np.uint64(arena[at])
            slot, register = coupon & np.uint64(_SLOT), coupon >> np.uint64(SLOT_BITS)
            out[size] = np.uint64(group) << np.uint64(32) | slot << np.uint64(6) | register
            size += 1
