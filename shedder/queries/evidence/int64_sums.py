"""Sums of integers near the ends of 64 bits, which beyond them are NULL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from synopses.model.estimate import Bound, Estimates

_INT64_END = 2.0**63 - 2048  # the last float64 but one before the end
_ROUNDED = 2.0**-50
_OVER = "the sum may be over 64 bits, and NULL"


def whole_ends(numbers: NDArray[np.float64], side: int) -> NDArray[np.int64]:
    """Doubles as int64, saturated; moved outward by their rounding to the side, -1, 0 or 1."""
    known = np.nan_to_num(numbers, nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
    moved = known + side * _ROUNDED * np.abs(known)
    rounded = np.rint(moved) if side == 0 else np.floor(moved) if side < 0 else np.ceil(moved)
    beyond = rounded >= 2.0**63
    whole = np.where(beyond, 0.0, np.maximum(rounded, -(2.0**63))).astype(np.int64)
    return np.where(beyond, np.iinfo(np.int64).max, whole)


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
