"""Axes of pairs: sum and difference of both values over fixed scales; and ranges on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PairAxes:
    """The sum u + v and the difference u - v, of u = (x - center)/scale and v of y.

    centers, scales: of x and of y; scales are above 0. Values of earlier rows decide them, never
      the random keys that rows are thinned by.
    """

    centers: tuple[float, float]
    scales: tuple[float, float]

    @property
    def units(self) -> NDArray[np.float64]:
        """Centers, and one over the scales, as the kernels take them: float64 [4]."""
        return np.array([*self.centers, 1.0 / self.scales[0], 1.0 / self.scales[1]])

    def both(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """Return sums and differences: float64 [2, pairs]."""
        with np.errstate(invalid="ignore", over="ignore"):
            u = (x - self.centers[0]) / self.scales[0]
            v = (y - self.centers[1]) / self.scales[1]
            return np.stack([u + v, u - v])


@dataclass(frozen=True, slots=True)
class DiagonalRanges:
    """Ranges that hold the sums and the differences of all pairs, as doubles round them."""

    axes: PairAxes
    total: Range
    difference: Range

    def to_json(self) -> list[list[float]]:
        """The ranges for a stored pane."""
        axes = self.axes
        return [list(e) for e in (axes.centers, axes.scales, self.total, self.difference)]

    @classmethod
    def from_json(cls, state: list[list[float]]) -> DiagonalRanges:
        """Read what `to_json` returned."""
        centers, scales, total, difference = map(pair_of, state)
        return cls(PairAxes(centers, scales), total, difference)


def pair_of(state: list[float]) -> Range:
    """Return two numbers that were stored."""
    first, second = state
    return first, second


def joined(one: DiagonalRanges | None, other: DiagonalRanges | None) -> DiagonalRanges | None:
    """Ranges that hold the pairs of both; None where either is not known, or on other axes."""
    if one is None or other is None or one.axes != other.axes:
        return None
    return DiagonalRanges(
        one.axes, _hull(one.total, other.total), _hull(one.difference, other.difference)
    )


def _hull(one: Range, other: Range) -> Range:
    return min(one[0], other[0]), max(one[1], other[1])
