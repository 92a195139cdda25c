"""Moments of distances and of squared distances over strata, and bounds for the mean by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from synopses.intervals.from_moments import Ends, Floats
from synopses.strata.stratum import Stratum
from synopses.strata.variance_moment_bets import StrataMoments, largest_mean

Moments = tuple[Floats | float, ...]


def mean_ends(strata: Sequence[Stratum], ends: tuple[float, float], *, tail: float) -> Ends:
    """Bounds for the mean of each group's values, either of which is wrong with probability `tail`.

    Args:
      strata: at least one that skipped values; of each of these some were read.
      ends: a range that holds all values.
    """
    groups, width = len(strata[0].counts), ends[1] - ends[0]
    thinned = [s for s in strata if s.skipped]
    scale = max(s.high for s in thinned) - min(s.low for s in thinned)
    most = np.full(groups, width)
    above, below = (
        largest_mean(_distances(strata, end, sign), scale, most, tail=tail)
        for end, sign in zip(ends, (1.0, -1.0), strict=True)
    )
    last = np.clip(ends[0] + above, *ends)
    return np.clip(ends[1] - below, ends[0], last), last


def _distances(strata: Sequence[Stratum], end: float, sign: float) -> StrataMoments:
    """Of distances from an end of the range."""

    def moments(stratum: Stratum) -> Moments:
        ends = sign * (stratum.low - end), sign * (stratum.high - end)
        spread = stratum.squares / np.maximum(stratum.counts, 1)
        return sign * (stratum.means - end), spread, min(ends), max(ends)

    return _moments(strata, moments, 1)


def squared_distances(strata: Sequence[Stratum], places: Floats) -> StrataMoments:
    """Of squared distances from places: float64 [places, groups]."""

    def moments(stratum: Stratum) -> Moments:
        counts = np.maximum(stratum.counts, 1)
        away = stratum.means - places
        spread = np.full(places.shape, np.nan)
        if stratum.shape is not None:
            spread = stratum.shape.spread_about(places, stratum.squares) / counts
        near = np.maximum(np.maximum(stratum.low - places, places - stratum.high), 0.0)
        far = np.maximum(places - stratum.low, stratum.high - places)
        return stratum.squares / counts + away**2, spread, near**2, far**2

    return _moments(strata, moments, len(places))


def _moments(
    strata: Sequence[Stratum], moments: Callable[[Stratum], Moments], places: int
) -> StrataMoments:
    """Put the strata together; `moments` gives means, variances and ranges of values."""
    shape = places, len(strata[0].counts)
    known = np.zeros((2, *shape))
    columns: list[list[Floats]] = [[], [], [], []]
    thinned = [s for s in strata if s.skipped]
    for stratum in strata:
        found = [np.broadcast_to(each, shape) for each in moments(stratum)]
        there = stratum.counts > 0
        if stratum.skipped:
            found[0] = np.where(there, found[0], 0.0)
            for column, each in zip(columns, found, strict=True):
                column.append(each)
        else:
            known[0] += stratum.counts
            known[1] += np.where(there, stratum.counts * found[0], 0.0)
    means, variances, least, most = (np.array(column) for column in columns)
    return StrataMoments(
        known,
        np.array([s.factor for s in thinned]),
        np.array([s.counts for s in thinned], np.float64),
        means,
        variances,
        least,
        most,
    )
