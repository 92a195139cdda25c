"""Stratum: the tuples that were read at one level, and the number of all of them, per group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.from_moments import Ends, Floats
from synopses.model.overflow import in_range

_PLAIN: Final = 2.0**-230, 2.0**230  # Between them fourth powers and sums of many are doubles.
_DIGITS_LOST: Final = 1e-9  # Of a difference, beside what it is the difference of.


@dataclass(frozen=True, slots=True, eq=False)
class SquareMoments:
    """How the squares y^2 of what was read are spread, group by group: float64 [groups].

    cross: the sum of (y - mean y)(y^2 - mean y^2). squares: that of (y^2 - mean y^2)^2.
    """

    cross: Floats
    squares: Floats

    def spread_about(self, center: Floats | float, squares: Floats) -> Floats:
        """The sum of squared distances of (y - center)^2 from its mean; squares: that of y.

        NaN where the digits are lost: of values far from zero beside their spread.
        """
        terms = self.squares, -4.0 * center * self.cross, 4.0 * center**2 * squares
        found = sum(terms)
        lost = found <= _DIGITS_LOST * sum(map(np.abs, terms))
        return np.where(lost | ~np.isfinite(found), np.nan, found)


@dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """What was read of a stratum, group by group.

    population: N values that there were; read: n of them that were read, of all groups.
    counts: int64 [groups], of those read. means, squares: float64 [groups], their mean (0 where
      there is none) and the sum of squared distances from it.
    low, high: a range that holds all N values; may be infinite.
    whole: every value belongs to the one group.
    shape: what is known of the squares of these values; None: nothing.
    """

    population: int
    read: int
    counts: NDArray[np.int64]
    means: Floats
    squares: Floats
    low: float
    high: float
    whole: bool
    shape: SquareMoments | None = None

    @property
    def skipped(self) -> int:
        """Values that were not read."""
        return self.population - self.read

    @property
    def unread_share(self) -> float:
        """1 - n/N."""
        return self.skipped / self.population if self.population else 0.0

    @property
    def seen(self) -> Floats:
        """The sum of what was read."""
        return np.where(self.counts > 0, self.counts * self.means, 0.0)

    @property
    def factor(self) -> float:
        """N/n; 0 where nothing was read."""
        return self.population / self.read if self.read else 0.0

    def in_unit(self, unit: float) -> Stratum:
        """The same values in another unit, as from `unit_of`.

        Squares of which underflow or overflow took digits become the largest that the range allows.
        """
        if unit == 1.0:
            return self
        low, high = self.low / unit, self.high / unit
        most = self.counts * ((high - low) / 2.0) ** 2
        kept = in_range(self.squares)
        squares = np.where(kept, np.where(kept, self.squares, 0.0) / unit / unit, most)
        means = self.means / unit
        return replace(self, means=means, squares=squares, low=low, high=high, shape=None)

    def ends(self) -> tuple[float, float]:
        """The range of what a value adds to a group's sum: one of another group adds 0."""
        if self.whole:
            return self.low, self.high
        return min(self.low, 0.0), max(self.high, 0.0)

    def certain_sum(self) -> Ends:
        """What the sum cannot be beyond, whatever was skipped."""
        low, high = (0.0 if end == 0.0 else self.skipped * end for end in self.ends())
        if not self.skipped:
            low = high = 0.0
        return self.seen + low, self.seen + high


def unit_of(strata: Sequence[Stratum]) -> float:
    """A power of two in which fourth powers of all values are doubles: 1 but for extreme values."""
    ends = np.abs([end for s in strata for end in (s.low, s.high)])
    top = float(ends[np.isfinite(ends)].max(initial=0.0))
    if top == 0.0 or _PLAIN[0] <= top <= _PLAIN[1]:
        return 1.0
    return math.ldexp(1.0, math.frexp(top)[1] - 1)
