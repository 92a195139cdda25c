"""Moments as files write them: text, numbers since 1970, dates."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shedder.errors import BadTimestamp

_MOMENT = pa.timestamp("us")
_Parse = Callable[[Any], Any]


class TimeUnit(Enum):
    """Of event times that are numbers since 1970."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


def is_text(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are text."""
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def moments(
    name: str, column: pa.Array[Any], time_format: str | None, time_unit: TimeUnit | None
) -> pa.Array[Any]:
    """Text, numbers, dates or timestamps as timestamp('us') in UTC.

    Args:
      name, column: of a file. time_format: strptime's, of text; None: ISO 8601.
      time_unit: of numbers; None: there are none.

    Raises:
      BadTimestamp: one of them cannot be read.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if time_unit is None:
            raise BadTimestamp(f"column {name!r} holds numbers: say --time-unit s, ms, us or ns")
        return _from_numbers(column, time_unit)
    if not is_text(kind):
        return _in_micros(column, getattr(kind, "tz", None))
    try:
        return from_text(column, time_format)
    except pa.ArrowInvalid:
        problem = _unreadable(column, time_format)
        raise BadTimestamp(f"column {name!r}: {problem}") from None


_PER_SECOND = {TimeUnit.S: 1, TimeUnit.MS: 10**3, TimeUnit.US: 10**6, TimeUnit.NS: 10**9}


def _from_numbers(column: pa.Array[Any], unit: TimeUnit) -> pa.Array[Any]:
    if pa.types.is_integer(column.type):
        return _in_micros(column.cast(pa.int64()).cast(pa.timestamp(unit.value)))
    micros = pc.round(pc.multiply(column, 10**6 / _PER_SECOND[unit]))
    return micros.cast(pa.int64()).cast(pa.timestamp("us"))


def _in_micros(times: Any, zone: str | None = None) -> pa.Array[Any]:
    """Nanoseconds are cut; what microseconds do not reach is refused, or it would be another."""
    wanted = pa.timestamp("us", zone)
    options = pc.CastOptions(target_type=wanted, allow_time_truncate=True)
    micros: pa.Array[Any] = times.cast(options=options)
    return micros


def from_text(column: pa.Array[Any], time_format: str | None = None) -> pa.Array[Any]:
    """In the format, or ISO 8601, all with a zone or all without."""
    if time_format is not None:
        return pc.strptime(column, format=time_format, unit="us")
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us", "UTC"))


def _unreadable(column: pa.Array[Any], time_format: str | None) -> str:
    """What is wrong with text that cannot be read: its first bad value, found by halving."""
    while len(column) > 1:
        left, right = column.slice(0, len(column) // 2), column.slice(len(column) // 2)
        if not _is_readable(left, time_format):
            column = left
        elif not _is_readable(right, time_format):
            column = right
        else:
            some = [part.drop_null()[0].as_py()[:60] for part in (left, right)]
            return f"{some[0]!r} and {some[1]!r}: all moments have a zone, or none has"
    value = str(column[0])[:60]
    written = "ISO 8601" if time_format is None else repr(time_format)
    return (
        f"{value!r} is no moment in {written}. "
        "Say how moments are written: --time-format '%d/%m/%Y %H:%M'"
    )


def _is_readable(column: pa.Array[Any], time_format: str | None) -> bool:
    try:
        from_text(column, time_format)
    except pa.ArrowInvalid:
        return False
    return True


def readable(
    name: str, column: pa.Array[Any], time_format: str | None, time_unit: TimeUnit | None
) -> pa.Array[Any]:
    """As `moments`, but NULL where one cannot be read; those with a zone are in UTC.

    Of text it is the way of writing that is taken by which most can be read.

    Raises:
      BadTimestamp: they are numbers, and nobody said of which unit.
    """
    ways = [partial(_read_as, way) for way in _ways(name, column.type, time_format, time_unit)]
    found = [_as_far_as(column, way) for way in ways]
    best: pa.Array[Any] = min(found, key=lambda times: times.null_count)
    return best


def _ways(
    name: str, kind: pa.DataType, time_format: str | None, unit: TimeUnit | None
) -> list[_Parse]:
    if not is_text(kind):
        return [lambda column: moments(name, column, time_format, unit)]
    if unit is not None:
        return [partial(_numbers_in, to, unit) for to in (pa.int64(), pa.float64())]
    if time_format is not None:
        return [lambda text: pc.strptime(text, format=time_format, unit="us")]
    return [partial(_cast_to, to) for to in _WRITTEN]


_WRITTEN: list[pa.DataType] = [
    pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")
]


def _numbers_in(kind: Any, unit: TimeUnit, text: Any) -> Any:
    return _from_numbers(text.cast(kind), unit)


def _cast_to(kind: pa.DataType, text: Any) -> Any:
    return text.cast(kind)


def _read_as(way: _Parse, column: Any) -> Any:
    times = way(column)
    if times.type == _MOMENT:
        return times
    return _in_micros(times, times.type.tz).cast(pa.int64()).cast(_MOMENT)


def _as_far_as(column: Any, read: _Parse) -> Any:
    """What a function reads, and NULL for each value that it refuses, found by halving."""
    try:
        return read(column)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, _MOMENT)
    half = len(column) // 2
    return pa.concat_arrays([_as_far_as(column[:half], read), _as_far_as(column[half:], read)])
