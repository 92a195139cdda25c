"""Variances of groups from moments, when each stratum was read at its own share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synopses.intervals.from_moments import Ends, Floats, mean_bounds
from synopses.intervals.interval import Intervals, error_share
from synopses.intervals.stratified import Stratum, free_mean, range_of


def stratified_variance(strata: Sequence[Stratum], *, confidence: float) -> Intervals:
    """The sample variance (n - 1 below the line) of each group over all its values.

    A normal interval would need fourth moments, which nobody kept. So, for a number c that does
    not depend on the sample, the variance is the mean of (y - c)^2 less (mean - c)^2: the sample's
    mean of (y - c)^2 follows from its moments, and Chernoff bounds it by its range alone. c is the
    lower end, the middle and the upper end of the known range, at delta/6 each; delta/2 goes to
    the mean. The best of all is the interval. Wide, and never too narrow.

    Returns: variances, [groups], >= 0; exact where nothing was skipped; NaN for a group with fewer
    than two values read, its ends 0 and what the range allows.
    """
    delta = error_share(confidence)
    size = sum(s.factor * s.counts for s in strata)
    seen = np.asarray(sum(s.counts for s in strata), np.float64)
    mean = sum(s.factor * s.seen for s in strata) / np.maximum(size, 1.0)
    total = sum(s.factor * _squares_about(s, mean) for s in strata)
    value = np.where(seen >= 2, total / np.maximum(size - 1.0, 1e-300), np.nan)
    if not any(s.skipped for s in strata):
        return Intervals.of(value, value, value, exact=True)
    low, high = range_of(strata)
    for stratum in strata:  # What was read in full is known to lie where it lies.
        low, high = min(low, stratum.low), max(high, stratum.high)
    nothing, limit = np.zeros(len(seen)), np.full(len(seen), (high - low) ** 2 / 4.0)
    if np.isinf(low) or np.isinf(high):
        return Intervals.of(value, nothing, np.full(len(seen), np.inf))
    first, last = free_mean(strata, delta / 2.0)
    first, last = np.clip(first, low, high), np.clip(last, low, high)
    ends = nothing, limit
    for anchor in (low, (low + high) / 2.0, high):
        ends = _tighter(ends, _about(strata, anchor, (low, high), (first, last), delta / 6.0))
    stretch = np.where(seen >= 2, seen / np.maximum(seen - 1.0, 1.0), 2.0)
    lowest = np.minimum(np.maximum(ends[0], 0.0), ends[1])
    # Numbers far from zero lose their last digits in the squares.
    slack = 1e-9 * max(abs(low), abs(high)) ** 2
    return Intervals.of(
        value, np.maximum(lowest - slack, 0.0), np.maximum(ends[1], 0.0) * stretch + slack
    )


def stratified_deviation(strata: Sequence[Stratum], *, confidence: float) -> Intervals:
    """The sample standard deviation: the roots of the variance and of its ends."""
    variance = stratified_variance(strata, confidence=confidence)
    exact = variance.bound == 0
    return Intervals.of(
        np.sqrt(variance.value), np.sqrt(variance.low), np.sqrt(variance.high), exact=exact
    )


def _squares_about(stratum: Stratum, center: Floats | float) -> Floats:
    """The sum of squared distances of what was read from a number."""
    away = stratum.means - center
    return np.where(stratum.counts > 0, stratum.squares + stratum.counts * away**2, 0.0)


def _about(
    strata: Sequence[Stratum], anchor: float, ends: tuple[float, float], mean: Ends, delta: float
) -> Ends:
    """Bounds for the variance (n below the line) by the mean square about an anchor."""
    reach = max(anchor - ends[0], ends[1] - anchor) ** 2
    low, high = _mean_square(strata, anchor, reach, delta)
    near = np.maximum(0.0, np.maximum(mean[0] - anchor, anchor - mean[1])) ** 2
    far = np.maximum(np.abs(mean[0] - anchor), np.abs(mean[1] - anchor)) ** 2
    return low - far, high - near


def _mean_square(strata: Sequence[Stratum], anchor: float, reach: float, delta: float) -> Ends:
    """Bounds for the mean of (y - anchor)^2, in [0, reach]."""
    groups = len(strata[0].counts)
    each = delta / max(1, sum(s.skipped > 0 for s in strata))
    parts = []
    for stratum in strata:
        square = _squares_about(stratum, anchor) / np.maximum(stratum.counts, 1)
        if not stratum.skipped:
            parts.append((square, square))
            continue
        parts.append(
            mean_bounds(
                stratum.counts.astype(np.float64),
                square,
                None,
                low=np.zeros(groups),
                high=np.full(groups, reach),
                population=None,
                delta=each,
            )
        )
    return _joined(strata, parts)


def _joined(strata: Sequence[Stratum], parts: Sequence[Ends]) -> Ends:
    """Means of strata as one: weighted where sizes are known, else no wider than they are."""
    if all(s.whole for s in strata):
        sizes = np.array([s.population for s in strata], np.float64)
        weights = sizes / max(sizes.sum(), 1.0)
        low, high = (
            np.asarray(sum(w * part[end] for w, part in zip(weights, parts, strict=True)))
            for end in (0, 1)
        )
        return low, high
    there = [(s.counts > 0) | (s.skipped > 0) for s in strata]
    low = np.min([np.where(t, p[0], np.inf) for t, p in zip(there, parts, strict=True)], axis=0)
    high = np.max([np.where(t, p[1], -np.inf) for t, p in zip(there, parts, strict=True)], axis=0)
    return low, high


def _tighter(left: Ends, right: Ends) -> Ends:
    """Both hold; where they have no common point one of them has missed, as it may."""
    low, high = np.maximum(left[0], right[0]), np.minimum(left[1], right[1])
    meet = low <= high
    return np.where(meet, low, left[0]), np.where(meet, high, left[1])
