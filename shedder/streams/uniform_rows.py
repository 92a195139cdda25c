"""A uniform sample of a stream's rows in bounded memory: bottom-k by random keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.streams.frame import Frame
from shedder.streams.row_sizes import CUT_SHARE, RowSizes
from shedder.streams.sample_payload import KeptRows
from synopses.kernels.radix_sort import smallest
from synopses.samples.bottom_k import KEY_MAX, BottomK
from synopses.samples.regrowth import surely_held


class UniformRows:
    """The rows with the smallest random keys, as many as fit into rows and bytes.

    How many are kept follows from the sizes of all tuples (`RowSizes`), kept or not, and never from
    keys or from the rows that are kept. Given their number the rows are a simple random sample
    without replacement, whatever their sizes depend on. Cutting the sample when the kept rows
    exceed a size would keep too few wide rows.

    After a cut to fewer rows the sample may grow again: see `regrowth.surely_held`. Until then,
    `_cut` has how many rows that cut kept, and of how many tuples; the sample read is a part of the
    rows held. None: all of the k smallest keys are held.
    """

    def __init__(self, schema: pa.Schema, rows: int) -> None:
        """Begin empty. rows: to keep at most; twice as many are held between cuts."""
        self.rows_max = rows
        self._sample = BottomK(rows)
        self._rows = KeptRows(schema)
        self._cut: tuple[int, int] | None = None

    @property
    def k(self) -> int:
        """Return how many rows of a long stream are kept, with the present sizes."""
        return self._sample.k

    @property
    def size_bytes(self) -> int:
        """Bytes held by keys and rows."""
        return self._sample.size_bytes + self._rows.size_bytes

    @property
    def cut(self) -> tuple[int, int] | None:
        """Rows and tuples of the last cut, while the sample grows after it."""
        return self._cut

    @property
    def shuffle_seed(self) -> int:
        """Return random bits that depend on no value of a row: the keys of all held rows."""
        return int(np.bitwise_xor.reduce(self._sample.keys))

    def update(self, keys: NDArray[np.uint64], frame: Frame, population: int) -> None:
        """Offer the rows of a frame. population: tuples so far, these included."""
        self._rows.move(self._sample.update(keys), frame)
        if self._cut is not None and self._readable(population) == self.k:
            self._cut = None

    def fit(self, sizes: RowSizes, size_bytes: float) -> None:
        """Hold at most this many bytes. sizes: of all tuples that were offered."""
        k, most = self.k, self.rows_max
        if sizes.greatest_bytes * 2 * most <= size_bytes:
            self._resize(most, sizes.rows)
        elif sizes.bytes_of(2 * k) > size_bytes:
            self._resize(max(1, sizes.rows_within(CUT_SHARE * size_bytes, 2 * k) // 2), sizes.rows)
        elif k < most and sizes.bytes_of(4 * k) <= size_bytes:
            self._resize(min(2 * k, most), sizes.rows)

    def together(self, population: int) -> pa.RecordBatch:
        """Return the sample as one batch."""
        if self._cut is None:
            self._settle()
            return self._rows.together()
        rows, readable = self._rows.together(), self._readable(population)
        if readable >= rows.num_rows:
            return rows
        chosen, _ = smallest(self._sample.keys, readable)
        return rows.take(pa.array(chosen, pa.int64()))

    def state(self) -> tuple[bytes, pa.RecordBatch]:
        """Return the keys as bytes and the rows; with `cut` they are all that `restore` needs."""
        if self._cut is None:
            self._settle()
        return self._sample.to_bytes(), self._rows.together()

    def restore(self, keys: bytes, rows: KeptRows, cut: tuple[int, int] | None) -> None:
        """Go on from a stored state."""
        self._sample, self._rows, self._cut = BottomK.from_bytes(keys), rows, cut

    def _settle(self) -> None:
        self._rows.move(self._sample.settle())

    def _readable(self, population: int) -> int:
        """Return the number of rows of the sample; it depends on counts of tuples alone."""
        if self._cut is None:
            return min(self.k, population)
        base, before = (np.array(each) for each in self._cut)
        return min(self.k, int(surely_held(base, before, np.array(population))))

    def _resize(self, k: int, population: int) -> None:
        if k == self.k:
            return
        if k < self.k or self._cut is None:
            rows = max(1, min(k, self._readable(population)))
            self._rows.move(self._sample.resize(rows))  # The threshold is the next smallest key.
            has_cut = self._sample.threshold != KEY_MAX
            self._cut = (rows, population) if has_cut and rows < k else None
        self._sample.resize(k)
