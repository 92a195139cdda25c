"""DATE_TRUNC and EXTRACT on Arrow timestamps: UTC, weeks begin on Monday."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.text.durations import UNITS_US

_MINUTE_US = UNITS_US["MINUTE"]
_WEEK_OFFSET_US = 4 * UNITS_US["DAY"]  # the epoch was a Thursday; 1970-01-05 was a Monday
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_CALENDAR: dict[str, Callable[[Any], Any]] = {
    "DAY": pc.day,
    "MONTH": pc.month,
    "QUARTER": pc.quarter,
    "YEAR": pc.year,
    "WEEK": pc.iso_week,
    "DOY": pc.day_of_year,
}


def truncate(value: Any, unit: str) -> Any:
    """The beginning of the unit that each timestamp lies in."""
    us = _microseconds(value)
    if unit in _MONTHS:
        months = us.view("M8[us]").astype("M8[M]").astype(np.int64)
        first = (months // _MONTHS[unit]) * _MONTHS[unit]
        start = first.view("M8[M]").astype("M8[us]").astype(np.int64)
    else:
        size = UNITS_US[unit]
        offset = _WEEK_OFFSET_US if unit == "WEEK" else 0
        start = (us - offset) // size * size + offset
    return _like_nulls(pa.array(start, pa.timestamp("us")), value)


def part(value: Any, unit: str) -> Any:
    """A part of each timestamp: BIGINT, and DOUBLE for EPOCH, which is in seconds."""
    if unit in _CALENDAR:
        return _CALENDAR[unit](value).cast(pa.int64())
    if unit in ("DOW", "ISODOW"):
        # Sunday is 0 in DOW; Monday is 1 and Sunday 7 in ISODOW.
        iso = unit == "ISODOW"
        return pc.day_of_week(value, count_from_zero=not iso, week_start=1 if iso else 7).cast(
            pa.int64()
        )
    us = _microseconds(value)
    match unit:
        case "EPOCH":
            return _like_nulls(pa.array(us / 1e6), value)
        case "HOUR" | "MINUTE":
            size, count = UNITS_US[unit], 24 if unit == "HOUR" else 60
            found = us // size % count
        case _:  # of the minute, as PostgreSQL has it: 1500 milliseconds at 0:00:01.5
            found = us % _MINUTE_US // UNITS_US[unit]
    return _like_nulls(pa.array(found), value)


def _microseconds(value: Any) -> NDArray[np.int64]:
    """int64 [rows] since the epoch; 0 where NULL."""
    whole = pc.fill_null(value.cast(pa.int64()), 0)
    return np.asarray(whole.to_numpy(zero_copy_only=False), np.int64)


def _like_nulls(result: Any, value: Any) -> Any:
    if value.null_count == 0:
        return result
    return pc.if_else(value.is_valid(), result, pa.scalar(None, result.type))
