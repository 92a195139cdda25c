"""Backup and restore: a data directory as it is at one moment, as a second data directory.

Files that never change again (runs, closed segments of the log) get a second name on the same
file system, and are copied to another one. The copy is a data directory like any other: it can
be checked, opened, and read by Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog

from shedder.archive.archive_store import Store
from shedder.archive.catalog.catalog_copy import moment_of
from shedder.archive.files.data_directory import format_of, servers_excluded
from shedder.archive.files.directory_copy import Copying, copying
from shedder.archive.files.durable_marks import Marks, read_marks
from shedder.archive.files.file_system import Files, OsFiles
from shedder.archive.files.repair_record import REPAIRED
from shedder.archive.log.log_segment import SEGMENT_HEAD_BYTES
from shedder.archive.log.segment_recovery import segment_paths
from shedder.archive.operations.verify import check
from shedder.archive.tables.table_images import FOLDER, image_names
from shedder.archive.tasks.progress import Progress
from shedder.errors import BadSetting, CorruptData

_log = structlog.get_logger("shedder.archive")


@dataclass(frozen=True, slots=True)
class Copied:
    """A directory that was made: where, and what of it are second names of the same bytes."""

    directory: Path
    linked_bytes: int
    copied_bytes: int


def backup(
    store: Store, target: Path, *, progress: Progress | None = None, link: bool = True
) -> Copied:
    """Make a backup of an open directory while it is written to.

    It holds everything that is durable when this begins, and opens to exactly that.

    Args:
      store: the open directory.
      target: the backup's directory; made here, so it must not exist or be empty.
      progress: told of bytes; cancel it from another thread.
      link: give unchanging files a second name where that works, instead of copying them.

    Raises:
      TargetExists, BadSetting: it cannot be there. DiskFull, StorageFailed, CorruptData.
      Cancelled. Nothing is left at target then.
    """
    progress = progress or Progress(f"backup to {target}", "bytes")
    _refuse_inside(store.directory, target)
    with ExitStack() as held:
        held.enter_context(store.kept())
        copy = held.enter_context(copying(store.files, target, progress, link=link))
        with store.catalog.turn(
            progress.advance
        ):  # Nothing becomes a run, and no checkpoint moves on.
            durable = store.log.durable_sequence
            segments = store.log.durable_files(store.log_start())
            catalog = held.enter_context(moment_of(store.catalog.path))
            named = [*_named(store), *_named_images(store)]
        version = format_of(store.directory)
        assert version is not None
        marks = Marks(catalog.generation, durable, version)
        runs = _sizes(store.directory, named)
        progress.expect(
            catalog.size_bytes + sum(size for _, size in segments) + sum(size for _, size in runs)
        )
        for name, size in runs:
            copy.take(store.directory / name, name, size)
        catalog.write(store.files, copy.directory / "catalog.sqlite", progress)
        _take_segments(copy, segments)
        _take_repairs(copy, store.directory)
        copy.complete(version, marks)
    return Copied(target, copy.linked_bytes, copy.copied_bytes)


def restore(
    source: Path,
    target: Path,
    *,
    files: Files | None = None,
    progress: Progress | None = None,
    link: bool = True,
    verify: bool = True,
) -> Copied:
    """Make a new directory from a backup, or from any data directory that no server has open.

    Args:
      source: directory to read; it is not changed, and unlocked afterwards.
      target: directory to make; it must not exist, or be empty.
      files: the file system; the real one when None.
      progress: receives bytes, and which of the two steps they are of; another thread cancels it.
      link: hard-link unchanging files where that works, instead of copying them.
      verify: check every byte of the source first. Runs that the source has in quarantine are not
        in the new directory either, and its answers say so.

    Raises:
      CorruptData: the source is no whole data directory, or damaged. DirectoryLocked: it is
      served. NewerFormat. TargetExists, BadSetting, DiskFull, StorageFailed. Cancelled.
    """
    files = OsFiles() if files is None else files
    progress = progress or Progress(f"restore of {source} to {target}", "bytes")
    _refuse_inside(source, target)
    version = format_of(source)
    if version is None:
        raise CorruptData(f"{source} is no whole data directory: it has no FORMAT")
    if verify:
        what = progress.what
        progress.rename(f"verification of {source}")
        report = check(source, files, progress)
        progress.rename(what)
        if report.damages:
            raise CorruptData(f"{source} is damaged: {report.damages[0]}")
        for run in report.aside:
            _log.warning("restored_without", directory=str(target), missing=run)
    with servers_excluded(source), copying(files, target, progress, link=link) as copy:
        runs = _run_files(files, source)
        segments = [(path, path.stat().st_size) for path in segment_paths(files, source / "log")]
        catalog = [
            (path, path.stat().st_size)
            for name in ("catalog.sqlite", "catalog.sqlite-wal")
            if (path := source / name).exists()
        ]
        progress.reach(0)
        progress.expect(sum(size for _, size in [*runs, *segments, *catalog]))
        for name, size in runs:
            copy.take(source / name, name, size)
        for path, size in catalog:
            copy.copy(path, path.name, size)
        _take_segments(copy, segments)
        _take_repairs(copy, source)
        copy.complete(version, read_marks(source))
    return Copied(target, copy.linked_bytes, copy.copied_bytes)


def _take_segments(copy: Copying, segments: list[tuple[Path, int]]) -> None:
    """Link the closed segments and copy the last one, which a start of the directory writes to.

    If the last segment holds only a head, a start may remove it and write to the one before.
    """
    closed = len(segments) - 1
    if segments and segments[-1][1] <= SEGMENT_HEAD_BYTES:
        closed -= 1
    for number, (path, size) in enumerate(segments):
        take = copy.take if number < closed else copy.copy
        take(path, f"log/{path.name}", size)


def _take_repairs(copy: Copying, source: Path) -> None:
    """The record of repairs: its losses are those of the copy, too."""
    path = source / REPAIRED
    if path.exists():
        copy.copy(path, REPAIRED, path.stat().st_size)


def _named(store: Store) -> list[str]:
    """The files of all runs, as the catalog has them now; others are still being written."""
    return [
        f"runs/{name}"
        for stream in store.streams()
        for run in store.runs(stream.id)
        for name in run.files
        if (store.directory / "runs" / name).exists()  # What is in quarantine has none.
    ]


def _named_images(store: Store) -> list[str]:
    """The images of all tables, as the catalog has them now."""
    images = (entry.image for entry in store.catalog.tables.entries())
    return [f"{FOLDER}/{image.file}" for image in images if image is not None]


def _run_files(files: Files, directory: Path) -> list[tuple[str, int]]:
    """Everything below runs/ and tables/; what no catalog names is an orphan here and there."""
    runs = (f"runs/{name}" for name in _below(files, directory / "runs"))
    images = (f"{FOLDER}/{name}" for name in image_names(files, directory))
    return _sizes(directory, [*runs, *images])


def _sizes(directory: Path, names: Iterable[str]) -> list[tuple[str, int]]:
    """Files of a directory, and their sizes."""
    return [(name, (directory / name).stat().st_size) for name in names]


def _below(files: Files, root: Path) -> Iterator[str]:
    for folder in files.names(root) if root.exists() else []:
        if not (root / folder).is_dir():
            continue
        for name in files.names(root / folder):
            yield f"{folder}/{name}"


def _refuse_inside(source: Path, target: Path) -> None:
    if target.resolve().is_relative_to(source.resolve()):
        raise BadSetting(f"{target} is inside {source}, of which it would be a copy")
