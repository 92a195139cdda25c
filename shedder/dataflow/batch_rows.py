"""Rows of Arrow batches: picked by number, and put behind each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray


def take_rows(batch: pa.RecordBatch, rows: NDArray[Any]) -> pa.RecordBatch:
    """The rows with these numbers, in this order; rows: integers."""
    numbers: Any = pa.array(rows)
    return batch.take(numbers)


def take_values(values: pa.Array[Any], rows: NDArray[Any]) -> pa.Array[Any]:
    """The values with these numbers, in this order; rows: integers."""
    numbers: Any = pa.array(rows)
    return values.take(numbers)


def concat_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of at least one batch, as one batch; all have one schema."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(list(batches)).combine_chunks()
    return batch_of_table(table)


def batch_of_table(table: pa.Table) -> pa.RecordBatch:
    """A table without chunks as a batch."""
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
