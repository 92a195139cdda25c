"""Bounds for variances about an estimated mean: the union over the possible means."""

from __future__ import annotations

import numpy as np

from synopses.intervals.from_moments import Ends, Floats


def over_means(average: Floats, away: Floats, half: Floats, halves: Ends) -> Ends:
    """Bounds for the mean of (y - m)^2 about the true mean m.

    The sample's mean is c. For every u in [c - away, c + away] the mean of (y - u)^2 is estimated
    by average + (u - c)^2, with a normal interval of half width h(u) of its own. The union of all
    these intervals holds the truth where m lies in [c - away, c + away] and the interval at m
    holds. The interval at c alone lacks the remainder (c - m)^2 of the linearisation. That
    remainder is all of the error where the (y - c)^2 are alike, as in a column of two heights.

    h(u) is a multiple of the standard deviation of (y - u)^2, which is a norm of a function linear
    in u. So h is convex: the upper end of the union is at an end of [c - away, c + away], and the
    chords through h(c) and h(c +- away) bound the lower end from below.

    Args:
      average: [groups], the mean of (y - c)^2.
      away: [groups], half the width of the interval of the mean, >= 0.
      half: [groups], h(c).
      halves: [groups] twice, h(c - away) and h(c + away).

    Returns:
      (low, high): [groups]; low <= average - half and high >= average + half.
    """
    square = away**2
    low = average - half
    for end in halves:
        rise = np.maximum(end - half, 0.0)
        # The least of x^2 square - x rise for x in [0, 1].
        share = np.where(
            square > 0.0, np.minimum(rise / np.maximum(2.0 * square, 1e-300), 1.0), 1.0
        )
        low = np.minimum(low, average - half + share * (share * square - rise))
    return low, np.maximum(average + square + np.maximum(*halves), average + half)
