"""Buckets as bytes: what two neighbours differ by, in as few bytes as it takes.

One byte string holds three rows of numbers: how many buckets each group has; by group and then by
value, each bucket's cell less the one before it in its group (of a group's first: the cell); their
counts. A number is written in base 128, lowest digit first, 128 added to each but its last (LEB128,
as in Protocol Buffers): a bucket beside another takes 1 byte and those of its count, instead of 16.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.histogram.sparse_counts import Entries
from synopses.kernels.array_inputs import as_input
from synopses.model.errors import CorruptSynopsis

_DIGIT = 7
_MORE = 1 << _DIGIT
_DIGITS_MAX = 9  # Of a number below 2^63.
_TOTAL_MAX = 2.0**62
_GAP_END = 1 << 31

Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def packed(entries: Entries, groups: int) -> bytes:
    """Groups, cells and counts of buckets, by group and then by cell, as bytes.

    entries: int64 [n] each; groups in 0 to groups - 1, cells >= 0, counts >= 1.
    """
    ids, cells, counts = entries
    gaps = np.diff(cells, prepend=0)
    first = np.flatnonzero(np.diff(ids, prepend=-1))
    gaps[first] = cells[first]
    numbers = np.concatenate((np.bincount(ids, minlength=groups), gaps, counts))
    data = np.empty(numbers.size * _DIGITS_MAX, np.uint8)
    return data[: _write(as_input(numbers, np.int64), data)].tobytes()


def unpacked(data: bytes, groups: int) -> Entries:
    """What `packed` wrote; cells ascend in each group.

    Raises:
      CorruptSynopsis: the bytes end too early or too late, or say what no buckets are.
    """
    raw = as_input(np.frombuffer(data, np.uint8), np.uint8)
    if not 0 <= groups <= raw.size:
        raise CorruptSynopsis("groups", groups, f"0 to {raw.size}, a byte each")
    held, at = _numbers(raw, 0, groups)
    most = (raw.size - at) // 2  # A bucket has a cell and a count.
    if groups and int(held.max()) > most:
        raise CorruptSynopsis("buckets of a group", int(held.max()), f"0 to {most}")
    total = int(held.sum())
    if total > most:
        raise CorruptSynopsis("buckets", total, f"0 to {most}")
    gaps, at = _numbers(raw, at, total)
    counts, at = _numbers(raw, at, total)
    if at != raw.size:
        raise CorruptSynopsis("length of packed buckets", raw.size, at)
    ids, cells = np.empty(total, np.int64), np.empty(total, np.int64)
    are_apart, least, together = _place(held, gaps, counts, ids, cells)
    if not are_apart:
        raise CorruptSynopsis("distance of buckets", int(gaps.max()), "1 to 2^31 - 1")
    if least < 1:
        raise CorruptSynopsis("count of a bucket", int(least), "1 or more")
    if together >= _TOTAL_MAX:
        raise CorruptSynopsis("counts together", float(together), "below 2^62")
    return ids, cells, counts


def _numbers(raw: Bytes, at: int, size: int) -> tuple[Longs, int]:
    """So many numbers from there on, and where they end."""
    numbers = np.empty(size, np.int64)
    end = int(_read(raw, at, numbers))
    if end < 0:
        raise CorruptSynopsis("length of packed buckets", raw.size, f"{size} numbers below 2^63")
    return numbers, end


@njit(nogil=True, cache=True)
def _place(
    held: Longs, gaps: Longs, counts: Longs, ids: Longs, cells: Longs
) -> tuple[bool, np.int64, float]:
    """Fill the group and the cell of each bucket.

    Returns:
      Whether all buckets of a group are apart, and no further than they can be; the smallest
      count, 1 without any; all counts together.
    """
    row, are_apart, least, together = 0, True, np.int64(1), 0.0
    for group in range(held.size):
        cell = np.int64(0)
        for place in range(held[group]):
            are_apart &= gaps[row] < _GAP_END and (place == 0 or gaps[row] > 0)
            least = min(least, counts[row])
            together += counts[row]
            cell += gaps[row]
            ids[row], cells[row] = group, cell
            row += 1
    return are_apart, least, together


@njit(nogil=True, cache=True)
def _write(numbers: Longs, data: Bytes) -> int:
    """Write numbers >= 0 into data, which has room; returns how many bytes they take."""
    at = 0
    for number in numbers:
        left = number
        while left >= _MORE:
            data[at] = np.uint8(left & (_MORE - 1) | _MORE)
            left >>= _DIGIT
            at += 1
        data[at] = np.uint8(left)
        at += 1
    return at


@njit(nogil=True, cache=True)
def _read(raw: Bytes, first: int, numbers: Longs) -> int:
    """Fill numbers from raw[first:]; returns where they end, -1 if one does not."""
    at = first
    for place in range(numbers.size):
        number, digit = np.int64(0), 0
        while True:
            if at >= raw.size or digit == _DIGITS_MAX:
                return -1
            byte = np.int64(raw[at])
            number |= (byte & (_MORE - 1)) << (_DIGIT * digit)
            at += 1
            digit += 1
            if byte < _MORE:
                break
        numbers[place] = number
    return at
