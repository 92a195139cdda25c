"""Covariance, correlation and slope of sampled pairs by influence functions, with a certificate.

Each of them is the number t for which a function of the pair has the mean 0 over all pairs:

  covariance   (x - u)(y - v) - t
  slope        (x - u - t (y - v)) (y - v)
  correlation  a b - t/2 (a^2 + b^2),  a = (x - u) e^(w/2) / s_x,  b = (y - v) e^(-w/2) / s_y

u and v are the means of x and y, s_x and s_y the spreads of the sample, and e^w is the true ratio
of the spreads of y and x over that of the sample. At the sample's own u and v and at w = 0 these
are the influence functions. For given u, v, w the mean over the sample is a normal deviate, so the
t that are not ruled out lie between two roots of a quadratic (Fieller 1954, JRSS B 16). Near -1
and 1 these intervals are as skew as Fisher's z transformation makes them. Fisher's 1/sqrt(n - 3) is
the error of normal pairs only; here the pairs' own fourth moments stand in its place.

The interval is the union over the u, v and w that may be, as in `unknown_mean`, so it holds the
remainder of the linearisation. The remainder is quadratic in u, v, w, the half width convex. So the
union is taken over nodes: the ends, the middles and the center of the intervals of u, v and w.
Source: Devlin, Gnanadesikan, Kettenring 1975, Biometrika 62(3) (the influence of r).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.from_moments import Ends, Floats
from synopses.intervals.normal import rho, rho_max, two_sided
from synopses.intervals.sampled_pairs import FEATURES, SampledPairs
from synopses.model.overflow import in_range

_STEPS: Final = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])  # In half widths.

Weights = Sequence[Floats | float]


@dataclass(frozen=True, slots=True, eq=False)
class Certified:
    """Normal intervals of the groups where they are certified.

    low, high: float64 [groups]; NaN where not certified. error: float64 [groups], standard error.
    """

    low: Floats
    high: Floats
    error: Floats

    @property
    def holds(self) -> NDArray[np.bool_]:
        """bool [groups], where the interval is certified."""
        return ~(np.isnan(self.low) | np.isnan(self.high))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def certified_covariance(pairs: SampledPairs, *, confidence: float) -> Certified:
    """The covariance with the number of pairs below the line."""
    everywhere = _Averages.of(pairs, confidence)
    corners = [a * b for a in everywhere.x for b in everywhere.y]
    least, most = np.minimum.reduce(corners), np.maximum.reduce(corners)
    correlation = everywhere.correlation
    chosen = everywhere.certified(
        (1.0, 0.0, 0.0, 0.0, 0.0), np.maximum(most - correlation, correlation - least)
    )
    at = everywhere.select(chosen)
    shift_x, shift_y = nodes(_STEPS, at.half(_ONLY_X), at.half(_ONLY_Y))
    half = at.half((1.0, 0.0, 0.0, -shift_y, -shift_x))
    center = at.correlation + shift_x * shift_y
    ends = (center - half).min(axis=0), (center + half).max(axis=0)
    spreads = pairs.moments.spreads
    error = everywhere.error((1.0, 0.0, 0.0, 0.0, 0.0))
    return _placed(chosen, ends, error, spreads[:, 0] * spreads[:, 1])


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def certified_slope(pairs: SampledPairs, *, confidence: float) -> Certified:
    """The slope of the least-squares line of x over y."""
    everywhere = _Averages.of(pairs, confidence)
    slope = everywhere.correlation  # Of standardised values it is the correlation.
    influence = (1.0, 0.0, -slope, 0.0, 0.0)
    chosen = everywhere.certified(
        influence, np.maximum(*reach_of_slope(everywhere.x, everywhere.y, slope))
    )
    at = everywhere.select(chosen)
    shift_x, shift_y = nodes(_STEPS, at.half(_ONLY_X), at.half(_ONLY_Y))
    ends = at.roots(
        at.correlation + shift_x * shift_y,
        1.0 + shift_y**2,
        fixed=(1.0, 0.0, 0.0, -shift_y, -shift_x),
        moving=(0.0, 0.0, -1.0, 0.0, 2.0 * shift_y),
    )
    spreads = pairs.moments.spreads
    return _placed(chosen, ends, everywhere.error(influence), spreads[:, 0] / spreads[:, 1])


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def certified_correlation(pairs: SampledPairs, *, confidence: float) -> Certified:
    """Pearson's correlation, in [-1, 1]."""
    everywhere = _Averages.of(pairs, confidence)
    r = everywhere.correlation
    influence = (1.0, -r / 2.0, -r / 2.0, 0.0, 0.0)
    chosen = everywhere.certified(
        influence, np.maximum(*reach_of_correlation(everywhere.x, everywhere.y, r))
    )
    at = everywhere.select(chosen)
    # The means of z_x + z_y and z_x - z_y: where r is near 1, both means err alike.
    both, apart = at.half((0.0, 0.0, 0.0, 1.0, 1.0)), at.half((0.0, 0.0, 0.0, 1.0, -1.0))
    # The spreads are about means that err, too: squares of these are added.
    ratio = at.half((0.0, 0.5, -0.5, 0.0, 0.0)) + ((both + apart) / 2.0) ** 2
    sums, differences, ratios = nodes(_STEPS, both, apart, ratio)
    shift_x, shift_y = (sums + differences) / 2.0, (sums - differences) / 2.0
    grown, shrunk = np.exp(ratios), np.exp(-ratios)
    low, high = at.roots(
        at.correlation + shift_x * shift_y,
        ((1.0 + shift_x**2) * grown + (1.0 + shift_y**2) * shrunk) / 2.0,
        fixed=(1.0, 0.0, 0.0, -shift_y, -shift_x),
        moving=(0.0, -grown / 2.0, -shrunk / 2.0, grown * shift_x, shrunk * shift_y),
    )
    ends = np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0)
    return _placed(chosen, ends, everywhere.error(influence), np.ones(pairs.groups))


_ONLY_X: Final = (0.0, 0.0, 0.0, 1.0, 0.0)
_ONLY_Y: Final = (0.0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Averages:
    """Averages of the features of standardised pairs, and how far they may be off.

    correlation: float64 [groups]. x, y: the known ranges of z_x and z_y. covariance: float64
    [groups, 5, 5], of the averages. factor: Student's t. rows: pairs read. unread_share: 1 - n/N.
    usable: bool [groups], pairs were skipped, and those that were read have spreads.
    """

    correlation: Floats
    x: Ends
    y: Ends
    covariance: Floats
    factor: Floats
    rows: Floats
    unread_share: Floats
    usable: NDArray[np.bool_]
    limit: float

    @classmethod
    def of(cls, pairs: SampledPairs, confidence: float) -> _Averages:
        moments, rows = pairs.moments, pairs.matched
        unread_share = pairs.first.unread_share
        share = unread_share / np.maximum(rows, 1.0) / np.maximum(rows - 1.0, 1.0)
        x, y = (
            (
                (column.low - moments.means[:, at]) / moments.spreads[:, at],
                (column.high - moments.means[:, at]) / moments.spreads[:, at],
            )
            for at, column in enumerate((pairs.first, pairs.second))
        )
        return cls(
            moments.correlation,
            x,
            y,
            moments.scatter * share[:, None, None],
            two_sided(rows - 1.0, confidence=confidence),
            rows,
            unread_share,
            (rows >= 2.0) & ~pairs.first.complete & in_range(moments.spreads**2).all(axis=1),
            rho_max(confidence),
        )

    def select(self, chosen: NDArray[np.int64]) -> _Averages:
        """The same of some groups."""
        return _Averages(
            self.correlation[chosen],
            (self.x[0][chosen], self.x[1][chosen]),
            (self.y[0][chosen], self.y[1][chosen]),
            self.covariance[chosen],
            self.factor[chosen],
            self.rows[chosen],
            self.unread_share[chosen],
            self.usable[chosen],
            self.limit,
        )

    def error(self, weights: Weights) -> Floats:
        """Standard error of a weighted sum of the averages: [groups] or [nodes, groups]."""
        return np.sqrt(np.maximum(self._product(weights, weights), 0.0))

    def half(self, weights: Weights) -> Floats:
        """Half a normal interval of a weighted sum of the averages."""
        return self.factor * self.error(weights)

    def certified(self, influence: Weights, reach: Floats) -> NDArray[np.int64]:
        """The groups in which an influence function's own rho is small enough.

        reach: its largest size that the known ranges allow.
        """
        deviation = self.error(influence) * np.sqrt(self.rows / self.unread_share)
        found = rho(reach, deviation, read=self.rows, unread_share=self.unread_share)
        return np.flatnonzero((found <= self.limit) & self.usable)

    def roots(self, above: Floats, below: Floats, *, fixed: Weights, moving: Weights) -> Ends:
        """The least and the largest t that is not ruled out at any node.

        At a node all t hold with |above - t below| <= half(fixed + t moving). NaN where t may be
        of any size.
        """
        square = self.factor**2
        leading = below**2 - square * self._product(moving, moving)
        middle = (above * below + square * self._product(fixed, moving)) / leading
        last = (above**2 - square * self._product(fixed, fixed)) / leading
        away = np.sqrt(np.maximum(middle**2 - last, 0.0))
        middle = np.where(leading > 0.0, middle, np.nan)
        return (middle - away).min(axis=0), (middle + away).max(axis=0)

    def _product(self, left: Weights, right: Weights) -> Floats:
        total: Floats = np.zeros(len(self.correlation))
        for i in range(FEATURES):
            for j in range(FEATURES):
                total = total + left[i] * right[j] * self.covariance[:, i, j]
        return total


def reach_of_correlation(x: Ends, y: Ends, r: Floats) -> Ends:
    """The largest -g and g of g = a b - r/2 (a^2 + b^2) for a, b in the ranges x, y.

    Along each axis g is concave where r > 0: its minimum is at a corner, its maximum on an edge,
    where the other coordinate is a/r. Where r < 0 the two are exchanged. Beside the edges there is
    only the saddle at 0.
    """
    sides = [(a, y) for a in x] + [(b, x) for b in y]
    found = [_influence(side, end, r) for side, other in sides for end in other]
    with np.errstate(divide="ignore", invalid="ignore"):
        found += [_influence(side, _inside(side / r, other), r) for side, other in sides]
    return -np.minimum.reduce(found), np.maximum.reduce(found)


def reach_of_slope(x: Ends, y: Ends, slope: Floats) -> Ends:
    """The largest -g and g of g = (a - slope b) b for a, b in the ranges x, y.

    g is linear in a, and a parabola in b that turns at a/(2 slope).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        places = [(a, b) for a in x for b in (*y, _inside(a / (2.0 * slope), y))]
    found = [(a - slope * b) * b for a, b in places]
    return -np.minimum.reduce(found), np.maximum.reduce(found)


def _influence(a: Floats, b: Floats, r: Floats) -> Floats:
    return a * b - r / 2.0 * (a**2 + b**2)


def _inside(values: Floats, ends: Ends) -> Floats:
    """Values cut to a range; its lower end where there is no value."""
    return np.clip(np.where(np.isnan(values), ends[0], values), *ends)


def nodes(steps_of_each: Floats, *halves: Floats) -> list[Floats]:
    """All combinations of steps, in half widths, of several intervals: [nodes, groups] each."""
    steps = np.meshgrid(*([steps_of_each] * len(halves)), indexing="ij")
    return [step.reshape(-1, 1) * half for step, half in zip(steps, halves, strict=True)]


def _placed(chosen: NDArray[np.int64], ends: Ends, error: Floats, scale: Floats) -> Certified:
    """The ends of the chosen groups, in the unit of the values; NaN for all others."""
    low, high = np.full(len(scale), np.nan), np.full(len(scale), np.nan)
    low[chosen], high[chosen] = (end * scale[chosen] for end in ends)
    return Certified(low, high, error * scale)
