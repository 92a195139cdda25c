"""Types of a file's columns, inferred from all of its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cli.files.bad_rows import HINT, shown
from shedder.cli.files.cell_values import text_values, without_null_words
from shedder.cli.files.formats import Dialect
from shedder.cli.files.rows import NumberedRows
from shedder.cli.files.timestamps import is_text
from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import TypeMismatch

_TRIED = 100  # Values of a block: a type that none of them has is not tried on the others.

# Identifiers such as 007 and +49 are text: as numbers they would be others. Integers of more
# digits than BIGINT has are text, too.
_LEXICAL = {
    ColumnType.BOOLEAN: r"(?i)^(true|false)$",
    ColumnType.BIGINT: r"^(0|-?[1-9][0-9]*)$",
    ColumnType.DOUBLE: r"(?i)^-?((0|[1-9][0-9]{0,17})|(0|[1-9][0-9]*)?\.[0-9]*"
    r"|[0-9.]+e[+-]?[0-9]+|inf(inity)?)$",
    ColumnType.DATE: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    ColumnType.TIMESTAMP: r"",
}
_NUMBERS = (ColumnType.BIGINT, ColumnType.DOUBLE)


@dataclass(frozen=True, slots=True)
class Inferred:
    """A column's type, and why it is text where most of its values have another type."""

    type: ColumnType
    note: str | None = None


@dataclass(slots=True)
class _FileColumn:
    """Counts of one column's values by the type that they fit."""

    alive: list[ColumnType]
    values: int = 0
    fits: dict[ColumnType, int] = field(default_factory=dict)
    misfit: dict[ColumnType, tuple[int, str]] = field(default_factory=dict)


def column_type(name: str, kind: pa.DataType) -> ColumnType:
    """The column type that holds an Arrow type without loss where there is one.

    Raises:
      TypeMismatch: nothing holds it (lists, structs, bytes).
    """
    types = pa.types
    if types.is_dictionary(kind):
        return column_type(name, kind.value_type)
    if types.is_boolean(kind):
        return ColumnType.BOOLEAN
    if types.is_integer(kind):
        narrow = kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())
        return ColumnType.INTEGER if narrow else ColumnType.BIGINT
    if types.is_floating(kind) or types.is_decimal(kind):
        return ColumnType.DOUBLE
    if types.is_timestamp(kind):
        return ColumnType.TIMESTAMP
    if types.is_date(kind):
        return ColumnType.DATE
    # A column of NULL alone has type null; a time of day has no type of its own here.
    if types.is_null(kind) or types.is_time(kind) or is_text(kind):
        return ColumnType.VARCHAR
    raise TypeMismatch(
        f"column {name!r} is {kind}, which no stream holds: leave it out by naming the others, "
        "--columns A,B,C"
    )


def inferred(
    blocks: Iterable[NumberedRows], names: Iterable[str], how: Dialect, texts: frozenset[str]
) -> dict[str, Inferred]:
    """Infer the types of columns of text: a type is taken if every value has it.

    Args:
      blocks: of all rows. names: of the columns. how: how values are written.
      texts: columns whose values are strings of JSON, so no numbers and truths.
    """
    numbers = [ColumnType.BOOLEAN, *_NUMBERS]
    times = [ColumnType.DATE, ColumnType.TIMESTAMP]
    strings = [ColumnType.TIMESTAMP]
    columns = {name: _FileColumn(strings if name in texts else numbers + times) for name in names}
    for rows in blocks:
        for name, column in columns.items():
            _look(name, column, rows.batch.column(name), rows.numbers, how)
    return {name: _chosen(name, column) for name, column in columns.items()}


def _look(
    name: str, column: _FileColumn, text: Any, numbers: NDArray[np.int64], how: Dialect
) -> None:
    is_value = np.asarray(without_null_words(name, text, None).is_valid())
    values, numbers = text.filter(pa.array(is_value)), numbers[is_value]
    column.values += len(values)
    if not len(values):
        return
    alive = []
    for kind in column.alive:
        if not _fit(name, values[:_TRIED], kind, how).any() and 2 * column.fits.get(kind, 0) < len(
            values
        ):
            column.misfit.setdefault(kind, (int(numbers[0]), values[0].as_py()))
            continue
        fit = _fit(name, values, kind, how)
        column.fits[kind] = column.fits.get(kind, 0) + int(np.count_nonzero(fit))
        if not fit.all():
            at = int(np.argmin(fit))
            column.misfit.setdefault(kind, (int(numbers[at]), values[at].as_py()))
        alive.append(kind)
    column.alive = alive


def _fit(name: str, values: Any, kind: ColumnType, how: Dialect) -> NDArray[np.bool_]:
    if kind is ColumnType.TIMESTAMP and how.time_unit is not None:
        return np.zeros(len(values), np.bool_)  # Any number could be one: it is said by --time.
    read = text_values(name, values, kind, how)
    written = values
    if kind is ColumnType.DOUBLE and how.decimal_comma:
        written = pc.replace_substring(values, ",", ".")
    lexical = pc.match_substring_regex(written, _LEXICAL[kind])
    return np.asarray(pc.and_(lexical, read.is_valid()))


def _chosen(name: str, column: _FileColumn) -> Inferred:
    if not column.values:
        return Inferred(ColumnType.VARCHAR)
    whole = [kind for kind in column.alive if column.fits[kind] == column.values]
    if whole:
        return Inferred(whole[0])
    most = max(column.alive, key=lambda kind: column.fits[kind], default=None)
    if most is None or 2 * column.fits[most] < column.values:
        return Inferred(ColumnType.VARCHAR)
    row, value = column.misfit[most]
    return Inferred(
        ColumnType.VARCHAR,
        f"column {name!r} is VARCHAR: {column.fits[most]:,} of {column.values:,} values are "
        f"{most.value}, and {shown(value)} in row {row:,} is not; "
        f"--type {name}={most.value} makes it {most.value}, and {HINT}",
    )


def notes(found: Mapping[str, Inferred]) -> list[str]:
    """Notes to print about the inferred types."""
    return [each.note for each in found.values() if each.note is not None]
