"""Kept rows: the payload of a bottom-k sample, moved as the sample says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from synopses.bottom_k import Kept

_CHUNKS_MAX = 256  # small batches are put together before there are more


class KeptRows:
    """Rows of a stream in the order in which a bottom-k sample holds their keys."""

    def __init__(self, schema: pa.Schema, rows: pa.RecordBatch | None = None) -> None:
        """Begin empty, or with the rows of a stored sample."""
        self._schema = schema
        self._chunks: list[pa.RecordBatch] = [] if rows is None else [rows]

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def move(self, kept: Kept, batch: pa.RecordBatch | None = None) -> None:
        """Drop the rows that left and append those of the batch that entered."""
        if kept.old is not None:
            self._chunks = [_taken(self.together(), kept.old)]
        if batch is not None and len(kept.new):
            columns = _taken(batch, kept.new).columns
            self._chunks.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            if len(self._chunks) > _CHUNKS_MAX:
                self._chunks = [self.together()]

    def together(self) -> pa.RecordBatch:
        """All held rows as one batch."""
        if len(self._chunks) != 1:
            table = pa.Table.from_batches(self._chunks, self._schema).combine_chunks()
            empty = pa.RecordBatch.from_pylist([], self._schema)
            self._chunks = [*table.to_batches(), empty][:1]
        return self._chunks[0]


def _taken(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    indices: pa.Int64Array = pa.array(rows, pa.int64())
    return batch.take(indices)
