"""Tables of 64-bit words whose first row begins a cache line.

Rows of 32 bytes are then in one line each. Without it every second one may be in two, and the
second line is not fetched ahead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LINE_BYTES = 64


def aligned_table(rows: int, columns: int) -> NDArray[np.int64]:
    """A table of any words: int64 [rows, columns]."""
    size, line = rows * columns, _LINE_BYTES // 8
    held = np.empty(size + line, np.int64)
    first = -held.ctypes.data % _LINE_BYTES // 8
    return held[first : first + size].reshape(rows, columns)
