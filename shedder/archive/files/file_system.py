"""The thin seam between the archive and the file system, so that faults can be injected."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from shedder.archive.tasks.progress import STEP_BYTES, ProgressCallback, no_progress
from shedder.errors import CorruptData, DiskFull, ResourcesShort, StorageFailed

Bytes = bytes | bytearray | memoryview | pa.Buffer

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors after which the same write may work later."""

DESCRIPTOR_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})

SHORT_ERRNOS = DESCRIPTOR_ERRNOS | {errno.ENOMEM}
"""Errors after which the same call may work, once descriptors or memory are free."""

_LOST_ERRNOS = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EBADMSG", "EUCLEAN", "EREMOTEIO", "ENODATA")
    if hasattr(errno, name)  # Two of them are Linux's.
)

_PARTS_MAX = 512  # POSIX promises 16 per call, Linux takes 1,024


class WriteFile(Protocol):
    """A file that grows at its end. Every call may raise OSError."""

    @property
    def size(self) -> int:
        """Bytes in the file after the last write that succeeded; of `reuse`, those written."""

    def write(self, parts: Sequence[Bytes]) -> None:
        """Append all parts; when it fails, some of their bytes may be in the file."""

    def overwrite(self, offset: int, data: Bytes) -> None:
        """Write data over existing bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file off at size."""

    def sync(self) -> None:
        """Make the content durable."""

    def close(self) -> None:
        """Close without sync."""


class ReadFile(Protocol):
    """A file that is read at offsets. Every call may raise OSError."""

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened."""

    def read(self, offset: int, length: int) -> bytes:
        """At most length bytes from offset; fewer only at the end of the file."""

    def read_into(self, offset: int, parts: Sequence[memoryview]) -> int:
        """Fill parts from offset; return the bytes that were read."""

    def expect(self, stretches: Sequence[tuple[int, int]]) -> None:
        """Nothing will be read but these, begins and lengths: a hint that changes no result."""

    def close(self) -> None:
        """Close."""


class Files(Protocol):
    """The file system calls that the archive makes. Every one may raise OSError."""

    def create(self, path: Path) -> WriteFile:
        """A new empty file; FileExistsError if there is one."""

    def append(self, path: Path) -> WriteFile:
        """An existing file, to be written at its end."""

    def reuse(self, path: Path) -> WriteFile:
        """An existing file, to be written over from its beginning."""

    def open(self, path: Path) -> ReadFile:
        """An existing file, to be read."""

    def rename(self, source: Path, target: Path) -> None:
        """Atomically give a file another name."""

    def links(self, path: Path) -> int:
        """Return how many names a file has."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; EXDEV where the target is on another file system."""

    def unlink(self, path: Path) -> None:
        """Remove a name."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, if missing, and make their names durable."""

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""


class OsWriteFile:
    """A real file opened for writing."""

    def __init__(self, path: Path, flags: int, size: int | None = None) -> None:
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o640)
        self._size = os.fstat(self._descriptor).st_size if size is None else size

    @property
    def size(self) -> int:
        """Return where the next write goes: bytes in the file, those of an older one left out."""
        return self._size

    def write(self, parts: Sequence[Bytes]) -> None:
        """Append all parts without copying them."""
        waiting = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        offset = self._size
        while waiting:
            written = os.pwritev(self._descriptor, waiting[:_PARTS_MAX], offset)
            offset += written
            while waiting and written >= waiting[0].nbytes:
                written -= waiting.pop(0).nbytes
            if written:
                waiting[0] = waiting[0][written:]
        self._size = offset

    def overwrite(self, offset: int, data: Bytes) -> None:
        """Write data over existing bytes."""
        view = memoryview(data).cast("B")
        while view.nbytes:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written

    def truncate(self, size: int) -> None:
        """Cut the file off at size."""
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        """Make the content durable (fdatasync: the size goes with it)."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close without sync."""
        descriptor, self._descriptor = self._descriptor, -1  # Its number will be another file.
        os.close(descriptor)


class OsReadFile:
    """A real file opened for reading."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size
        self._expects = False

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened."""
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """At most length bytes from offset."""
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length and (more := self._read_rest(offset, length, data)):
            data += more
        return data

    def _read_rest(self, offset: int, length: int, data: bytes) -> bytes:
        return os.pread(self._descriptor, length - len(data), offset + len(data))

    def read_into(self, offset: int, parts: Sequence[memoryview]) -> int:
        """Fill parts from offset; return the bytes that were read."""
        total = 0
        waiting = [part for part in parts if part.nbytes]
        while waiting:
            got = os.preadv(self._descriptor, waiting, offset + total)
            if got == 0:
                break
            total += got
            while waiting and got >= waiting[0].nbytes:
                got -= waiting.pop(0).nbytes
            if got:
                waiting[0] = waiting[0][got:]
        return total

    def expect(self, stretches: Sequence[tuple[int, int]]) -> None:
        """Let the system read these ahead, and no more than these (it would read up to 8 MB).

        One alone is read next, so there is nothing to be ahead of.
        """
        if not hasattr(os, "posix_fadvise"):
            return
        if not self._expects:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            self._expects = True
        if len(stretches) > 1:
            for begin, length in stretches:
                os.posix_fadvise(self._descriptor, begin, length, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Close."""
        descriptor, self._descriptor = self._descriptor, -1  # Its number will be another file.
        os.close(descriptor)


class OsFiles:
    """The real file system."""

    def create(self, path: Path) -> WriteFile:
        """A new empty file; FileExistsError if there is one."""
        return OsWriteFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def append(self, path: Path) -> WriteFile:
        """An existing file, to be written at its end."""
        return OsWriteFile(path, os.O_RDWR)

    def reuse(self, path: Path) -> WriteFile:
        """An existing file, to be written over from its beginning."""
        return OsWriteFile(path, os.O_RDWR, size=0)

    def open(self, path: Path) -> ReadFile:
        """An existing file, to be read."""
        return OsReadFile(path)

    def rename(self, source: Path, target: Path) -> None:
        """Atomically give a file another name."""
        source.rename(target)

    def links(self, path: Path) -> int:
        """Return how many names a file has."""
        return path.stat().st_nlink

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; EXDEV where the target is on another file system."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, if missing, and make their names durable."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        path.mkdir(mode=0o750, exist_ok=True)
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))


def failure(error: OSError, what: str, verb: str = "write") -> DiskFull | StorageFailed:
    """Return the exception for a file or directory that could not be written, made or opened.

    After DiskFull, and ResourcesShort, which is one, the same call may work later.
    """
    if error.errno in DISK_FULL_ERRNOS:
        return DiskFull(f"no space for {what}: {error}")
    if error.errno in SHORT_ERRNOS:
        return ResourcesShort(f"cannot {verb} {what} now: {error}")
    return StorageFailed(f"cannot {verb} {what}: {error}")


def unused(files: Files, path: Path) -> Path:
    """The path, with a number behind its name where there is something of this name.

    Raises:
      OSError: the directory cannot be read.
    """
    taken, found, number = set(files.names(path.parent)), path, 0
    while found.name in taken:
        number += 1
        found = path.with_name(f"{path.name}.{number}")
    return found


def unread(path: Path, error: OSError, held: str) -> CorruptData | StorageFailed:
    """What to raise when a file could not be read; held: what is in it.

    Where the medium does not give its bytes back (EIO and the like) they are as lost as those that
    fail their checksum. Any other error (too many open files, no permission) proves nothing.
    """
    if error.errno in _LOST_ERRNOS:
        return CorruptData(f"{path} cannot be read ({error.strerror}); it held {held}")
    return StorageFailed(f"cannot read {path}: {error}")


def atomic_write(
    files: Files,
    temporary: Path,
    target: Path,
    parts: Sequence[Bytes],
    on_progress: ProgressCallback = no_progress,
) -> None:
    """Put a whole file in place or none: write, fsync, rename, fsync of the directory.

    on_progress: called after each part; what it raises ends the writing.

    Raises:
      OSError: nothing has changed at target; temporary may be left over.
    """
    file, synced = files.create(temporary), 0
    try:
        for part in parts:
            file.write([part])
            if file.size - synced >= STEP_BYTES:  # Else the last sync would wait for all bytes.
                file.sync()
                synced = file.size
            on_progress()
        file.sync()
    finally:
        file.close()
    files.rename(temporary, target)
    files.sync_directory(target.parent)
