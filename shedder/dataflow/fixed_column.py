"""Fixed-width column: append-only values of numbers, times and truth values, with NULLs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from synopses.kernels.prefetch import prefetch

_ROWS_MIN = 64
_AHEAD = 32  # Rows between bringing a value near and reading it.
_WORDS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}  # By bytes, for the kernel.


@njit(
    [f"void({each}[::1], int64[::1], {each}[::1])" for each in ("int8", "int16", "int32", "int64")],
    nogil=True,
    cache=True,
)
def _gather(values: NDArray[Any], positions: NDArray[np.int64], taken: NDArray[Any]) -> None:
    """Write the values at these positions. Out of cache it has 2 to 3 times the rate of `take`."""
    last = positions.size - 1
    for row in range(positions.size):
        prefetch(values, positions[min(row + _AHEAD, last)])
        taken[row] = values[np.uint64(positions[row])]


class FixedColumn:
    """Values in one numpy array that grows by doubling; a second one says which are NULL."""

    def __init__(self, kind: pa.DataType) -> None:
        """An empty column. kind: BOOLEAN, a number, TIMESTAMP or DATE."""
        self._kind = kind
        self._plain = _plain_type(kind)
        self._size = 0
        self._values: NDArray[Any] = np.empty(_ROWS_MIN, self._plain.to_pandas_dtype())
        self._nulls = np.empty(_ROWS_MIN, np.bool_)
        self._nulls_end = 0  # No value from this position on is NULL.

    @property
    def size_bytes(self) -> int:
        """Bytes of the values."""
        return self._values.nbytes + self._nulls.nbytes

    @property
    def words(self) -> NDArray[np.int64] | None:
        """The bits of all values; None: they have not 64 bits, or one behind the first is NULL."""
        if self._values.itemsize < 8 or self._nulls_end > 1:
            return None
        return self._values[: self._size].view(np.int64)

    def append(self, values: pa.Array[Any]) -> None:
        """Add values at the end."""
        size = self._size + len(values)
        if size > len(self._values):
            self._values = _widened(self._values, 2 * size)
            self._nulls = _widened(self._nulls, 2 * size)
        rows = slice(self._size, size)
        self._values[rows] = plain_values(values)
        self._nulls[rows] = values.is_null() if values.null_count else False
        if values.null_count:
            self._nulls_end = size
        self._size = size

    def newer(self, first: int) -> FixedColumn:
        """A column of the values from a position on, with room for as many more."""
        made, rows = FixedColumn(self._kind), slice(first, self._size)
        room = room_for(self._size - first)
        made._values = _widened(self._values[rows], room)
        made._nulls = _widened(self._nulls[rows], room)
        made._size, made._nulls_end = self._size - first, max(0, self._nulls_end - first)
        return made

    def take(self, positions: NDArray[np.integer[Any]]) -> pa.Array[Any]:
        """The values at these positions."""
        places = np.ascontiguousarray(positions, np.int64)
        values = _gathered(self._values, places)
        end = self._nulls_end
        has_nulls = end > 0 and bool(places.min(initial=end) < end)
        nulls = _gathered(self._nulls, places) if has_nulls else None
        return values_of_numbers(values, self._kind, nulls)


def room_for(rows: int) -> int:
    """Return the room of arrays of rows of which the oldest are dropped when half of them left."""
    return max(_ROWS_MIN, 9 * rows // 4)  # Twice as many, and those of a step.


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_boolean(kind):
        return pa.int8()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def plain_values(column: Any) -> NDArray[Any]:
    """The values as numbers: times as their integers, truth values as 0 and 1, NULL as 0."""
    plain = _plain_type(column.type)
    if pa.types.is_boolean(column.type):
        column = column.cast(plain)
    elif column.type != plain:
        column = column.view(plain)
    filled: Any = pc.fill_null(column, 0) if column.null_count else column
    values: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return values


def values_of_numbers(
    values: NDArray[Any], kind: pa.DataType, nulls: NDArray[np.bool_] | None
) -> pa.Array[Any]:
    """Return a column from what `plain_values` gives of it. nulls: where it is NULL; None: not."""
    plain = _plain_type(kind)
    column: Any = pa.array(values.astype(plain.to_pandas_dtype(), copy=False), plain, mask=nulls)
    if kind != plain:
        column = column.cast(kind) if pa.types.is_boolean(kind) else column.view(kind)
    array: pa.Array[Any] = column
    return array


def _gathered(values: NDArray[Any], places: NDArray[np.int64]) -> NDArray[Any]:
    taken = np.empty(len(places), values.dtype)
    words = _WORDS[values.itemsize]
    _gather(values.view(words), places, taken.view(words))
    return taken


def _widened(array: NDArray[Any], rows: int) -> NDArray[Any]:
    wide = np.empty(rows, array.dtype)  # Without zeros: what is not used has no pages.
    wide[: len(array)] = array
    return wide
