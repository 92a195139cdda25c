"""Rows that a stream cannot take: told from the others, counted, and kept aside with a reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.types import (
    is_date32,
    is_date64,
    is_integer,
    is_large_string,
    is_signed_integer,
    is_string,
    is_timestamp,
)

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.bound_query import StreamSchema
from shedder.streams.batch_conversion import METADATA_ROOM_BYTES, conform_batch, payload_bytes
from shedder.streams.batches import DAY_MAX, DAY_MIN, TIME_MAX_US, TIME_MIN_US
from spark_ingest.runtime.remote_files import opened

REASON = "__reason"

CORRUPT = "_corrupt_record"
"""Column for records of which Spark's text readers (CSV, JSON, `from_json`, `from_csv`) could not
read all. Without this column, what they cannot read becomes NULL and is not reported."""


@dataclass(frozen=True, slots=True)
class Aside:
    """Where poison goes: a directory of any file system that Arrow knows, a file per partition.

    A micro-batch that is done again begins with nothing there.
    """

    directory: str

    @classmethod
    def of(cls, directory: str, kind: str, stream: str, name: str) -> Aside:
        """A job's own place in a directory that several may share: DIRECTORY/job=KIND.STREAM.NAME.

        Equal only for the same job, and one part of a path whatever the names are.
        """
        job = ".".join(quote(each, safe="").replace(".", "%2E") for each in (kind, stream, name))
        return cls(f"{directory}/job={job}")

    def clear(self, batch: int | None = None) -> None:
        """Forget what an earlier try has kept of a micro-batch, or of all of them."""
        system, root = opened(self.directory)
        folder = root if batch is None else f"{root}/batch={batch}"
        system.delete_dir_contents(folder, missing_dir_ok=True)

    def write(self, rows: pa.Table, batch: int, partition: int, number: int = 0) -> None:
        """Keep rows with their reasons; whole or not at all. number: of a partition's files."""
        system, root = opened(self.directory)
        folder = f"{root}/batch={batch}"
        system.create_dir(folder, recursive=True)
        name = f"part-{partition:05d}" + (f"-{number}" if number else "")
        pq.write_table(rows, f"{folder}/.{name}", filesystem=system)
        system.move(f"{folder}/.{name}", f"{folder}/{name}.parquet")


def sound(
    batch: pa.RecordBatch,
    schema: StreamSchema,
    newest_us: int,
    row_bytes_max: int | None = None,
) -> tuple[pa.RecordBatch, pa.Table | None]:
    """The rows that the stream takes, and the others with the column REASON; None: there are none.

    Args:
      batch: with the stream's columns, found by name, of types that fit, and perhaps CORRUPT.
      schema: of the stream.
      newest_us: the latest event time that is believed.
      row_bytes_max: of a row's payload; None: as many as it has.
    """
    reasons, no = pa.nulls(batch.num_rows, pa.string()), pa.scalar(value=False)
    for name, wrong, why in _broken(batch, schema, newest_us):
        first = pc.and_(pc.fill_null(wrong, no), pc.is_null(reasons))
        reasons = pc.if_else(first, f"{name}: {why}", reasons)
    kept = batch.drop_columns([CORRUPT]) if has_corrupt(batch.schema, schema) else batch
    if row_bytes_max is not None:
        why = f"the row is larger than a batch may be, {row_bytes_max:,} bytes"
        for place in _long(kept, reasons, schema, row_bytes_max):
            reasons = pc.if_else(pa.array(np.arange(batch.num_rows) == place), why, reasons)
    if reasons.null_count == batch.num_rows:
        return kept, None
    is_sound = pc.is_null(reasons)
    bad = pa.Table.from_batches([batch]).append_column(REASON, reasons).filter(pc.invert(is_sound))
    return kept.filter(is_sound), bad


def has_corrupt(columns: pa.Schema, schema: StreamSchema) -> bool:
    """Return whether there is a CORRUPT that is not the stream's own."""
    return CORRUPT in columns.names and all(own.name != CORRUPT for own in schema.columns)


def taken(columns: pa.Schema, schema: StreamSchema) -> list[str]:
    """What is read of a frame: the stream's columns, and CORRUPT where it is."""
    own = [column.name for column in schema.columns]
    return [*own, CORRUPT] if has_corrupt(columns, schema) else own


def _broken(
    batch: pa.RecordBatch, schema: StreamSchema, newest_us: int
) -> Iterator[tuple[str, Any, str]]:
    """Column, which rows break the rule, and how; of rules that some row may break.

    Nearly all batches break none. Their ends and counts say so, and no array is made of them.
    """
    if has_corrupt(batch.schema, schema):
        yield CORRUPT, pc.is_valid(batch.column(CORRUPT)), "the source cannot read this"
    for column in schema.columns:
        name, values = column.name, batch.column(column.name)
        is_time = name == schema.time_column
        if (is_time or not column.nullable) and values.null_count:
            yield name, pc.is_null(values), "is null"
        for outside, why in _calendar(values, column.type, newest_us if is_time else None):
            yield name, outside, why
        if (lost := _lost(values, column.type)) is not None:
            yield name, lost, f"does not fit {column.type.value}"


def _calendar(
    values: pa.Array[Any], wanted: ColumnType, newest_us: int | None
) -> Iterator[tuple[Any, str]]:
    """Yield times and days that no calendar has, or that are too late (None: all are)."""
    if wanted is ColumnType.DATE:
        days = _outside(values.cast(pa.date32()).cast(pa.int32()), DAY_MIN, DAY_MAX)
        if days is not None:
            yield days, _YEARS
    elif wanted is ColumnType.TIMESTAMP:
        most_us = TIME_MAX_US if newest_us is None else min(newest_us, TIME_MAX_US)
        if (late := _outside_us(values, TIME_MIN_US, most_us)) is None:
            return
        if (never := _outside_us(values, TIME_MIN_US, TIME_MAX_US)) is not None:
            yield never, _YEARS
        if newest_us is not None:
            yield late, "is too far in the future"


_YEARS = "is outside of the years 1 to 9999"
_HELD = {  # Of integers.
    ColumnType.INTEGER: (-(1 << 31), (1 << 31) - 1),
    ColumnType.BIGINT: (-(1 << 63), (1 << 63) - 1),
    ColumnType.DOUBLE: (-(1 << 53), 1 << 53),
}


def _lost(values: pa.Array[Any], wanted: ColumnType) -> Any:
    """Return which values a stream's column cannot hold; None: it can hold all."""
    have = values.type
    match wanted:
        case ColumnType.INTEGER | ColumnType.BIGINT | ColumnType.DOUBLE if is_integer(have):
            return _beyond(values, *_HELD[wanted])
        case ColumnType.TIMESTAMP if is_timestamp(have) and have.unit == "ns":
            return pc.not_equal(values.cast(pa.timestamp("us", have.tz), safe=False), values)
        case ColumnType.VARCHAR if is_string(have) or is_large_string(have):
            return _no_text(values)
        case _:
            return None


def _beyond(values: pa.Array[Any], low: int, high: int) -> Any:
    """Return which integers are outside of a range; None: none of their type is."""
    bits, signed = values.type.bit_width, is_signed_integer(values.type)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if low <= least and most <= high:
        return None
    return _outside(values, max(low, least), min(high, most))


def _no_text(values: pa.Array[Any]) -> Any:
    """Return which texts are none, as of bytes that were taken for text; None: all are."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.array([True])
        halves = [values[: len(values) // 2], values[len(values) // 2 :]]
        found = [_no_text(half) for half in halves]
        fine = [pa.array(np.zeros(len(half), np.bool_)) for half in halves]
        return pa.concat_arrays([f if n is None else n for f, n in zip(fine, found, strict=True)])
    return None


_UNITS_US = {
    "s": Fraction(10**6),
    "ms": Fraction(1_000),
    "us": Fraction(1),
    "ns": Fraction(1, 1_000),
}
_DAY_US = Fraction(86_400 * 10**6)


def _outside_us(times: pa.Array[Any], low_us: int, high_us: int) -> Any:
    """Return the times outside a range, in their own unit: a finer one may overflow.

    None: none is.
    """
    match times.type:
        case unit if is_timestamp(unit):
            each = _UNITS_US[unit.unit]
            ticks = times.cast(pa.int64())
        case day if is_date32(day):
            each, ticks = _DAY_US, times.cast(pa.int32()).cast(pa.int64())
        case day if is_date64(day):
            each, ticks = _UNITS_US["ms"], times.cast(pa.int64())
        case _:
            each, ticks = Fraction(1), times.cast(pa.timestamp("us")).cast(pa.int64())
    low, high = math.ceil(low_us / each), math.floor(high_us / each)
    return _outside(ticks, max(low, -(1 << 63)), min(high, (1 << 63) - 1))


def _long(
    batch: pa.RecordBatch, reasons: pa.Array[Any], schema: StreamSchema, bytes_max: int
) -> list[int]:
    """The places of rows, sound else, of which the payload would have more bytes."""
    rest = METADATA_ROOM_BYTES + 1_024 * batch.num_columns  # More than what is not texts.
    if batch.nbytes + rest <= bytes_max:
        return []
    total = np.zeros(batch.num_rows, np.int64)
    for column in schema.columns:
        if column.type is ColumnType.VARCHAR:
            texts: Any = batch.column(column.name).cast(pa.large_string(), safe=False)
            total += np.asarray(pc.fill_null(pc.binary_length(texts), 0))
    total[np.asarray(pc.is_valid(reasons))] = -rest
    return [
        place
        for place in np.flatnonzero(total + rest > bytes_max).tolist()
        if payload_bytes(conform_batch(batch.slice(place, 1), schema)) > bytes_max
    ]


def _outside(values: Any, low: int, high: int) -> Any:
    """Return which integers are outside of a range; None: none is."""
    ends = pc.min_max(values)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (low <= least and most <= high):
        return None
    return pc.or_(
        pc.less(values, pa.scalar(low, values.type)),
        pc.greater(values, pa.scalar(high, values.type)),
    )
