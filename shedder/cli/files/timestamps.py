"""Times as files write them: text, numbers since 1970, dates."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cli.files.convertible_values import as_far_as, matching, where
from shedder.cli.files.epoch_times import TimeUnit, epoch_times, is_number
from shedder.errors import BadTimestamp

_MOMENT = pa.timestamp("us")
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ZONE = r":.*(Z|[+-][0-9:]+)$"
_BEYOND_MICROS = r"(\.[0-9]{6})[0-9]+"


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are text."""
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _in_micros(times: Any) -> Any:
    """Nanoseconds are rounded down, also before 1970; what microseconds do not hold is refused."""
    kind = times.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        counts = np.asarray(times.cast(pa.int64()).fill_null(0))
        micros = pa.array(np.floor_divide(counts, 1_000), mask=np.asarray(times.is_null()))
        return micros.cast(_MOMENT)
    zone = getattr(kind, "tz", None)
    return times.cast(pa.timestamp("us", zone)).cast(pa.int64()).cast(_MOMENT)


def cut_count(column: Any, unit: TimeUnit | None) -> int:
    """Count times of a file that have more than microseconds."""
    kind = column.type
    if unit is not None and (is_text(kind) or is_number(kind)):
        return int(np.count_nonzero(epoch_times(column, unit)[1]))
    if is_text(kind):
        matches = pc.match_substring_regex(column, r"\.[0-9]{6}[0-9]*[1-9]")
        return int(pc.sum(matches).as_py() or 0)
    if not (pa.types.is_timestamp(kind) and kind.unit == "ns"):
        return 0
    return int(np.count_nonzero(np.asarray(column.cast(pa.int64()).fill_null(0)) % 1_000))


def has_zone(column: Any) -> bool | None:
    """Return whether the first time in text has a zone; None: there is no time."""
    some = column.drop_null()[:1]
    return pc.match_substring_regex(some, _ZONE)[0].as_py() if some else None


def from_text(column: Any, time_format: str | None = None) -> Any:
    """In the format, or ISO 8601, all with a zone or all without; digits after the 6th are cut."""
    if time_format is not None:
        return _in_micros(pc.strptime(column, format=time_format, unit="us"))
    return _in_micros(_from_iso(column))


def _from_iso(column: Any) -> Any:
    column = pc.replace_substring_regex(column, _BEYOND_MICROS, r"\1")
    try:
        return column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us", "UTC"))


def unreadable(column: Any, time_format: str | None) -> str:
    """What is wrong with text that cannot be read: its first bad value, found by halving."""
    while len(column) > 1:
        left, right = column.slice(0, len(column) // 2), column.slice(len(column) // 2)
        if not is_readable(left, time_format):
            column = left
        elif not is_readable(right, time_format):
            column = right
        else:
            some = [part.drop_null()[0].as_py()[:60] for part in (left, right)]
            return f"{some[0]!r} and {some[1]!r}: all moments have a zone, or none has"
    value = str(column[0])[:60]
    written = "ISO 8601" if time_format is None else repr(time_format)
    return (
        f"{value!r} is no moment in {written}. "
        f"Say how moments are written: --time-format {suggested_format(column)!r}"
    )


_USUAL_FORMATS = [
    f"{day}{clock}"
    for day in ("%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y%m%d", "%d %b %Y")
    for clock in ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S", " %I:%M %p", "%H%M%S")
] + ["%d/%b/%Y:%H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %z"]


def suggested_format(column: Any) -> str:
    """The first of the usual formats that reads a value; else an example."""
    for time_format in _USUAL_FORMATS:
        if is_readable(column, time_format):
            return time_format
    return "%d/%m/%Y %H:%M"


def is_readable(column: Any, time_format: str | None) -> bool:
    """Return whether all of some text can be read."""
    try:
        from_text(column, time_format)
    except pa.ArrowInvalid:
        return False
    return True


def readable(name: str, column: Any, time_format: str | None, time_unit: TimeUnit | None) -> Any:
    """Text, numbers, dates or timestamps as timestamp('us') in UTC; NULL where one is unreadable.

    Digits beyond microseconds are rounded down. Of text, the way of writing is taken by which most
    values can be read.

    Args:
      name, column: of a file. time_format: strptime's, of text; None: ISO 8601.
      time_unit: of numbers, also in text; None: there are none.

    Raises:
      BadTimestamp: the values are numbers, and the dialect has no unit.
    """
    kind = column.type
    if is_number(kind) and time_unit is None:
        raise BadTimestamp(f"column {name!r} holds numbers: say --time-unit s, ms, us or ns")
    if time_unit is not None and (is_text(kind) or is_number(kind)):
        return epoch_times(column, time_unit)[0]
    if not is_text(kind):
        return as_far_as(column, _in_micros, _MOMENT)
    if time_format is not None:
        return as_far_as(column, partial(from_text, time_format=time_format), _MOMENT)
    short = pc.replace_substring_regex(matching(column, _DATE), _BEYOND_MICROS, r"\1")
    zoned = pc.match_substring_regex(short, _ZONE)
    ways = [
        (where(short, pc.invert(zoned)), partial(_cast_to, pa.timestamp("us"))),
        (where(short, zoned), partial(_cast_to, pa.timestamp("us", "UTC"))),
    ]
    (text, way), (other_text, other_way) = sorted(ways, key=lambda each: each[0].null_count)
    best = as_far_as(text, way, _MOMENT)
    if best.null_count == column.null_count:
        return best
    return min(best, as_far_as(other_text, other_way, _MOMENT), key=lambda times: times.null_count)


def _cast_to(kind: pa.DataType, text: Any) -> Any:
    return _in_micros(text.cast(kind))
