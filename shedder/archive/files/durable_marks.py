"""Durable marks: the newest durable state of a directory's catalog, log and FORMAT.

SQLite ends the replay of its write-ahead log at the first frame that fails its checksum, and says
nothing. A log whose end is cut off looks like a log whose last write was torn. The marks tell such
damage from a crash: they are written after a commit is durable, so they are never ahead of it.
"""

from __future__ import annotations

import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import google_crc32c
import structlog

from shedder.archive.files.file_system import Files, WriteFile, atomic_write

FILE_NAME = "DURABLE"
_MAGIC = b"SHEDMARK"
_VERSION = 1
_COPY = struct.Struct("<8sIIQI")  # magic, version, mark, value, zero; a checksum follows.
_COPY_BYTES = _COPY.size + 4
_SLOT_BYTES = 2 * _COPY_BYTES  # Two copies: one flipped bit leaves one of them.

_log = structlog.get_logger("shedder.archive")


class Mark(IntEnum):
    """The marks, in the order of their places in the file."""

    GENERATION = 0
    SEQUENCE = 1
    FORMAT = 2


@dataclass(frozen=True, slots=True)
class Marks:
    """State that was durable once; 0: not known.

    generation: of the catalog, the number of its commits. sequence: every record of the log below
    it. format_version: of FORMAT.
    """

    generation: int = 0
    sequence: int = 0
    format_version: int = 0

    def to_bytes(self) -> bytes:
        """The content of the file."""
        values = (self.generation, self.sequence, self.format_version)
        return b"".join(_slot(mark, value) for mark, value in zip(Mark, values, strict=True))

    @classmethod
    def from_bytes(cls, data: bytes) -> Marks:
        """Read each mark from its first good copy; the higher one where both are good."""
        return cls(*(_value(data, mark) for mark in Mark))

    @property
    def is_whole(self) -> bool:
        """Return whether the catalog's generation is known; a served directory always has one."""
        return self.generation > 0


def read_marks(directory: Path) -> Marks:
    """The marks of a directory; zeros where there are none, or none that are whole.

    Raises:
      OSError: the file is there and cannot be read.
    """
    with suppress(FileNotFoundError):
        return Marks.from_bytes((directory / FILE_NAME).read_bytes())
    return Marks()


def write_marks(files: Files, directory: Path, marks: Marks) -> None:
    """Write the file anew, durably.

    Raises:
      OSError.
    """
    temporary = directory / "tmp" / FILE_NAME
    with suppress(FileNotFoundError):
        files.unlink(temporary)
    atomic_write(files, temporary, directory / FILE_NAME, [marks.to_bytes()])


class DurableMarks:
    """The marks of a directory that is open. Make it with `DurableMarks.open`.

    found: the marks as they were when the directory was opened. Where no generation was known,
    nothing is written before `accept`: marks that were made of a damaged directory would prove it
    to be whole the next time.
    """

    def __init__(self, found: Marks, path: Path, file: WriteFile) -> None:
        self.found = found
        self._path = path
        self._file = file
        self._values = [found.generation, found.sequence, found.format_version]
        self._lock = threading.Lock()
        self._syncing = threading.Lock()  # Apart: the disk thread never waits for a sync.
        self._unsynced = False
        self._lost = False  # A failed write or sync may have lost any mark.
        self._failed = False
        self._accepted = found.is_whole

    @classmethod
    def open(cls, files: Files, directory: Path) -> DurableMarks:
        """Open the marks; a file that is missing or not whole is made anew.

        Raises:
          OSError.
        """
        path = directory / FILE_NAME
        found = read_marks(directory)
        if not path.exists() or path.read_bytes() != found.to_bytes():
            write_marks(files, directory, found)
        return cls(found, path, files.append(path))

    def note_generation(self, generation: int) -> None:
        """Record that this generation of the catalog is durable."""
        self._note(Mark.GENERATION, generation)

    def note_sequence(self, sequence: int) -> None:
        """Record that all records of the log below this one are durable."""
        self._note(Mark.SEQUENCE, sequence)

    def note_format(self, version: int) -> None:
        """Record that this version of FORMAT is durable."""
        self._note(Mark.FORMAT, version)

    def accept(self) -> None:
        """Write the marks from now on: the directory was found to be whole.

        They are durable at once, before the first run is written. Otherwise a power loss in the
        first cut of a new directory leaves a run that no mark proves to be a leftover.

        Raises:
          OSError: a mark could not be written.
        """
        with self._lock:
            if self._accepted:
                return
            self._accepted = self._unsynced = self._lost = True
            self._write_lost()
        self.sync()

    def sync(self) -> bool:
        """Make the marks durable; False, with a warning, where that fails.

        What a commit replaces or makes unnecessary may be removed when its mark is durable. Until
        then, only what would be removed proves damage to the commit.

        After a failed sync the system takes the pages for written, and the next sync leaves them
        out. So all marks are written again before it.
        """
        with self._syncing:
            try:
                with self._lock:
                    if not self._unsynced:
                        return True
                    self._write_lost()
                    self._unsynced = False
                self._file.sync()
            except OSError as error:
                with self._lock:
                    self._unsynced = self._lost = True
                self._warn(error)
                return False
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _note(self, mark: Mark, value: int) -> None:
        with self._lock:
            if value <= self._values[mark]:
                return
            self._values[mark] = value
            self._unsynced = True
            try:
                if self._accepted:
                    self._file.overwrite(mark * _SLOT_BYTES, _slot(mark, value))
            except OSError as error:  # An older mark is a weaker proof, not a wrong one.
                self._lost = True
                self._warn(error)

    def _write_lost(self) -> None:
        """Write all marks again if one may be lost. The lock is held."""
        if self._lost and self._accepted:
            for mark, value in zip(Mark, self._values, strict=True):
                self._file.overwrite(mark * _SLOT_BYTES, _slot(mark, value))
        self._lost = False

    def _warn(self, error: OSError) -> None:
        """Warn once: each commit tries again, some hundred times a second."""
        if not self._failed:
            self._failed = True
            _log.warning("durable_mark_not_written", file=str(self._path), error=str(error))


def _slot(mark: Mark, value: int) -> bytes:
    fields = _COPY.pack(_MAGIC, _VERSION, mark, value, 0)
    return (fields + struct.pack("<I", google_crc32c.value(fields))) * 2


def _value(data: bytes, mark: Mark) -> int:
    values = [0]
    for copy in range(2):
        begin = mark * _SLOT_BYTES + copy * _COPY_BYTES
        fields, crc = data[begin : begin + _COPY.size], data[begin + _COPY.size :][:4]
        if len(crc) < 4 or google_crc32c.value(fields) != int.from_bytes(crc, "little"):
            continue
        magic, version, found, value, _ = _COPY.unpack(fields)
        if (magic, version, found) == (_MAGIC, _VERSION, mark):
            values.append(value)
    return max(values)
