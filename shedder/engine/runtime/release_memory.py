"""Return of free heap memory to the operating system."""

from __future__ import annotations

import ctypes

import pyarrow as pa


def give_back() -> bool:
    """Return unused memory of Arrow's pool and the C heap to the system; False if not supported."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
