"""Kernels that find the few rows of a batch whose key enters a sample."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(nogil=True, cache=True)
def below(keys: NDArray[np.uint64], threshold: np.uint64) -> NDArray[np.int64]:
    """Indices of the keys below the threshold: counted first, because mostly there are few."""
    count = 0
    for row in range(len(keys)):
        count += keys[row] < threshold
    found = np.empty(count, np.int64)
    at = 0
    for row in range(len(keys)):
        if at == count:
            break
        if keys[row] < threshold:
            found[at] = row
            at += 1
    return found


@njit(nogil=True, cache=True)
def at_least(
    weights: NDArray[np.float64], uniforms: NDArray[np.float64], bar: float
) -> NDArray[np.int64]:
    """Indices of the rows with weight >= bar * uniform."""
    count = 0
    for row in range(len(weights)):
        count += weights[row] >= bar * uniforms[row]
    found = np.empty(count, np.int64)
    at = 0
    for row in range(len(weights)):
        if at == count:
            break
        if weights[row] >= bar * uniforms[row]:
            found[at] = row
            at += 1
    return found
