"""Deleted rows: which positions of a run are read no more, and what was deleted when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.metadata.catalog_entries import Run


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deleted rows of one run.

    rows: how many that are still in its file. packed: a bit for each position of the run, in
    order, as zstd.
    """

    rows: int
    packed: bytes

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> Self:
        """From bool [run.stretch], true where a position is deleted."""
        bits = np.packbits(mask).tobytes()
        return cls(int(np.count_nonzero(mask)), pa.compress(bits, "zstd", asbytes=True))

    def mask(self, run: Run) -> NDArray[np.bool_]:
        """Return which positions of the run are deleted, bool [run.stretch]."""
        size = (run.stretch + 7) // 8
        bits = pa.decompress(self.packed, size, "zstd", asbytes=True)
        return np.unpackbits(np.frombuffer(bits, np.uint8), count=run.stretch).astype(np.bool_)

    def without(self, purged: Self, run: Run) -> Self:
        """What is left of the marks once some of the rows are no longer there."""
        return type(self).of(self.mask(run) & ~purged.mask(run))

    def positions(self, run: Run) -> NDArray[np.int64]:
        """The deleted positions in order, int64 [rows]."""
        return np.flatnonzero(self.mask(run)) + run.first_position


@dataclass(frozen=True, slots=True)
class Deletion:
    """One DELETE that was carried out.

    text: the statement. rows: that it deleted. low_us, high_us: the runs that they were in have
    event times in there. position: all of them were below it. deleted_us: when.
    """

    stream_id: int
    text: str
    rows: int
    low_us: int
    high_us: int
    position: int
    deleted_us: int

    def overlaps(self, start_us: int | None, end_us: int | None) -> bool:
        """Return whether a deleted row may have been in [start_us, end_us); None is unbounded."""
        return (end_us is None or self.low_us < end_us) and (
            start_us is None or self.high_us >= start_us
        )
