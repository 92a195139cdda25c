"""Histogram of the sizes of a stream's rows in bytes, over all tuples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

CUT_SHARE: Final = 0.75  # A cut of a sample leaves a quarter of the bytes free, for wider rows.
_CLASSES_PER_OCTAVE: Final = 4  # A row is counted at up to 1.25 times its size.
_OCTAVES: Final = 32  # Up to 4 GiB.
_CLASSES: Final = _CLASSES_PER_OCTAVE * _OCTAVES
_STEPS: Final = 1.0 + np.arange(1, _CLASSES_PER_OCTAVE + 1) / _CLASSES_PER_OCTAVE
_ENDS: Final = (2.0 ** np.arange(_OCTAVES)[:, None] * _STEPS).ravel()  # No row of a class reaches.
_TABLE: Final = np.searchsorted(_ENDS, np.arange(1 << 16), side="right").astype(np.uint8)
_OFFSET_BYTES: Final = 4  # Of a text, beside its characters.
_RARE_LOG: Final = 18.0  # -log(1.5e-8), of one class or one split; there are 2 * 128 of these.


@njit(nogil=True, cache=True)
def _add_lengths(offsets: NDArray[np.int32], sizes: NDArray[np.int64]) -> None:
    for row in range(sizes.size):
        sizes[row] += offsets[row + 1] - offsets[row]


@njit(nogil=True, cache=True)
def _count(sizes: NDArray[np.int64], table: NDArray[np.uint8], counts: NDArray[np.int64]) -> int:
    """Count each size in its class.

    Returns:
      the greatest size.
    """
    greatest = 0
    for row in range(sizes.size):
        size, octaves = sizes[row], 0
        greatest = max(greatest, size)
        while size >= table.size:
            size >>= 1
            octaves += 1
        counts[table[size] + _CLASSES_PER_OCTAVE * octaves] += 1
    return greatest


def fixed_bytes(schema: pa.Schema) -> int:
    """Return the bytes of a row of this schema with empty texts."""
    return sum(
        _OFFSET_BYTES if _is_text(kind) else -(-kind.bit_width // 8) for kind in schema.types
    )


def row_bytes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the bytes of each row: int64 [rows]."""
    sizes = np.full(batch.num_rows, fixed_bytes(batch.schema), np.int64)
    for column in batch.columns:
        if _is_text(column.type) and len(sizes):
            _add_lengths(_offsets(column), sizes)
    return sizes


def compile_row_sizes() -> None:
    """Compile the kernels, or load them from the cache, before the first tuple comes."""
    texts: pa.StringArray = pa.array([""])
    batch = pa.RecordBatch.from_arrays([texts], names=["text"])
    RowSizes.of(batch.schema).update(batch)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind))


def _offsets(column: pa.Array[Any]) -> NDArray[np.int32]:
    """int32 [rows + 1], of at least one row; read-only."""
    data = column.buffers()[1]
    assert data is not None
    offsets = np.frombuffer(memoryview(data), np.int32, len(column) + 1, 4 * column.offset)
    offsets.setflags(write=False)
    return offsets


@dataclass(slots=True, eq=False)
class RowSizes:
    """Counts of all tuples by size class, kept or not: a sample's size may depend on them.

    fixed_bytes: bytes of a row with empty texts. has_texts: rows may be larger.
    counts: int64 [classes], tuples of each class. greatest_bytes: no row is larger.
    """

    fixed_bytes: int
    has_texts: bool
    counts: NDArray[np.int64]
    greatest_bytes: int

    @classmethod
    def of(cls, schema: pa.Schema) -> Self:
        """Begin with no tuples."""
        least, has_texts = fixed_bytes(schema), any(map(_is_text, schema.types))
        return cls(least, has_texts, np.zeros(_CLASSES, np.int64), least)

    @classmethod
    def like(cls, rows: pa.RecordBatch, population: int) -> Self:
        """Estimate the sizes of this many tuples from a simple random sample of their rows."""
        made = cls.of(rows.schema)
        if rows.num_rows:
            made.update(rows)
            made.counts = made.counts * population // rows.num_rows
            made.counts[np.argmax(made.counts)] += population - made.rows
        return made

    @property
    def rows(self) -> int:
        """Tuples so far."""
        return int(self.counts.sum())

    def update(self, batch: pa.RecordBatch) -> NDArray[np.int64] | None:
        """Count the rows of a batch.

        Returns:
          int64 [rows], the size of each row; None where all rows have `fixed_bytes`.
        """
        if not self.has_texts:
            self.counts[np.searchsorted(_ENDS, self.fixed_bytes, side="right")] += batch.num_rows
            return None
        sizes = row_bytes(batch)
        self.greatest_bytes = max(self.greatest_bytes, _count(sizes, _TABLE, self.counts))
        return sizes

    def bytes_of(self, rows: int) -> float:
        """Return the bytes that a simple random sample of this many rows does not exceed.

        It does with probability 1e-5 at most. The largest classes are bounded by their number of
        rows in the sample (Bernstein for counts), all smaller ones together by their mean and
        second moment; the split with the least bound counts.
        Source: Hoeffding 1963, J. ASA 58, Theorem 4 (without replacement); Bernstein 1946.
        """
        counts, total = self.counts.astype(np.float64), self.rows
        ends = np.minimum(_ENDS, self.greatest_bytes)
        if rows >= total:
            return float(counts @ ends)
        mean = counts * (rows / total)
        most = np.minimum(counts, np.minimum(rows, mean + _excess(mean, 1.0)))
        above = np.append(np.cumsum((most * ends)[::-1])[::-1], 0.0)  # At i: of classes i and on.
        means = np.cumsum(mean * ends)
        whole = np.cumsum(counts * ends)
        below = np.minimum(whole, means + _excess(np.cumsum(mean * ends * ends), ends))
        return float(min(rows * self.greatest_bytes, above[0], (below + above[1:]).min()))

    def rows_within(self, size_bytes: float, most: int) -> int:
        """Return the rows of the largest sample, 1 to `most`, that fits into these bytes."""
        low, high = 1, most + 1  # Low fits, or is the least; high does not.
        while high - low > 1:
            middle = (low + high) // 2
            if self.bytes_of(middle) <= size_bytes:
                low = middle
            else:
                high = middle
        return low

    def to_json(self) -> dict[str, Any]:
        """The state as `restore` reads it."""
        seen = np.flatnonzero(self.counts)
        return {
            "classes": seen.tolist(),
            "counts": self.counts[seen].tolist(),
            "greatest": self.greatest_bytes,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `to_json`; no tuple was counted here yet."""
        self.counts[state["classes"]] = state["counts"]
        self.greatest_bytes = state["greatest"]


def _excess(variance: Any, step: Any) -> Any:
    """Return the excess of a sum over its mean that has probability exp(-_RARE_LOG).

    Args:
      variance: an upper bound of the variance of the sum. step: the largest value of a term.
    """
    third = _RARE_LOG * step / 3.0
    return third + np.sqrt(third * third + 2.0 * _RARE_LOG * variance)
