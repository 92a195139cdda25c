"""Copy of a data directory: hard links where possible, and complete or not at all."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from shedder.archive.files.data_directory import (
    OURS,
    DirectoryLock,
    strange_lock,
    write_format,
)
from shedder.archive.files.durable_marks import Marks, write_marks
from shedder.archive.files.file_system import Files, failure
from shedder.archive.tasks.progress import STEP_BYTES, SYNC_BYTES, Progress
from shedder.errors import BadSetting, DirectoryLocked, TargetExists

INCOMPLETE = "INCOMPLETE"
"""Names a directory that is being made; a directory with it and without FORMAT does not open."""

SUFFIX = ".partial"
"""Ends the name of a directory that is being made."""

_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})


@dataclass(slots=True, eq=False)
class Copying:
    """A directory that is being filled beside its final place. Make it with `copying`.

    directory: where it is now. linked: whether files that never change again may get a second
    name instead of a copy; becomes false at the first file that cannot.
    """

    files: Files
    directory: Path
    progress: Progress
    linked: bool
    linked_bytes: int = 0
    copied_bytes: int = 0
    _folders: set[Path] = field(default_factory=set)

    def take(self, source: Path, relative: str, size_bytes: int) -> None:
        """Add a file to the copy that does not change any more, by a link if possible.

        Raises:
          OSError. Cancelled.
        """
        target = self._place(relative)
        if self.linked:
            try:
                self.files.link(source, target)
            except OSError as error:
                if error.errno not in _CANNOT_LINK:
                    raise
                self.linked = False
            else:
                self.linked_bytes += size_bytes
                self.progress.advance(size_bytes)
                return
        self.copy(source, relative, size_bytes)

    def copy(self, source: Path, relative: str, size_bytes: int) -> None:
        """Copy the first bytes of a file.

        Raises:
          OSError. Cancelled.
        """
        reader = self.files.open(source)
        try:
            writer = self.files.create(self._place(relative))
            try:
                for offset in range(0, size_bytes, STEP_BYTES):
                    if offset and offset % SYNC_BYTES == 0:
                        writer.sync()
                    data = reader.read(offset, min(STEP_BYTES, size_bytes - offset))
                    writer.write([data])
                    self.copied_bytes += len(data)
                    self.progress.advance(len(data))
                writer.sync()
            finally:
                writer.close()
        finally:
            reader.close()

    def complete(self, version: int, marks: Marks) -> None:
        """All is there: make the names durable, then say of which format it is.

        Args:
          version: of the format. marks: the least state of catalog and log in the copy.

        Raises:
          OSError.
        """
        for folder in sorted(self._folders):
            self.files.sync_directory(folder)
        self.files.sync_directory(self.directory)
        write_marks(self.files, self.directory, marks)
        write_format(self.files, self.directory, version)

    def _place(self, relative: str) -> Path:
        target = self.directory / relative
        if target.parent not in self._folders:
            self.files.make_directory(target.parent)
            self._folders.add(target.parent)
        return target


@contextmanager
def copying(files: Files, target: Path, progress: Progress, *, link: bool) -> Iterator[Copying]:
    """Make a data directory at `target`: the block fills it and calls `complete`.

    The directory grows as `target.partial`, is marked as not complete, and is renamed at the end.
    If the block fails, the directory is removed. If the process is killed, the partial directory
    stays, and the next attempt removes it: a directory with that name always has the mark.

    Raises:
      TargetExists: the target exists, or another process is making it.
      BadSetting: what is at `target.partial` is not such a leftover; or `target` has such a name.
      DiskFull, StorageFailed.
    """
    if target.name.endswith(SUFFIX):
        raise BadSetting(
            f"{target.name!r} ends in {SUFFIX!r}, as only directories that are being made do"
        )
    partial = target.with_name(f"{target.name}{SUFFIX}")
    try:
        _refuse_occupied(target)
        with _locked(files, partial):
            try:
                _remove_leftover(files, partial)
                for name in ("log", "runs", "tmp", "quarantine"):
                    files.make_directory(partial / name)
                yield Copying(files, partial, progress, link)
                files.rename(partial, target)
                files.sync_directory(target.parent)
                files.unlink(target / INCOMPLETE)  # Not before: a leftover without it is kept.
                files.sync_directory(target)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)  # What cannot go is marked.
                raise
    except OSError as error:
        raise failure(error, str(target), "make") from error


def _refuse_occupied(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise TargetExists(f"{target} exists and is no directory")
    if target.is_dir() and any(target.iterdir()):
        raise TargetExists(f"{target} exists and is not empty; name a directory that is new")


@contextmanager
def _locked(files: Files, partial: Path) -> Iterator[None]:
    """Lock the partial directory for the block; refuse a directory of other origin."""
    _refuse_strange(partial)
    try:
        files.make_directory(partial)
    except OSError:  # Its name may not be durable.
        with suppress(OSError):
            partial.rmdir()
        raise
    try:
        lock = DirectoryLock.take(partial)
    except DirectoryLocked:
        raise TargetExists(f"{partial} is being filled by another backup or restore") from None
    try:
        _refuse_strange(partial)  # It may have been created meanwhile.
        yield
    finally:
        lock.release()


def _refuse_strange(partial: Path) -> None:
    """Refuse a target that is neither new nor the leftover of a killed attempt.

    A leftover is a directory with the mark INCOMPLETE, an empty file, and has no names but those
    of a data directory. One that was killed before it had the mark has no more than its lock. The
    lock file is empty, or holds a process id.
    """
    if not partial.is_symlink() and not partial.exists():
        return
    if partial.is_symlink() or not partial.is_dir():
        raise BadSetting(f"{partial} is in the way, and is no directory")
    found = {path.name for path in partial.iterdir()}
    mark = partial / INCOMPLETE
    strange = sorted(
        name for name in found - OURS - {INCOMPLETE} if not name.startswith("catalog.sqlite-")
    )
    is_marked = mark.is_file() and not mark.is_symlink() and not mark.stat().st_size
    if strange:
        why = f"it holds {strange[0]!r}"
    elif lock := strange_lock(partial):
        why = f"its LOCK {lock}"
    elif found <= {"LOCK"} or is_marked:
        return
    else:
        why = f"it has no mark {INCOMPLETE}"
    raise BadSetting(
        f"{partial} is in the way, and is no backup that was interrupted ({why}); "
        "rename it or move it away"
    )


def _remove_leftover(files: Files, partial: Path) -> None:
    """Remove what a killed attempt has left. The mark is there before, and from then on.

    Links are removed, and not followed.
    """
    if not (partial / INCOMPLETE).exists():
        files.create(partial / INCOMPLETE).close()
        files.sync_directory(partial)
    (partial / "FORMAT").unlink(missing_ok=True)
    for path in partial.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (INCOMPLETE, "LOCK"):
            path.unlink()
