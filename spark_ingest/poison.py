"""Rows that a stream cannot take: told from the others, counted, and kept aside with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shedder.cql.query import StreamSchema
from shedder.cql.types import ColumnType
from shedder.streams.batches import DAY_MAX, DAY_MIN, TIME_MAX_US, TIME_MIN_US
from spark_ingest.places import opened

REASON = "__reason"


@dataclass(frozen=True, slots=True)
class Aside:
    """Where poison goes: a directory of any file system that Arrow knows, a file per partition.

    A micro-batch that is done again writes the same file again.
    """

    directory: str

    def write(self, rows: pa.Table, batch: int, partition: int) -> None:
        """Keep rows with their reasons; whole or not at all."""
        system, root = opened(self.directory)
        folder = f"{root}/batch={batch}"
        system.create_dir(folder, recursive=True)
        temporary = f"{folder}/.part-{partition:05d}"
        pq.write_table(rows, temporary, filesystem=system)
        system.move(temporary, f"{folder}/part-{partition:05d}.parquet")


def sound(
    batch: pa.RecordBatch, schema: StreamSchema, newest_us: int
) -> tuple[pa.RecordBatch, pa.Table | None]:
    """The rows that the stream takes, and the others with the column REASON; None: there are none.

    Args:
      batch: with the stream's columns, found by name, of types that fit.
      schema: of the stream.
      newest_us: the latest event time that is believed.
    """
    reasons, no = pa.nulls(batch.num_rows, pa.string()), pa.scalar(value=False)
    for name, wrong, why in _rules(batch, schema, newest_us):
        first = pc.and_(pc.fill_null(wrong, no), pc.is_null(reasons))
        reasons = pc.if_else(first, f"{name}: {why}", reasons)
    is_sound = pc.is_null(reasons)
    if reasons.null_count == batch.num_rows:
        return batch, None
    bad = pa.Table.from_batches([batch]).append_column(REASON, reasons).filter(pc.invert(is_sound))
    return batch.filter(is_sound), bad


def _rules(
    batch: pa.RecordBatch, schema: StreamSchema, newest_us: int
) -> list[tuple[str, Any, str]]:
    """Column, which rows break the rule, and how."""
    rules: list[tuple[str, Any, str]] = []
    for column in schema.columns:
        values = batch.column(column.name)
        is_time = column.name == schema.time_column
        if is_time or not column.nullable:
            rules.append((column.name, pc.is_null(values), "is null"))
        if column.type is ColumnType.TIMESTAMP:
            us = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
            rules.append((column.name, _outside(us, TIME_MIN_US, TIME_MAX_US), _YEARS))
            if is_time:
                rules.append(
                    (column.name, pc.greater(us, pa.scalar(newest_us)), "is too far in the future")
                )
        elif column.type is ColumnType.DATE:
            days = values.cast(pa.date32()).cast(pa.int32())
            rules.append((column.name, _outside(days, DAY_MIN, DAY_MAX), _YEARS))
    return rules


_YEARS = "is outside of the years 1 to 9999"


def _outside(values: Any, low: int, high: int) -> Any:
    return pc.or_(pc.less(values, pa.scalar(low)), pc.greater(values, pa.scalar(high)))
