"""Functions of pairs: which sums answer them, and how far late tuples can move these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import AggregateFunction
from synopses.model.estimate import Bound, Estimates
from synopses.model.parameters import error_share
from synopses.moments.covariance import CrossSums, GroupedCrossMoments

Ends = tuple[NDArray[np.float64], NDArray[np.float64]]

BOUNDS = {
    AggregateFunction.COVAR_POP: 2,
    AggregateFunction.COVAR_SAMP: 2,
    AggregateFunction.REGR_SLOPE: 3,
    AggregateFunction.REGR_INTERCEPT: 3,
    AggregateFunction.CORR: 4,
}
"""Variances that must hold at once: of x + y and x - y, and those that are divided by."""

_SLOPE: Final = 0.6  # Part of delta for the slope of an intercept; the rest is for both means.


def intercept_confidences(confidence: float) -> tuple[float, float]:
    """Confidence of the slope, and of each mean, with which an intercept has this confidence."""
    delta = error_share(confidence)
    return 1.0 - _SLOPE * delta, 1.0 - (1.0 - _SLOPE) / 2.0 * delta


def cross_answer(function: AggregateFunction, moments: GroupedCrossMoments) -> Estimates:
    """One of OF_PAIRS for each group."""
    match function:
        case AggregateFunction.COVAR_POP | AggregateFunction.COVAR_SAMP:
            return moments.covariance(sample=function is AggregateFunction.COVAR_SAMP)
        case AggregateFunction.CORR:
            return moments.correlation()
        case AggregateFunction.REGR_SLOPE:
            return moments.slope()
        case AggregateFunction.REGR_INTERCEPT:
            return moments.intercept()
    raise AssertionError(function)


def late_cross(
    function: AggregateFunction,
    sums: CrossSums,
    *,
    late: int,
    ranges: tuple[tuple[float, float], tuple[float, float]],
) -> Ends:
    """Ends that hold the answer with up to `late` more pairs.

    l pairs added to n change the cross sum by their own, at most l Dx Dy / 4 to either side (no
    deviation from a middle exceeds half the width), and by n l / (n + l) times the product of how
    far the means are apart, at most Dx Dy (Pebay 2008, eq. 3.12). The sums of squares grow by the
    same with Dx^2 or Dy^2, and never shrink. Both terms grow with l, so the most is taken. A mean
    moves most when all L lie at an end of its range.

    Args:
      sums: of the n pairs on time. late: L >= 1.
      ranges: (low, high) of x and of y, which hold all values, the late ones too; Dx and Dy are
        their widths.

    Returns:
      (low, high): float64 [groups]; NaN where nothing is known.
    """
    pairs = sums.pairs.astype(np.float64)
    reach = late / 4.0 + pairs * late / np.maximum(pairs + late, 1.0)
    x, y = (high - low for low, high in ranges)
    away = reach * x * y
    most_x, most_y = sums.squares_x + reach * x * x, sums.squares_y + reach * y * y
    match function:
        case AggregateFunction.COVAR_POP:
            below = pairs, pairs + late
        case AggregateFunction.COVAR_SAMP:
            below = pairs - 1.0, pairs - 1.0 + late
        case AggregateFunction.REGR_SLOPE | AggregateFunction.REGR_INTERCEPT:
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
    if function is AggregateFunction.REGR_INTERCEPT:
        means = zip((sums.mean_x, sums.mean_y), ranges, strict=True)
        return intercept(
            (low, high), *(_late_mean(mean, pairs, late, ends) for mean, ends in means)
        )
    return low, high


def from_scaled(
    function: AggregateFunction,
    covariance: Ends,
    variances: Sequence[Ends],
    *,
    widths: tuple[float, float],
    pairs: NDArray[np.int64],
) -> Ends:
    """From columns u and v, x and y shifted and divided by the width of their range, to x and y.

    Args:
      function: which one is asked for.
      covariance: ends of the sample covariance of u and v. variances: of their sample variances.
      widths: what x and y were divided by.
      pairs: [groups], how many pairs there are at least.

    Returns:
      (low, high): [groups]; NaN where a variance that is divided by may be 0.
    """
    u, v = variances
    match function:
        case AggregateFunction.CORR:
            below = np.sqrt(u[0] * v[0]), np.sqrt(u[1] * v[1])
            low, high = quotient(covariance, below)
            return np.maximum(low, -1.0), np.minimum(high, 1.0)
        case AggregateFunction.REGR_SLOPE | AggregateFunction.REGR_INTERCEPT:  # Its slope.
            low, high = quotient(covariance, v)
            scale = widths[0] / widths[1]
            return low * scale, high * scale
        case _:
            low, high = (ends * widths[0] * widths[1] for ends in covariance)
    if function is AggregateFunction.COVAR_POP:  # (K - 1)/K of it, of K pairs, at least those seen
        share = 1.0 - 1.0 / np.maximum(pairs, 1)
        low, high = np.minimum(low, low * share), np.maximum(high, high * share)
    return low, high


def always_bounded(function: AggregateFunction, column: Estimates, *, finite: bool) -> Estimates:
    """A correlation without a bound lies in [-1, 1] all the same, by Cauchy and Schwarz.

    Other functions stay as they are: a slope is of any size where its divisor may be 0.

    finite: whether no value can be infinite. Where one can, a correlation may be NULL, and a value
      that is not NULL has no bound.
    """
    none = (column.bound == Bound.NONE) & (column.null | finite)
    if function is not AggregateFunction.CORR or not none.any():
        return column
    return replace(
        column,
        low=np.where(none, -1.0, column.low),
        high=np.where(none, 1.0, column.high),
        value=np.where(none, np.clip(column.value, -1.0, 1.0), column.value),
        bound=np.where(none, np.uint8(Bound.INTERVAL), column.bound),
    )


def intercept(slope: Ends, mean_x: Ends, mean_y: Ends) -> Ends:
    """Ends of mean x - slope * mean y, wherever the three are between theirs."""
    with np.errstate(over="ignore", invalid="ignore"):
        corners = [a * b for a in slope for b in mean_y]
        low = mean_x[0] - np.maximum.reduce(corners)
        return low, mean_x[1] - np.minimum.reduce(corners)


def _late_mean(
    mean: NDArray[np.float64], pairs: NDArray[np.float64], late: int, ends: tuple[float, float]
) -> Ends:
    """A mean of n values with up to `late` more."""
    share = late / np.maximum(pairs + late, 1.0)
    low, high = (mean + share * (end - mean) for end in ends)
    return np.minimum(low, mean), np.maximum(high, mean)


def quotient(above: Ends, below: Ends) -> Ends:
    """Ends of a / b; NaN where b may be 0 or less."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low = above[0] / np.where(above[0] < 0, below[0], below[1])
        high = above[1] / np.where(above[1] < 0, below[1], below[0])
    unknown = ~(below[0] > 0)
    return np.where(unknown, np.nan, low), np.where(unknown, np.nan, high)
