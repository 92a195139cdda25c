"""A disk that cannot read some files."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from shedder.archive.files.file_system import OsFiles, OsReadFile, ReadFile


class BadDisk(OsFiles):
    """The real file system, but reading a file of these names fails.

    bad: ends of their names. error: with which errno.
    """

    def __init__(self, error: int = errno.EIO) -> None:
        self.bad: set[str] = set()
        self.error = error

    def open(self, path: Path) -> ReadFile:
        return _BadFile(path, self.error) if self._is_bad(path) else super().open(path)

    def _is_bad(self, path: Path) -> bool:
        return path.name.endswith(tuple(self.bad))  # What is set aside has a longer name.


class _BadFile(OsReadFile):
    """A file of which every sector is bad."""

    def __init__(self, path: Path, error: int) -> None:
        super().__init__(path)
        self._error = OSError(error, os.strerror(error), str(path))

    def read(self, offset: int, length: int) -> bytes:
        raise self._error

    def read_into(self, offset: int, parts: Sequence[memoryview]) -> int:
        raise self._error
