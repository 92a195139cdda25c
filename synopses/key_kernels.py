"""Kernels that find the few rows of a batch whose key enters a sample.

Keys that a row's number or value determines are computed a block at a time, which the machine does
for several at once, and not kept, because nearly all are looked at once and lose. Where the
smallest of a block is small enough, every row is written where the next one found belongs, and the
place moves on by 0 or 1: no branch that nobody can predict.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.hashing import GOLDEN, joined, splitmix, uniform

Rows = NDArray[np.int64]

_BLOCK = 64
_MOST = np.uint64(0xFFFFFFFFFFFFFFFF)
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
def positions_below(start: np.uint64, count: int, threshold: np.uint64) -> Rows:
    """Indices of the `count` positions from a start (position_start) on whose key is below."""
    found, keys = np.empty(count, np.int64), np.empty(_BLOCK, np.uint64)
    size = 0
    for first in range(0, count, _BLOCK):
        base, rows, least = start + np.uint64(first) * GOLDEN, min(_BLOCK, count - first), _MOST
        for row in range(rows):
            key = splitmix(base + np.uint64(row) * GOLDEN)
            keys[row] = key
            least = key if key < least else least
        if least < threshold:
            for row in range(rows):
                found[size] = first + row
                size += int(keys[row] < threshold)
    return found[:size].copy()


@njit(nogil=True, cache=True)
def joined_below(hashes: NDArray[np.uint64], salt: np.uint64, threshold: np.uint64) -> Rows:
    """Indices of the hashes that are below the threshold when combined with the salt."""
    found, keys = np.empty(hashes.size, np.int64), np.empty(_BLOCK, np.uint64)
    size = 0
    for first in range(0, hashes.size, _BLOCK):
        part, least = hashes[first : first + _BLOCK], _MOST
        for row in range(part.size):
            key = joined(part[row], salt)
            keys[row] = key
            least = key if key < least else least
        if least < threshold:
            for row in range(part.size):
                found[size] = first + row
                size += int(keys[row] < threshold)
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
def chosen_joined(hashes: NDArray[np.uint64], salt: np.uint64, rows: Rows) -> NDArray[np.uint64]:
    """Some of the hashes, combined with the salt. Shape [rows]."""
    out = np.empty(rows.size, np.uint64)
    for at in range(rows.size):
        out[at] = joined(hashes[rows[at]], salt)
    return out


@njit(nogil=True, cache=True)
def positions_at_least(
    weights: NDArray[np.float64], sign: float, start: np.uint64, bar: float
) -> Rows:
    """The same for sign * weight and the uniform numbers of the positions from a start on."""
    found, enters = np.empty(weights.size, np.int64), np.empty(_BLOCK, np.bool_)
    size = 0
    for first in range(0, weights.size, _BLOCK):
        part, base = weights[first : first + _BLOCK], start + np.uint64(first) * GOLDEN
        some = False
        for row in range(part.size):
            key = splitmix(base + np.uint64(row) * GOLDEN)
            enters[row] = sign * part[row] >= bar * uniform(key)
            some |= enters[row]
        if some:
            for row in range(part.size):
                found[size] = first + row
                size += int(enters[row])
    return found[:size].copy()
