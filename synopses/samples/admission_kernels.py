"""Kernels that find the few rows of a batch whose key enters a sample.

Nearly all rows lose, so the kernels test a block of 64 at once, which the machine does for several
at a time: each row has one bit of a word. After that only found rows cost anything, bit by bit. No
branch is unpredictable, and no block is read twice.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.hashing import lowest_bit

Rows = NDArray[np.int64]

_BLOCK = 64  # Bits of a word.
_ONE = np.uint64(1)
_ONE_BITS = np.uint64(0x3FF0000000000000)  # Of the double 1.0.
_LARGEST = float(np.finfo(np.float64).max)


@njit(nogil=True, cache=True, inline="always")
def _write(found: Rows, size: np.uint64, first: int, bits: np.uint64) -> np.uint64:
    """Write which rows of the block that begins at `first` have a bit; how many are written now."""
    while bits != np.uint64(0):
        found[size] = first + np.int64(lowest_bit(bits))
        size += _ONE
        bits &= bits - _ONE  # The lowest one is done.
    return size


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
    found, size = np.empty(keys.size, np.int64), np.uint64(0)
    for first in range(0, keys.size, _BLOCK):
        part, bits = keys[first : first + _BLOCK], np.uint64(0)
        for row in range(np.uint64(part.size)):
            bits |= np.uint64(part[row] < threshold) << row
        size = _write(found, size, first, bits)
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

    Key bits as those of a double from 1 to 2 are the number without a conversion.
    """
    found, size = np.empty(weights.size, np.int64), np.uint64(0)
    raised = np.empty(_BLOCK, np.uint64)
    doubles = raised.view(np.float64)
    for first in range(0, weights.size, _BLOCK):
        part, these = weights[first : first + _BLOCK], keys[first : first + _BLOCK]
        for row in range(part.size):
            raised[row] = these[row] >> np.uint64(12) | _ONE_BITS
        bits = np.uint64(0)
        for row in range(np.uint64(part.size)):
            uniform = doubles[row] - 1.0 + 2.0**-53
            bits |= np.uint64(sign * part[row] >= bar * uniform) << row
        size = _write(found, size, first, bits)
    return found[:size].copy()


@njit(nogil=True, cache=True)
def parted(rows: Rows, others: Rows) -> tuple[Rows, np.int64]:
    """The rows that are not among the others, with the others behind; and how many rows come first.

    Both are ascending.
    """
    both, size = np.empty(rows.size + others.size, np.int64), np.int64(0)
    is_other = np.zeros(1 + (max(rows[-1:].sum(), others[-1:].sum()) >> 6), np.uint64)
    for other in others:
        is_other[other >> 6] |= _ONE << np.uint64(other & 63)
    for row in rows:
        both[size] = row
        size += 1 - np.int64(is_other[row >> 6] >> np.uint64(row & 63) & _ONE)
    both[size : size + others.size] = others
    return both[: size + others.size], size


@njit(nogil=True, cache=True)
def united_rows(rows: Rows, others: Rows) -> Rows:
    """The rows that are in any of two columns, once each; all are ascending."""
    words = np.zeros(1 + (max(rows[-1:].sum(), others[-1:].sum()) >> 6), np.uint64)
    for row in rows:
        words[row >> 6] |= _ONE << np.uint64(row & 63)
    for row in others:
        words[row >> 6] |= _ONE << np.uint64(row & 63)
    found, size = np.empty(rows.size + others.size, np.int64), np.uint64(0)
    for at in range(words.size):
        size = _write(found, size, at * _BLOCK, words[at])
    return found[:size].copy()


@njit(nogil=True, cache=True)
def few_outside(values: NDArray[np.float64] | NDArray[np.int64], low: float, high: float) -> Rows:
    """Indices of the few values that are, as doubles, below `low` or above `high`."""
    found, size = np.empty(values.size, np.int64), np.uint64(0)
    for first in range(0, values.size, _BLOCK):
        part, bits = values[first : first + _BLOCK], np.uint64(0)
        for row in range(np.uint64(part.size)):
            value = np.float64(part[row])
            bits |= np.uint64((value < low) | (value > high)) << row
        size = _write(found, size, first, bits)
    return found[:size].copy()
