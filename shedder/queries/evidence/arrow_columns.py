"""Estimates as typed Arrow columns."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from synopses.model.estimate import TopItem

_INTEGERS = frozenset(
    {ColumnType.INTEGER, ColumnType.BIGINT, ColumnType.TIMESTAMP, ColumnType.DATE}
)
_STORED: dict[ColumnType, type[np.signedinteger[Any]]] = {
    ColumnType.INTEGER: np.int32,
    ColumnType.BIGINT: np.int64,
    ColumnType.TIMESTAMP: np.int64,
    ColumnType.DATE: np.int32,
}
ROUNDING = 1e-9  # an end this close (relative) to a whole number is that number


def typed(values: NDArray[Any], null: NDArray[np.bool_], kind: ColumnType) -> pa.Array[Any]:
    """Values as an Arrow array of the column type, rounded where it is a whole one.

    values: float64, int64 or object [rows], as in Estimates. null: bool [rows].
    """
    if kind is ColumnType.VARCHAR:
        return pa.array(values, pa.string(), mask=null)
    if kind is ColumnType.BOOLEAN:
        return pa.array(np.where(null, 0, values).astype(np.bool_), pa.bool_(), mask=null)
    if kind is ColumnType.DOUBLE:
        floats = np.asarray(values, np.float64)
        return pa.array(floats, pa.float64(), mask=null | np.isnan(floats))
    if values.dtype.kind == "f":
        values, null = _whole(np.rint(values), null)
    stored = _STORED[kind]
    limits = np.iinfo(stored)
    null = null | (values < limits.min) | (values > limits.max)
    safe = np.where(null, 0, values).astype(stored)
    found: pa.Array[Any] = pa.array(safe, mask=null).view(kind.arrow)
    return found


def typed_intervals(
    value: NDArray[Any],
    low: NDArray[Any],
    high: NDArray[Any],
    kind: ColumnType,
    *,
    null: NDArray[np.bool_],
    open_: NDArray[np.bool_],
) -> tuple[pa.Array[Any], pa.Array[Any], pa.Array[Any]]:
    """Values and both ends as arrays of the column type.

    A whole-number truth lies at or above the low end rounded up, and at or below the high end
    rounded down; the value is rounded to lie between. An end that the type cannot hold (infinite
    for whole numbers) is null, and so are the ends where `open_`. Values are null where `null`.
    """
    if kind in _INTEGERS:
        low = np.ceil(low - _slack(low)) if low.dtype.kind == "f" else low
        high = np.floor(high + _slack(high)) if high.dtype.kind == "f" else high
        if value.dtype.kind == "f":
            value = np.clip(np.rint(value), low, np.maximum(low, high))
    return typed(value, null, kind), typed(low, open_, kind), typed(high, open_, kind)


def typed_top(values: NDArray[Any], null: NDArray[np.bool_], item: ColumnType) -> pa.Array[Any]:
    """Lists of TopItem as list<struct<value, count, low, high, guaranteed>>."""
    lists: list[list[TopItem]] = [
        [] if gone else found for found, gone in zip(values, null, strict=True)
    ]
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(found) for found in lists], out=offsets[1:])
    items = list(chain.from_iterable(lists))
    held = [x.value for x in items]
    if item in (ColumnType.TIMESTAMP, ColumnType.DATE):
        held_array = pa.array(held, pa.from_numpy_dtype(np.dtype(_STORED[item]))).view(item.arrow)
    else:
        held_array = pa.array(held, item.arrow)
    struct = pa.StructArray.from_arrays(
        [
            held_array,
            pa.array([x.count for x in items], pa.int64()),
            pa.array([x.low for x in items], pa.int64()),
            pa.array([x.high for x in items], pa.int64()),
            pa.array([x.guaranteed for x in items], pa.bool_()),
        ],
        names=["value", "count", "low", "high", "guaranteed"],
    )
    starts: pa.Int32Array = pa.array(offsets, pa.int32())
    return pa.ListArray.from_arrays(starts, struct)


def taken(array: pa.Array[Any], rows: NDArray[np.int64]) -> pa.Array[Any]:
    """The array's values at these rows, in this order."""
    indices: pa.Int64Array = pa.array(rows, pa.int64())
    return array.take(indices)


def _slack(ends: NDArray[np.float64]) -> NDArray[np.float64]:
    return ROUNDING * np.maximum(1.0, np.abs(np.where(np.isfinite(ends), ends, 0.0)))


def _whole(
    values: NDArray[np.float64], null: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Float64 whole numbers as int64; what does not fit is null."""
    fits = (values >= -(2.0**63)) & (values < 2.0**63)
    return np.where(fits, values, 0.0).astype(np.int64), null | ~fits
