"""Region that holds the pairs of a stratum: a box, cut by the ranges of the sum and the difference.

A quadratic function of the pair without a maximum or minimum inside is the least and the largest on
an edge. So its range follows from the edges alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from synopses.intervals.from_moments import Ends, Floats

Edge = tuple[Floats, Floats, Floats, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class PairRegion:
    """The edges of the region, [groups] or [nodes, groups].

    edges: a and b of one end, then of the other one; NaN where the region does not have the edge.
    """

    edges: tuple[Edge, ...]

    @classmethod
    @np.errstate(invalid="ignore", divide="ignore", over="ignore")
    def of(cls, a: Ends, b: Ends, weights: Ends, total: Ends, difference: Ends) -> Self:
        """Make the region of pairs (a, b).

        Args:
          a, b: ranges of both. weights: of a and b, above 0.
          total, difference: ranges of the weighted sum and difference; infinite ones cut nothing.
        """
        (p, q), edges = weights, []
        for end in a:
            ends = _meet(
                b,
                ((total[0] - p * end) / q, (total[1] - p * end) / q),
                ((p * end - difference[1]) / q, (p * end - difference[0]) / q),
            )
            edges.append((end + 0.0 * ends[0], ends[0], end + 0.0 * ends[1], ends[1]))
        for end in b:
            ends = _meet(
                a,
                ((total[0] - q * end) / p, (total[1] - q * end) / p),
                ((difference[0] + q * end) / p, (difference[1] + q * end) / p),
            )
            edges.append((ends[0], end + 0.0 * ends[0], ends[1], end + 0.0 * ends[1]))
        for level in total:
            ends = _meet(
                a,
                ((level - q * b[1]) / p, (level - q * b[0]) / p),
                ((level + difference[0]) / (2.0 * p), (level + difference[1]) / (2.0 * p)),
            )
            edges.append((ends[0], (level - p * ends[0]) / q, ends[1], (level - p * ends[1]) / q))
        for level in difference:
            ends = _meet(
                a,
                ((level + q * b[0]) / p, (level + q * b[1]) / p),
                ((level + total[0]) / (2.0 * p), (level + total[1]) / (2.0 * p)),
            )
            edges.append((ends[0], (p * ends[0] - level) / q, ends[1], (p * ends[1] - level) / q))
        return cls(tuple(edges))

    def moved(self, shift: tuple[Floats | float, Floats | float], scale: Floats | float) -> Self:
        """The region of scale (a - shift[0]) and (b - shift[1])/scale."""
        (x, y), edges = shift, []
        for a, b, end_a, end_b in self.edges:
            first, last = (a - x) * scale, (end_a - x) * scale
            edges.append((first, (b - y) / scale, last, (end_b - y) / scale))
        return type(self)(tuple(edges))

    def largest(self, value: Callable[[Floats, Floats], Floats]) -> Floats:
        """The largest size of a linear function of the pair; NaN where the region has no edge."""
        sizes = [
            np.abs(value(*end))
            for a, b, last_a, last_b in self.edges
            for end in ((a, b), (last_a, last_b))
        ]
        return np.asarray(np.fmax.reduce(np.broadcast_arrays(*sizes)), np.float64)

    @np.errstate(invalid="ignore", divide="ignore", over="ignore")
    def range_of(self, aa: Floats | float, ab: Floats | float, bb: Floats | float) -> Ends:
        """The least and the largest aa a^2 + ab a b + bb b^2; NaN where the region has no edge.

        The form has both signs, or 0 is outside of the region.
        """
        values = []
        for a, b, last_a, last_b in self.edges:
            step_a, step_b = last_a - a, last_b - b
            slope = 2.0 * aa * a * step_a + ab * (a * step_b + b * step_a) + 2.0 * bb * b * step_b
            bend = aa * step_a**2 + ab * step_a * step_b + bb * step_b**2
            turn = np.clip(np.where(bend == 0.0, 0.0, -slope / (2.0 * bend)), 0.0, 1.0)
            start = aa * a**2 + ab * a * b + bb * b**2
            values += [start + at * slope + at**2 * bend for at in (0.0, 1.0, turn)]
        together = np.broadcast_arrays(*values)
        return np.fmin.reduce(together), np.fmax.reduce(together)


def _meet(*ranges: Ends) -> Ends:
    """What all ranges share; NaN where that is nothing."""
    low = np.maximum.reduce(np.broadcast_arrays(*(each[0] for each in ranges)))
    high = np.minimum.reduce(np.broadcast_arrays(*(each[1] for each in ranges)))
    empty = ~((low <= high) & np.isfinite(low) & np.isfinite(high))
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)
