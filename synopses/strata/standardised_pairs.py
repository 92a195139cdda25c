"""Pairs of a stratum in units of the standardised columns, and sums of squares of forms of them.

Where the moments of (x + y)^2 and (x - y)^2 are known, they bound the spread of a quadratic form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from synopses.intervals.from_moments import Ends, Floats
from synopses.strata.pair_region import PairRegion
from synopses.strata.pair_stratum import PairStratum

_SQUARES_LOST: Final = 1e-9  # Of a difference of squares, beside these.
_NOWHERE: Final = PairRegion(())  # Until the spreads are known.
_ALL: Final = (-np.inf, np.inf)
_CUT: Final = 2.0**-45  # Of the values: what rounding may cut off a sum of both.


@dataclass(frozen=True, slots=True, eq=False)
class StandardisedPairs:
    """A stratum in units of the standardised columns: x and y less their means, over spreads.

    means, squares: of both columns, and cross: of their products; float64 [groups], in these units.
    region: holds all pairs of the stratum.
    units: means and spreads that x and y were standardised by; None: their spreads are not known.
    """

    stratum: PairStratum
    means: Ends
    squares: Ends
    cross: Floats
    region: PairRegion
    units: tuple[Ends, Ends] | None = None

    @classmethod
    def centred(cls, stratum: PairStratum, means: Ends) -> Self:
        """A stratum less the means of both columns, with the spreads that they have."""
        x, y = stratum.means[0] - means[0], stratum.means[1] - means[1]
        return cls(stratum, (x, y), stratum.squares, stratum.cross, _NOWHERE)

    @classmethod
    def of(cls, stratum: PairStratum, means: Ends, variances: Ends) -> Self:
        """A stratum in units of these means, and of the roots of these variances."""
        (center_x, center_y), (x, y) = means, np.sqrt(variances)
        return cls(
            stratum,
            ((stratum.means[0] - center_x) / x, (stratum.means[1] - center_y) / y),
            (stratum.squares[0] / variances[0], stratum.squares[1] / variances[1]),
            stratum.cross / (x * y),
            _region(stratum, means, (x, y)),
            (means, (x, y)),
        )

    def sums(self, shift_x: Floats | float, shift_y: Floats | float) -> tuple[Floats, ...]:
        """The sums of X Y, X^2 and Y^2, where X and Y are x and y less the shifts."""
        x, y, counts = self.means[0] - shift_x, self.means[1] - shift_y, self.stratum.counts
        there = counts > 0
        found = (
            self.cross + counts * x * y,
            self.squares[0] + counts * x**2,
            self.squares[1] + counts * y**2,
        )
        return tuple(np.where(there, part, 0.0) for part in found)

    def squares_of(
        self,
        form: tuple[Floats | float, Floats | float, Floats | float],
        shift: tuple[Floats | float, Floats | float],
        scale: Floats | float,
        total: Floats,
    ) -> Floats:
        """At least the sum of g^2 over the pairs read; infinite where no squares are known.

        g = aa A^2 + ab A B + bb B^2, A = scale X, B = Y/scale. With p = x + y and q = x - y in the
        units of the stratum, g is a sum of multiples of p^2, q^2, p q, p and q. How p^2 and q^2
        vary together is known, and the same of p and q. By Minkowski the spread of g is at most the
        sum of the spreads of both and of p q.

        Args:
          form: aa, ab and bb. total: the sum of g over the pairs read.
        """
        known, stratum = self.stratum.spread, self.stratum
        if known is None or self.units is None:
            return np.full(total.shape, np.inf)
        (aa, ab, bb), (means, spreads) = form, self.units
        x, y = spreads[0] / scale, spreads[1] * scale
        from_x, from_y = means[0] + spreads[0] * shift[0], means[1] + spreads[1] * shift[1]
        p, q = from_x + from_y, from_x - from_y
        plain, mixed = aa / x**2 + bb / y**2, ab / (x * y)
        of_pp, of_qq = (plain + mixed) / 4.0, (plain - mixed) / 4.0
        of_pq = (aa / x**2 - bb / y**2) / 2.0
        of_p, of_q = -2.0 * p * of_pp - q * of_pq, -2.0 * q * of_qq - p * of_pq
        counts, (xx, yy), xy = stratum.counts, stratum.squares, stratum.cross
        mean_x, mean_y = stratum.means
        sum_pq = xx - yy + counts * (mean_x**2 - mean_y**2)
        square_pq = known.cross + counts * known.means[0] * known.means[1]
        each = np.maximum(counts, 1)
        spread = np.sqrt(_quadratic((of_pp, of_qq), known.squares, known.cross))
        spread = spread + np.abs(of_pq) * np.sqrt(_rounded_up(square_pq, -(sum_pq**2) / each))
        both = xx + yy + 2.0 * xy, xx + yy - 2.0 * xy
        spread = spread + np.sqrt(_quadratic((of_p, of_q), both, xx - yy))
        return np.asarray(np.where(counts > 0, spread**2 + total**2 / each, 0.0), np.float64)


def _quadratic(weights: Ends, squares: Ends, cross: Floats) -> Floats:
    """The sum of squares of a weighted sum of two columns, rounded up."""
    (p, q), (pp, qq) = weights, squares
    return _rounded_up(p**2 * pp, q**2 * qq, 2.0 * p * q * cross)


def _rounded_up(*terms: Floats) -> Floats:
    """The sum of terms, at least 0, with what differences of these may have lost."""
    total, size = sum(terms), sum(map(np.abs, terms))
    return np.asarray(np.maximum(total, 0.0) + _SQUARES_LOST * size, np.float64)


def _region(stratum: PairStratum, means: Ends, spreads: Ends) -> PairRegion:
    """The region that holds all pairs of a stratum, in units of the standardised columns."""
    (mean_x, mean_y), (x, y) = means, spreads
    both = mean_x + mean_y, mean_x - mean_y
    slack = _CUT * (max(map(abs, stratum.x)) + max(map(abs, stratum.y)))
    total, difference = (
        (low - slack - middle, high + slack - middle)
        for (low, high), middle in zip(stratum.diagonals or (_ALL, _ALL), both, strict=True)
    )
    box = (
        tuple((end - mean) / spread for end in ends)
        for ends, mean, spread in ((stratum.x, mean_x, x), (stratum.y, mean_y, y))
    )
    a, b = ((np.asarray(low), np.asarray(high)) for low, high in box)
    return PairRegion.of(a, b, (x, y), total, difference)
