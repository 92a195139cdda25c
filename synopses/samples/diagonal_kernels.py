"""Loop over pairs on axes: which sums and differences are beyond ends.

units: float64 [4], the centers of x and y, and one over the scales of both. A pair has the sum
u + v and the difference u - v of u = (x - center)/scale and v of y. ends: float64 [4], low and high
of the sum, then of the difference. What is not a number, of infinite values, is beyond the ends.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_BLOCK = 4_096  # Pairs that are compared at once: their numbers stay in the cache.


@njit(nogil=True, cache=True)
def pairs_beyond(
    x: Floats, y: Floats, units: Floats, ends: Floats
) -> tuple[NDArray[np.int64], int, int]:
    """Indices of the few pairs beyond any end; how many sums, and how many differences are."""
    found, size = np.empty(x.size, np.int64), 0
    sums = differences = 0
    outside = np.empty(_BLOCK, np.uint8)
    center_x, center_y, each_x, each_y = units
    low, high, low_apart, high_apart = ends
    for first in range(0, x.size, _BLOCK):
        last = min(first + _BLOCK, x.size)
        some = np.uint8(0)
        for row in range(first, last):
            u, v = (x[row] - center_x) * each_x, (y[row] - center_y) * each_y
            both, apart = u + v, u - v
            is_beyond = np.uint8(not ((both >= low) & (both <= high)))
            is_beyond |= np.uint8(2) * np.uint8(not ((apart >= low_apart) & (apart <= high_apart)))
            outside[row - first] = is_beyond
            some |= is_beyond
        if some:
            for row in range(last - first):
                if outside[row]:
                    found[size] = first + row
                    size += 1
                    sums += outside[row] & 1
                    differences += outside[row] >> 1
    return found[:size].copy(), sums, differences
