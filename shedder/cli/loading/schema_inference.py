"""The stream that `shedder push --create` makes, from a file and options."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from shedder.cli.files.bad_rows import BadRows
from shedder.cli.files.column_types import notes
from shedder.cli.files.row_file import FileColumns, Nowhere, RowFile
from shedder.cli.files.rows import NumberedRows
from shedder.cli.files.rows_without_time import Untimed
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import DEFAULT_LAYOUT
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition, CreateStream
from shedder.errors import BadSetting, InvalidRequest, UnknownColumn
from shedder.streams.batch_conversion import conform

_COLUMNS_MAX = 1_300  # CREATE STREAM has three words for each, and a statement 4,000 at most.


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of `--create`; None: taken from the file.

    columns: names by comma. types: COLUMN=TYPE each. time_column: the event time.
    lateness_us: how far out of order rows come; microseconds.
    """

    columns: str | None
    types: Sequence[str] | None
    time_column: str | None
    lateness_us: int


@dataclass(frozen=True, slots=True)
class NewStream:
    """A stream that a file makes; notes: what to say of its columns' types."""

    statement: CreateStream
    notes: list[str]

    @property
    def schema(self) -> StreamSchema:
        """The stream as rows are checked against it."""
        new = self.statement
        parts = (new.name, new.columns, new.time_column, new.lateness_us, new.retain_us, new.layout)
        return StreamSchema(*parts, seed=0)


def stream_of(
    name: str,
    file: RowFile,
    options: StreamOptions,
    *,
    skip_untimed: bool = False,
    skip_bad: bool = False,
) -> NewStream:
    """A stream that keeps all rows of a file. Only its event time may not be null.

    Its first rows are read as the stream will take them: a bad file leaves no stream behind.

    Args:
      name: of the stream.
      file: at least one row.
      options: what is not taken from the file.
      skip_untimed: rows without an event time will be left out.
      skip_bad: rows that cannot be read will be left out.

    Raises:
      UnknownColumn, BadSetting: an option does not fit the file, or it has no rows.
      InvalidRequest: the stream would refuse the first rows.
    """
    said = dict(_said_type(text) for text in options.types or [])
    has = file.names()
    if not has:
        raise _no_rows(file)
    names = listed(options.columns, has, "the file")
    for column in said:
        if column not in names:
            raise UnknownColumn.from_message(
                f"no column {column!r}; the file has {', '.join(names)}"
            )
    if len(names) > _COLUMNS_MAX:
        raise BadSetting(
            f"{file.path.name} has {len(names):,} columns; a stream has at most {_COLUMNS_MAX:,}: "
            "choose some with --columns A,B,C"
        )
    if options.time_column is not None and options.time_column not in names:
        raise UnknownColumn.from_message(
            f"no column {options.time_column!r}; the file has {', '.join(names)}{_separated(names)}"
        )
    if options.time_column is not None:
        said.setdefault(options.time_column, ColumnType.TIMESTAMP)
    found = file.types([column for column in names if column not in said], skips_bad=skip_bad)
    columns = {column: said.get(column) or found[column].type for column in names}
    moment = options.time_column or _time_column(columns)
    columns[moment] = ColumnType.TIMESTAMP
    defined = tuple(
        ColumnDefinition(column, kind, nullable=column != moment)
        for column, kind in columns.items()
    )
    new = CreateStream(name, defined, moment, options.lateness_us, None, DEFAULT_LAYOUT, False)
    reading = FileColumns(columns, moment=moment if skip_untimed else None)
    _check_first_rows(file, reading, new, BadRows(file.path.name, Nowhere() if skip_bad else None))
    return NewStream(new, notes(found))


def listed(columns: str | None, known: list[str], owner: str) -> list[str]:
    """The columns of a list by comma; all that are known when there is none.

    Raises:
      UnknownColumn: one of them is not known.
    """
    if columns is None:
        return known
    names = [name.strip() for name in columns.split(",")]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise BadSetting(f"--columns {columns!r} has {twice[0]!r} twice")
    for name in names:
        if name not in known:
            raise UnknownColumn.from_message(
                f"no column {name!r}; {owner} has {', '.join(known)}{_separated(known)}"
            )
    return names


@contextmanager
def naming(file: RowFile, rows: NumberedRows) -> Iterator[None]:
    """Name the file and the numbers of the rows in the error of a block that is refused."""
    try:
        yield
    except InvalidRequest as error:
        place = f"{file.part_name}, rows {rows.numbers[0]:,} to {rows.numbers[-1]:,}"
        raise type(error).from_message(f"{place}: {error}") from error


def _said_type(text: str) -> tuple[str, ColumnType]:
    name, _, kind = text.rpartition("=")
    try:
        return name, ColumnType(kind.upper())
    except ValueError:
        known = ", ".join(kind.value for kind in ColumnType)
        raise BadSetting(f"--type {text!r}: say COLUMN=TYPE with one of {known}") from None


def _time_column(columns: dict[str, ColumnType]) -> str:
    """The only column that can be the event time."""
    moments = [name for name, kind in columns.items() if kind is ColumnType.TIMESTAMP]
    if len(moments) == 1:
        return moments[0]
    found = ", ".join(f"{name} ({kind.value})" for name, kind in columns.items())
    raise BadSetting(
        f"which column is the event time? Say --time COLUMN; the file has {found}"
        f"{_separated(columns)}"
    )


def _separated(columns: Collection[str]) -> str:
    """What to say of a header that looks like one column because nothing separates it."""
    if len(columns) != 1:
        return ""
    name = next(iter(columns))
    mark = next((mark for mark in ";\t|," if mark in name), None)
    return "" if mark is None else f" (columns are separated by {mark!r}: say --delimiter {mark!r})"


def _no_rows(file: RowFile) -> BadSetting:
    return BadSetting(
        f"{file.path.name} has no rows, which say what types the columns have: "
        "push a file with rows first, or run CREATE STREAM with shedder sql"
    )


def _check_first_rows(file: RowFile, reading: FileColumns, new: CreateStream, bad: BadRows) -> None:
    skipped = None if reading.moment is None else Untimed()
    blocks = file.timed(reading, new.time_column, skipped, lambda _share: None, bad)
    first = next(blocks, None)
    if first is None:
        raise _no_rows(file)
    schema = NewStream(new, []).schema
    with naming(file, first):
        for _ in conform(first.batch, schema):
            pass
