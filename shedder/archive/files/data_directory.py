"""The data directory itself: its lock, its format version, and nothing strange in it."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shedder.archive.files.file_system import DISK_FULL_ERRNOS, Files, atomic_write
from shedder.errors import (
    BadSetting,
    CorruptData,
    DirectoryLocked,
    DiskFull,
    NewerFormat,
    StorageFailed,
)

FORMAT_FIRST = 1  # What a directory is made with.
FORMAT_LEVELS = 2  # There are, or were, records of kind LEVEL and panes with thinned segments.
FORMAT_SIZES = 3  # There are, or were, records of kind SIZES and panes of several sizes.
FORMAT_BUILT = 4  # There are, or were, records of kind BUILT.
FORMAT_LOAD = 5  # There are, or were, records of levels that load has set, or must not change.
FORMAT_TENANTS = 6  # There are, or were, streams of others than the default tenant.
FORMAT_DROPS = 7  # There are, or were, batches of which some tuples were dropped, or left out.
FORMAT_FOLLOW = 8  # There are, or were, summaries whose tuples follow, and such tuples.
FORMAT_ALTERED = 9  # There are, or were, records of kind ALTERED.
FORMAT_JOINED = 10  # There are, or were, queries that joined, or left, behind a checkpoint.
FORMAT_PUSHES = 11  # There are, or were, records that say how far a push is.
FORMAT_VERSION = FORMAT_PUSHES  # The newest that is read.

_OURS = frozenset(
    {
        "FORMAT",
        "LOCK",
        "catalog.sqlite",
        "log",
        "runs",
        "backfills",
        "indexes",
        "tmp",
        "quarantine",
        "lost+found",
    }
)


@dataclass(slots=True, eq=False)
class DirectoryLock:
    """A held flock; the kernel releases it when the process ends, however it ends."""

    descriptor: int

    @classmethod
    def take(cls, directory: Path) -> DirectoryLock:
        """Lock a directory for this process.

        Raises:
          DirectoryLocked: another process has it; the message names its process id.
          StorageFailed: the lock file cannot be opened.
        """
        path = directory / "LOCK"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise StorageFailed(f"cannot open {path}: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DirectoryLocked(f"{directory} is served by process {holder}") from error
        with suppress(OSError):  # Whose it is can be told where the disk has room for it.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Let another process have it."""
        os.close(self.descriptor)


def format_of(directory: Path) -> int | None:
    """The format version of a data directory; None when it is not one yet.

    Raises:
      NewerFormat: a newer version wrote it.
      CorruptData: FORMAT does not hold what it should.
    """
    path = directory / "FORMAT"
    try:
        text = path.read_text("ascii", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailed(f"cannot read {path}: {error}") from error
    match = re.fullmatch(r"shedder archive ([0-9]{1,9})\n", text)
    if match is None:
        raise CorruptData(f"{path} holds {text[:40]!r}, not 'shedder archive {FORMAT_FIRST}'")
    version = int(match[1])
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"{directory} has format {version}; this version reads up to {FORMAT_VERSION}"
        )
    return version


def refuse_strangers(files: Files, directory: Path) -> None:
    """Refuse to make a data directory out of one that holds something else.

    Raises:
      BadSetting: it does; the message names it.
    """
    strange = [
        name
        for name in files.names(directory)
        if name not in _OURS and not name.startswith("catalog.sqlite-")
    ]
    if strange:
        raise BadSetting(f"{directory} is not a data directory and not empty: {strange[0]!r}")


def write_format(files: Files, directory: Path, version: int = FORMAT_FIRST) -> None:
    """Mark a directory as complete, and as of this version."""
    temporary = directory / "tmp" / "FORMAT"
    with suppress(FileNotFoundError):
        files.unlink(temporary)
    text = f"shedder archive {version}\n".encode()
    atomic_write(files, temporary, directory / "FORMAT", [text])


def raise_format(files: Files, directory: Path, version: int) -> None:
    """Mark a directory as of this version, if it is of an older one. One at a time.

    Raises:
      DiskFull, StorageFailed: it is as it was.
    """
    if (format_of(directory) or FORMAT_FIRST) >= version:
        return
    try:
        write_format(files, directory, version)
    except OSError as error:
        kind = DiskFull if error.errno in DISK_FULL_ERRNOS else StorageFailed
        raise kind(f"cannot write {directory / 'FORMAT'}: {error}") from error
