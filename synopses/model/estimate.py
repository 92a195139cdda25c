"""Estimates: values that carry their interval, one at a time or a column of groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


class Bound(IntEnum):
    """What an interval promises. Ordered: a combination is as weak as its weakest part."""

    EXACT = 0
    INTERVAL = 1
    NONE = 2

    @property
    def word(self) -> str:
        """The bound as answers print it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Estimate:
    """One value with the interval that its source stands behind.

    low <= value <= high; the truth is inside with probability at least `confidence`.
    With Bound.NONE low and high promise nothing (they are -inf and inf).
    """

    value: float
    low: float
    high: float
    confidence: float
    bound: Bound
    source: str

    def holds(self, truth: float) -> bool:
        """Return whether the interval contains the truth."""
        return self.low <= truth <= self.high

    @property
    def half_width(self) -> float:
        """The larger distance from the value to an end, in the value's unit."""
        return max(self.high - self.value, self.value - self.low)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """A column of estimates: one per group, struct of arrays.

    value, low, high: shape [groups], one dtype: float64, int64 (counts, integer sums, timestamps
      in microseconds, dates in days, booleans as 0/1) or object (strings, top lists).
    bound: uint8 [groups], values of Bound.
    null: bool [groups]; where True the answer is SQL NULL and value, low, high mean nothing.
    confidence: of every interval in the column, in (0, 1); 1.0 when all are certain.
    source: how it was got, for EXPLAIN ("moments", "hll", "sample", "archive", ...).
    reason: why bounds are NONE where they are, else "".
    """

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    bound: NDArray[np.uint8]
    null: NDArray[np.bool_]
    confidence: float
    source: str
    reason: str = ""

    def __len__(self) -> int:
        return len(self.value)

    def __post_init__(self) -> None:
        shapes = {len(self.value), len(self.low), len(self.high), len(self.bound), len(self.null)}
        assert len(shapes) == 1, shapes

    @classmethod
    def exact(cls, value: NDArray[Any], source: str, null: NDArray[np.bool_] | None = None) -> Self:
        """A column that is known for certain: low = value = high."""
        empty = np.zeros(len(value), np.bool_) if null is None else null
        return cls(value, value, value, np.zeros(len(value), np.uint8), empty, 1.0, source)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """The same column, at these rows in this order."""
        return type(self)(
            self.value[rows],
            self.low[rows],
            self.high[rows],
            self.bound[rows],
            self.null[rows],
            self.confidence,
            self.source,
            self.reason,
        )

    def __getitem__(self, group: int) -> Estimate:
        """One group's estimate as a scalar (numeric columns only)."""
        return Estimate(
            float(self.value[group]),
            float(self.low[group]),
            float(self.high[group]),
            self.confidence,
            Bound(int(self.bound[group])),
            self.source,
        )


@dataclass(frozen=True, slots=True)
class TopItem:
    """One entry of TOP(x, k): low <= true count <= high.

    guaranteed: no item outside the list can have more occurrences than `low`.
    """

    value: Any
    count: int
    low: int
    high: int
    guaranteed: bool
