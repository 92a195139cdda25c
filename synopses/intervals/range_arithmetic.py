"""Ranges of sums, products and quotients of numbers that lie in ranges themselves."""

from __future__ import annotations

import numpy as np

from synopses.intervals.from_moments import Ends


def plus(left: Ends, right: Ends) -> Ends:
    """The range of a + b."""
    return left[0] + right[0], left[1] + right[1]


def minus(left: Ends, right: Ends) -> Ends:
    """The range of a - b."""
    return left[0] - right[1], left[1] - right[0]


def times(left: Ends, right: Ends) -> Ends:
    """The range of a b."""
    corners = [a * b for a in left for b in right]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def squared(ends: Ends) -> Ends:
    """The range of a^2."""
    squares = ends[0] ** 2, ends[1] ** 2
    inside = (ends[0] <= 0.0) & (ends[1] >= 0.0)
    return np.where(inside, 0.0, np.minimum(*squares)), np.maximum(*squares)


def quotient(above: Ends, below: Ends) -> Ends:
    """The range of a/b for b > 0; infinite on a side that b near 0 leaves open."""
    least = np.maximum(below[0], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = above[0] / np.where(above[0] < 0.0, least, below[1])
        high = above[1] / np.where(above[1] < 0.0, below[1], least)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
