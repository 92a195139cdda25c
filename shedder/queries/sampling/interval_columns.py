"""Columns of estimates made of intervals, and of two columns together."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.model.estimate import Bound, Estimates

SOURCE: Final = "sample"
UNSEEN: Final = "no sampled row matches"
_INFINITE: Final = "the column has infinite values"


def both(own: Estimates, other: Estimates, confidence: float) -> Estimates:
    """What two estimates say together, half of delta for each; an exact one stays as it is."""
    low, high = np.maximum(own.low, other.low), np.minimum(own.high, other.high)
    # Without a common point one of the two has missed, as it may.
    usable = (own.bound == Bound.INTERVAL) & (other.bound == Bound.INTERVAL) & (low <= high)
    usable &= ~own.null & ~other.null
    low, high = np.where(usable, low, own.low), np.where(usable, high, own.high)
    nearer = usable & (other.high - other.low < own.high - own.low)
    value = np.where(nearer, other.value, own.value)
    value = np.where(own.null, own.value, np.clip(value, low, high))
    return replace(own, value=value, low=low, high=high, confidence=confidence)


def as_estimates(
    intervals: Intervals,
    confidence: float,
    *,
    empty: NDArray[np.bool_] | None = None,
    known: bool = True,
    source: str = SOURCE,
) -> Estimates:
    """As an answer's column; NULL where no row was seen, for certain only if all were read.

    Where rows were skipped, a value that no row was seen of has the ends that its intervals have
    without having seen it: the true value lies between them, if there is one.

    known: whether an exact interval over no seen row says that there is none.
    """
    null = np.isnan(intervals.value) | (False if empty is None else empty)
    exact = (intervals.bound == Bound.EXACT) & (known | ~null)
    bound = np.where(null & ~exact, unseen(intervals.low, intervals.high), intervals.bound)
    reason = UNSEEN if bool((null & ~exact).any()) else ""
    return Estimates(
        np.where(null, 0.0, intervals.value),
        intervals.low,
        intervals.high,
        bound,
        null,
        confidence,
        source,
        reason,
    )


def spoiled(found: Estimates, infinite: NDArray[np.bool_]) -> Estimates:
    """Sums, means and variances; NULL without a bound in groups with an infinite value."""
    if not infinite.any():
        return found
    bound = np.where(infinite, np.uint8(Bound.NONE), found.bound)
    return replace(found, bound=bound, null=found.null | infinite, reason=_INFINITE)


def unseen(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The bound of values of which no row was seen: an interval wherever either end is known."""
    unknown = np.isnan(low) | np.isnan(high) | (np.isinf(low) & np.isinf(high))
    return np.where(unknown, Bound.NONE, Bound.INTERVAL).astype(np.uint8)
