"""Rows of 64-bit columns without NULL, picked from batches one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.streams.column_bits import Words

_ROOM_MIN = 1_024


class PlainRows:
    """Rows as arrays that grow: few rows of many batches cost little each.

    words: int64 [columns, room], the bits of the values; the first `size` of each are rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Begin empty. schema: all of its columns are of 64-bit values."""
        self._schema = schema
        self._words = np.empty((len(schema), 0), np.int64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        return self._words.nbytes

    @property
    def content_bytes(self) -> int:
        """Bytes of the rows, without room for more."""
        return self._size * self._words.itemsize * len(self._words)

    def append(self, columns: Sequence[Words], rows: NDArray[np.int64]) -> None:
        """Append these rows of columns, one int64 [n] for each of the schema."""
        size = self._size + len(rows)
        if size > self._words.shape[1]:
            wider = self._room_for(size)
            wider[:, : self._size] = self._words[:, : self._size]
            self._words = wider
        for words, column in zip(self._words, columns, strict=True):
            column.take(rows, out=words[self._size : size], mode="clip")
        self._size = size

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Drop all but these rows; they stand in this order."""
        kept = self._room_for(len(rows))
        for words, held in zip(kept, self._words, strict=True):
            held.take(rows, out=words[: len(rows)], mode="clip")
        self._words, self._size = kept, len(rows)

    def _room_for(self, rows: int) -> NDArray[np.int64]:
        return np.empty((len(self._schema), max(2 * rows, _ROOM_MIN)), np.int64)

    def drain(self) -> pa.RecordBatch:
        """All rows; none are left."""
        rows, kinds = self._words[:, : self._size].copy(), self._schema.types
        columns = [pa.array(column).view(kind) for column, kind in zip(rows, kinds, strict=True)]
        self._words, self._size = np.empty((len(self._schema), 0), np.int64), 0
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
