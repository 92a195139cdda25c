"""Columns of 64-bit values as numpy sees them: their bits, where they are."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

Words = NDArray[np.int64]

_MAGNITUDE: Final = (1 << 63) - 1  # All bits of a double but its sign.
_MOST: Final = 0x7FF << 52  # Infinity among the ranks of doubles,
_LEAST: Final = ~_MOST  # and minus infinity.
_WORD: Final = struct.Struct("<q")
_DOUBLE_BITS: Final = struct.Struct("<d")

_DOUBLE: Final = pa.float64().id
_NONE: Final = np.frombuffer(b"", np.int64)
_IDS: Final = {pa.int64().id, _DOUBLE, pa.timestamp("us").id}


def is_of_words(kind: pa.DataType) -> bool:
    """Return whether values of a type are 64 bits each: BIGINT, DOUBLE, TIMESTAMP."""
    return kind.id in _IDS


def are_doubles(column: pa.Array[Any]) -> bool:
    """Return whether a column's bits are those of doubles."""
    return bool(column.type.id == _DOUBLE)


def words_of(column: pa.Array[Any]) -> Words | None:
    """The bits of each value, int64 [rows], read-only; None where one is NULL or not 64 bits."""
    if column.null_count or not is_of_words(column.type):
        return None
    data = column.buffers()[1]
    if data is None or not len(column):
        return _NONE
    words = np.frombuffer(memoryview(data), np.int64, len(column), 8 * column.offset)
    words.setflags(write=False)  # Arrow's buffers are writable otherwise.
    return words


@njit(nogil=True, cache=True)
def _ends(values: Words) -> tuple[int, int]:
    low, high = values[0], values[0]
    for row in range(1, values.size):
        value = values[row]
        low = value if value < low else low
        high = value if value > high else high
    return low, high


def ends_of(values: Words) -> tuple[int, int]:
    """The smallest and the largest of at least one integer."""
    low, high = _ends(values)
    return int(low), int(high)


@njit(nogil=True, cache=True)
def ascend(values: Words) -> bool:
    """Return whether no integer is below the one before it."""
    falls = False
    for row in range(1, values.size):
        falls |= values[row] < values[row - 1]
    return not falls


@njit(nogil=True, cache=True)
def _double_ends(bits: Words) -> tuple[int, int]:
    low, high = _MAGNITUDE, ~_MAGNITUDE
    for row in range(bits.size):
        rank = bits[row] ^ (bits[row] >> 63 & _MAGNITUDE)
        low = rank if rank < low else low
        high = rank if rank > high else high
    return low, high


def double_ends_of(bits: Words) -> tuple[float, float] | None:
    """The smallest and the largest of at least one double; None where any is NaN.

    Numbers are compared as integers, many at a time: with all but the sign of negative ones turned
    over their bits stand in the order of the values, and NaN stands beyond both infinities.
    """
    low, high = _double_ends(bits)
    if low < _LEAST or high > _MOST:
        return None
    return _double_of(low), _double_of(high)


def _double_of(rank: int) -> float:
    return float(_DOUBLE_BITS.unpack(_WORD.pack(rank ^ (rank >> 63 & _MAGNITUDE)))[0])


def compile_words() -> None:
    """Compile the kernels, or load them from the cache, before the first tuple comes."""
    ends_of(np.frombuffer(bytes(8), np.int64))
    ascend(np.frombuffer(bytes(8), np.int64))
    double_ends_of(np.frombuffer(bytes(8), np.int64))
