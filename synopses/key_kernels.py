"""Kernels that find the few rows of a batch whose key enters a sample.

Nearly all rows lose, so a block of them is looked at at once, which the machine does for several
at a time. Where the smallest of a block is small enough, every row is written where the next one
found belongs, and the place moves on by 0 or 1: no branch that nobody can predict.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Rows = NDArray[np.int64]

_BLOCK = 64
_MOST = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE_BITS = np.uint64(0x3FF0000000000000)  # Of the double 1.0.
_LARGEST = float(np.finfo(np.float64).max)


@njit(nogil=True, cache=True)
def below(keys: NDArray[np.uint64], threshold: np.uint64) -> Rows:
    """Indices of the keys below the threshold."""
    found = np.empty(keys.size, np.int64)
    size = 0
    for row in range(keys.size):
        found[size] = row
        size += keys[row] < threshold
    return found[:size].copy()


@njit(nogil=True, cache=True)
def few_below(keys: NDArray[np.uint64], threshold: np.uint64) -> Rows:
    """The same where few are."""
    found = np.empty(keys.size, np.int64)
    size = 0
    for first in range(0, keys.size, _BLOCK):
        part, least = keys[first : first + _BLOCK], _MOST
        for row in range(part.size):
            least = part[row] if part[row] < least else least
        if least < threshold:
            for row in range(part.size):
                found[size] = first + row
                size += int(part[row] < threshold)
    return found[:size].copy()


@njit(nogil=True, cache=True, error_model="numpy")
def heaviest(
    weights: NDArray[np.float64], uniforms: NDArray[np.float64], bar: float, tau: float
) -> tuple[Rows, NDArray[np.float64], NDArray[np.float64]]:
    """The rows whose priority, weight / uniform, is above tau: they, their weights and priorities.

    Few are, so a product sorts out most: no row is whose weight is below bar * uniform. Weights
    that are not above zero, or not finite, have no priority; none is infinite.
    """
    rows = np.empty(weights.size, np.int64)
    size = 0
    for row in range(weights.size):
        rows[size] = row
        size += weights[row] >= bar * uniforms[row]
    kept, heavy, priorities = 0, np.empty(size), np.empty(size)
    for at in range(size):
        row = rows[at]
        weight = weights[row]
        priority = min(weight / uniforms[row], _LARGEST)
        rows[kept], heavy[kept], priorities[kept] = row, weight, priority
        kept += (weight > 0.0) & (priority > tau) & (weight < np.inf)
    return rows[:kept].copy(), heavy[:kept].copy(), priorities[:kept].copy()


@njit(nogil=True, cache=True)
def few_at_least(
    weights: NDArray[np.float64], sign: float, keys: NDArray[np.uint64], bar: float
) -> Rows:
    """Indices of the few rows whose sign * weight is at least bar * the uniform number of the key.

    Whether any row of a block is one is asked with a number in its place that is a hair below the
    uniform one: key bits as those of a double from 1 to 2, which takes no conversion.
    """
    found, bits = np.empty(weights.size, np.int64), np.empty(_BLOCK, np.uint64)
    raised = bits.view(np.float64)
    size = 0
    for first in range(0, weights.size, _BLOCK):
        part, these = weights[first : first + _BLOCK], keys[first : first + _BLOCK]
        for row in range(part.size):
            bits[row] = these[row] >> np.uint64(12) | _ONE_BITS
        some = 0
        for row in range(part.size):
            some += sign * part[row] >= bar * (raised[row] - 1.0)
        if some:
            for row in range(part.size):
                found[size] = first + row
                size += int(sign * part[row] >= bar * (raised[row] - 1.0 + 2.0**-53))
    return found[:size].copy()
