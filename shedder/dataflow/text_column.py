"""Text column: append-only Arrow text, read by position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_MERGED_BYTES_MAX = 1 << 30  # Arrow text has 32-bit offsets: a merged chunk stays far below 2^31.


class TextColumn:
    """Texts in chunks. Neighbours of similar size are merged, so n rows are in O(log n) chunks."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array[Any]] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of the texts."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def append(self, values: pa.Array[Any]) -> None:
        """Add texts at the end."""
        if not len(values):
            return
        chunks = self._chunks
        chunks.append(values)
        while len(chunks) > 1 and 2 * len(chunks[-1]) > len(chunks[-2]):
            if chunks[-1].nbytes + chunks[-2].nbytes > _MERGED_BYTES_MAX:
                return
            chunks[-2:] = [pa.concat_arrays(chunks[-2:])]

    def take(self, positions: NDArray[np.integer[Any]]) -> pa.Array[Any]:
        """The texts at these positions."""
        rows: Any = pa.array(positions)
        if len(self._chunks) == 1:
            return self._chunks[0].take(rows)
        taken: Any = pa.chunked_array(self._chunks, pa.string()).take(rows)
        whole = taken.combine_chunks()
        return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole

    def newer(self, first: int) -> TextColumn:
        """A column of the texts from a position on."""
        made = TextColumn()
        size = sum(map(len, self._chunks))
        if first < size:
            made.append(self.take(np.arange(first, size)))
        return made
