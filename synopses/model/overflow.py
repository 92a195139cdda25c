"""Answers that doubles cannot hold on the way: they are null and without a bound, not exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from synopses.model.estimate import Bound, Estimates

OUT_OF_RANGE = "squares of the values are beyond the range of DOUBLE"
SUM_OUT_OF_RANGE = "the sum of the values is beyond the range of DOUBLE"
# Below it, what underflowed may be more than rounding; above the other, squares may be infinite.
SQUARES_MIN = 1e-290


def in_range(squares: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether neither overflow nor underflow has taken digits of a sum of squares."""
    return (squares >= SQUARES_MIN) & np.isfinite(squares)


def known_in_range(
    values: NDArray[np.float64], null: NDArray[np.bool_], source: str, reason: str = ""
) -> Estimates:
    """A column that is known for certain, but where a value that is not null is not finite."""
    lost = ~null & ~np.isfinite(values)
    held = np.where(null | lost, 0.0, values)
    bound = np.where(lost, np.uint8(Bound.NONE), np.uint8(Bound.EXACT))
    reason = OUT_OF_RANGE if lost.any() else reason
    return Estimates(held, held, held, bound, null | lost, 1.0, source, reason)


def unless_out_of_range(column: Estimates, reason: str = OUT_OF_RANGE) -> Estimates:
    """The column without a bound where what it is made of left the range of doubles.

    Args:
      column: of finite values, where it is not null.
      reason: what left the range.
    """
    ends = np.isnan(column.low) | np.isnan(column.high)
    return without(column, ~column.null & (~np.isfinite(column.value) | ends), reason)


def without(column: Estimates, lost: NDArray[np.bool_], reason: str) -> Estimates:
    """The column with NULL and no bound where it is lost: bool [groups]."""
    if not lost.any():
        return column
    value, low, high = (np.where(lost, 0.0, x) for x in (column.value, column.low, column.high))
    bound = np.where(lost, np.uint8(Bound.NONE), column.bound)
    return replace(
        column, value=value, low=low, high=high, bound=bound, null=column.null | lost, reason=reason
    )
