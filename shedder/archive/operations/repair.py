"""Repair of a data directory whose catalog lacks commits: runs are listed again.

Only what a run's own file proves is rebuilt. Definitions of streams, deletions, standing queries,
rollups and indexes are in the catalog alone; commits of these that are missing stay missing. Rows
that they had removed are there again, so what is lost is recorded for answers and checks.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.catalog.checksummed_tables import empty_text, generation_of
from shedder.archive.files.data_directory import (
    FORMAT_VERSION,
    DirectoryLock,
    format_of,
    write_format,
)
from shedder.archive.files.durable_marks import Marks, read_marks, write_marks
from shedder.archive.files.file_system import Files, OsFiles, failure, unused
from shedder.archive.files.repair_record import RecordedRepair, add_repair
from shedder.archive.files.unknown_files import keep_unknown
from shedder.archive.log.log_segment import Damage, scan
from shedder.archive.log.records import Batch, RecordType
from shedder.archive.log.segment_recovery import assess
from shedder.archive.log.table_changes import TableChange
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.metadata.deleted_positions import Deleted
from shedder.archive.metadata.run_name import RunName
from shedder.archive.operations.repair_tables import has_damaged_image, repair_tables
from shedder.archive.runs.external_run import SentFile, examined
from shedder.archive.runs.run_format import file_crc, read_run
from shedder.archive.tasks.progress import STEP_BYTES
from shedder.cql.statements.archive_layout import layout_from_text
from shedder.errors import CorruptData, ShedderError

_CATALOG = ("catalog.sqlite", "catalog.sqlite-wal")


@dataclass(slots=True)
class Repaired:
    """Results of a repair: done, and impossible to rebuild; both empty: nothing was wrong."""

    done: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def repair(directory: Path, files: Files | None = None, *, now_us: int | None = None) -> Repaired:
    """Make a directory open again that is refused: catalog or FORMAT too old, a table damaged.

    The catalog's files are copied into quarantine before anything is changed. Run files that the
    catalog lacks are read in full and listed again; those that cannot be go into quarantine.

    Args:
      directory: a data directory that no process serves.
      files: the file system; the real one when None.
      now_us: the time in microseconds since 1970; the machine's when None.

    Raises:
      CorruptData: the catalog cannot be read, or has lost all streams: restore a backup.
      DirectoryLocked: a process serves it. NewerFormat. DiskFull, StorageFailed.
    """
    files = OsFiles() if files is None else files
    found = Repaired()
    if format_of(directory) is None and not (directory / "catalog.sqlite").exists():
        raise CorruptData(f"{directory} is not a data directory: it has no FORMAT and no catalog")
    lock = DirectoryLock.take(directory)
    try:
        marks = read_marks(directory)
        version = _repair_format(files, directory, marks, found)
        path = directory / "catalog.sqlite"
        if not path.exists():
            raise CorruptData(f"{path} is missing; restore a backup")
        generation = generation_of(path)
        if generation is None:
            raise CorruptData(empty_text(path))
        is_newest = marks.is_whole and generation >= marks.generation
        if is_newest and not has_damaged_image(files, directory):
            return found
        _keep(files, directory)
        catalog = Catalog.open(path, must_exist=True)
        try:
            with catalog.transaction():  # Its generation ends the refusal of the directory.
                if not is_newest:
                    _rebuild(files, directory, catalog, marks, found)
                done, lost = repair_tables(files, directory, catalog)
                found.done += done
                found.lost += lost
                if found.lost:
                    at_us = time.time_ns() // 1000 if now_us is None else now_us
                    last = 0 if is_newest else catalog.last_stream_id()  # 0: tuples are whole.
                    add_repair(files, directory, RecordedRepair(at_us, last, tuple(found.lost)))
        finally:
            catalog.close()
        write_marks(files, directory, Marks(catalog.generation, marks.sequence, version))
    except OSError as error:
        raise failure(error, str(directory), "repair") from error
    finally:
        lock.release()
    return found


def _keep(files: Files, directory: Path) -> None:
    """Keep copies of the catalog's files as they are, durably."""
    quarantine = directory / "quarantine"
    files.make_directory(quarantine)
    for name in _CATALOG:
        path = directory / name
        if path.exists():
            _copy(files, path, unused(files, quarantine / f"{name}.before-repair"))
    files.sync_directory(quarantine)


def _copy(files: Files, path: Path, target: Path) -> None:
    with closing(files.open(path)) as source, closing(files.create(target)) as copy:
        for offset in range(0, source.size, STEP_BYTES):
            copy.write([source.read(offset, STEP_BYTES)])
        copy.sync()


def _repair_format(files: Files, directory: Path, marks: Marks, found: Repaired) -> int:
    """Write FORMAT again where it is missing or lower than it was; return its version."""
    there = format_of(directory)
    if there is not None and there >= marks.format_version:
        return there
    version = marks.format_version or FORMAT_VERSION
    files.make_directory(directory / "tmp")
    write_format(files, directory, version)
    found.done.append(f"{directory / 'FORMAT'} holds 'shedder archive {version}' again")
    return version


def _rebuild(
    files: Files, directory: Path, catalog: Catalog, marks: Marks, found: Repaired
) -> None:
    """List the runs that the catalog lacks, and name what cannot be listed."""
    if catalog.generation < marks.generation:
        found.lost.append(
            f"commits {catalog.generation + 1} to {marks.generation} of the catalog: streams, "
            "standing queries, deletions, retention, rollups and indexes as they said"
        )
    streams = {entry.id: entry for entry in catalog.streams()}
    given = {catalog.last_stream_id(), *streams}
    given |= _unknown_in_log(files, directory, catalog, streams, found)
    known = catalog.runs()
    named = {name for run in known for name in run.files}
    added: list[Run] = []
    for name in _files_below(files, directory / "runs"):
        if name in named:
            continue
        said = RunName.parse(name)
        entry = None if said is None else streams.get(said.stream_id)
        if said is not None:
            given.add(said.stream_id)
        try:
            if said is None or entry is None or not said.is_run:
                raise CorruptData("its stream is not known" if entry is None else "it is no run")
            run = _read(files, directory, name, said, entry)
            replaced = _place_of(directory, run, entry, [*known, *added])
        except ShedderError as error:
            kept = keep_unknown(files, directory, f"runs/{name}")
            found.lost.append(f"runs/{name}, which is {kept} now: {error}")
            continue
        _list(directory, catalog, run, replaced)
        added.append(run)
        found.done.append(f"runs/{name} is listed again: {run.rows:,} tuples")
    if added and not marks.is_whole:
        found.lost.append(
            "commits of the catalog, whose number no mark tells: streams, standing queries, "
            "deletions, retention, rollups and indexes as they said"
        )
    catalog.skip_to(generation=marks.generation, stream_id=max(given))


def _unknown_in_log(
    files: Files,
    directory: Path,
    catalog: Catalog,
    streams: dict[int, StreamEntry],
    found: Repaired,
) -> set[int]:
    """Name what the log has of streams and tables whose ids the catalog never gave.

    Returns:
      ids of such streams; ids of such tables are not given again.
    """
    rows = Counter[int]()
    changes = Counter[int]()
    last, last_table = catalog.last_stream_id(), catalog.tables.last_id()
    log = assess(files, directory / "log", catalog.durable_sequence())
    for segment in log.segments:
        file = files.open(segment.path)
        try:
            for record in scan(file, segment.path, segment.head, end=segment.size):
                if not isinstance(record, Damage) and record.kind == RecordType.TABLE:
                    table = TableChange.from_bytes(record.header).table
                    changes[table] += table > last_table
                if isinstance(record, Damage) or record.kind != RecordType.BATCH:
                    continue
                header = Batch.from_bytes(record.header)
                if header.stream > last and header.stream not in streams:
                    rows[header.stream] += header.rows
        finally:
            file.close()
    if not log.segments:
        found.lost.append(f"{directory / 'log'} has no segment: all tuples that were in no run")
    for stream, lost in sorted(rows.items()):
        found.lost.append(f"stream {stream}: its definition, and {lost:,} tuples in the log")
    for table, number in sorted((+changes).items()):
        found.lost.append(f"table {table}: its definition, and {number:,} changes in the log")
    catalog.tables.skip_to(max([last_table, *(+changes)]))
    return set(rows)


def _files_below(files: Files, root: Path) -> list[str]:
    return [
        f"{folder}/{name}"
        for folder in (files.names(root) if root.exists() else [])
        if (root / folder).is_dir()
        for name in files.names(root / folder)
        if name.endswith(".parquet")
    ]


def _read(files: Files, directory: Path, name: str, said: RunName, entry: StreamEntry) -> Run:
    """Read every byte of a file, and return its run.

    Raises:
      ShedderError: the file is damaged, or not a run of the stream in the catalog.
    """
    path = directory / "runs" / name
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise CorruptData(f"it cannot be read: {error}") from error
    layout = layout_from_text(metadata.get(b"shedder.layout", b"plain").decode())
    as_written = replace(entry, schema=replace(entry.schema, layout=layout))
    size_bytes, crc = file_crc(files, path)
    sent = SentFile(said.first_position, said.end_position, size_bytes, crc)
    return replace(examined(files, path, as_written, sent, may_be_purged=True), file=name)


def _place_of(directory: Path, run: Run, entry: StreamEntry, runs: list[Run]) -> Run | None:
    """Return the listed run with the same positions and a missing file, to be replaced.

    Raises:
      CorruptData: another run that is there holds some of its positions, or retention removed it.
    """
    if run.first_position >= 0 and run.end_position <= entry.retained_position:
        raise CorruptData("retention had removed its tuples")
    found = None
    for other in runs:
        if other.stream_id != run.stream_id or other.end_position <= run.first_position:
            continue
        if other.first_position >= run.end_position:
            continue
        stretch = (other.first_position, other.end_position)
        is_there = (directory / "runs" / other.file).exists()
        if stretch != (run.first_position, run.end_position) or is_there:
            raise CorruptData(f"the catalog has run {other.file} for its positions")
        found = other
    return found


def _list(directory: Path, catalog: Catalog, run: Run, replaced: Run | None) -> None:
    """List a run; rows that were deleted in the run that it replaces stay deleted."""
    with catalog.transaction():
        if replaced is not None:
            deleted = catalog.annotations.deleted().get((run.stream_id, run.first_position))
            catalog.drop_run(replaced)
            if deleted is not None:
                left = Deleted.of(deleted.mask(run) & _present(directory, run))
                if left.rows:
                    catalog.annotations.put_deleted(run, left)
        catalog.add_run(run)


def _present(directory: Path, run: Run) -> NDArray[np.bool_]:
    """Return which positions of a run have a row in its file, bool [run.stretch]."""
    present = np.zeros(run.stretch, bool)
    for positions, _ in read_run(directory / "runs" / run.file, run, []):
        present[positions - run.first_position] = True
    return present
