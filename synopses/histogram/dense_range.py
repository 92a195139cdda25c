"""Counts of one group's values in adjacent cells: an array instead of a map.

If there are few values, the same counter is incremented again and again, and each increment waits
for the one before. In a map, the number of probes differs from value to value and is not
predictable. So neighbours in the batch are counted in different arrays, which are added up.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.histogram.bucket_index import ZERO

ROWS_MIN = 4096  # For fewer values clearing the arrays takes too long.
CELLS_MAX = 2048  # 16 powers of two at 7 bits.
_LANES = 4
_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
_INFINITE = np.int64(0x7FF << 52)

Bits = NDArray[np.int64]


@njit(nogil=True, cache=True)
def range_of(bits: Bits, shift: int) -> tuple[int, int]:
    """Return which cells are nearest to zero and farthest, numbered outwards; of 0 and NaN none."""
    nearest, farthest = _INFINITE, np.int64(0)
    for row in range(bits.size):
        magnitude = bits[row] & _MAGNITUDE
        counted = (magnitude != 0) & (magnitude <= _INFINITE)
        near, far = magnitude if counted else _INFINITE, magnitude if counted else np.int64(0)
        nearest = near if near < nearest else nearest
        farthest = far if far > farthest else farthest
    return int(nearest >> shift), int(max(nearest, farthest) >> shift)


@njit(nogil=True, cache=True)
def tally_range(
    values: NDArray[np.float64],
    bits: Bits,
    shift: int,
    first: int,
    last: int,
    counts: NDArray[np.int64],
    extremes: NDArray[np.float64],
) -> NDArray[np.uint64]:
    """Count values of group 0, in `counts` and `extremes` too (NaN: absent); range_of: first, last.

    Returns:
      Keys and counts of their cells, as maps take them (group_cell_map.py); uint64 [cells, 2].
    """
    width = last - first + 1
    zeros = 2 * width  # Positive cells, negative ones, then zero's, then that of NaN.
    tallies = np.zeros((_LANES, zeros + 2), np.uint32)
    least, most = extremes[0, 0], extremes[0, 1]
    for row in range(bits.size):
        magnitude = bits[row] & _MAGNITUDE
        cell = (magnitude >> shift) - first + (width if bits[row] < 0 else 0)
        cell = zeros if magnitude == 0 else cell
        cell = zeros + 1 if magnitude > _INFINITE else cell
        tallies[row & (_LANES - 1), np.uint64(cell)] += np.uint32(1)
        x = values[row]
        least = x if x < least else least
        most = x if x > most else most
    extremes[0, 0], extremes[0, 1] = least, most
    entries, size = np.empty((zeros + 1, 2), np.uint64), 0
    for cell in range(zeros + 1):
        count = np.int64(0)
        for lane in range(_LANES):
            count += np.int64(tallies[lane, cell])
        away = 0 if cell == zeros else first + cell % width + 1
        entries[size, 0] = ZERO + (away if cell < width else -away) + 1
        entries[size, 1] = count
        size += int(count > 0)
        counts[0] += count
    return entries[:size]
