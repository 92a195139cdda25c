"""The data directory itself: its lock, its format version, and nothing strange in it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from shedder.archive.files.file_system import Files, atomic_write, failure
from shedder.errors import (
    BadSetting,
    CorruptData,
    DirectoryLocked,
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
FORMAT_PUSHES = 11  # Records contain the progress of a push.
FORMAT_TABLES = 12  # There are, or were, tables, and records of kind TABLE.
FORMAT_ROWS = 13  # There are, or were, standing row queries.
FORMAT_VIEWS = 14  # There are, or were, standing row queries that insert into streams.
FORMAT_TABLE_JOINS = 15  # There are, or were, standing row queries with tables.
FORMAT_TABLE_CHANGES = 16  # The same, corrected by tables, or beside ROWS windows; or with PREV.
FORMAT_IDLE = 17  # There are, or were, records of kind IDLE.
FORMAT_SAMPLED_JOINS = 18  # There are, or were, standing row queries with CONFIDENCE.
FORMAT_SHED_ROWS = 19  # The same with ON OVERLOAD SHED, or with TOP over ROWS windows.
# There are, or were, streams with FOREIGN KEY, resized joins, or limits of row queries.
FORMAT_FOREIGN_KEYS = 20
# There are, or were, streams with FOREIGN KEY … WITHIN k TUPLES, k > 0, or TOP with stored lists.
FORMAT_WAITS = 21
FORMAT_VERSION = FORMAT_WAITS  # The newest that is read.

OURS = frozenset(
    {
        "DURABLE",
        "FORMAT",
        "LOCK",
        "REPAIRED",
        "catalog.sqlite",
        "log",
        "runs",
        "backfills",
        "indexes",
        "tables",
        "tmp",
        "quarantine",
        "lost+found",
    }
)


_PID = re.compile(rb"[0-9]{1,10}\n?")


@dataclass(slots=True, eq=False)
class DirectoryLock:
    """Held flocks; the kernel releases them when the process ends, however it ends.

    descriptors: of the directory itself, which cannot be replaced while its path stays the same,
    and of the file LOCK, which all versions lock.
    """

    descriptors: tuple[int, ...]

    @classmethod
    def take(cls, directory: Path) -> DirectoryLock:
        """Lock a directory for this process.

        Raises:
          DirectoryLocked: another process has it; the message names its process id.
          StorageFailed: the directory or its lock file cannot be opened.
        """
        with ExitStack() as undo:
            folder = _locked_folder(directory, fcntl.LOCK_EX)
            undo.callback(os.close, folder)
            descriptor = _open_lock(directory, os.O_RDWR | os.O_CREAT)
            undo.callback(os.close, descriptor)
            _flock(descriptor, fcntl.LOCK_EX, directory)
            _write_holder(descriptor)
            undo.pop_all()
        return cls((folder, descriptor))

    def release(self) -> None:
        """Release the lock."""
        for descriptor in self.descriptors:
            os.close(descriptor)


@contextmanager
def servers_excluded(directory: Path) -> Iterator[None]:
    """Keep servers out of a directory during a block, without writing to its lock file.

    Raises:
      DirectoryLocked: a process serves it. StorageFailed.
    """
    with ExitStack() as held:
        held.callback(os.close, _locked_folder(directory, fcntl.LOCK_SH))
        with suppress(FileNotFoundError):
            descriptor = _open_lock(directory, os.O_RDONLY)
            held.callback(os.close, descriptor)
            _flock(descriptor, fcntl.LOCK_SH, directory)
        yield


def _locked_folder(directory: Path, operation: int) -> int:
    """A descriptor of the directory, locked where its file system can lock directories."""
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise failure(error, str(directory), "open") from error
    try:
        fcntl.flock(folder, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _holder(directory, folder)
        os.close(folder)
        raise DirectoryLocked(f"{directory} is served by process {holder}") from error
    except OSError:  # NFS locks files only; then LOCK alone is locked.
        pass
    return folder


def _open_lock(directory: Path, flags: int) -> int:
    """The file LOCK; a symbolic link is not followed.

    Raises:
      FileNotFoundError: there is none, and flags do not say to make it. StorageFailed.
    """
    path = directory / "LOCK"
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o640)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failure(error, str(path), "open") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageFailed(f"cannot lock {path}: it is no regular file")
    return descriptor


def _flock(descriptor: int, operation: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _holder(directory, descriptor)
        raise DirectoryLocked(f"{directory} is served by process {holder}") from error
    except OSError as error:
        raise StorageFailed(f"cannot lock {directory / 'LOCK'}: {error}") from error


def strange_lock(directory: Path) -> str | None:
    """Say what the file LOCK of a directory is, if `DirectoryLock` has not made it, else None.

    Raises:
      OSError: it cannot be read.
    """
    path = directory / "LOCK"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return "is no file"  # A symbolic link.
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "is no file"
        held = os.pread(descriptor, 14, 0)
    finally:
        os.close(descriptor)
    if held and not _PID.fullmatch(held):
        return f"holds {held.decode('ascii', errors='replace')!r}"
    return None


def _write_holder(descriptor: int) -> None:
    """Write the process id into the lock file, unless the file holds something else."""
    with suppress(OSError):  # A full disk has no room for the process id.
        held = os.pread(descriptor, 16, 0)
        if os.fstat(descriptor).st_nlink == 1 and (not held or _PID.fullmatch(held)):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _holder(directory: Path, descriptor: int) -> str:
    """Return the process that holds a lock: from the kernel (Linux), else from LOCK."""
    found = os.fstat(descriptor)
    key = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text("ascii", errors="replace").splitlines():
            fields = line.split()
            if fields[1:2] == ["FLOCK"] and fields[5:6] == [key] and fields[4].isdecimal():
                return fields[4]
    with suppress(OSError, StorageFailed):
        lock = _open_lock(directory, os.O_RDONLY)
        try:
            held = os.pread(lock, 16, 0)
        finally:
            os.close(lock)
        if _PID.fullmatch(held):
            return held.decode("ascii").strip()
    return "unknown"


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
    match = re.fullmatch(r"shedder archive ([1-9][0-9]{0,8})\n", text)
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
        if name not in OURS and not name.startswith("catalog.sqlite-")
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
        raise failure(error, str(directory / "FORMAT")) from error
