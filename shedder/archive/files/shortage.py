"""Shortages of descriptors, threads and memory, found in the errors that they caused."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from shedder.archive.files.file_system import DESCRIPTOR_ERRNOS, SHORT_ERRNOS
from shedder.errors import ResourcesShort


def shortage_in(error: BaseException) -> ResourcesShort | None:
    """Return the shortage of descriptors or memory that an error came from, else None."""
    for cause in _causes(error):
        if isinstance(cause, ResourcesShort):
            return cause
        if isinstance(cause, OSError) and cause.errno in SHORT_ERRNOS:
            return ResourcesShort(f"{_strerror(cause)}; the same request may work later")
        if isinstance(cause, MemoryError):
            return ResourcesShort("memory is short; the same request may work later")
        if isinstance(cause, RuntimeError) and "can't start new thread" in str(cause):
            return ResourcesShort("no thread could be started; the same request may work later")
    return None


def has_descriptors() -> bool:
    """Return whether a file can be opened now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in DESCRIPTOR_ERRNOS
    return True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and the errors that it was raised from."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _strerror(error: OSError) -> str:
    assert error.errno is not None
    return f"{os.strerror(error.errno)} ({errno.errorcode[error.errno]})"
