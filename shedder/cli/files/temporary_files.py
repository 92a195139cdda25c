"""Temporary files of a load: a full disk becomes an error that names TMPDIR."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shedder.errors import ResourceExhausted

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def written_in(directory: Path) -> Iterator[None]:
    """Write temporary files in a directory.

    Raises:
      ResourceExhausted: its disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.errno not in _FULL:
            raise
        problem = os.strerror(error.errno)
        raise exhausted("rows cannot be kept", directory, problem) from error


def exhausted(failure: str, directory: Path, problem: str) -> ResourceExhausted:
    """The error of a load that needs more space than a directory of temporary files has."""
    return ResourceExhausted(f"{failure} in {directory}: {problem}. TMPDIR names another directory")
