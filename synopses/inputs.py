"""Arrays as kernels take them: contiguous, aligned, read-only, of one dtype.

Numba compiles a kernel anew for each combination of layout and mutability. Arrow columns come
read-only, numpy ones writable; here all become read-only views, so that each kernel has exactly
one compiled form and nothing is compiled while the stream runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def as_input(array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """A read-only, contiguous view of the array; copied only when dtype or layout demand it."""
    flags = array.flags
    if array.dtype != dtype or not (flags.c_contiguous and flags.aligned):
        array = np.array(array, dtype=dtype, order="C")
    else:
        array = array.view()  # Asking whether it is writeable would warn for broadcast arrays.
    array.setflags(write=False)
    return array


UNGROUPED: NDArray[np.int32] = as_input(np.empty(0, np.int32), np.int32)


def as_ids(ids: NDArray[np.int32] | None) -> NDArray[np.int32]:
    """Group ids as kernels take them; no ids at all (None) mean that every tuple is in group 0."""
    return UNGROUPED if ids is None else as_input(ids, np.int32)
