"""Answers that doubles cannot hold on the way: they are null and without a bound, not exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from synopses.estimate import Bound, Estimates

OUT_OF_RANGE = "squares of the values are beyond the range of DOUBLE"
# Below it, what underflowed may be more than rounding; above the other, squares may be infinite.
SQUARES_MIN = 1e-290


def in_range(squares: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether neither overflow nor underflow has taken digits of a sum of squares."""
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


def unless_out_of_range(column: Estimates) -> Estimates:
    """Variances without a bound where the squares they are made of are infinite."""
    lost = ~column.null & ~np.isfinite(column.value)
    if not lost.any():
        return column
    bound = np.where(lost, np.uint8(Bound.NONE), column.bound)
    return replace(column, bound=bound, null=column.null | lost, reason=OUT_OF_RANGE)
