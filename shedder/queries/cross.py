"""Functions of pairs: which sums answer them, and how far late tuples can move these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expression import AggregateFunction
from synopses.cross_moments import CrossSums, GroupedCrossMoments
from synopses.estimate import Estimates

Ends = tuple[NDArray[np.float64], NDArray[np.float64]]


def cross_answer(function: AggregateFunction, moments: GroupedCrossMoments) -> Estimates:
    """COVAR_POP, COVAR_SAMP, CORR or REGR_SLOPE of each group."""
    match function:
        case AggregateFunction.COVAR_POP | AggregateFunction.COVAR_SAMP:
            return moments.covariance(sample=function is AggregateFunction.COVAR_SAMP)
        case AggregateFunction.CORR:
            return moments.correlation()
        case AggregateFunction.REGR_SLOPE:
            return moments.slope()
    raise AssertionError(function)


def late_cross(
    function: AggregateFunction, sums: CrossSums, *, late: int, widths: tuple[float, float]
) -> Ends:
    """Ends that hold the answer with up to `late` more pairs.

    l pairs added to n change the cross sum by their own, at most l Dx Dy / 4 to either side (no
    deviation from a middle exceeds half the width), and by n l / (n + l) times the product of how
    far the means are apart, at most Dx Dy (Pebay 2008, eq. 3.12). The sums of squares grow by the
    same with Dx^2 or Dy^2, and never shrink. Both terms grow with l, so the most is taken.

    Args:
      sums: of the n pairs on time. late: L >= 1.
      widths: Dx and Dy, of ranges that hold all values, the late ones too.

    Returns:
      (low, high): float64 [groups]; NaN where nothing is known.
    """
    pairs = sums.pairs.astype(np.float64)
    reach = late / 4.0 + pairs * late / np.maximum(pairs + late, 1.0)
    x, y = widths
    away = reach * x * y
    most_x, most_y = sums.squares_x + reach * x * x, sums.squares_y + reach * y * y
    match function:
        case AggregateFunction.COVAR_POP:
            below = pairs, pairs + late
        case AggregateFunction.COVAR_SAMP:
            below = pairs - 1.0, pairs - 1.0 + late
        case AggregateFunction.REGR_SLOPE:
            below = sums.squares_y, most_y
        case _:
            assert function is AggregateFunction.CORR, function
            below = (
                np.sqrt(sums.squares_x) * np.sqrt(sums.squares_y),
                np.sqrt(most_x) * np.sqrt(most_y),
            )
    low, high = quotient((sums.cross - away, sums.cross + away), below)
    if function is AggregateFunction.CORR:
        low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
    return low, high


def quotient(above: Ends, below: Ends) -> Ends:
    """Ends of a / b; NaN where b may be 0 or less."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low = above[0] / np.where(above[0] < 0, below[0], below[1])
        high = above[1] / np.where(above[1] < 0, below[1], below[0])
    unknown = ~(below[0] > 0)
    return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)
