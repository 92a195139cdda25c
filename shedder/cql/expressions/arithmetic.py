"""Arithmetic on Arrow arrays: overflow, division by zero and NaN are NULL, never an error.

Integers are tried with Arrow's checked kernels; only a batch that overflows pays for finding where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.expressions.integer_division import remainders

_INT64_MIN = -(1 << 63)
_ZERO = pa.scalar(0.0)
_SURE = 9.2e18  # below this a product rounded to double proves that the exact one fits


def without_nan(array: Any) -> Any:
    """The same array with NULL in place of NaN."""
    if not pa.types.is_floating(array.type):
        return array
    if isinstance(array, pa.Array) and array.null_count == 0:
        values = array.to_numpy(zero_copy_only=True)
        if not np.isnan(values).any():
            return array
    return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)


def add(left: Any, right: Any) -> Any:
    """left + right; NULL where it overflows or is NaN."""
    return _arithmetic(left, right, pc.add_checked, pc.add, _sum_overflows)


def subtract(left: Any, right: Any) -> Any:
    """left - right; NULL where it overflows or is NaN."""
    return _arithmetic(left, right, pc.subtract_checked, pc.subtract, _difference_overflows)


def multiply(left: Any, right: Any) -> Any:
    """left * right; NULL where it overflows or is NaN."""
    return _arithmetic(left, right, pc.multiply_checked, pc.multiply, _product_overflows)


def _arithmetic(
    left: Any,
    right: Any,
    checked: Callable[[Any, Any], Any],
    wrapping: Callable[[Any, Any], Any],
    overflows: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]],
) -> Any:
    if pa.types.is_floating(left.type):
        return without_nan(wrapping(left, right))
    try:
        return checked(left, right)
    except pa.ArrowInvalid:
        over = overflows(*np.broadcast_arrays(_integers(left), _integers(right)))
        return pc.if_else(pa.array(over), pa.scalar(None, pa.int64()), wrapping(left, right))


def _integers(value: Any) -> NDArray[np.int64]:
    """int64 [rows]; 0 where NULL."""
    if isinstance(value, pa.Scalar):
        return np.asarray(value.as_py() or 0, np.int64)
    filled = pc.fill_null(value, 0) if value.null_count else value
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def _sum_overflows(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    wrapped = left + right
    return ((left ^ wrapped) & (right ^ wrapped)) < 0


def _difference_overflows(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    wrapped = left - right
    return ((left ^ right) & (left ^ wrapped)) < 0


def _product_overflows(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    over = np.abs(left.astype(np.float64) * right.astype(np.float64)) > _SURE
    [doubtful] = np.nonzero(over)
    exact = left[doubtful].astype(object) * right[doubtful].astype(object)
    over[doubtful] = (exact < _INT64_MIN) | (exact > -_INT64_MIN - 1)
    return over


def negate(value: Any) -> Any:
    """-value; NULL for the smallest BIGINT."""
    if pa.types.is_floating(value.type):
        return pc.negate(value)
    return pc.negate(_without_minimum(value))


def absolute(value: Any) -> Any:
    """|value|; NULL for the smallest BIGINT."""
    if pa.types.is_floating(value.type):
        return pc.abs(value)
    return pc.abs(_without_minimum(value))


def _without_minimum(value: Any) -> Any:
    return _null_where(pc.equal(value, pa.scalar(_INT64_MIN, pa.int64())), value)


def _null_where(condition: Any, value: Any) -> Any:
    return pc.if_else(pc.fill_null(condition, False), pa.scalar(None, value.type), value)


def divide(left: Any, right: Any) -> Any:
    """left / right of DOUBLEs; NULL where the divisor is zero or the quotient NaN."""
    return without_nan(pc.divide(left, _null_where(pc.equal(right, _ZERO), right)))


def remainder(left: Any, right: Any) -> Any:
    """What left has over a multiple of right, with left's sign; NULL where the divisor is zero."""
    if pa.types.is_floating(left.type):
        divisor = _null_where(pc.equal(right, _ZERO), right)
        with np.errstate(invalid="ignore"):
            rows = np.fmod(_doubles(left), _doubles(divisor))
        return without_nan(_with_nulls(rows, left, divisor))
    if isinstance(right, pa.Scalar) and isinstance(left, pa.Array):
        whole = remainders(_integers(left), right.as_py() or 0)
        if whole is not None:
            return _with_nulls(whole, left)
    divisor = _null_where(pc.equal(right, pa.scalar(0, pa.int64())), right)
    # -1 divides everything; the smallest BIGINT by it would trap.
    safe = pc.if_else(
        pc.equal(divisor, pa.scalar(-1, pa.int64())), pa.scalar(1, pa.int64()), divisor
    )
    denominators = np.where(_integers(safe) == 0, 1, _integers(safe))
    return _with_nulls(np.fmod(_integers(left), denominators), left, divisor)


def _doubles(value: Any) -> NDArray[np.float64]:
    """float64 [rows]; 1 where NULL."""
    if isinstance(value, pa.Scalar):
        number = value.as_py()
        return np.asarray(1.0 if number is None else number, np.float64)
    return np.asarray(pc.fill_null(value, 1.0).to_numpy(zero_copy_only=False), np.float64)


def _with_nulls(rows: NDArray[Any], *sources: Any) -> Any:
    result = pa.array(rows)
    for source in sources:
        if isinstance(source, pa.Scalar):
            if not source.is_valid:
                return pa.nulls(len(result), result.type)
        elif source.null_count:
            result = pc.if_else(source.is_valid(), result, pa.scalar(None, result.type))
    return result


def floor(value: Any) -> Any:
    """The largest whole number that is not larger, in the value's type."""
    return pc.floor(value) if pa.types.is_floating(value.type) else value


def ceiling(value: Any) -> Any:
    """The smallest whole number that is not smaller, in the value's type."""
    return pc.ceil(value) if pa.types.is_floating(value.type) else value


def round_half_away(value: Any, digits: int) -> Any:
    """The nearest with so many decimal digits; halves go away from zero.

    It is round(x * 10^digits) / 10^digits in DOUBLE arithmetic, and x where that overflows.
    """
    if not pa.types.is_floating(value.type):
        return value
    numbers = _doubles(value)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.abs(numbers) * 10.0**digits
        whole = np.floor(scaled)
        whole += scaled - whole >= 0.5
        rounded = np.copysign(whole / 10.0**digits, numbers)
    return _with_nulls(np.where(np.isfinite(scaled), rounded, numbers), value)
