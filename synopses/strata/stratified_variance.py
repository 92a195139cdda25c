"""Variances of groups from moments, when each stratum was read at its own share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from synopses.intervals.from_moments import Ends, Floats, chernoff
from synopses.intervals.interval import Intervals
from synopses.intervals.unknown_mean import over_means
from synopses.intervals.variance import deviation
from synopses.model.parameters import error_share
from synopses.strata.stratified import (
    Error,
    error_of_total,
    mean_error,
    normal_half,
    range_of,
    student_half,
)
from synopses.strata.stratum import Stratum
from synopses.strata.stratum_moments import mean_ends, squared_distances
from synopses.strata.variance_moment_bets import largest_mean, least_mean

# Parts of delta. The upper end is the wide one: a sample may have missed the far end of the range.
_MEAN_SHARE: Final = 0.3
_UPPER_SHARE: Final = 0.34
_LOWER_SHARE: Final = 0.12
_ANCHOR_SHARES: Final = (0.05, 0.03)  # Of the upper and the lower end, of each of three numbers.
_PLACES: Final = 5  # Means at which the lower end is asked.


def stratified_variance(strata: Sequence[Stratum], *, confidence: float) -> Intervals:
    """The sample variance (n - 1 below the line) of each group over all its values.

    Certified: the ratio of the totals of (y - mean)^2 and of 1, linearised: normal where the total
    of e = (y - mean)^2 - variance is (`normal_half`), and united over the means that may be
    (`over_means`); the spread of e follows from how y and y^2 vary together (`SquareMoments`).
    Elsewhere bets on squared distances, from moments (`largest_mean`, `least_mean`): from every
    mean m in an interval of the mean, and from three numbers c that the sample does not decide, the
    ends and the middle of the range; the variance is the mean of (y - c)^2 less (m - c)^2. Of one
    stratum the latter have Chernoff's bounds. The best of all is the interval.

    Returns: variances, [groups], >= 0; exact where nothing was skipped; NaN for a group with fewer
    than two values read, its ends 0 and what the range allows.
    """
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
    if np.isinf(low) or np.isinf(high):
        return Intervals.of(value, np.zeros(len(seen)), np.full(len(seen), np.inf))
    limit = np.full(len(seen), (high - low) ** 2 / 4.0)
    ends = _by_betting(strata, (low, high), error_share(confidence))
    stretch = np.where(seen >= 2, seen / np.maximum(seen - 1.0, 1.0), 2.0)
    # Numbers far from zero lose their last digits in the squares.
    slack = 1e-9 * max(abs(low), abs(high)) ** 2
    low_end, high_end = np.maximum(ends[0] - slack, 0.0), ends[1] * stretch + slack
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


def _by_betting(strata: Sequence[Stratum], ends: tuple[float, float], delta: float) -> Ends:
    """Bounds for the variance (n below the line), whatever the distribution.

    ends: the range of all values.
    """
    groups, width = len(strata[0].counts), ends[1] - ends[0]
    most = np.full(groups, width**2 / 4.0)
    if not width > 0.0:
        return np.zeros(groups), np.zeros(groups)
    if any(s.skipped and not s.read for s in strata):  # Its values may be anything.
        return np.zeros(groups), most
    low, high = range_of(strata)
    first, last = _means(strata, ends, _MEAN_SHARE * delta)
    # The wealth of bets on small squares is concave in the mean: its least is at an end.
    about = squared_distances(strata, np.stack([first, last]))
    above = largest_mean(about, (high - low) ** 2, most, tail=_UPPER_SHARE * delta)
    places = first + (last - first) * np.linspace(0.0, 1.0, _PLACES)[:, None]
    step = (last - first) / (_PLACES - 1)
    below = least_mean(squared_distances(strata, places), step**2 / 4.0, _LOWER_SHARE * delta)
    for anchor in (low, (low + high) / 2.0, high):
        near = np.maximum(0.0, np.maximum(first - anchor, anchor - last)) ** 2
        far = np.maximum(np.abs(first - anchor), np.abs(last - anchor)) ** 2
        least, greatest = _mean_square(strata, anchor, ends, delta)
        below, above = np.maximum(below, least - far), np.minimum(above, greatest - near)
    # Bhatia & Davis 2000: no variance is above (high - m)(m - low), for every mean m that may be.
    middle = np.clip((ends[0] + ends[1]) / 2.0, first, last)
    return below, np.minimum(above, (ends[1] - middle) * (middle - ends[0]))


def _mean_square(
    strata: Sequence[Stratum], anchor: float, ends: tuple[float, float], delta: float
) -> Ends:
    """Bounds for the mean of (y - anchor)^2, whatever the mean: of one stratum Chernoff's."""
    upper, lower = (share * delta for share in _ANCHOR_SHARES)
    reach = np.full(len(strata[0].counts), max(anchor - ends[0], ends[1] - anchor) ** 2)
    alone = [s for s in strata if s.population]
    if len(alone) > 1:
        low, high = range_of(strata)
        about = squared_distances(strata, np.full((1, len(reach)), anchor))
        above = largest_mean(about, max(anchor - low, high - anchor) ** 2, reach, tail=upper)
        return least_mean(about, np.zeros(len(reach)), lower), above
    [stratum] = alone
    n = np.maximum(stratum.counts, 1).astype(np.float64)
    share = np.minimum(_squares_about(stratum, anchor) / n / reach, 1.0)
    known = stratum.counts > 0
    least, greatest = (chernoff(share, n, tail=tail)[end] for end, tail in ((0, lower), (1, upper)))
    return np.where(known, reach * least, 0.0), np.where(known, reach * greatest, reach)


def _means(strata: Sequence[Stratum], ends: tuple[float, float], delta: float) -> Ends:
    """An interval of the mean; of one stratum half of delta is for Chernoff's bounds."""
    alone = [s for s in strata if s.population]
    if len(alone) > 1:
        return mean_ends(strata, ends, tail=delta / 2.0)
    [stratum] = alone
    low, width = ends[0], ends[1] - ends[0]
    first, last = mean_ends(strata, ends, tail=delta / 4.0)
    n, known = np.maximum(stratum.counts, 1).astype(np.float64), stratum.counts > 0
    share = np.clip((stratum.means - low) / width, 0.0, 1.0)
    least, most = chernoff(share, n, tail=delta / 4.0)
    last = np.where(known, np.minimum(last, low + width * most), last)
    return np.where(known, np.maximum(first, low + width * least), first), last
