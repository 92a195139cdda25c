"""The stream that `shedder push --create` makes: as a file has its columns, or as one says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from shedder.cli.files import Reading, RowFile, column_type
from shedder.cli.rows_without_time import Untimed
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import DEFAULT_LAYOUT
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition, CreateStream
from shedder.errors import BadSetting, InvalidRequest, UnknownColumn
from shedder.streams.batch_conversion import conform


@dataclass(frozen=True, slots=True)
class Wishes:
    """What one says of the stream; None: as the file has it.

    columns: those to keep, by comma. types: COLUMN=TYPE each. time_column: the event time.
    lateness_us: how far out of order rows come.
    """

    columns: str | None
    types: Sequence[str] | None
    time_column: str | None
    lateness_us: int


def stream_of(
    name: str, file: RowFile, reading: Reading, wishes: Wishes, *, skip_untimed: bool = False
) -> CreateStream:
    """A stream that keeps all rows of a file. Only its event time may not be null.

    Its first rows are read as the stream will take them: a bad file leaves no stream behind.

    Args:
      name: of the stream.
      file: at least one row.
      reading: how moments are written in it; what columns it has is found here.
      wishes: what shall not be as in the file.
      skip_untimed: rows without an event time will be left out.

    Raises:
      UnknownColumn, BadSetting: a wish that this file cannot fulfil, or it has no rows.
      InvalidRequest: the stream would refuse the first rows.
    """
    schema = file.schema()
    columns = _columns(schema, wishes)
    moment = _time_column(columns, wishes.time_column, schema)
    columns[moment] = ColumnType.TIMESTAMP
    defined = tuple(
        ColumnDefinition(column, kind, nullable=column != moment)
        for column, kind in columns.items()
    )
    new = CreateStream(name, defined, moment, wishes.lateness_us, None, DEFAULT_LAYOUT, False)
    kept = replace(reading, columns=columns, moment=moment if skip_untimed else None)
    _check_first_rows(file, kept, new)
    return new


def listed(columns: str | None, known: list[str]) -> list[str]:
    """The columns of a list by comma; all that are known when there is none.

    Raises:
      UnknownColumn: one of them is not known.
    """
    if columns is None:
        return known
    names = [name.strip() for name in columns.split(",")]
    for name in names:
        if name not in known:
            raise UnknownColumn(name, known)
    return names


@contextmanager
def naming(file: RowFile, first: int, rows: int) -> Iterator[None]:
    """A refusal of rows says whose they are."""
    try:
        yield
    except InvalidRequest as error:
        place = f"{file.path.name}, rows {first + 1:,} to {first + rows:,}"
        raise type(error).from_message(f"{place}: {error}") from error


def _columns(schema: pa.Schema, wishes: Wishes) -> dict[str, ColumnType]:
    said = dict(_said_type(text) for text in wishes.types or [])
    names = listed(wishes.columns, schema.names)
    for name in said:
        if name not in names:
            raise UnknownColumn(name, names)
    return {
        name: said[name] if name in said else column_type(name, schema.field(name).type)
        for name in names
    }


def _said_type(text: str) -> tuple[str, ColumnType]:
    name, _, kind = text.rpartition("=")
    try:
        return name, ColumnType(kind.upper())
    except ValueError:
        known = ", ".join(kind.value for kind in ColumnType)
        raise BadSetting(f"--type {text!r}: say COLUMN=TYPE with one of {known}") from None


def _time_column(columns: dict[str, ColumnType], said: str | None, schema: pa.Schema) -> str:
    """The event time: as said, or the only column that can be it."""
    if said is not None:
        if said not in columns:
            raise UnknownColumn.from_message(
                f"no column {said!r}; the file has {', '.join(columns)}{_separated(columns)}"
            )
        return said
    moments = [name for name, kind in columns.items() if kind is ColumnType.TIMESTAMP]
    if len(moments) == 1:
        return moments[0]
    found = ", ".join(f"{name} ({schema.field(name).type})" for name in columns)
    raise BadSetting(
        f"which column is the event time? Say --time COLUMN; the file has {found}"
        f"{_separated(columns)}"
    )


def _separated(columns: Collection[str]) -> str:
    """What to say of a header that looks like one column because nothing separates it."""
    other = len(columns) == 1 and any(mark in next(iter(columns)) for mark in ";\t|")
    return " (columns are separated by commas)" if other else ""


def _check_first_rows(file: RowFile, reading: Reading, new: CreateStream) -> None:
    skipped = None if reading.moment is None else Untimed()
    first = next(file.timed(reading, new.time_column, skipped, lambda _share: None), None)
    if first is None:
        raise BadSetting(
            f"{file.path.name} has no rows, which say what types the columns have: "
            "push a file with rows first, or run CREATE STREAM with shedder sql"
        )
    schema = StreamSchema(
        new.name, new.columns, new.time_column, new.lateness_us, new.retain_us, new.layout, seed=0
    )
    with naming(file, 0, first.num_rows):
        for _ in conform(first, schema):
            pass
