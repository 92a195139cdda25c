"""Catalog and log of a data directory, opened only if neither is older than it has been."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.files.data_directory import format_of, write_format
from shedder.archive.files.directory_copy import INCOMPLETE
from shedder.archive.files.durable_marks import DurableMarks, Marks
from shedder.archive.files.file_system import Files
from shedder.archive.log.log import Log
from shedder.archive.log.segment_recovery import segment_paths
from shedder.errors import BadSetting, CorruptData

_FOLDERS = ("runs", "indexes", "tmp", "quarantine")


@dataclass(frozen=True, slots=True)
class DirectoryParts:
    """Parts of an open directory. proven: the marks prove that the catalog is the newest."""

    marks: DurableMarks
    catalog: Catalog
    log: Log

    @property
    def proven(self) -> bool:
        """Return whether marks existed and the catalog has all commits that they prove."""
        return self.marks.found.is_whole

    def close(self) -> None:
        """Close log and catalog, which update the marks, then close the marks."""
        try:
            self.log.close()
            self.catalog.close()
        finally:
            self.marks.close()


def open_parts(
    files: Files, directory: Path, undo: ExitStack, log_segment_bytes: int
) -> DirectoryParts:
    """Open catalog and log of a locked directory; both are made when the directory is new.

    Args:
      files: the file system.
      directory: the data directory.
      undo: closes what was opened, if what follows fails.
      log_segment_bytes: size of the log's segments.

    Raises:
      CorruptData: a part is damaged or missing, or older than it has been.
      BadSetting: `tmp` is a symbolic link. OSError.
    """
    version = format_of(directory)
    new = version is None
    if (directory / "tmp").is_symlink():
        raise BadSetting(
            f"{directory / 'tmp'} is a symbolic link; all files in it are deleted at every start, "
            "so it must be a directory"
        )
    for name in _FOLDERS:
        files.make_directory(directory / name)
    marks = DurableMarks.open(files, directory)
    undo.callback(marks.close)
    _check_format(directory, version, marks.found)
    path = directory / "catalog.sqlite"
    if not new and path.name not in files.names(directory):
        raise CorruptData(f"{path} is missing; without it, runs would be taken for orphans")
    catalog = Catalog.open(path, must_exist=not new, marks=marks)
    undo.callback(catalog.close)
    if new and catalog.streams():
        raise CorruptData(f"{directory / 'FORMAT'} is missing, and {path} has streams")
    proven = marks.found.is_whole
    if not new and not proven:
        _check_log_begins(files, directory / "log", catalog)
    log = Log.open(
        directory / "log",
        files=files,
        segment_bytes=log_segment_bytes,
        quarantine=directory / "quarantine",
        at_least=catalog.durable_sequence(),
        needed_from=catalog.checkpoint_sequence() if proven else None,
        marks=marks,
    )
    undo.callback(log.close)
    if new:
        write_format(files, directory)
    elif INCOMPLETE in files.names(directory):  # A copy that was killed after its renaming.
        files.unlink(directory / INCOMPLETE)
    marks.note_format(format_of(directory) or 0)
    return DirectoryParts(marks, catalog, log)


def _check_format(directory: Path, version: int | None, found: Marks) -> None:
    """Refuse a FORMAT that is lower than it was: records that need the higher one are skipped.

    Raises:
      CorruptData.
    """
    path = directory / "FORMAT"
    if found.format_version and version is None:
        raise CorruptData(f"{path} is missing; it held 'shedder archive {found.format_version}'")
    if version is not None and version < found.format_version:
        raise CorruptData(
            f"{path} holds 'shedder archive {version}', it has held "
            f"'shedder archive {found.format_version}'"
        )


def _check_log_begins(files: Files, directory: Path, catalog: Catalog) -> None:
    """Refuse a log that begins behind the checkpoint, where no marks say which of both is damaged.

    Segments are dropped only below the checkpoint, and a log always has one.

    Raises:
      CorruptData.
    """
    paths = segment_paths(files, directory) if directory.exists() else []
    if not paths:
        raise CorruptData(f"{directory} has no segment; a log always has one")
    begins, needed = int(paths[0].name[:20]), catalog.checkpoint_sequence()
    if begins > needed:
        raise CorruptData(
            f"{paths[0]} is the log's first segment, but {catalog.path} needs records from "
            f"{needed} on: segments are missing, or the catalog is older than it was"
        )
