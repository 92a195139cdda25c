"""Consecutive rows of a file, with their numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """Some rows of a file.

    numbers: int64 [rows], ascending; the row after a header is 1.
    batch: their columns. Those of a text file are text as it is written.
    """

    numbers: NDArray[np.int64]
    batch: pa.RecordBatch


def numbered(start: int, batch: pa.RecordBatch) -> NumberedRows:
    """Number rows without gaps, from `start` on."""
    return NumberedRows(np.arange(start, start + batch.num_rows, dtype=np.int64), batch)
