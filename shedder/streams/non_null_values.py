"""The values of an expression, or of two, in the rows that have one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Present:
    """The non-null values of an expression, without gaps.

    values: float64 or int64 [present], or an Arrow array for text.
    rows: int64 [present], each value's row in the frame, ascending; None: every row has one.
    """

    values: NDArray[np.float64] | NDArray[np.int64] | pa.Array[Any]
    rows: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The values of two expressions where both have one: [pairs]; rows as in Present."""

    first: NDArray[np.float64] | NDArray[np.int64]
    second: NDArray[np.float64] | NDArray[np.int64]
    rows: NDArray[np.int64] | None


def paired(first: Present, second: Present, rows: int) -> Pairs:
    """The pairs of numbers of two expressions of so many rows."""
    if first.rows is None and second.rows is None:
        return Pairs(np.asarray(first.values), np.asarray(second.values), None)
    held = np.ones(rows, np.bool_)
    values = []
    for part in (first, second):
        numbers = np.asarray(part.values)
        whole = np.zeros(rows, numbers.dtype)
        whole[slice(None) if part.rows is None else part.rows] = numbers
        values.append(whole)
        if part.rows is not None:
            has = np.zeros(rows, np.bool_)
            has[part.rows] = True
            held &= has
    both = np.flatnonzero(held)
    return Pairs(values[0][both], values[1][both], both)


def present(array: pa.Array[Any]) -> Present:
    """The values of a column that are neither NULL nor NaN."""
    if pa.types.is_floating(array.type):
        return _present_floats(array)
    rows = None
    if array.null_count:
        rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        array = array.drop_null()
    if pa.types.is_string(array.type):
        return Present(array, rows)
    return Present(_integers(array), rows)


def _present_floats(array: pa.Array[Any]) -> Present:
    values = array.to_numpy(zero_copy_only=False)  # NULL becomes NaN, and NaN counts as NULL.
    if not np.isnan(values.min(initial=np.inf)):  # One NaN makes it NaN.
        return Present(values, None)
    rows = np.flatnonzero(~np.isnan(values))
    return Present(values[rows], rows)


def _integers(array: pa.Array[Any]) -> NDArray[np.int64]:
    """Integers, booleans, dates and timestamps as int64; no nulls."""
    if pa.types.is_boolean(array.type) or pa.types.is_int32(array.type):
        return array.cast(pa.int64()).to_numpy()
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32()).cast(pa.int64()).to_numpy()
    return array.view(pa.int64()).to_numpy()
