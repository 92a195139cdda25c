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
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from shedder.cli.rows_without_time import Untimed, timed
from shedder.cli.timestamps import TimeUnit, from_text, is_text, moments, readable
from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadBatch, BadSetting, BadTimestamp, TypeMismatch

ROWS_PER_BATCH = 65_536
BYTES_PER_BATCH = 4 << 20
_SNIFFED_BYTES = 8 << 20  # The first block of a text file; its types are taken for all of it.


class FileFormat(Enum):
    """What `shedder push` reads."""

    PARQUET = "parquet"
    CSV = "csv"
    NDJSON = "ndjson"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is read.

    columns: name to type, all that is read; others in the file are left alone.
    time_format: strptime format of moments in text; None: ISO 8601.
    time_unit: of moments that are numbers; None: there are none.
    optional: those of the columns that a file may lack that has no others.
    moment: the event time, NULL where it cannot be read; None: that refuses the file.
    """

    columns: Mapping[str, ColumnType]
    time_format: str | None = None
    time_unit: TimeUnit | None = None
    optional: frozenset[str] = frozenset()
    moment: str | None = None


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
                    import pyarrow.parquet as pq  # Heavy; most commands read no such file.

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

    def timed(
        self,
        reading: Reading,
        moment: str,
        left_out: Untimed | None,
        progress: Callable[[float], None],
    ) -> Iterator[pa.RecordBatch]:
        """The rows of `batches` that have an event time.

        Args:
          reading, progress: as there. moment, left_out: as of `untimed.timed`.

        Raises:
          BadBatch, BadTimestamp: as these.
        """
        yield from timed(self.path.name, self.batches(reading, progress), moment, left_out)

    def _raw(self, reading: Reading, progress: Callable[[float], None]) -> Iterator[pa.RecordBatch]:
        found = self.schema()
        lacking = self.lacking(reading, found)
        others = [name for name in found.names if name not in reading.columns]
        for name in lacking:
            if others or name not in reading.optional:  # One of the others may be misnamed.
                has = ", ".join(found.names)
                raise BadBatch(f"{self.path.name} has no column {name!r}; it has {has}")
        columns = {name: kind for name, kind in reading.columns.items() if name not in lacking}
        if self.format is FileFormat.PARQUET:
            yield from self._parquet(list(columns), progress)
            return
        types = {name: _text_type(found, name, kind) for name, kind in columns.items()}
        if reading.moment in types and not _needs_a_unit(types[reading.moment], reading):
            types[reading.moment] = pa.string()  # It is read row by row, as far as it can be.
        if self.format is FileFormat.NDJSON:  # Arrow's JSON reads whole seconds only.
            types = {n: pa.string() if pa.types.is_timestamp(t) else t for n, t in types.items()}
        size = max(self.path.stat().st_size, 1)
        with self.path.open("rb") as disk, _unpacked(disk, self.path) as file:
            for batch in self._text(file, types):
                progress(min(disk.tell() / size, 1.0))
                yield batch

    def lacking(self, reading: Reading, found: pa.Schema | None = None) -> list[str]:
        """Columns that are wished for and not there; of JSON, each row may leave out any."""
        if self.format is FileFormat.NDJSON:
            return []
        names = (found or self.schema()).names
        return [name for name in reading.columns if name not in names]

    def _parquet(
        self, names: list[str], progress: Callable[[float], None]
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

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
    if types.is_null(kind) or types.is_time(kind) or is_text(kind):
        return ColumnType.VARCHAR
    raise TypeMismatch(
        f"column {name!r} is {kind}, which no stream holds: leave it out by naming the others, "
        "--columns A,B,C"
    )


def _text_type(found: pa.Schema, name: str, kind: ColumnType) -> pa.DataType:
    """As what a column of a text file is parsed; moments keep the zone that the file writes."""
    at = found.get_field_index(name)
    seen = pa.null() if at < 0 else found.field(at).type
    if kind is not ColumnType.TIMESTAMP:
        return kind.arrow
    if pa.types.is_timestamp(seen):
        return pa.timestamp("ns" if seen.unit == "ns" else "us", seen.tz)
    return pa.string() if pa.types.is_null(seen) else seen


def _needs_a_unit(kind: pa.DataType, reading: Reading) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return is_number and reading.time_unit is None


def _typed(batch: pa.RecordBatch, reading: Reading) -> pa.RecordBatch:
    """The batch with its moments as microseconds in UTC and times of day as text."""
    for at, field in enumerate(batch.schema):
        if reading.columns[field.name] is ColumnType.TIMESTAMP:
            column = batch.column(at)
            if field.name == reading.moment:
                column = readable(field.name, column, reading.time_format, reading.time_unit)
            else:
                column = moments(field.name, column, reading.time_format, reading.time_unit)
            batch = batch.set_column(at, field.name, column)
        elif pa.types.is_time(field.type):
            batch = batch.set_column(at, field.name, batch.column(at).cast(pa.string()))
    return batch


def _with_moments(rows: Iterable[pa.RecordBatch]) -> pa.Schema:
    """The schema of JSON rows, where text that is ISO 8601 throughout the first block is moments.

    Arrow recognizes whole seconds only.
    """
    first = next(iter(rows), None)
    if first is None:
        return pa.schema([])
    schema = first.schema
    for at, field in enumerate(schema):
        if is_text(field.type) and first.column(at).null_count < first.num_rows:
            with suppress(pa.ArrowInvalid):
                schema = schema.set(at, field.with_type(from_text(first.column(at)).type))
    return schema


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = ROWS_PER_BATCH
    if batch.num_rows and batch.nbytes / batch.num_rows * rows > BYTES_PER_BATCH:
        rows = max(int(BYTES_PER_BATCH * batch.num_rows / batch.nbytes), 1)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


_ARROWS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowKeyError, pa.ArrowNotImplementedError)


@contextmanager
def _as_bad_batch(path: Path) -> Iterator[None]:
    """Arrow's complaints about a file's bytes, as the error that they are, with the file."""
    try:
        yield
    except BadTimestamp as error:
        raise BadTimestamp(f"{path.name}: {error}") from error
    except (*_ARROWS, OSError) as error:
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
