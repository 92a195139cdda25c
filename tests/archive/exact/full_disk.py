"""A full disk: files of this process and of its children cannot grow beyond a few bytes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(bytes_max: int = 1 << 16) -> Iterator[None]:
    """Let writes beyond bytes_max of a file fail with EFBIG, as they do with ENOSPC on a full disk.

    A process that is started in the block has this limit for good.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
