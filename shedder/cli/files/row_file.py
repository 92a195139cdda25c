"""One file of rows: its columns, their types, and its rows as a stream takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cli.files.bad_rows import BadRows, shown
from shedder.cli.files.cell_values import Changes, converted
from shedder.cli.files.column_types import Inferred, column_type, inferred
from shedder.cli.files.contents import (
    Digest,
    after,
    before,
    binary_digest,
    opened_text,
    text_digest,
)
from shedder.cli.files.csv_rows import csv_names, csv_rows
from shedder.cli.files.formats import DEFAULT_DIALECT, Dialect, FileFormat
from shedder.cli.files.json_rows import JsonLayout, json_layout, json_rows
from shedder.cli.files.parquet_rows import parquet_rows, parquet_schema
from shedder.cli.files.rows import NumberedRows
from shedder.cli.files.rows_without_time import Untimed, timed
from shedder.cli.files.timestamps import is_readable, is_text, unreadable
from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadBatch, BadTimestamp, TypeMismatch


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Columns to read from a file, and their types.

    columns: name to type, all that is read.
    optional: those of the columns that a file may lack that has no others.
    moment: the event time, NULL where it cannot be read; None: that refuses the file.
    others: whether the file may have other columns, which are left alone.
    """

    columns: Mapping[str, ColumnType]
    optional: frozenset[str] = frozenset()
    moment: str | None = None
    others: bool = True


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows on disk.

    after_bytes, before_bytes: only the rows after and before so many bytes of the text are read.
    layout_cache, names_cache: the keys of JSON and the names, once they were looked up.
    """

    path: Path
    format: FileFormat
    dialect: Dialect = DEFAULT_DIALECT
    after_bytes: int = 0
    before_bytes: int | None = None
    layout_cache: list[JsonLayout] = field(default_factory=list, repr=False, compare=False)
    names_cache: list[str] = field(default_factory=list, repr=False, compare=False)

    @property
    def part_name(self) -> str:
        """Name of the part that is read; numbers of rows and lines count from its begin."""
        after_bytes = f" after byte {self.after_bytes:,}" if self.after_bytes else ""
        return f"{self.path.name}{after_bytes}"

    def names(self) -> list[str]:
        """The names of all columns.

        Raises:
          BadBatch: a name is there twice, or the file is not what its format says.
        """
        if self.names_cache:
            return list(self.names_cache)
        with self._as_bad_batch():
            match self.format:
                case FileFormat.PARQUET:
                    names = parquet_schema(self.path).names
                case FileFormat.NDJSON:
                    names = list(self._layout().pointers)
                case FileFormat.CSV | FileFormat.TSV:
                    with opened_text(self.path, self.dialect.encoding) as (text, _):
                        names = csv_names(text, self.dialect, self._delimiter)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            numbered = ",".join(f"{name}_{at}" for at, name in enumerate(names, 1))
            renamed = (
                ""
                if self.format is FileFormat.PARQUET
                else (f"; say other names with --header {numbered}")
            )
            raise BadBatch(f"{self.path.name} has column {twice[0]!r} twice{renamed}")
        self.names_cache.extend(names)
        return names

    def types(
        self, chosen: list[str] | None = None, *, skips_bad: bool = False
    ) -> dict[str, Inferred]:
        """The type of each column: the file's own (Parquet), or one that every value has.

        Args:
          chosen: the columns to look at; None: all.
          skips_bad: whether rows that cannot be read are left out; else the first one raises.

        Raises:
          BadBatch: the file is not what its format says.
          TypeMismatch: a stream has no type for a column.
        """
        names = self.names()
        wanted = names if chosen is None else chosen
        if not wanted:
            return {}
        with self._as_bad_batch():
            if self.format is FileFormat.PARQUET:
                schema = parquet_schema(self.path)
                kinds = {name: schema.field(name).type for name in wanted}
                return {name: Inferred(column_type(name, kind)) for name, kind in kinds.items()}
            texts: set[str] = set()
            if self.format is FileFormat.NDJSON:
                kinds_of = self._layout().kinds
                for name in wanted:
                    if any("JSON" in kind or "[" in kind for kind in kinds_of[name]):
                        raise TypeMismatch(
                            f"column {name!r} holds arrays or objects, which no stream holds: "
                            "leave it out by naming the others, --columns A,B,C, or keep its JSON "
                            f"as text, --type {name}=VARCHAR"
                        )
                    if not kinds_of[name] <= {"BIGINT", "UBIGINT", "HUGEINT", "DOUBLE", "NULL"} | {
                        "BOOLEAN"
                    }:
                        texts.add(name)
            bad = BadRows(self.path.name, Nowhere() if skips_bad else None)
            blocks = self._rows(wanted, lambda _: None, bad)
            return inferred(blocks, wanted, self.dialect, frozenset(texts))

    def rows(
        self,
        reading: FileColumns,
        progress: Callable[[float], None],
        bad: BadRows | None = None,
        changes: Changes | None = None,
    ) -> Iterator[NumberedRows]:
        """All rows, in the file's order, in blocks as they are read.

        Args:
          reading: which columns, and of which type.
          progress: called with the share of the file that was read, in [0, 1].
          bad: takes the rows that cannot be read; None: the first one refuses the file.
          changes: takes the changes of values between file and stream.

        Raises:
          BadBatch: the file is not what its format says, or has a value that does not fit.
          BadTimestamp: a time cannot be read.
        """
        bad = BadRows(self.part_name) if bad is None else bad
        changes = Changes() if changes is None else changes
        names = self.names()
        lacking = self.lacking(reading, names)
        others = [name for name in names if name not in reading.columns]
        for name in lacking:
            if others or name not in reading.optional:  # One of the others may be misnamed.
                has = ", ".join(names)
                raise BadBatch(f"{self.path.name} has no column {name!r}; it has {has}")
        if others and not reading.others:
            kept = ",".join(name for name in names if name in reading.columns)
            raise BadBatch(
                f"{self.path.name} has a column {others[0]!r}, and the stream has none; "
                f"--columns {kept} leaves it out"
            )
        columns = [name for name in reading.columns if name not in lacking]
        with self._as_bad_batch():
            for rows in self._rows(columns, progress, bad):
                yield self._converted(rows, reading, bad, changes)

    def timed(
        self,
        reading: FileColumns,
        moment: str,
        left_out: Untimed | None,
        progress: Callable[[float], None],
        bad: BadRows | None = None,
        changes: Changes | None = None,
    ) -> Iterator[NumberedRows]:
        """The rows of `rows` that have an event time, in blocks with at least one.

        Args:
          reading, progress, bad, changes: as there.
          moment, left_out: as of `rows_without_time.timed`.

        Raises:
          BadBatch, BadTimestamp: as these.
        """
        blocks = self.rows(reading, progress, bad, changes)
        return timed(self.part_name, blocks, moment, left_out)

    def lacking(self, reading: FileColumns, names: list[str] | None = None) -> list[str]:
        """Return the wanted columns that the file lacks."""
        has = set(self.names() if names is None else names)
        return [name for name in reading.columns if name not in has]

    def digest(self, size_bytes_max: int | None = None) -> Digest:
        """Identity of the content, of text at most of its first bytes.

        Raises:
          BadBatch: the file is not text in its encoding.
        """
        with self._as_bad_batch():
            if self.format is FileFormat.PARQUET:
                return binary_digest(self.path)
            return text_digest(
                self.path,
                self.dialect.encoding,
                size_bytes_max,
                may_be_array=self.format is FileFormat.NDJSON,
                has_header=self._has_header,
            )

    @property
    def delimiter_if_not_given(self) -> str:
        """The delimiter of a file whose dialect has none."""
        return "\t" if self.format is FileFormat.TSV else ","

    @property
    def _has_header(self) -> bool:
        return self.format is not FileFormat.NDJSON and self.dialect.header is None

    @property
    def _delimiter(self) -> str:
        return self.dialect.delimiter or self.delimiter_if_not_given

    def _layout(self) -> JsonLayout:
        if not self.layout_cache:
            with opened_text(self.path, self.dialect.encoding) as (text, _):
                layout = json_layout(text, self.path.name, BadRows(self.path.name, Nowhere()))
            if not layout.pointers:  # No row is an object: the first one says why.
                with opened_text(self.path, self.dialect.encoding) as (text, _):
                    json_layout(text, self.path.name, BadRows(self.path.name))
            self.layout_cache.append(layout)
        return self.layout_cache[0]

    def _rows(
        self, wanted: list[str], progress: Callable[[float], None], bad: BadRows
    ) -> Iterator[NumberedRows]:
        if self.format is FileFormat.PARQUET:
            yield from parquet_rows(self.path, wanted, progress)
            return
        size = max(self.path.stat().st_size, 1)
        names = self.names()
        line_ends = b"\n" if self.format is FileFormat.NDJSON else b"\r\n"
        with opened_text(self.path, self.dialect.encoding) as (whole, disk):
            text = after(
                before(whole, self.before_bytes),
                self.after_bytes,
                self.path.name,
                line_ends=line_ends,
            )
            for rows in self._text_rows(text, names, wanted, bad):
                progress(min(disk.tell() / size, 1.0))
                yield rows

    def _text_rows(
        self, text: IO[bytes], names: list[str], wanted: list[str], bad: BadRows
    ) -> Iterator[NumberedRows]:
        if self.format is FileFormat.NDJSON:
            return json_rows(text, self.part_name, self._layout().pointers, wanted, bad)
        has_header = self._has_header and not self.after_bytes
        return csv_rows(
            text, names, wanted, self.dialect, self._delimiter, bad, has_header=has_header
        )

    def _converted(
        self, rows: NumberedRows, reading: FileColumns, bad: BadRows, changes: Changes
    ) -> NumberedRows:
        columns, unread = [], np.zeros(len(rows.numbers), np.bool_)
        for name, column in zip(rows.batch.schema.names, rows.batch.columns, strict=True):
            wanted = reading.columns[name]
            values, wrong = converted(name, column, wanted, self.dialect, changes)
            if name != reading.moment:
                for at in np.flatnonzero(wrong & ~unread):
                    self._refuse(rows, int(at), name, wanted, bad)
                unread |= wrong
            columns.append(values)
        batch = pa.RecordBatch.from_arrays(columns, names=rows.batch.schema.names)
        if not unread.any():
            return NumberedRows(rows.numbers, batch)
        return NumberedRows(rows.numbers[~unread], batch.filter(pa.array(~unread)))

    def _refuse(
        self, rows: NumberedRows, at: int, name: str, wanted: ColumnType, bad: BadRows
    ) -> None:
        column = rows.batch.column(name)
        value = column[at : at + 1]
        if pa.types.is_dictionary(value.type):
            value = value.cast(value.type.value_type)
        problem, kind = _problem(name, value, wanted, self.dialect)
        bad.keep(
            int(rows.numbers[at]),
            f", column {problem}",
            rows.batch.slice(at, 1).to_pylist()[0],
            kind,
        )

    @contextmanager
    def _as_bad_batch(self) -> Iterator[None]:
        """Complaints of libraries about a file's bytes, as errors that name the file."""
        import duckdb  # Other commands load the command line without it.

        try:
            yield
        except BadTimestamp as error:
            if str(error).startswith(f"{self.part_name}: "):
                raise
            raise BadTimestamp(f"{self.part_name}: {error}") from error
        except (pa.ArrowException, duckdb.Error, OSError) as error:
            raise BadBatch(f"{self.path.name}: {str(error).partition(chr(10))[0]}") from error


class Nowhere(StringIO):
    """A sink for bad rows of a pass whose rows are read again."""

    def write(self, text: str) -> int:
        """Forget the text."""
        return len(text)


def _problem(
    name: str, value: pa.Array[Any], wanted: ColumnType, how: Dialect
) -> tuple[str, type[BadBatch] | type[BadTimestamp]]:
    """Describe the problem of one value, and the right form."""
    seen = shown(value[0].as_py())
    if wanted is ColumnType.TIMESTAMP:
        return f"{name!r}{_time_problem(value, seen, how)}", BadTimestamp
    if wanted is ColumnType.DOUBLE and _is_number(value):
        return (
            f"{name!r}: {seen} has more digits than DOUBLE holds; "
            f"--create with --type {name}=VARCHAR keeps it as text"
        ), BadBatch
    return f"{name!r}: {seen} is no {wanted.value}", BadBatch


def _time_problem(value: pa.Array[Any], seen: str, how: Dialect) -> str:
    if not is_text(value.type) or how.time_unit is not None:
        return f": {seen} is no time that could be kept"
    is_iso = how.time_format is None
    if is_iso and pc.match_substring_regex(value, r"^[+-]?[0-9]+(\.[0-9]*)?$")[0].as_py():
        return f" holds numbers, {seen}: say --time-unit s, ms, us or ns"
    if is_iso and is_readable(value, None):
        return f": {seen}: all moments have a zone, or none has"
    return f": {unreadable(value, how.time_format)}"


def _is_number(value: pa.Array[Any]) -> bool:
    if not is_text(value.type):
        return True
    return bool(pc.match_substring_regex(value, r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$")[0].as_py())
