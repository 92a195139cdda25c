"""Connection limit that follows from the file descriptors of the server process."""

from __future__ import annotations

import os
import resource
from contextlib import suppress

from shedder.errors import ResourcesShort

FILES_MAX = 512  # Descriptors reserved for files, pipes and threads, at most.
FREE_MIN = 16  # gRPC takes six to listen (grpcio 1.82), a question's worker three.


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open descriptors to the hard limit, where the system allows it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS has no infinite limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_allowed(wanted: int) -> int:
    """Return how many connections the server may accept, at most as many as wanted.

    Half of the free descriptors are left to files, but at most FILES_MAX.

    Raises:
      ResourcesShort: too few are free to serve at all.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted
    return allowed(wanted, limit=limit, in_use=len(open_descriptors()))


def allowed(wanted: int, *, limit: int, in_use: int) -> int:
    """Return how many connections a limit of descriptors allows.

    Raises:
      ResourcesShort: too few are free to serve at all.
    """
    free = limit - in_use
    if free < FREE_MIN:
        raise ResourcesShort(
            f"too many open files: {in_use}, and the limit is {limit} (ulimit -n); a server needs "
            f"{FREE_MIN} more"
        )
    return min(wanted, free - min(FILES_MAX, free // 2))


def open_descriptors() -> list[int]:
    """Return the descriptors of this process."""
    return [int(name) for name in os.listdir("/dev/fd")]
