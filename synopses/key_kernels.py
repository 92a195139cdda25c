"""Kernels that find the few rows of a batch whose key enters a sample.

Every row is written where the next one found belongs, and the place moves on by 0 or 1: no branch
that nobody can predict. Keys that a row's number or value determines are computed on the way, not
kept, because nearly all are looked at once and lose.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.hashing import GOLDEN, joined, splitmix, uniform

Rows = NDArray[np.int64]


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
    found = np.empty(count, np.int64)
    size = 0
    for row in range(count):
        found[size] = row
        size += int(splitmix(start + np.uint64(row) * GOLDEN) < threshold)
    return found[:size].copy()


@njit(nogil=True, cache=True)
def joined_below(hashes: NDArray[np.uint64], salt: np.uint64, threshold: np.uint64) -> Rows:
    """Indices of the hashes that are below the threshold when combined with the salt."""
    found = np.empty(hashes.size, np.int64)
    size = 0
    for row in range(hashes.size):
        found[size] = row
        size += int(joined(hashes[row], salt) < threshold)
    return found[:size].copy()


@njit(nogil=True, cache=True)
def at_least(weights: NDArray[np.float64], uniforms: NDArray[np.float64], bar: float) -> Rows:
    """Indices of the rows with weight >= bar * uniform."""
    found = np.empty(weights.size, np.int64)
    size = 0
    for row in range(weights.size):
        found[size] = row
        size += weights[row] >= bar * uniforms[row]
    return found[:size].copy()


@njit(nogil=True, cache=True)
def positions_at_least(
    weights: NDArray[np.float64], sign: float, start: np.uint64, bar: float
) -> Rows:
    """The same for sign * weight and the uniform numbers of the positions from a start on."""
    found = np.empty(weights.size, np.int64)
    size = 0
    for row in range(weights.size):
        found[size] = row
        key = splitmix(start + np.uint64(row) * GOLDEN)
        size += sign * weights[row] >= bar * uniform(key)
    return found[:size].copy()
