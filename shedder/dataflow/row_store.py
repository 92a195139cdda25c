"""Row store: append-only rows in Arrow batches, read by position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.batch_rows import batch_of_table, concat_rows, take_rows

_MERGED_BYTES_MAX = 1 << 30  # Arrow text has 32-bit offsets: a merged batch stays far below 2^31.


class RowStore:
    """Rows by position, in the order of their insertion.

    Neighbouring batches of similar size are merged, so n rows are in O(log n) batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Bytes of the values."""
        return sum(batch.nbytes for batch in self._batches)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows at the end; their names may differ from those of the schema."""
        if not batch.num_rows:
            return
        self._rows += batch.num_rows
        batches = self._batches
        batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))
        while len(batches) > 1 and 2 * batches[-1].num_rows > batches[-2].num_rows:
            if batches[-1].nbytes + batches[-2].nbytes > _MERGED_BYTES_MAX:
                return
            batches[-2:] = [concat_rows(batches[-2:])]

    def take(self, positions: NDArray[np.integer[Any]]) -> pa.RecordBatch:
        """The rows at these positions."""
        if len(self._batches) == 1:
            return take_rows(self._batches[0], positions)
        rows: Any = pa.array(positions)
        table = pa.Table.from_batches(self._batches, self.schema)
        return batch_of_table(table.take(rows).combine_chunks())

    def keep(self, positions: NDArray[np.integer[Any]]) -> None:
        """Forget all other rows; the kept ones get positions 0, 1, ... in this order."""
        kept = self.take(positions)
        self._batches = [kept] if kept.num_rows else []
        self._rows = kept.num_rows
