"""Basics of every column, taken from every tuple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ColumnBasics:
    """Counts and range of a column's values; NaN counts as NULL.

    rows: tuples that have a value. nulls: tuples that have none.
    low, high: the range of the values (TIMESTAMP in microseconds, DATE in days, BOOLEAN as 0 and
      1); None while there is no value, and for VARCHAR.
    """

    rows: int = 0
    nulls: int = 0
    low: int | float | None = None
    high: int | float | None = None

    @classmethod
    def of(cls, array: pa.Array[Any]) -> Self:
        """The basics of one batch's column."""
        kind = array.type
        if pa.types.is_floating(kind):
            return cls.of_doubles(array.to_numpy(zero_copy_only=False))  # Nulls become NaN.
        nulls = array.null_count
        rows = len(array) - nulls
        if rows == 0 or pa.types.is_string(kind):
            return cls(rows, nulls)
        if pa.types.is_boolean(kind):
            return cls(rows, nulls, 0, 1)
        whole = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        if not nulls:
            values = whole.to_numpy()
            return cls(rows, 0, int(values.min()), int(values.max()))
        ends: Any = pc.min_max(whole)
        return cls(rows, nulls, ends["min"].as_py(), ends["max"].as_py())

    @classmethod
    def of_doubles(cls, values: NDArray[np.float64]) -> Self:
        """Of one batch's doubles; NaN: there is none."""
        low = values.min(initial=np.inf)
        if not np.isnan(low) and len(values):  # One NaN makes it NaN: there is nothing to look for.
            return cls(len(values), 0, float(low), float(values.max()))
        absent = int(np.isnan(values).sum())
        rows = len(values) - absent
        if rows == 0:
            return cls(0, absent)
        return cls(rows, absent, float(np.nanmin(values)), float(np.nanmax(values)))

    def merged(self, other: Self) -> Self:
        """The basics of both stretches together; no range where that of one is not known."""
        rows, nulls = self.rows + other.rows, self.nulls + other.nulls
        if (self.low is None and self.rows) or (other.low is None and other.rows):
            return type(self)(rows, nulls)
        if self.low is None or self.high is None:
            return type(self)(rows, nulls, other.low, other.high)
        if other.low is None or other.high is None:
            return type(self)(rows, nulls, self.low, self.high)
        low, high = min(self.low, other.low), max(self.high, other.high)
        return type(self)(rows, nulls, low, high)

    @property
    def ends(self) -> tuple[float, float]:
        """The range as floats, rounded outward; everything where it is not known."""
        if self.low is None or self.high is None:
            return -np.inf, np.inf
        low, high = float(self.low), float(self.high)
        low = low if low <= self.low else float(np.nextafter(low, -np.inf))
        high = high if high >= self.high else float(np.nextafter(high, np.inf))
        return low, high
