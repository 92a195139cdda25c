"""Arrays as kernels take them: contiguous, aligned, read-only, of one dtype.

Numba compiles a kernel anew for each combination of layout and mutability. Arrow columns come
read-only, numpy ones writable; here all become read-only views, so that each kernel has exactly
one compiled form and nothing is compiled while the stream runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from synopses.model.errors import BadParameter

_PLAIN = 0x101  # NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED, as numpy/ndarraytypes.h has them,
_WRITEABLE = 0x400  # and NPY_ARRAY_WRITEABLE.


def as_input(array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """A read-only, contiguous view of the array; copied only when dtype or layout demand it.

    Raises:
      BadParameter: its values are not all values of the dtype (2.5 and 2^40 are no int32).
    """
    kind, flags = array.dtype, array.flags.num  # Asking for one by name may warn, and takes longer.
    if (kind.type is not dtype or not kind.isnative) and kind != dtype:
        array = _converted(array, np.dtype(dtype))
    elif flags & _WRITEABLE == 0 and flags & _PLAIN == _PLAIN:
        return array
    elif flags & _PLAIN != _PLAIN:
        array = np.array(array, order="C")
    else:
        array = array.view()
    array.setflags(write=False)
    return array


def as_column(array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """The same of what a caller gives as a column.

    Raises:
      BadParameter: as above, or it has not one axis.
    """
    if array.ndim != 1:
        raise BadParameter("shape of a column", array.shape, "one axis")
    return as_input(array, dtype)


def _converted(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise BadParameter("dtype of an array", str(array.dtype), str(dtype))
    made = np.array(array, dtype=dtype, order="C")
    if not np.can_cast(array.dtype, dtype, "safe") and dtype.kind in "iu":
        changed = np.flatnonzero(made != array)
        if changed.size:
            raise BadParameter("a number", int(array[changed[0]]), f"an {dtype}")
    return made


UNGROUPED: NDArray[np.int32] = as_input(np.empty(0, np.int32), np.int32)


def as_ids(ids: NDArray[np.int32] | None, rows: int, groups: int) -> NDArray[np.int32]:
    """Group ids as kernels take them; no ids at all (None) mean that every tuple is in group 0.

    Args:
      ids: int32 [rows].
      rows: how many tuples there are.
      groups: how many groups the summary has; a kernel would write to the memory behind them.

    Raises:
      BadParameter: there are more or fewer ids than tuples, or one is not 0 to groups - 1.
    """
    if ids is None:
        return UNGROUPED
    taken = as_unchecked_ids(ids, rows)
    if largest_id(taken) >= groups:
        outside = taken[(taken < 0) | (taken >= groups)]
        raise BadParameter("group id", int(outside[0]), f"0 to {groups - 1}: grow() makes room")
    return taken


def as_unchecked_ids(ids: NDArray[np.int32], rows: int) -> NDArray[np.int32]:
    """The same for kernels that see themselves whether each id is that of a group.

    Raises:
      BadParameter: there are more or fewer ids than tuples.
    """
    if ids.shape != (rows,):
        same_rows(rows, ids=ids)
    return as_input(ids, np.int32)


def same_rows(rows: int, **columns: NDArray[Any]) -> None:
    """All columns must have so many rows.

    Raises:
      BadParameter: one has not.
    """
    for name, column in columns.items():
        if column.shape != (rows,):
            raise BadParameter(f"shape of {name}", column.shape, f"{(rows,)}, as the others")


@njit(nogil=True, cache=True)
def largest_id(ids: NDArray[np.int32]) -> np.int64:
    """The largest id, a negative one being beyond all others; -1 of none."""
    most = np.uint32(0)
    for row in range(ids.size):
        most = max(most, np.uint32(ids[row]))
    return np.int64(most) if ids.size else np.int64(-1)
