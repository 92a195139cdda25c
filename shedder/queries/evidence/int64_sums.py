"""Sums of integers near the ends of 64 bits, which beyond them are NULL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from synopses.model.estimate import Bound, Estimates

_INT64_END = 2.0**63 - 2048  # the last float64 but one before the end
_OVER = "the sum may be over 64 bits, and NULL"


def within_int64(
    column: Estimates, low: NDArray[np.float64], high: NDArray[np.float64]
) -> Estimates:
    """The sums of integers, without a bound where one may be NULL, which is in no interval.

    Args:
      column: the sums. low, high: float64 [groups], what each of them can be.
    """
    over = (low < -_INT64_END) | (high > _INT64_END)
    over &= column.bound != Bound.EXACT
    if not over.any():
        return column
    bound = np.where(over, np.uint8(Bound.NONE), column.bound)
    return replace(column, bound=bound, reason=column.reason or _OVER)
