"""Quantiles under late tuples: how far they can move when some values are added anywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from synopses.model.estimate import Estimates

Ends = tuple[NDArray[np.float64], NDArray[np.float64]]


def late_quantile(
    at: Callable[[float], Estimates],
    counts: NDArray[np.int64],
    *,
    share: float,
    late: int,
    ends: tuple[float, float],
) -> Ends:
    """Ends that hold the quantile with up to `late` more values.

    With l of them added to n, the quantile has rank ceil(q (n + l)). If all lie below it, it is
    among the n the value of rank q n - (1 - q) l or above; if all lie above, of rank q (n + l) or
    below: worst at the most. Groups are asked by powers of two of n, at the smallest n of each.

    Args:
      at: q in [0, 1] -> the discrete q-quantile of each group. counts: int64 [groups], n.
      share: q. late: L >= 1.
      ends: a range that holds all values, the late ones too.

    Returns:
      (low, high): float64 [groups].
    """
    low, high = np.full(len(counts), ends[0]), np.full(len(counts), ends[1])
    sizes = np.frexp(counts.astype(np.float64))[1]
    for size in np.unique(sizes[counts > 0]):
        groups = np.flatnonzero((sizes == size) & (counts > 0))
        least = float(counts[groups].min())
        below = share - ((1 - share) * late + 1) / least
        above = share + (share * late + 1) / least
        if below > 0:
            low[groups] = np.asarray(at(below).low, np.float64)[groups]
        if above < 1:
            high[groups] = np.asarray(at(above).high, np.float64)[groups]
    return low, high
