"""`by_value('price', 100, 200, 0.9)`: in full where values of interest are, thinly elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from shedder.archive.reductions.arguments import number, share, text
from shedder.archive.reductions.reduction import BlockStatistics, Surroundings
from shedder.cql.expressions.column_types import ColumnType

_NUMERIC = (ColumnType.INTEGER, ColumnType.BIGINT, ColumnType.DOUBLE)


@dataclass(frozen=True, slots=True)
class ByValue:
    """Reads runs in full whose range of a column meets [low, high], others at a reduction."""

    column: str
    low: float
    high: float
    reduction: float
    reads_on: ClassVar[bool] = False

    @classmethod
    def make(
        cls, surroundings: Surroundings, column: str, low: float, high: float, reduction: float
    ) -> Self:
        """Of a numeric column, a range of its values, and a reduction for runs without them."""
        name = text("column", column)
        numeric = [each.name for each in surroundings.schema.columns if each.type in _NUMERIC]
        if name not in numeric:
            known = ", ".join(numeric) or "no column: none has numbers"
            raise ValueError(f"column takes {known}; not {name!r}")
        low, high = number("low", low), number("high", high)
        if not low <= high:
            raise ValueError(f"low {low:g} is above high {high:g}")
        return cls(name, low, high, share("reduction", reduction))

    def wanted(self, block: BlockStatistics) -> float:
        """By the smallest and largest value of the column."""
        known = block.columns[self.column]
        if not isinstance(known.low, int | float) or not isinstance(known.high, int | float):
            return self.reduction  # No value at all.
        meets = known.low <= self.high and known.high >= self.low
        return 0.0 if meets else self.reduction
