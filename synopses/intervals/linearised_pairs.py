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

Each end of a correlation is certified by itself. The lower end misses where pairs far below the
mean of the influence function were not read, the upper one where pairs far above it were not. So
rho of an end is that of the influence function's reach on its side. A little too large a rho is
made small enough by a larger error: a normal interval with a larger spread holds all the more. One
normal end has a fixed part of delta, and the bets for the other end have the rest. Rho alone
decides which ends are normal, as it does for the other intervals here.
Source: Devlin, Gnanadesikan, Kettenring 1975, Biometrika 62(3) (the influence of r).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.from_moments import Ends, Floats
from synopses.intervals.normal import rho, rho_max, two_sided
from synopses.intervals.sampled_pairs import FEATURES, SampledPairs
from synopses.model.overflow import in_range
from synopses.model.parameters import error_share

_STEPS: Final = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])  # In half widths.
# Of the error of an end, to certify it. Bets are as wide at a larger one.
_RAISED_MAX: Final = 1.3
_SHARE: Final = 0.3  # Of delta, for one certified end; the end by bets has the rest.

Weights = Sequence[Floats | float]


@dataclass(frozen=True, slots=True, eq=False)
class Certified:
    """Normal intervals of the groups where they are certified.

    low, high: float64 [groups]; NaN where not certified; one end of a correlation may be, without
      the other. error: float64 [groups], standard error.
    share: part of delta with which a certified end misses, of all groups or float64 [groups].
    """

    low: Floats
    high: Floats
    error: Floats
    share: Floats | float = 0.5

    @property
    def holds(self) -> NDArray[np.bool_]:
        """bool [groups], where both ends are certified."""
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
    rhos = [
        everywhere.rho(influence, reach)
        for reach in reach_of_correlation(everywhere.x, everywhere.y, r)
    ]
    found = _CertifiedEnds.of(rhos[0], rhos[1], everywhere.rows, confidence)
    chosen = np.flatnonzero(found.is_certified.any(axis=0))
    at = everywhere.select(chosen, found.factor)
    # The means of z_x + z_y and z_x - z_y: where r is near 1, both means err alike.
    both, apart = at.half((0.0, 0.0, 0.0, 1.0, 1.0)), at.half((0.0, 0.0, 0.0, 1.0, -1.0))
    # The spreads are about means that err, too: squares of these are added.
    ratio = at.half((0.0, 0.5, -0.5, 0.0, 0.0)) + ((both + apart) / 2.0) ** 2
    sums, differences, ratios = nodes(_STEPS, both, apart, ratio)
    shift_x, shift_y = (sums + differences) / 2.0, (sums - differences) / 2.0
    grown, shrunk = np.exp(ratios), np.exp(-ratios)
    ends = at.roots(
        at.correlation + shift_x * shift_y,
        ((1.0 + shift_x**2) * grown + (1.0 + shift_y**2) * shrunk) / 2.0,
        fixed=(1.0, 0.0, 0.0, -shift_y, -shift_x),
        moving=(0.0, -grown / 2.0, -shrunk / 2.0, grown * shift_x, shrunk * shift_y),
        raised=(found.raised[0, chosen], found.raised[1, chosen]),
    )
    low, high = (
        np.where(found.is_certified[at_end, chosen], np.clip(end, -1.0, 1.0), np.nan)
        for at_end, end in enumerate(ends)
    )
    placed = _placed(chosen, (low, high), everywhere.error(influence), np.ones(pairs.groups))
    return Certified(placed.low, placed.high, placed.error, found.share)


_ONLY_X: Final = (0.0, 0.0, 0.0, 1.0, 0.0)
_ONLY_Y: Final = (0.0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class _CertifiedEnds:
    """Which ends of a correlation are normal, and how.

    is_certified: bool [2, groups], of the lower end and of the upper one. raised: float64
    [2, groups], factors of the error. share: float64 [groups], the part of delta with which either
    misses. factor: float64 [groups], Student's t.
    """

    is_certified: NDArray[np.bool_]
    raised: Floats
    share: Floats
    factor: Floats

    @classmethod
    def of(cls, below: Floats, above: Floats, rows: Floats, confidence: float) -> _CertifiedEnds:
        """Both ends if rho of both is small enough, else one if that is narrower than bets.

        below, above: float64 [groups], rho of either end.
        """
        delta, rhos = error_share(confidence), np.stack([below, above])
        near, far = rhos.min(axis=0), rhos.max(axis=0)
        own = 1.0 - 2.0 * _SHARE * delta
        one = np.maximum(near / rho_max(own), 1.0)
        # In errors: the width of a normal end and one by bets, and of two by bets.
        alone = two_sided(rows - 1.0, confidence=own) * one + _by_bets(far, (1.0 - _SHARE) * delta)
        bets = _by_bets(near, 0.5 * delta) + _by_bets(far, 0.5 * delta)
        both = far <= _RAISED_MAX * rho_max(confidence)
        is_one = (one <= _RAISED_MAX) & (alone < bets) & (rhos == near) & (below != above)
        return cls(
            both | is_one,
            np.where(both, np.maximum(rhos / rho_max(confidence), 1.0), one),
            np.where(both, 0.5, _SHARE),
            np.where(
                both,
                two_sided(rows - 1.0, confidence=confidence),
                two_sided(rows - 1.0, confidence=own),
            ),
        )


def _by_bets(rhos: Floats, tail: float) -> Floats:
    """Return the width of an end by bets, in errors: as in `_first` of correlation_bets.py."""
    rich = -math.log(tail)
    return math.sqrt(2.0 * rich) + rhos * rich


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

    def select(self, chosen: NDArray[np.int64], factor: Floats | None = None) -> _Averages:
        """The same of some groups; factor: of all groups, instead of Student's t."""
        return _Averages(
            self.correlation[chosen],
            (self.x[0][chosen], self.x[1][chosen]),
            (self.y[0][chosen], self.y[1][chosen]),
            self.covariance[chosen],
            (self.factor if factor is None else factor)[chosen],
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
        return np.flatnonzero(self.rho(influence, reach) <= self.limit)

    def rho(self, influence: Weights, reach: Floats) -> Floats:
        """Rho of an influence function whose largest size is this; inf: it tells nothing."""
        deviation = self.error(influence) * np.sqrt(self.rows / self.unread_share)
        found = rho(reach, deviation, read=self.rows, unread_share=self.unread_share)
        return np.where(self.usable, found, np.inf)

    def roots(
        self,
        above: Floats,
        below: Floats,
        *,
        fixed: Weights,
        moving: Weights,
        raised: Ends | None = None,
    ) -> Ends:
        """The least and the largest t that is not ruled out at any node.

        At a node all t hold with |above - t below| <= half(fixed + t moving). NaN where t may be
        of any size. raised: factors of the error, for either end; None: 1.
        """
        squares = [self._product(*each) for each in ((moving,) * 2, (fixed, moving), (fixed,) * 2)]
        ends = []
        for end, side in enumerate((-1.0, 1.0)):
            factor = self.factor if raised is None else self.factor * raised[end]
            moved, crossed, constant = (factor**2 * each for each in squares)
            leading = below**2 - moved
            middle = (above * below + crossed) / leading
            last = (above**2 - constant) / leading
            away = np.sqrt(np.maximum(middle**2 - last, 0.0))
            ends.append(np.where(leading > 0.0, middle, np.nan) + side * away)
        return ends[0].min(axis=0), ends[1].max(axis=0)

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
