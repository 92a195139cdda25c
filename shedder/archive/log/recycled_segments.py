"""Files of dropped segments, kept for the next ones to be written over them.

Writing over a file needs no new blocks and, while the system still caches it, no new memory.
docs/archive_format.md says why a power loss at any moment does no harm.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path

from shedder.archive.files.file_system import Files

SPARES_MAX = 16  # Of 64 MiB: what a few hundred MB/s write between two checkpoints.
_SUFFIX = ".spare"
_NAME = re.compile(r"\d{20}\.spare")


class Spares:
    """The spare files of one log. Safe to call from any thread."""

    def __init__(self, files: Files, directory: Path) -> None:
        """Begin without any.

        Raises:
          OSError: those of a former process could not be deleted.
        """
        self._files = files
        self._directory = directory
        self._lock = threading.Lock()
        self._free: list[Path] = []
        self._renamed: list[Path] = []  # not durably yet
        self._is_needed = True
        for name in files.names(directory):
            if _NAME.fullmatch(name):
                files.unlink(directory / name)

    def take(self) -> Path | None:
        """A file to write over, which is the caller's now; None when there is none."""
        with self._lock:
            self._is_needed = True
            return self._free.pop() if self._free else None

    def keep(self, path: Path) -> bool:
        """Make a dropped segment's file a spare one, which is offered after `settle`.

        Returns:
          False, and nothing has changed, where there are enough of them, or the file has another
          name (a backup's, perhaps) whose bytes must stay.

        Raises:
          OSError: it has its old name still.
        """
        with self._lock:
            if len(self._free) + len(self._renamed) >= SPARES_MAX or self._files.links(path) > 1:
                return False
            spare = path.with_suffix(_SUFFIX)
            self._files.rename(path, spare)
            self._renamed.append(spare)
            return True

    def settle(self) -> None:
        """Offer what `keep` was given; if no file was asked for since the last time, delete one.

        Offered are only files whose old names are gone for good: else a power loss could bring one
        back, with another segment's bytes below it.
        """
        with self._lock:
            try:
                if self._renamed:
                    self._files.sync_directory(self._directory)
            except OSError:
                self._delete(self._renamed)
            else:
                self._free = self._renamed + self._free
            self._renamed = []
            if not self._is_needed:
                self._delete(self._free[-1:])
                self._free = self._free[:-1]
            self._is_needed = False

    def _delete(self, paths: list[Path]) -> None:
        """What cannot be deleted now is when the log is opened again."""
        for path in paths:
            with suppress(OSError):
                self._files.unlink(path)
