"""Progress charts: what a unit of input still takes in memory, by the time that was spent on it.

Source: as of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class OperatorRate:
    """What an operator does with each unit of its input.

    cost: time. selectivity: units of output.
    """

    cost: float
    selectivity: float

    @property
    def greed(self) -> float:
        """Memory that it frees in each unit of time, if its output stays in memory."""
        return _slope(1.0 - self.selectivity, self.cost)

    def is_near(self, other: OperatorRate, factor: float) -> bool:
        """Return whether cost and selectivity differ from another rate by at most a factor."""
        pairs = ((self.cost, other.cost), (self.selectivity, other.selectivity))
        return all(max(pair) <= factor * min(pair) for pair in pairs)


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators [first, end) of a path that are one segment of the lower envelope.

    slope: memory freed in each unit of time, in units of the path's input.
    """

    first: int
    end: int
    slope: float


def progress_chart(path: Sequence[OperatorRate]) -> list[tuple[float, float]]:
    """Return the points (time, memory) of a unit of input: before the path, behind each operator.

    The output of the last operator leaves memory.
    """
    points = [(0.0, 1.0)]
    for at, rate in enumerate(path, 1):
        time, memory = points[-1]
        left = 0.0 if at == len(path) else memory * rate.selectivity
        points.append((time + memory * rate.cost, left))
    return points


def chains(path: Sequence[OperatorRate]) -> list[Chain]:
    """Return the segments of the lower envelope of a path's progress chart, in order.

    Of equally steep descents from a point, the longest is the segment.
    """
    points = progress_chart(path)
    found: list[Chain] = []
    at = 0
    while at < len(path):
        time, memory = points[at]
        slopes = [_slope(memory - left, after - time) for after, left in points[at + 1 :]]
        steepest = max(slopes)
        end = at + 1 + max(place for place, slope in enumerate(slopes) if slope == steepest)
        found.append(Chain(at, end, steepest))
        at = end
    return found


def _slope(freed: float, time: float) -> float:
    if time > 0:
        return freed / time
    return inf if freed > 0 else -inf if freed < 0 else 0.0
