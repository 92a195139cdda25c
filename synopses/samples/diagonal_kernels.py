"""Loop over pairs on axes: which sums and differences are beyond ends.

units: float64 [4], the centers of x and y, and one over the scales of both. A pair has the sum
u + v and the difference u - v of u = (x - center)/scale and v of y. ends: float64 [4], low and high
of the sum, then of the difference. What is not a number, of infinite values, is beyond the ends.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.hashing import lowest_bit

Floats = NDArray[np.float64]
_BLOCK = 64  # Pairs, of which each has one bit of a word: a loop of words compares several at once.
_ONE = np.uint64(1)


@njit(nogil=True, cache=True)
def pairs_beyond(
    x: Floats, y: Floats, units: Floats, ends: Floats
) -> tuple[NDArray[np.int64], int, int]:
    """Indices of the few pairs beyond any end; how many sums, and how many differences are."""
    found, size = np.empty(x.size, np.int64), 0
    sums = differences = 0
    center_x, center_y, each_x, each_y = units
    low, high, low_apart, high_apart = ends
    for first in range(0, x.size, _BLOCK):
        some_x, some_y = x[first : first + _BLOCK], y[first : first + _BLOCK]
        far, far_apart = np.uint64(0), np.uint64(0)
        for row in range(np.uint64(some_x.size)):
            u, v = (some_x[row] - center_x) * each_x, (some_y[row] - center_y) * each_y
            both, apart = u + v, u - v
            far |= np.uint64(not ((both >= low) & (both <= high))) << row
            far_apart |= np.uint64(not ((apart >= low_apart) & (apart <= high_apart))) << row
        either = far | far_apart
        while either != np.uint64(0):
            at = lowest_bit(either)
            found[size] = first + np.int64(at)
            size += 1
            sums += int(far >> at & _ONE)
            differences += int(far_apart >> at & _ONE)
            either &= either - _ONE  # The lowest one is done.
    return found[:size].copy(), sums, differences
