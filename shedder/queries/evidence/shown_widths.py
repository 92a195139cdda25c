"""Widths of the values of output columns: how far each end of an interval is from its value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shedder.queries.evidence.output_column import OutputColumn
from synopses.model.estimate import Bound

_INFINITE = float("inf")
_UNIT_OF_DAYS, _UNIT_OF_TIMES = "days", "microseconds"


@dataclass(frozen=True, slots=True)
class ShownWidth:
    """A value with the distances to its ends.

    value, low, high: None: NULL, text, or no end. lower, upper: >= 0; None: no bound.
    """

    value: float | None
    low: float | None
    high: float | None
    lower: float | None
    upper: float | None
    bound: Bound


def unit_of(column: OutputColumn) -> str | None:
    """Return the unit of widths; None: that of the values."""
    kind = column.value.type
    if pa.types.is_timestamp(kind):
        return _UNIT_OF_TIMES
    return _UNIT_OF_DAYS if pa.types.is_date(kind) else None


def widths_of(column: OutputColumn) -> Iterator[tuple[int, str, ShownWidth]]:
    """Yield the values of a column: row, item of a list (empty of others), and widths."""
    assert column.bound is not None
    bounds = [Bound(int(each)) for each in column.bound]
    if column.low is None or column.high is None:
        yield from _of_lists(column.value, bounds)
        return
    ends = zip(*map(_numbers, (column.value, column.low, column.high)), strict=True)
    for row, ((value, low, high), bound) in enumerate(zip(ends, bounds, strict=True)):
        yield row, "", _width(value, low, high, bound)


def _of_lists(values: pa.Array[Any], bounds: list[Bound]) -> Iterator[tuple[int, str, ShownWidth]]:
    """The counts of items; a list without items is one value without a width."""
    for row, (items, bound) in enumerate(zip(values.to_pylist(), bounds, strict=True)):
        if not items:
            yield row, "", _width(None, None, None, bound)
        for item in items or []:
            name = str(item["value"]) if "value" in item else f"{item['from']} to {item['to']}"
            of_item = bound
            if bound is Bound.INTERVAL and item["low"] == item["high"]:
                of_item = Bound.EXACT
            yield row, name, _width(item["count"], item["low"], item["high"], of_item)


def _width(value: Any, low: Any, high: Any, bound: Bound) -> ShownWidth:
    """An end that is absent is infinite: whole numbers have none for it."""
    if bound is Bound.EXACT:
        return ShownWidth(value, value, value, 0.0, 0.0, bound)
    if bound is Bound.NONE or value is None:
        return ShownWidth(value, low, high, None, None, bound)
    lower = _INFINITE if low is None else value - low
    upper = _INFINITE if high is None else high - value
    return ShownWidth(value, low, high, lower, upper, bound)


def _numbers(array: pa.Array[Any]) -> list[Any]:
    """Numbers; times in microseconds, dates in days; None for NULL and for text."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_string(kind):
        return [None] * len(array)
    return array.to_pylist()
