"""Batches: Arrow record batches of a stream, to bytes and back, whatever the bytes.

The wire and the log hold a batch as an Arrow IPC stream of one schema and one record batch,
uncompressed. `decode` accepts nothing else, and hands on only what has been validated in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.table_schema import RelationSchema
from shedder.errors import BadBatch, BadTimestamp, BatchTooLarge, SchemaMismatch
from shedder.streams.ipc_metadata import Envelope, open_envelope

ROWS_PER_BATCH = 65_536  # what conform splits to: one cache-friendly frame

# The moments and days that every tool downstream can show: years 1 to 9999.
TIME_MIN_US = -62_135_596_800_000_000
TIME_MAX_US = 253_402_300_799_999_999
DAY_MIN = -719_162
DAY_MAX = 2_932_896


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large one batch may be. A batch's decoded size never exceeds its payload's."""

    rows_max: int = 1 << 20
    bytes_max: int = 16 << 20


DEFAULT_LIMITS = BatchLimits()

# What pyarrow raises about bytes that it does not take (its own errors, and Python's for some).
_ARROW_REFUSES = (pa.ArrowException, ValueError, TypeError, OSError, EOFError, MemoryError)


@lru_cache(maxsize=1024)
def arrow_schema(schema: RelationSchema) -> pa.Schema:
    """The Arrow schema of a relation's batches: its columns in order, without metadata."""
    return pa.schema(
        [pa.field(column.name, column.type.arrow, column.nullable) for column in schema.columns]
    )


def empty_batch(schema: RelationSchema) -> pa.RecordBatch:
    """A batch of a stream without rows."""
    return pa.RecordBatch.from_pylist([], arrow_schema(schema))


@lru_cache(maxsize=1024)
def _schema_message(schema: RelationSchema) -> bytes:
    """The first message of what `encode` makes for this stream."""
    return arrow_schema(schema).serialize().to_pybytes()


def encode(batch: pa.RecordBatch) -> bytes:
    """The batch as an Arrow IPC stream, uncompressed. A slice writes only its own rows."""
    return encoded(batch).to_pybytes()


def encoded(batch: pa.RecordBatch) -> pa.Buffer:
    """As `encode`, without the last copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def decode(
    payload: bytes | memoryview, schema: RelationSchema, limits: BatchLimits = DEFAULT_LIMITS
) -> pa.RecordBatch:
    """Decode the batch of an untrusted payload; columns are views of the payload.

    Args:
      payload: an Arrow IPC stream, as `encode` makes it. Must not change afterwards.
      schema: of the stream that the batch claims to belong to.
      limits: on rows and bytes.

    Returns:
      A record batch of exactly `arrow_schema(schema)`, validated in full.

    Raises:
      BatchTooLarge: more rows or bytes than the limits.
      BadBatch: not such a stream, or damaged.
      SchemaMismatch: other columns or types than the stream's, or nulls where there may be none.
      BadTimestamp: an event time is null, or any time or day is outside of the years 1 to 9999.
    """
    batch = decode_columns(payload, schema, limits)
    check_rows(batch, schema)
    return batch


def decode_columns(
    payload: bytes | memoryview, schema: RelationSchema, limits: BatchLimits = DEFAULT_LIMITS
) -> pa.RecordBatch:
    """As `decode`, of columns that need not be tuples: nulls and times are not looked at.

    Raises:
      BatchTooLarge, BadBatch, SchemaMismatch: as there.
    """
    view = memoryview(payload)
    if len(view) > limits.bytes_max:
        raise BatchTooLarge(f"a batch of {len(view)} bytes; the limit is {limits.bytes_max}")
    envelope = open_envelope(view)
    if envelope.rows > limits.rows_max:
        raise BatchTooLarge(f"a batch of {envelope.rows} rows; the limit is {limits.rows_max}")
    _check_schema(view, envelope, schema)
    batch = _read(payload, envelope, schema)
    try:
        batch.validate(full=True)
    except _ARROW_REFUSES as error:
        raise BadBatch(f"the batch is damaged: {_first_line(error)}") from None
    return batch


def check_texts(payload: bytes, schema: pa.Schema) -> None:
    """Check a table with these columns, in an untrusted Arrow IPC stream.

    Raises:
      BadBatch: it is something else, or damaged.
    """
    open_envelope(memoryview(payload))
    try:
        table = pa.ipc.open_stream(payload).read_all()
        table.validate(full=True)
    except _ARROW_REFUSES as error:
        raise BadBatch(f"the texts cannot be read: {_first_line(error)}") from None
    found, wanted = ([f"{it.name} {it.type}" for it in of] for of in (table.schema, schema))
    if found != wanted:
        raise BadBatch(f"columns of text are {_listed(found)}, not {_listed(wanted)}")


def decode_stored(payload: bytes, schema: StreamSchema) -> pa.RecordBatch:
    """The batch in a payload that `decode` has accepted before and a checksum has kept.

    Raises:
      BadBatch: the payload is not what `decode` would have accepted.
    """
    return _read(payload, open_envelope(memoryview(payload)), schema)


def check_rows(batch: pa.RecordBatch, schema: RelationSchema) -> None:
    """Check what types alone do not say: nulls, and times that no calendar has.

    Raises:
      SchemaMismatch: a null in a column that has none.
      BadTimestamp: a null event time, or any time or day outside of the years 1 to 9999.
    """
    if isinstance(schema, StreamSchema):
        _check_event_times(batch, schema.time_column)
    for column, values in zip(schema.columns, batch.columns, strict=True):
        if not column.nullable and values.null_count:
            problem = f"{values.null_count} nulls in {column.name!r}, which is NOT NULL"
            raise SchemaMismatch(schema.name, problem)
        if column.type is ColumnType.TIMESTAMP:
            _check_range(values.cast(pa.int64()), TIME_MIN_US, TIME_MAX_US, column.name)
        elif column.type is ColumnType.DATE:
            _check_range(values.cast(pa.int32()), DAY_MIN, DAY_MAX, column.name)


def _check_event_times(batch: pa.RecordBatch, time_column: str) -> None:
    times = batch.column(time_column)
    if times.null_count:
        row = pc.index(times.is_null(), True).as_py()
        raise BadTimestamp(
            f"the event time {time_column!r} is null in {times.null_count} of "
            f"{batch.num_rows} rows, the first time in row {row + 1} of the batch"
        )


def _check_range(values: pa.Array[Any], low: int, high: int, name: str) -> None:
    ends = pc.min_max(values)
    for end in (ends["min"].as_py(), ends["max"].as_py()):
        if end is not None and not low <= end <= high:
            unit = "days" if high == DAY_MAX else "us"
            raise BadTimestamp(
                f"{name!r} has a value {end} {unit} from 1970, outside of the years 1 to 9999"
            )


def _check_schema(view: memoryview, envelope: Envelope, schema: RelationSchema) -> None:
    message = view[: envelope.schema_bytes]
    if message == _schema_message(schema):
        return  # The usual case: the very bytes that `encode` writes.
    try:
        sent = pa.ipc.read_schema(pa.py_buffer(message))
        names, types = sent.names, [str(kind)[:100] for kind in sent.types]
        fits = [
            got == want for got, want in zip(sent.types, arrow_schema(schema).types, strict=False)
        ]
    except _ARROW_REFUSES as error:
        raise BadBatch(f"the schema cannot be read: {_first_line(error)}") from None
    expected = arrow_schema(schema)
    if names != expected.names:
        problem = f"its columns are {_listed(names)}, not {_listed(expected.names)}"
        raise SchemaMismatch(schema.name, problem)
    if not all(fits):
        at = fits.index(False)
        problem = f"column {names[at]!r} is {types[at]}, not {expected.types[at]}"
        raise SchemaMismatch(schema.name, problem)


def _read(
    payload: bytes | memoryview, envelope: Envelope, schema: RelationSchema
) -> pa.RecordBatch:
    """The record batch, read with the stream's own schema; not yet validated."""
    expected = arrow_schema(schema)
    strings = sum(field.type == pa.string() for field in expected)
    buffers = 2 * len(expected) + strings  # validity and values; strings have offsets, too
    if (envelope.columns, envelope.buffers) != (len(expected), buffers):
        raise BadBatch(
            f"{envelope.columns} columns in {envelope.buffers} buffers; "
            f"the stream has {len(expected)} in {buffers}"
        )
    whole = pa.py_buffer(payload)
    if whole.address % 8:
        whole = pa.py_buffer(bytes(payload))
    try:
        message = pa.ipc.read_message(whole.slice(envelope.schema_bytes, envelope.batch_bytes))
        return pa.ipc.read_record_batch(message, expected)
    except _ARROW_REFUSES as error:
        raise BadBatch(f"the batch cannot be read: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:64] for name in names[:20])
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown or "none"
