"""Kept rows: the payload of a bottom-k sample, moved as the sample says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.streams.column_bits import is_of_words
from shedder.streams.fixed_width_rows import PlainRows
from shedder.streams.frame import Frame
from synopses.samples.bottom_k import Kept

_CHUNKS_MAX = 256  # small batches are put together before there are more


class KeptRows:
    """Rows of a stream in the order in which a bottom-k sample holds their keys."""

    def __init__(self, schema: pa.Schema, rows: pa.RecordBatch | None = None) -> None:
        """Begin empty, or with the rows of a stored sample."""
        self._schema = schema
        self._chunks: list[pa.RecordBatch] = [] if rows is None else [rows]
        self._chunk_bytes = sum(chunk.nbytes for chunk in self._chunks)
        self._plain = PlainRows(schema) if all(map(is_of_words, schema.types)) else None

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        return self._chunk_bytes + (0 if self._plain is None else self._plain.size_bytes)

    @property
    def content_bytes(self) -> int:
        """Bytes of the rows, without room for more."""
        return self._chunk_bytes + (0 if self._plain is None else self._plain.content_bytes)

    def move(self, kept: Kept, frame: Frame | None = None) -> None:
        """Drop the rows that left and append those of the frame that entered."""
        if kept.old is not None and self._plain is not None and not self._chunks:
            self._plain.keep(kept.old)
        elif kept.old is not None:
            self._take(kept.old)
        if frame is not None and len(kept.new):
            self._append(frame, kept.new)

    def _append(self, frame: Frame, rows: NDArray[np.int64]) -> None:
        words = None if self._plain is None else frame.words
        if self._plain is not None and words is not None:
            self._plain.append(words, rows)
            return
        self._drain()
        columns = _taken(frame.batch, rows).columns
        self._add(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        if len(self._chunks) > _CHUNKS_MAX:
            self.together()

    def _add(self, chunk: pa.RecordBatch) -> None:
        self._chunks.append(chunk)
        self._chunk_bytes += chunk.nbytes

    def _take(self, rows: NDArray[np.int64]) -> None:
        """Keep these rows, ascending. One chunk after the other: none is held twice for long."""
        self._drain()
        first = 0
        for at, chunk in enumerate(self._chunks):
            ends = np.searchsorted(rows, (first, first + chunk.num_rows))
            self._chunks[at] = _taken(chunk, rows[slice(*ends)] - first)
            first += chunk.num_rows
        self._chunks = [chunk for chunk in self._chunks if chunk.num_rows]
        self._chunk_bytes = sum(chunk.nbytes for chunk in self._chunks)

    def _drain(self) -> None:
        """What has come as plain rows stands behind the chunks."""
        if self._plain is not None and len(self._plain):
            self._add(self._plain.drain())

    def together(self) -> pa.RecordBatch:
        """All held rows as one batch."""
        self._drain()
        if len(self._chunks) != 1:
            table = pa.Table.from_batches(self._chunks, self._schema).combine_chunks()
            empty = pa.RecordBatch.from_pylist([], self._schema)
            self._chunks = [*table.to_batches(), empty][:1]
            self._chunk_bytes = self._chunks[0].nbytes
        return self._chunks[0]


def _taken(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    indices: pa.Int64Array = pa.array(rows, pa.int64())
    return batch.take(indices)
