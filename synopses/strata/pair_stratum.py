"""Pair stratum: the pairs read at one level, and what is known of all of them, per group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.from_moments import Ends, Floats


@dataclass(frozen=True, slots=True, eq=False)
class PairSquares:
    """How the squares of x + y and x - y are spread over the pairs read, group by group.

    means, squares: of (x + y)^2 and (x - y)^2, float64 [groups] each, the mean and the sum of
      squared distances from it. cross: that of products of both distances.
    """

    means: Ends
    squares: Ends
    cross: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PairStratum:
    """What was read of the pairs of a stratum, group by group.

    population: N pairs that there were; read: n of them that were read, of all groups.
    counts: int64 [groups], of those read. means, squares: of x and of y, float64 [groups] each, the
      mean and the sum of squared distances from it; cross: that of products of both distances.
    x, y: ranges that hold all N values.
    whole: every pair belongs to the one group.
    diagonals: ranges that hold x + y and x - y of all pairs; None: these are not known.
    spread: of the squares of x + y and x - y; None: it is not known.
    """

    population: int
    read: int
    counts: NDArray[np.int64]
    means: Ends
    squares: Ends
    cross: Floats
    x: tuple[float, float]
    y: tuple[float, float]
    whole: bool
    diagonals: tuple[tuple[float, float], tuple[float, float]] | None = None
    spread: PairSquares | None = None

    @property
    def skipped(self) -> int:
        """Pairs that were not read."""
        return self.population - self.read

    @property
    def factor(self) -> float:
        """N/n; 0 where nothing was read."""
        return self.population / self.read if self.read else 0.0
