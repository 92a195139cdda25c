"""CAST on Arrow arrays: what does not fit the new type is NULL, never an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions.column_types import ColumnType

DAY_US = 86_400_000_000
DAYS_MAX = ((1 << 63) - 1) // DAY_US  # days whose microseconds fit 64 bits, either sign

# What a text must look like to be a number; anything else is NULL.
WHOLE_NUMBER = r"[+-]?0*[0-9]{1,19}"
DECIMAL_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"

_RANGES = {
    ColumnType.INTEGER: (-(1 << 31), (1 << 31) - 1),
    ColumnType.BIGINT: (-(1 << 63), (1 << 63) - 1),
    ColumnType.DATE: (-(1 << 31), (1 << 31) - 1),
}


def _bigint(value: int) -> Any:
    return pa.scalar(value, pa.int64())


def cast(value: Any, have: ColumnType | None, wanted: ColumnType | None) -> Any:
    """The values in another type.

    Args:
      value: an array of `have`. have, wanted: a pair that type_inference.py allows.
    """
    assert have is not None
    assert wanted is not None
    match have, wanted:
        case _ if have is wanted:
            return value
        case ColumnType.DOUBLE, ColumnType.INTEGER | ColumnType.BIGINT:
            return _whole_part(value, wanted)
        case ColumnType.BIGINT, ColumnType.INTEGER | ColumnType.DATE:
            low, high = _RANGES[wanted]
            fits = pc.and_(
                pc.greater_equal(value, _bigint(low)), pc.less_equal(value, _bigint(high))
            )
            kept = pc.if_else(fits, value, pa.scalar(None, pa.int64()))
            return kept.cast(pa.int32()).cast(wanted.arrow)
        case ColumnType.INTEGER | ColumnType.BIGINT | ColumnType.DOUBLE, ColumnType.BOOLEAN:
            return pc.not_equal(value, pa.scalar(0, value.type))
        case ColumnType.INTEGER | ColumnType.BIGINT, ColumnType.DOUBLE:
            return pc.cast(value, pa.float64(), safe=False)
        case ColumnType.INTEGER, ColumnType.TIMESTAMP:
            return value.cast(pa.int64()).cast(wanted.arrow)
        case ColumnType.TIMESTAMP, ColumnType.DATE:
            return _days(value)
        case ColumnType.DATE, ColumnType.TIMESTAMP:
            return _midnights(value)
        case ColumnType.DATE, ColumnType.INTEGER | ColumnType.BIGINT:
            return value.cast(pa.int32()).cast(wanted.arrow)
        case ColumnType.VARCHAR, ColumnType.DOUBLE:
            return _decimal(value)
        case ColumnType.VARCHAR, _:
            return _whole_number(value, wanted)
        case _:  # BOOLEAN and whole numbers to wider types and to text
            return value.cast(wanted.arrow)


def _whole_part(value: Any, wanted: ColumnType) -> Any:
    """Toward zero, like C; infinities and what is out of range are NULL."""
    low, high = _RANGES[wanted]
    whole = pc.trunc(value)
    # high + 1 is a power of two, which a DOUBLE holds; high of a BIGINT is not.
    least, beyond = pa.scalar(float(low)), pa.scalar(float(high + 1))
    fits = pc.and_(pc.greater_equal(whole, least), pc.less(whole, beyond))
    kept = pc.if_else(fits, whole, pa.scalar(None, pa.float64()))
    return pc.cast(kept, wanted.arrow, safe=False)


def _days(value: Any) -> Any:
    us = np.asarray(pc.fill_null(value.cast(pa.int64()), 0).to_numpy(zero_copy_only=False))
    days = pa.array((us // DAY_US).astype(np.int32), pa.date32())
    return pc.if_else(pc.is_valid(value), days, pa.scalar(None, pa.date32()))


def _midnights(value: Any) -> Any:
    days = value.cast(pa.int32()).cast(pa.int64())
    fits = pc.less_equal(pc.abs(days), _bigint(DAYS_MAX))
    kept = pc.if_else(fits, days, pa.scalar(None, pa.int64()))
    return pc.multiply(kept, _bigint(DAY_US)).cast(pa.timestamp("us"))


def _matching(value: Any, regex: str) -> Any:
    matches = pc.match_substring_regex(value, pattern=rf"\A({regex})\z")
    return pc.if_else(matches, value, pa.scalar(None, pa.string()))


def _decimal(value: Any) -> Any:
    text = pc.utf8_ltrim(_matching(value, DECIMAL_NUMBER), characters="+")
    return text.cast(pa.float64())


def _whole_number(value: Any, wanted: ColumnType) -> Any:
    text = pc.utf8_ltrim(_matching(value, WHOLE_NUMBER), characters="+")
    wide = pc.replace_substring_regex(text, pattern=r"\A(-?)0*([0-9]+)\z", replacement=r"\1\2")
    exact = wide.cast(pa.decimal128(20, 0))
    low, high = (pa.scalar(end, pa.decimal128(20, 0)) for end in _RANGES[wanted])
    fits = pc.and_(pc.greater_equal(exact, low), pc.less_equal(exact, high))
    kept = pc.if_else(fits, exact, pa.scalar(None, pa.decimal128(20, 0)))
    return kept.cast(wanted.arrow)
