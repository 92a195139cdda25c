"""A full disk: files of a process cannot grow beyond a few bytes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(bytes_max: int = 1 << 16, *, process: int = 0) -> Iterator[None]:
    """Let writes beyond bytes_max of a file fail with EFBIG, as they do with ENOSPC on a full disk.

    Args:
      bytes_max: largest size of a file that the process writes.
      process: its id; 0: this one.
    """
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))
