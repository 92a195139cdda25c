"""Columns of 64-bit values as numpy sees them: their bits, where they are."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

Words = NDArray[np.int64]

_DOUBLE: Final = pa.float64().id
_IDS: Final = {pa.int64().id, _DOUBLE, pa.timestamp("us").id}


def is_of_words(kind: pa.DataType) -> bool:
    """Whether values of a type are 64 bits each: BIGINT, DOUBLE, TIMESTAMP."""
    return kind.id in _IDS


def are_doubles(column: pa.Array[Any]) -> bool:
    """Whether a column's bits are those of doubles."""
    return bool(column.type.id == _DOUBLE)


def words_of(column: pa.Array[Any]) -> Words | None:
    """The bits of each value, int64 [rows], read-only; None where one is NULL or not 64 bits."""
    if column.null_count or not is_of_words(column.type):
        return None
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.empty(0, np.int64)
    return np.frombuffer(memoryview(data), np.int64, len(column), 8 * column.offset)


@njit(nogil=True, cache=True)
def _ends(values: Words) -> tuple[int, int, bool]:
    low, high, falls = values[0], values[0], False
    for row in range(1, values.size):
        value, before = values[row], values[row - 1]
        falls |= value < before
        low = value if value < low else low
        high = value if value > high else high
    return low, high, not falls


def ends_of(values: Words) -> tuple[int, int, bool]:
    """The smallest and the largest of at least one integer, and whether none is below the last."""
    low, high, ascending = _ends(values)
    return int(low), int(high), bool(ascending)


def compile_words() -> None:
    """Compile the kernel, or load it from the cache, before the first tuple comes."""
    ends_of(np.frombuffer(bytes(8), np.int64))
