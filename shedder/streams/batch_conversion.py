"""Conforming: whatever holds columns becomes batches of a stream, or says why it cannot.

Columns are found by name, in any order. Casts lose nothing: integers and floats must fit,
timestamps of any unit and zone become microseconds in UTC, every kind of string becomes plain. A
column that may be NULL and is not there is NULL in every row, as where INSERT does not name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow_types

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.table_schema import RelationSchema
from shedder.errors import BatchTooLarge, InvalidRequest, SchemaMismatch
from shedder.streams.batches import (
    DEFAULT_LIMITS,
    ROWS_PER_BATCH,
    BatchLimits,
    arrow_schema,
    check_rows,
)
from shedder.streams.decimal_text import doubles_of

_DAY_MS = 86_400_000
METADATA_ROOM_BYTES = 64 << 10  # of a payload's limit, left for what surrounds the columns


def conform(
    data: object,
    schema: RelationSchema,
    *,
    rows_max: int = ROWS_PER_BATCH,
    limits: BatchLimits = DEFAULT_LIMITS,
    row_bytes_max: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of at most rows_max rows with exactly the stream's columns, in the data's order.

    Args:
      data: a pyarrow Table, RecordBatch, RecordBatchReader or iterable of batches; a pandas or
        polars frame, or anything with `__arrow_c_stream__`; a mapping of names to columns.
      schema: of the stream.
      rows_max: of a batch, >= 1.
      limits: of a batch and its payload; a batch is split until it fits.
      row_bytes_max: of the payload of a batch that is a single row; None: as of any other.

    Yields:
      Batches with at least one row each.

    Raises:
      SchemaMismatch: a column is unknown, of a type or with a value that does not fit, or one that
        is NOT NULL is missing.
      BadTimestamp: a null event time, or any time or day outside of the years 1 to 9999.
      BatchTooLarge: one single row is larger than a payload may be.
      InvalidRequest: the data is nothing that has columns.
    """
    rows_max = min(rows_max, limits.rows_max)
    row_bytes_max = limits.bytes_max if row_bytes_max is None else row_bytes_max
    for batch in _batches(data, rows_max):
        if batch.num_rows:
            conformed = conform_batch(batch, schema)
            for start in range(0, conformed.num_rows, rows_max):
                yield from _fitting(conformed.slice(start, rows_max), limits, row_bytes_max)
        else:
            _conform(batch, schema)  # No rows, but its columns must be right.


def _batches(data: object, rows_max: int) -> Iterator[pa.RecordBatch]:
    match data:
        case pa.RecordBatch():
            yield data
        case pa.Table():
            yield from _table_batches(data, rows_max)
        case pa.RecordBatchReader():
            yield from data
        case Mapping():
            yield from _table_batches(_table_of(data), rows_max)
        case _ if type(data).__module__.partition(".")[0] == "pandas":
            yield from _table_batches(_table_of_pandas(data), rows_max)
        case _ if hasattr(data, "__arrow_c_stream__"):
            yield from _table_batches(pa.table(cast(Any, data)), rows_max)
        case _ if isinstance(data, Iterable) and not isinstance(data, str | bytes):
            for part in data:
                if not isinstance(part, pa.RecordBatch | pa.Table):
                    raise InvalidRequest(f"cannot push a sequence of {type(part).__name__}")
                yield from _batches(part, rows_max)
        case _:
            raise InvalidRequest(f"cannot push a {type(data).__name__}: it has no columns")


def _table_of_pandas(frame: object) -> pa.Table:
    try:
        return pa.Table.from_pandas(cast(Any, frame), preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequest(f"this frame does not make a table: {_first_line(error)}") from None


def _table_of(columns: Mapping[Any, Any]) -> pa.Table:
    try:
        return pa.table(dict(columns))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequest(f"these columns do not make a table: {_first_line(error)}") from None


def _table_batches(table: pa.Table, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Batches of about rows_max rows; a table in many small pieces is gathered first."""
    pieces = max((column.num_chunks for column in table.columns), default=0)
    if pieces > 1 + table.num_rows // rows_max:
        table = table.combine_chunks()
    if not table.num_rows:
        yield pa.RecordBatch.from_pylist([], schema=table.schema)
    yield from table.to_batches(max_chunksize=rows_max)


def conform_batch(batch: pa.RecordBatch, schema: RelationSchema) -> pa.RecordBatch:
    """One batch, however large, as rows of the stream.

    Raises:
      SchemaMismatch, BadTimestamp: as `conform`.
    """
    conformed = _conform(batch, schema)
    check_rows(conformed, schema)
    return conformed


def _conform(batch: pa.RecordBatch, schema: RelationSchema) -> pa.RecordBatch:
    _check_names(batch.schema.names, schema)
    columns = [
        _cast(batch.column(column.name), column.type, column.name, schema.name)
        if column.name in batch.schema.names
        else pa.nulls(batch.num_rows).cast(column.type.arrow)
        for column in schema.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _check_names(names: list[str], schema: RelationSchema) -> None:
    known = {column.name for column in schema.columns}
    needed = [column.name for column in schema.columns if not column.nullable]
    missing = [name for name in needed if name not in names]
    unknown = [name for name in names if name not in known]
    if missing:
        raise SchemaMismatch(schema.name, f"column {missing[0]!r} is missing, and NOT NULL")
    if unknown:
        raise SchemaMismatch(schema.name, f"there is no column {str(unknown[0])[:64]!r}")
    if len(names) != len(set(names)):
        raise SchemaMismatch(schema.name, "a column is there twice")


def _cast(values: pa.Array[Any], wanted: ColumnType, name: str, stream: str) -> pa.Array[Any]:
    if values.type == wanted.arrow:
        return values
    if arrow_types.is_dictionary(values.type):
        coded = cast("pa.DictionaryArray[Any, Any]", values)
        return _cast(coded.dictionary, wanted, name, stream).take(coded.indices)
    if not _castable(values.type, wanted):
        problem = f"column {name!r} is {str(values.type)[:100]}, which is not {wanted.value}"
        raise SchemaMismatch(stream, problem)
    try:
        if wanted is ColumnType.TIMESTAMP and arrow_types.is_timestamp(values.type):
            return _microseconds(values)
        if wanted is ColumnType.DOUBLE and arrow_types.is_decimal(values.type):
            return _doubles(values)
        if wanted is ColumnType.DATE and arrow_types.is_date64(values.type):
            return _days(values)
        return values.cast(wanted.arrow, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        problem = f"column {name!r} does not fit {wanted.value}: {_first_line(error)}"
        raise SchemaMismatch(stream, problem) from None


def _doubles(decimals: pa.Array[Any]) -> pa.Array[Any]:
    """Decimals as the nearest doubles.

    Raises:
      pa.ArrowInvalid: a double does not hold all digits of a decimal.
    """
    values, held = doubles_of(decimals.cast(pa.string()))
    if not held.all():
        lost = decimals[int(np.argmin(held))]
        raise pa.ArrowInvalid(f"{lost} has more digits than a double holds; cast it to float64")
    return values


def _days(days: pa.Array[Any]) -> pa.Array[Any]:
    """Milliseconds as days.

    Raises:
      pa.ArrowInvalid: a value is not the beginning of a day.
    """
    inside = np.asarray(days.cast(pa.int64()).fill_null(0)) % _DAY_MS != 0
    if inside.any():
        raise pa.ArrowInvalid(f"{days[int(np.argmax(inside))]} ms is inside of a day")
    return days.cast(pa.date32())


def _microseconds(values: pa.Array[Any]) -> pa.Array[Any]:
    """Timestamps of any unit, in microseconds; a zoned one is its instant in UTC."""
    zone = values.type.tz
    exact = values.cast(pa.timestamp("us", zone), safe=True)
    return pc.cast(exact.cast(pa.int64()), pa.timestamp("us"))


def _castable(have: pa.DataType, wanted: ColumnType) -> bool:
    """Return whether a safe cast from this Arrow type says the same thing in the wanted type."""
    if arrow_types.is_null(have):
        return True
    match wanted:
        case ColumnType.BOOLEAN:
            return arrow_types.is_boolean(have)
        case ColumnType.INTEGER | ColumnType.BIGINT:
            return arrow_types.is_integer(have)
        case ColumnType.DOUBLE:
            number = arrow_types.is_integer(have) or arrow_types.is_floating(have)
            return number or arrow_types.is_decimal(have)
        case ColumnType.VARCHAR:
            wide = arrow_types.is_large_string(have) or arrow_types.is_string_view(have)
            return wide or arrow_types.is_string(have)
        case ColumnType.TIMESTAMP:
            return arrow_types.is_timestamp(have)
        case ColumnType.DATE:
            return arrow_types.is_date(have)


def _fitting(
    batch: pa.RecordBatch, limits: BatchLimits, row_bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """The batch, halved until each part's payload is within the limits."""
    size_bytes = payload_bytes(batch)
    if batch.num_rows == 1 and size_bytes > row_bytes_max:
        raise BatchTooLarge(f"one row of {batch.nbytes} bytes; the limit is {row_bytes_max}")
    if batch.num_rows == 1 or (
        batch.num_rows <= limits.rows_max and size_bytes <= limits.bytes_max
    ):
        yield batch
        return
    half = batch.num_rows // 2
    yield from _fitting(batch.slice(0, half), limits, row_bytes_max)
    yield from _fitting(batch.slice(half), limits, row_bytes_max)


def payload_bytes(batch: pa.RecordBatch) -> int:
    """At most so many bytes does the batch have when encoded."""
    return int(batch.nbytes) + 256 * batch.num_columns + METADATA_ROOM_BYTES


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
