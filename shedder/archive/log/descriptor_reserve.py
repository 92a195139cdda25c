"""File descriptors that are held for the log, so that connections cannot take the last ones."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

DESCRIPTORS = 2  # To begin a segment: its file, and its directory, which is synced.


class DescriptorReserve:
    """Open descriptors of a file, the null device by default. Closing them makes room for files.

    A reserve that could not be filled is filled after the next release.
    """

    def __init__(
        self, descriptors: int = DESCRIPTORS, path: str | os.PathLike[str] = os.devnull
    ) -> None:
        self._descriptors = descriptors
        self._path = path
        self._held: list[int] = []
        self._release = weakref.finalize(self, _close, self._held)  # A log may not be closed.
        self._fill()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Close the descriptors while the block runs."""
        _close(self._held)
        try:
            yield
        finally:
            self._fill()

    def close(self) -> None:
        """Close the descriptors for good."""
        self._descriptors = 0
        self._release()

    def _fill(self) -> None:
        with suppress(OSError):
            while len(self._held) < self._descriptors:
                self._held.append(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))


def _close(held: list[int]) -> None:
    while held:
        os.close(held.pop())
