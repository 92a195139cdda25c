"""Distribution-free bounds for one mean, from count, mean and mean square of its sample."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input

Floats = NDArray[np.float64]
Ends = tuple[Floats, Floats]

_BISECTIONS: Final = 50


def chernoff(share: Floats, n: Floats, *, tail: float) -> Ends:
    """Bounds for the mean of values in [0, 1] by relative entropy; each end misses with `tail`.

    P(mean of n >= x) <= exp(-n KL(x, p)) for the true mean p, with or without replacement.
    Source: Hoeffding 1963, JASA 58(301), Thm 1 and Thm 4.

    Args:
      share: [groups], the mean of those read, in [0, 1]. n: [groups], how many, at least 1.
      tail: in (0, 1).

    Returns:
      (low, high): [groups], in [0, 1].
    """
    limit = as_input(math.log(1.0 / tail) / n, np.float64)
    high = _largest(as_input(share, np.float64), limit)
    low = 1.0 - _largest(as_input(1.0 - share, np.float64), limit)
    return low, high


@njit(nogil=True, cache=True, error_model="numpy")
def _largest(share: Floats, limit: Floats) -> Floats:
    """The largest p with KL(share, p) <= limit, from above by bisection."""
    found = np.empty(share.size)
    for group in range(share.size):
        x = share[group]
        inside, outside = x, 1.0
        for _ in range(_BISECTIONS):
            middle = (inside + outside) / 2.0
            if _entropy(x, middle) <= limit[group]:
                inside = middle
            else:
                outside = middle
        found[group] = outside
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _entropy(x: float, p: float) -> float:
    """KL(x, p) of two coins, for x <= p < 1 (1: infinite unless x is 1)."""
    ones = x * np.log(x / p) if x > 0.0 else 0.0
    zeros = (1.0 - x) * np.log((1.0 - x) / (1.0 - p)) if x < 1.0 else 0.0
    return float(ones + zeros)
