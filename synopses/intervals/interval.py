"""Intervals: a column of values with their bounds, as every function of this package returns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from synopses.model.estimate import Bound, Estimates

_INT64_MAX = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """One interval per group, struct of arrays; the truth is inside with the asked confidence.

    value, low, high: float64 [groups]; low <= value <= high. A value without a read row is
      NaN; its ends then come from the known range.
    bound: uint8 [groups], values of Bound: EXACT only where nothing was skipped; NONE where low
      and high are infinite because nothing can be promised.
    variance: float64 [groups]; of the estimate, where its interval is a certified normal one
      (only these may be combined by adding variances), else NaN.
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    bound: NDArray[np.uint8]
    variance: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.value)

    @classmethod
    def of(
        cls,
        value: NDArray[np.float64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        *,
        exact: NDArray[np.bool_] | bool = False,
        variance: NDArray[np.float64] | None = None,
    ) -> Self:
        """Put the parts together: the value is brought inside its ends, the bound is derived."""
        low = np.asarray(low, np.float64)
        high = np.asarray(high, np.float64)
        unbounded = np.isinf(low) & np.isinf(high) & (low < high)
        bound = np.where(unbounded, Bound.NONE, Bound.INTERVAL)
        bound = np.where(exact, Bound.EXACT, bound).astype(np.uint8)
        none = np.full(len(low), np.nan)
        inside = np.clip(np.asarray(value, np.float64), low, high)
        return cls(inside, low, high, bound, none if variance is None else variance)

    @property
    def certified(self) -> NDArray[np.bool_]:
        """bool [groups]: where the interval is a certified normal one."""
        return ~np.isnan(self.variance)

    def scaled(self, factor: float) -> Self:
        """The same intervals in another unit; what doubles cannot hold there is infinite."""
        with np.errstate(over="ignore"):
            value, low, high = (x * factor for x in (self.value, self.low, self.high))
            variance = self.variance * factor * factor
        if factor < 0:
            low, high = high, low
        return type(self)(value, low, high, self.bound, variance)

    def clipped(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> Self:
        """Cut by ends that are known for certain."""
        return type(self)(
            np.clip(self.value, low, high),
            np.clip(self.low, low, high),
            np.clip(self.high, low, high),
            self.bound,
            self.variance,
        )

    def estimates(self, *, confidence: float, source: str, reason: str = "") -> Estimates:
        """Return a column of an answer; a value without a read row is null."""
        null = np.isnan(self.value)
        return Estimates(
            self.value, self.low, self.high, self.bound, null, confidence, source, reason
        )

    def counts(self, *, confidence: float, source: str) -> Estimates:
        """The same of whole numbers, as int64: no more can be counted than that holds."""
        null = np.isnan(self.value)
        value = np.where(null, self.low, np.rint(self.value))
        low, high = _saturated(self.low), _saturated(self.high)
        return Estimates(_saturated(value), low, high, self.bound, null, confidence, source)


def _saturated(column: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole doubles as int64; what lies beyond is its largest."""
    beyond = column >= 2.0**63
    return np.where(beyond, _INT64_MAX, np.where(beyond, 0.0, column).astype(np.int64))
