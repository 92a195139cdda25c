"""Files of rows (Parquet, CSV, NDJSON) as record batches with the types that a stream takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from io import IOBase
from pathlib import Path
from typing import Any, Literal, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from shedder.cql.types import ColumnType
from shedder.errors import BadBatch, BadSetting, BadTimestamp, TypeMismatch

ROWS_PER_BATCH = 65_536
BYTES_PER_BATCH = 4 << 20
_SNIFFED_BYTES = 8 << 20  # The first block of a text file; its types are taken for all of it.


class FileFormat(Enum):
    """What `shedder push` reads."""

    PARQUET = "parquet"
    CSV = "csv"
    NDJSON = "ndjson"


class TimeUnit(Enum):
    """Of event times that are numbers since 1970."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is read.

    columns: name to type, all that is read; others in the file are left alone.
    time_format: strptime format of moments in text; None: ISO 8601.
    time_unit: of moments that are numbers; None: there are none.
    """

    columns: Mapping[str, ColumnType]
    time_format: str | None = None
    time_unit: TimeUnit | None = None


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows on disk."""

    path: Path
    format: FileFormat
    time_format: str | None = None

    def schema(self) -> pa.Schema:
        """Names and types as the file says (Parquet) or as its first block looks (text)."""
        with _as_bad_batch(self.path):
            match self.format:
                case FileFormat.PARQUET:
                    return pq.read_schema(self.path)
                case FileFormat.CSV:
                    options = pa_csv.ConvertOptions(timestamp_parsers=self._time_parsers())
                    with self.path.open("rb") as disk, _unpacked(disk, self.path) as file:
                        return pa_csv.open_csv(file, _CSV_BLOCKS, convert_options=options).schema
                case FileFormat.NDJSON:
                    with self.path.open("rb") as disk, _unpacked(disk, self.path) as file:
                        return _with_moments(pa_json.open_json(file, _JSON_BLOCKS))
                case _:
                    assert_never(self.format)

    def batches(
        self, reading: Reading, progress: Callable[[float], None]
    ) -> Iterator[pa.RecordBatch]:
        """All rows, in the file's order, at most ROWS_PER_BATCH and BYTES_PER_BATCH in a batch.

        Args:
          reading: which columns, and of which type.
          progress: is told the share of the file that was read, in [0, 1].

        Raises:
          BadBatch: the file is not what its format says.
          BadTimestamp: a moment cannot be read.
        """
        with _as_bad_batch(self.path):
            for batch in self._raw(reading, progress):
                yield from _pieces(_typed(batch, reading))

    def _raw(self, reading: Reading, progress: Callable[[float], None]) -> Iterator[pa.RecordBatch]:
        names = list(reading.columns)
        found = self.schema()
        for name in names:
            # Rows of JSON may leave out a column.
            if name not in found.names and self.format is not FileFormat.NDJSON:
                has = ", ".join(found.names)
                raise BadBatch(f"{self.path.name} has no column {name!r}; it has {has}")
        if self.format is FileFormat.PARQUET:
            yield from self._parquet(names, progress)
            return
        types = {name: _text_type(found, name, kind) for name, kind in reading.columns.items()}
        if self.format is FileFormat.NDJSON:  # Arrow's JSON reads whole seconds only.
            types = {n: pa.string() if pa.types.is_timestamp(t) else t for n, t in types.items()}
        size = max(self.path.stat().st_size, 1)
        with self.path.open("rb") as disk, _unpacked(disk, self.path) as file:
            for batch in self._text(file, types):
                progress(min(disk.tell() / size, 1.0))
                yield batch

    def _parquet(
        self, names: list[str], progress: Callable[[float], None]
    ) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path) as file:
            read, rows = 0, max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(ROWS_PER_BATCH, columns=names):
                read += batch.num_rows
                progress(read / rows)
                yield batch

    def _text(self, file: Any, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        if self.format is FileFormat.CSV:
            options = pa_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                timestamp_parsers=self._time_parsers(),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            yield from pa_csv.open_csv(file, _CSV_BLOCKS, convert_options=options)
        else:
            parse = pa_json.ParseOptions(
                explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="ignore"
            )
            yield from pa_json.open_json(file, _JSON_BLOCKS, parse)

    def _time_parsers(self) -> list[Any]:
        return [self.time_format] if self.time_format else [pa_csv.ISO8601]


_CSV_BLOCKS = pa_csv.ReadOptions(block_size=_SNIFFED_BYTES)
_JSON_BLOCKS = pa_json.ReadOptions(block_size=_SNIFFED_BYTES)
_SUFFIXES = {
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".ndjson": FileFormat.NDJSON,
    ".jsonl": FileFormat.NDJSON,
    ".json": FileFormat.NDJSON,
}


def format_of(path: Path) -> FileFormat:
    """The format by the file's suffix (`.gz` and its like aside).

    Raises:
      BadSetting: the suffix says nothing.
    """
    for suffix in reversed(path.suffixes):
        if suffix.lower() in _SUFFIXES:
            return _SUFFIXES[suffix.lower()]
    raise BadSetting(
        f"cannot tell the format of {path.name!r}: say --format parquet, csv or ndjson"
    )


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
    # An all-empty first block has type null; a time of day has no type of its own here.
    if types.is_null(kind) or types.is_time(kind) or _is_text(kind):
        return ColumnType.VARCHAR
    raise TypeMismatch(
        f"column {name!r} is {kind}, which no stream holds: leave it out by naming the others, "
        "--columns A,B,C"
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _text_type(found: pa.Schema, name: str, kind: ColumnType) -> pa.DataType:
    """As what a column of a text file is parsed; moments keep the zone that the file writes."""
    at = found.get_field_index(name)
    seen = pa.null() if at < 0 else found.field(at).type
    if kind is not ColumnType.TIMESTAMP:
        return kind.arrow
    if pa.types.is_timestamp(seen):
        return pa.timestamp("ns" if seen.unit == "ns" else "us", seen.tz)
    return pa.string() if pa.types.is_null(seen) else seen


def _typed(batch: pa.RecordBatch, reading: Reading) -> pa.RecordBatch:
    """The batch with its moments as microseconds in UTC and times of day as text."""
    for at, field in enumerate(batch.schema):
        if reading.columns[field.name] is ColumnType.TIMESTAMP:
            column = _moments(field.name, batch.column(at), reading)
            batch = batch.set_column(at, field.name, column)
        elif pa.types.is_time(field.type):
            batch = batch.set_column(at, field.name, batch.column(at).cast(pa.string()))
    return batch


def _moments(name: str, column: pa.Array[Any], reading: Reading) -> pa.Array[Any]:
    """Text, numbers, dates or timestamps as timestamp('us') in UTC."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        if reading.time_unit is None:
            raise BadTimestamp(f"column {name!r} holds numbers: say --time-unit s, ms, us or ns")
        return _from_numbers(column, reading.time_unit)
    if not _is_text(kind):
        return column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
    try:
        return _from_text(column, reading.time_format)
    except pa.ArrowInvalid:
        problem = _unreadable(column, reading.time_format)
        raise BadTimestamp(f"column {name!r}: {problem}") from None


_PER_SECOND = {TimeUnit.S: 1, TimeUnit.MS: 10**3, TimeUnit.US: 10**6, TimeUnit.NS: 10**9}


def _from_numbers(column: pa.Array[Any], unit: TimeUnit) -> pa.Array[Any]:
    if pa.types.is_integer(column.type):
        return (
            column.cast(pa.int64())
            .cast(pa.timestamp(unit.value))
            .cast(pa.timestamp("us"), safe=False)
        )
    micros = pc.round(pc.multiply(column, 10**6 / _PER_SECOND[unit]))
    return micros.cast(pa.int64()).cast(pa.timestamp("us"))


def _from_text(column: pa.Array[Any], time_format: str | None = None) -> pa.Array[Any]:
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
        _from_text(column, time_format)
    except pa.ArrowInvalid:
        return False
    return True


def _with_moments(rows: Iterable[pa.RecordBatch]) -> pa.Schema:
    """The schema of JSON rows, where text that is ISO 8601 throughout the first block is moments.

    Arrow recognizes whole seconds only.
    """
    first = next(iter(rows), None)
    if first is None:
        return pa.schema([])
    schema = first.schema
    for at, field in enumerate(schema):
        if _is_text(field.type) and first.column(at).null_count < first.num_rows:
            with suppress(pa.ArrowInvalid):
                schema = schema.set(at, field.with_type(_from_text(first.column(at)).type))
    return schema


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = ROWS_PER_BATCH
    if batch.num_rows and batch.nbytes / batch.num_rows * rows > BYTES_PER_BATCH:
        rows = max(int(BYTES_PER_BATCH * batch.num_rows / batch.nbytes), 1)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


@contextmanager
def _as_bad_batch(path: Path) -> Iterator[None]:
    """Arrow's complaints about a file's bytes, as the error that they are, with the file."""
    try:
        yield
    except BadTimestamp as error:
        raise BadTimestamp(f"{path.name}: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowKeyError, OSError) as error:
        raise BadBatch(f"{path.name}: {str(error).partition(chr(10))[0]}") from error


_PACKINGS: dict[str, Literal["gzip", "bz2", "zstd", "lz4"]] = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".lz4": "lz4",
}


def _unpacked(disk: IOBase, path: Path) -> Any:
    """The bytes inside, by the file's suffix."""
    packing = _PACKINGS.get(path.suffix.lower())
    return pa.PythonFile(disk) if packing is None else pa.CompressedInputStream(disk, packing)
