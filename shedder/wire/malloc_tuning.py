"""The C heap, set up for messages of megabytes.

glibc gives freed memory above its thresholds back to the system at once, so that every big
message faults its pages in anew. Raising the thresholds made unary messages of 4 MiB up to five
times faster (docs/benchmarks.md); the price is some resident memory that is kept for the next.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of malloc.h
_KEEP_BYTES = 128 << 20  # free memory at the top of the heap
_PAD_BYTES = 64 << 20  # how much the heap grows at once; untouched pages cost nothing
_HEAP_BYTES = 32 << 20  # larger blocks are mapped and unmapped; glibc allows no more than this


@lru_cache(maxsize=1)
def keep_big_blocks() -> bool:
    """Tell the heap to keep what is freed; once per process. False where there is no mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = (
        (_TRIM_THRESHOLD, _KEEP_BYTES),
        (_MMAP_THRESHOLD, _HEAP_BYTES),
        (_TOP_PAD, _PAD_BYTES),
    )
    taken = [mallopt(option, value) == 1 for option, value in wanted]
    return all(taken)
