"""Values of a file's columns as values of a stream's columns, without loss.

Each function gives NULL for a value that cannot be converted. A value that is not NULL in the file
and NULL afterwards is bad: it refuses its file, or its row is kept aside.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cli.files.convertible_values import as_far_as, matching
from shedder.cli.files.formats import NULL_WORDS, Dialect
from shedder.cli.files.timestamps import cut_count, has_zone, is_text, readable
from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadTimestamp
from shedder.streams.decimal_text import doubles_of, integers_held

_INTEGER = r"^[+-]?[0-9]+(\.0*)?$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_INFINITE = r"(?i)^[+-]?inf(inity)?$"
_TRUTH = r"(?i)^(true|false|t|f|1|0)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T]00:00(:00(\.0+)?)?)?$"


@dataclass(slots=True)
class Changes:
    """Changes of values between file and stream, by column.

    null_words: count of words such as NA that were read as NULL.
    cut: count of times that were rounded down to microseconds.
    zones: time zone whose times became UTC. zoned: whether times in text have a zone.
    """

    null_words: Counter[str] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    zones: dict[str, str] = field(default_factory=dict)
    zoned: dict[str, bool] = field(default_factory=dict)


def converted(
    name: str, column: Any, wanted: ColumnType, how: Dialect, changes: Changes
) -> tuple[Any, NDArray[np.bool_]]:
    """Convert a column of a file.

    Args:
      name, column: of the file. wanted: the type of the stream's column.
      how: how text is written. changes: notes each change.

    Returns:
      values: with NULL for each bad value. Types without a text form are unchanged.
      bad: bool [rows].

    Raises:
      BadTimestamp: times are numbers, and the dialect has no unit.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if is_text(kind):
        if wanted is ColumnType.VARCHAR:
            return column, np.zeros(len(column), np.bool_)
        column = without_null_words(name, column, changes)
        values = text_values(name, column, wanted, how)
        if wanted is ColumnType.TIMESTAMP and how.time_format is None and how.time_unit is None:
            _check_zones(name, column.filter(values.is_valid()), changes)
    else:
        values = _typed_values(name, column, wanted, how)
        if wanted is ColumnType.TIMESTAMP and getattr(kind, "tz", None) not in (None, "UTC"):
            changes.zones[name] = kind.tz
    if wanted is ColumnType.TIMESTAMP and (cut := cut_count(column, how.time_unit)):
        changes.cut[name] += cut
    bad = np.asarray(column.is_valid()) & np.asarray(values.is_null())
    return values, bad


def _check_zones(name: str, times: Any, changes: Changes) -> None:
    """Refuse a file that has times with and without a zone: they would not be comparable."""
    zoned = has_zone(times)
    if zoned is not None and changes.zoned.setdefault(name, zoned) is not zoned:
        raise BadTimestamp(
            f"column {name!r}: {times[0].as_py()!r} has {'a' if zoned else 'no'} zone, others have "
            f"{'none' if zoned else 'one'}: all moments have a zone, or none has"
        )


def without_null_words(name: str, text: Any, changes: Changes | None) -> Any:
    """NULL for each word that means a missing value; counts those that are not empty."""
    is_word: Any = pc.is_in(text, value_set=pa.array(sorted(NULL_WORDS), text.type))
    if not pc.any(is_word).as_py():
        return text
    if changes is not None:
        words = text.filter(is_word)
        count = int(np.count_nonzero(np.asarray(pc.binary_length(words))))
        if count:
            changes.null_words[name] += count
    return pc.if_else(is_word, pa.scalar(None, text.type), text)


def text_values(name: str, text: Any, wanted: ColumnType, how: Dialect) -> Any:
    """Text as values of a type, NULL for each that cannot be read without loss."""
    match wanted:
        case ColumnType.VARCHAR:
            return text
        case ColumnType.BOOLEAN:
            kept = matching(text, _TRUTH)
            short = pc.replace_substring_regex(kept, r"^[tT]$", "true")
            return pc.replace_substring_regex(short, r"^[fF]$", "false").cast(pa.bool_())
        case ColumnType.INTEGER | ColumnType.BIGINT:
            kept = pc.replace_substring_regex(matching(text, _INTEGER), r"^\+|\.0*$", "")
            return _cast(kept, wanted.arrow)
        case ColumnType.DOUBLE:
            return _doubles(text, how)
        case ColumnType.DATE:
            return _cast(pc.utf8_slice_codeunits(matching(text, _DATE), 0, 10), pa.date32())
        case ColumnType.TIMESTAMP:
            return readable(name, text, how.time_format, how.time_unit)
        case _:
            assert_never(wanted)


def _doubles(text: Any, how: Dialect) -> Any:
    if how.decimal_comma:
        text = pc.replace_substring(text, ",", ".")
    numbers = matching(text, _NUMBER + "|" + _INFINITE)
    values, held = doubles_of(pc.replace_substring_regex(numbers, r"^\+", ""))
    return pc.if_else(pa.array(held), values, pa.scalar(None, pa.float64()))


def _cast(text: Any, kind: pa.DataType) -> Any:
    return as_far_as(text, lambda part: part.cast(kind), kind)


def _typed_values(name: str, column: Any, wanted: ColumnType, how: Dialect) -> Any:
    """Values of Parquet's types; what the stream's type refuses as a whole stays as it is."""
    kind = column.type
    match wanted:
        case ColumnType.TIMESTAMP:
            return readable(name, column, how.time_format, how.time_unit)
        case ColumnType.VARCHAR if _has_text(kind):
            return column.cast(pa.string())
        case ColumnType.DOUBLE if pa.types.is_decimal(kind):
            values, held = doubles_of(column.cast(pa.string()))
        case ColumnType.DOUBLE if pa.types.is_integer(kind):
            held = integers_held(column)
            values = column.cast(pa.float64(), safe=False)
        case _:
            return column
    return pc.if_else(pa.array(held), values, pa.scalar(None, pa.float64()))


def _has_text(kind: pa.DataType) -> bool:
    """Return whether values of a type have a text without loss."""
    types = pa.types
    return (
        types.is_integer(kind)
        or types.is_decimal(kind)
        or types.is_boolean(kind)
        or types.is_date(kind)
        or types.is_time(kind)
    )
