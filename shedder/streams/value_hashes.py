"""Hashes of values: what counters of distinct values and keys of groups are made of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from synopses.kernels.hashing import murmur_float64, murmur_int64, murmur_utf8


def hash_values(values: object) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """DataSketches' hash of numbers or of Arrow text without nulls. -> two uint64 [values]."""
    if isinstance(values, np.ndarray):
        if values.dtype == np.float64:
            return murmur_float64(values)
        return murmur_int64(values)
    assert isinstance(values, pa.StringArray)
    if len(values) == 0:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    _, offsets, data = values.buffers()
    assert offsets is not None
    starts = np.frombuffer(memoryview(offsets), np.int32)
    text = np.empty(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)
    return murmur_utf8(starts[values.offset : values.offset + len(values) + 1], text)
