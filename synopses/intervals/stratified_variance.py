"""Variances of groups from moments, when each stratum was read at its own share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synopses.intervals.from_moments import Ends, Floats, mean_bounds
from synopses.intervals.interval import Intervals
from synopses.intervals.stratified import (
    Error,
    error_of_total,
    free_mean,
    mean_error,
    normal_half,
    range_of,
    student_half,
)
from synopses.intervals.stratum import Stratum
from synopses.intervals.unknown_mean import over_means
from synopses.intervals.variance import deviation
from synopses.model.parameters import error_share


def stratified_variance(strata: Sequence[Stratum], *, confidence: float) -> Intervals:
    """The sample variance (n - 1 below the line) of each group over all its values.

    Certified: the ratio of the totals of (y - mean)^2 and of 1, linearised: normal where the total
    of e = (y - mean)^2 - variance is (`normal_half`), and united over the means that may be
    (`over_means`); the spread of e follows from how y and y^2 vary together (`SquareMoments`).
    Elsewhere, for a number c that does not depend on the sample, the
    variance is the mean of (y - c)^2 less (mean - c)^2: the sample's mean of (y - c)^2 follows from
    its moments, and Chernoff bounds it by its range alone, Bernstein and Serfling by its spread,
    too. c is the lower end, the middle and the upper end of the range of what was read thinned, at
    delta/6 each; delta/2 goes to the mean. The best of all is the interval.

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
    skipped = range_of(strata)
    low, high = skipped
    for stratum in strata:  # What was read in full is known to lie where it lies.
        low, high = min(low, stratum.low), max(high, stratum.high)
    nothing, limit = np.zeros(len(seen)), np.full(len(seen), (high - low) ** 2 / 4.0)
    if np.isinf(low) or np.isinf(high):
        return Intervals.of(value, nothing, np.full(len(seen), np.inf))
    first, last = free_mean(strata, delta / 2.0)
    first, last = np.clip(first, low, high), np.clip(last, low, high)
    ends = nothing, limit
    for anchor in (skipped[0], sum(skipped) / 2.0, skipped[1]):
        ends = _tighter(ends, _about(strata, anchor, (first, last), delta / 6.0))
    stretch = np.where(seen >= 2, seen / np.maximum(seen - 1.0, 1.0), 2.0)
    lowest = np.minimum(np.maximum(ends[0], 0.0), ends[1])
    # Numbers far from zero lose their last digits in the squares.
    slack = 1e-9 * max(abs(low), abs(high)) ** 2
    low_end, high_end = np.maximum(lowest - slack, 0.0), np.maximum(ends[1], 0.0) * stretch + slack
    average = total / np.maximum(size, 1.0)
    normal, half = _certified(strata, mean, average, confidence=confidence)
    certified = ~np.isnan(half) & (seen >= 2)
    most = limit * stretch  # No variance is above half (two values) the squared width of the range.
    stretch = np.where(size > 1.0, size / np.maximum(size - 1.0, 1e-300), 1.0)
    return Intervals.of(
        value,
        np.where(certified, np.maximum(normal[0] * stretch - slack, 0.0), low_end),
        np.where(certified, np.minimum(normal[1] * stretch, most) + slack, high_end),
        variance=np.where(certified, (half * stretch) ** 2, np.nan),
    )


def _certified(
    strata: Sequence[Stratum], mean: Floats, average: Floats, *, confidence: float
) -> tuple[Ends, Floats]:
    """The interval of the variance (n below the line), united over the means; and half of it.

    The half is that at the sample's mean; NaN where it is not certified.
    """
    size = np.maximum(sum(s.factor * s.counts for s in strata), 1.0)
    errors = _square_errors(strata, mean, average)
    half = normal_half(strata, errors, confidence) / size
    away = student_half(strata, [mean_error(s, mean) for s in strata], confidence) / size
    below, above = (
        student_half(strata, _square_errors(strata, mean + step, average + step**2), confidence)
        / size
        for step in (-away, away)
    )
    half = np.where(np.isnan(below + above), np.nan, half)
    return over_means(average, away, half, (below, above)), half


def _square_errors(strata: Sequence[Stratum], center: Floats, average: Floats) -> list[Error]:
    """Of each stratum's total of e = (y - center)^2 - average; NaN where digits are lost."""
    errors = []
    for stratum in strata:
        n, counts = max(stratum.read, 1), stratum.counts
        if stratum.skipped and stratum.shape is None:
            errors.append((np.full(len(center), np.nan), np.full(len(center), np.inf)))
            continue
        away = _squares_about(stratum, center) / np.maximum(counts, 1) - average
        total = np.where(counts > 0, counts * away, 0.0)
        spread = total * away - total**2 / n
        if stratum.shape is not None:
            about = stratum.shape.spread_about(center, stratum.squares)
            spread = spread + np.where(counts > 0, about, 0.0)
        reach = np.maximum(stratum.high - center, center - stratum.low) ** 2
        ends = -average, np.maximum(reach - average, 0.0)
        error, influence = error_of_total(stratum, total / n, spread, ends)
        errors.append((error, np.where(np.isnan(error), np.inf, influence)))
    return errors


def stratified_deviation(strata: Sequence[Stratum], *, confidence: float) -> Intervals:
    """The sample standard deviation."""
    return deviation(stratified_variance(strata, confidence=confidence))


def _squares_about(stratum: Stratum, center: Floats | float) -> Floats:
    """The sum of squared distances of what was read from a number."""
    away = stratum.means - center
    return np.where(stratum.counts > 0, stratum.squares + stratum.counts * away**2, 0.0)


def _about(strata: Sequence[Stratum], anchor: float, mean: Ends, delta: float) -> Ends:
    """Bounds for the variance (n below the line) by the mean square about an anchor."""
    low, high = _mean_square(strata, anchor, delta)
    near = np.maximum(0.0, np.maximum(mean[0] - anchor, anchor - mean[1])) ** 2
    far = np.maximum(np.abs(mean[0] - anchor), np.abs(mean[1] - anchor)) ** 2
    return low - far, high - near


def _mean_square(strata: Sequence[Stratum], anchor: float, delta: float) -> Ends:
    """Bounds for the mean of (y - anchor)^2: of each stratum by its own range."""
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
                _spread(stratum, anchor),
                low=np.zeros(groups),
                high=np.full(groups, max(anchor - stratum.low, stratum.high - anchor) ** 2),
                population=None,
                delta=each,
            )
        )
    return _joined(strata, parts)


def _spread(stratum: Stratum, anchor: float) -> Floats | None:
    """The sum of squared distances of (y - anchor)^2 from its mean, where all groups know it."""
    if stratum.shape is None:
        return None
    spread = stratum.shape.spread_about(anchor, stratum.squares)
    known = np.isfinite(spread) | (stratum.counts == 0)
    return np.where(stratum.counts > 0, spread, 0.0) if known.all() else None


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
