"""Verification of a data directory that no server has open. Nothing is changed."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shedder.archive.catalog.catalog import Catalog
from shedder.archive.catalog.checksummed_tables import older_text
from shedder.archive.files.data_directory import format_of, servers_excluded
from shedder.archive.files.durable_marks import FILE_NAME, Marks, read_marks
from shedder.archive.files.file_system import Files, OsFiles
from shedder.archive.files.repair_record import REPAIRED, read_repairs
from shedder.archive.files.unknown_files import UNKNOWN
from shedder.archive.indexes.value_index import index_name
from shedder.archive.log.log_segment import Damage, scan
from shedder.archive.log.records import Batch, RecordType
from shedder.archive.log.segment_recovery import Assessment, assess
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.metadata.table_entries import TableEntry
from shedder.archive.operations.verify_tables import VerifiedTables
from shedder.archive.runs.run_format import missing_text, read_run, verify_run
from shedder.archive.tasks.interruptible_call import aside
from shedder.archive.tasks.progress import Progress, ProgressCallback
from shedder.errors import Cancelled, CorruptData, ShedderError, StorageFailed

_Emptied = list[tuple[int, int, int]]
"""Stream, first position, end position."""


@dataclass(frozen=True, slots=True)
class _Catalogued:
    """What the catalog says, as far as it can be read.

    quarantined: stream and first position of runs. indexes: stream and column. at_least: the
    checkpoint's sequence. needed_from: the log must begin at it or below.
    last_stream, last_table: the highest id that was given to a stream, and to a table.
    """

    streams: dict[int, StreamEntry] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    quarantined: set[tuple[int, int]] = field(default_factory=set)
    emptied: _Emptied = field(default_factory=list)
    indexes: list[tuple[int, str]] = field(default_factory=list)
    at_least: int = 0
    needed_from: int | None = None
    last_stream: int | None = None
    tables: dict[int, TableEntry] = field(default_factory=dict)
    last_table: int | None = None


@dataclass(slots=True)
class VerifyReport:
    """What was found.

    damages: bytes or tuples that are lost. aside: runs in quarantine, and losses of repairs, which
    every answer names. notes: what is mended by itself (a torn tail after a crash, orphans, copies
    that a scrub drops). The rest counts what was verified.
    """

    damages: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    streams: int = 0
    runs: int = 0
    run_rows: int = 0
    run_bytes: int = 0
    segments: int = 0
    records: int = 0
    log_rows: int = 0
    tables: int = 0
    table_rows: int = 0

    @property
    def ok(self) -> bool:
        """Return whether nothing is lost."""
        return not self.damages and not self.aside


def check(
    directory: Path, files: Files | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Verify every checksum in a data directory, and that no position is missing.

    Args:
      directory: a data directory.
      files: the file system; the real one when None.
      progress: told of the bytes of runs; cancel it from another thread.

    Raises:
      CorruptData: it is not a data directory.
      NewerFormat: a newer version wrote it.
      DirectoryLocked: a process serves it.
      StorageFailed: it cannot be read. Cancelled.
    """
    files = OsFiles() if files is None else files
    progress = progress or Progress("check", "bytes")
    report = VerifyReport()
    version = format_of(directory)
    if version is None:
        raise CorruptData(f"{directory} is not a data directory: it has no FORMAT")
    with servers_excluded(directory):
        try:
            marks = read_marks(directory)
            _check_marks(directory, marks, version, report)
            _check_repairs(directory, report)
            known = _check_catalog(directory, marks, report)
            progress.expect(progress.total + sum(run.size_bytes for run in known.runs))
            _check_runs(files, directory, known, report, progress)
            _check_indexes(files, directory, known, report)
            tables = VerifiedTables(known.tables, known.last_table)
            tables.check_images(files, directory, progress.advance)
            log = directory / "log"
            at_least = max(known.at_least, marks.sequence)
            found = aside(lambda: assess(files, log, at_least, known.needed_from), progress.advance)
            ends = _check_log(files, found, known, report, progress, tables)
            report.damages += tables.damages
            report.notes += tables.notes
            report.tables, report.table_rows = len(known.tables), tables.rows
            _check_positions(known.streams, known.runs, known.emptied, ends, report)
        except OSError as error:
            raise StorageFailed(f"cannot read {directory}: {error}") from error
    return report


def _check_marks(directory: Path, marks: Marks, version: int, report: VerifyReport) -> None:
    """Report the durable marks, and the files that a start has moved into quarantine."""
    path = directory / FILE_NAME
    if not marks.is_whole and path.exists():
        report.notes.append(f"{path} is damaged; the next start makes it anew")
    elif path.exists() and path.read_bytes() != marks.to_bytes():
        report.notes.append(f"{path} is damaged in one of its copies; the other one is whole")
    if version < marks.format_version:
        report.damages.append(
            f"{directory / 'FORMAT'} holds 'shedder archive {version}', it has held "
            f"'shedder archive {marks.format_version}'"
        )
    folder = directory / "quarantine"
    for kept in sorted(folder.glob(f"{UNKNOWN}*")) if folder.exists() else []:
        report.notes.append(f"{kept} is a file of unknown origin; no catalog named it")


def _check_repairs(directory: Path, report: VerifyReport) -> None:
    """Report what repairs could not rebuild."""
    report.aside += [
        f"a repair could not rebuild {lost}; delete again what was deleted, then remove "
        f"{directory / REPAIRED}"
        for repair in read_repairs(directory)
        for lost in repair.lost
    ]


def _check_catalog(directory: Path, marks: Marks, report: VerifyReport) -> _Catalogued:
    path = directory / "catalog.sqlite"
    if not path.exists():
        report.damages.append(f"{path} is missing")
        return _Catalogued()
    with tempfile.TemporaryDirectory(prefix="shedder-check-") as copies:
        for name in (path.name, f"{path.name}-wal"):  # SQLite would write beside the original
            if (directory / name).exists():
                shutil.copyfile(directory / name, Path(copies) / name)
        try:
            catalog = Catalog.open(Path(copies) / path.name, must_exist=True)
        except ShedderError as error:
            report.damages.append(str(error).replace(copies, str(directory)))
            return _Catalogued()
        problems = [text.replace(copies, str(directory)) for text in catalog.problems()]
        report.damages += problems
        if catalog.generation < marks.generation:
            report.damages.append(older_text(path, catalog.generation, marks.generation))
        try:
            known = _Catalogued(
                streams={entry.id: entry for entry in catalog.streams()},
                runs=catalog.runs(),
                quarantined={
                    (it.stream_id, it.first_position) for it in catalog.annotations.quarantined()
                },
                emptied=catalog.annotations.emptied(),
                indexes=catalog.annotations.indexes(),
                at_least=catalog.durable_sequence(),
                needed_from=catalog.checkpoint_sequence(),
                last_stream=catalog.last_stream_id(),
                tables={entry.id: entry for entry in catalog.tables.entries()},
                last_table=catalog.tables.last_id(),
            )
        except ShedderError:  # already among the problems
            known = _Catalogued()
        catalog.close()
    report.streams = len(known.streams)
    return known


def _check_runs(
    files: Files, directory: Path, catalogued: _Catalogued, report: VerifyReport, progress: Progress
) -> None:
    runs = catalogued.runs
    for run in runs:
        if (run.stream_id, run.first_position) in catalogued.quarantined:
            report.aside.append(f"{missing_text(run)} are in quarantine")
            continue
        try:
            verify_run(files, directory, run, progress.advance)
            _check_parquet(directory / "runs" / run.file, run, progress.advance)
        except Cancelled:
            raise
        except ShedderError as error:
            report.damages.append(str(error))
            continue
        report.runs += 1
        report.run_rows += run.rows
        report.run_bytes += run.size_bytes
        for beside in (*map(run.of_copy, run.copies), *map(run.of_rolled, run.rolled)):
            try:
                verify_run(files, directory, beside, progress.advance)
            except Cancelled:
                raise
            except ShedderError as error:
                report.notes.append(f"{error}; it is made of a run that is whole: SCRUB drops it")
    known = {name for run in runs for name in run.files}
    root = directory / "runs"
    for folder in files.names(root) if root.exists() else []:
        if not (root / folder).is_dir():
            report.notes.append(f"{root / folder} is a file of unknown origin")
            continue
        for name in files.names(root / folder):
            if f"{folder}/{name}" not in known:
                report.notes.append(f"{root / folder / name} is an orphan")


def _check_indexes(
    files: Files, directory: Path, catalogued: _Catalogued, report: VerifyReport
) -> None:
    """Files of value indexes that a crash has left; those that are wanted are never needed."""
    root = directory / "indexes"
    wanted = {
        root / str(stream) / index_name(run.file, column)
        for stream, column in catalogued.indexes
        for run in catalogued.runs
        if run.stream_id == stream
    }
    for folder in files.names(root) if root.exists() else []:
        for name in files.names(root / folder):
            if root / folder / name not in wanted:
                report.notes.append(f"{root / folder / name} is an orphan")


def _check_parquet(path: Path, run: Run, on_progress: ProgressCallback) -> None:
    try:
        with pq.ParquetFile(path) as file:
            rows, metadata = file.metadata.num_rows, file.metadata.metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise CorruptData(f"cannot read {path}: {error}") from error
    said = [metadata.get(b"shedder." + key) for key in (b"first_position", b"end_position")]
    want = [str(run.first_position).encode(), str(run.end_position).encode()]
    if rows != run.rows or said != want:
        raise CorruptData(
            f"{path} has {rows} rows at positions {said}, the catalog says {run.rows} at {want}"
        )
    for _ in read_run(path, run, [], on_progress):  # the positions, where they are a column
        pass


def _check_log(
    files: Files,
    found: Assessment,
    known: _Catalogued,
    report: VerifyReport,
    progress: Progress,
    tables: VerifiedTables,
) -> dict[int, list[tuple[int, int]]]:
    """The stretches of positions in the log, per stream, in order."""
    report.segments = len(found.segments)
    report.records = found.report.records
    report.damages += [str(damage) for damage in found.report.damages]
    if not found.segments and not found.report.damages:
        report.damages.append("the log has no segment; a log always has one")
    unknown = set[int]()
    if found.report.torn_bytes:
        report.notes.append(
            f"{found.segments[-1].path} ends in {found.report.torn_bytes} bytes that were never "
            "acknowledged"
        )
    if found.stillborn is not None:
        report.notes.append(f"{found.stillborn} is empty")
    stretches: dict[int, list[tuple[int, int]]] = {stream: [] for stream in known.streams}
    for segment in found.segments:
        file = files.open(segment.path)
        try:
            for record in scan(file, segment.path, segment.head, end=segment.size):
                progress.advance()
                if not isinstance(record, Damage) and record.kind == RecordType.TABLE:
                    tables.check_change(record, f"{segment.path}: record {record.sequence}")
                if isinstance(record, Damage) or record.kind != RecordType.BATCH:
                    continue
                header = Batch.from_bytes(record.header)
                if header.stream not in stretches:  # of a stream that was dropped
                    if known.last_stream is not None and header.stream > known.last_stream:
                        unknown.add(header.stream)
                    continue
                where = f"{segment.path}: record {record.sequence}"
                _check_body(record.body, header, where, report)
                stretches[header.stream].append((header.first_position, header.end_position))
                report.log_rows += header.rows
        finally:
            file.close()
    report.damages += [
        f"the log has tuples of stream {stream}, which the catalog does not know"
        for stream in sorted(unknown)
    ]
    return stretches


def _check_body(body: pa.Buffer, header: Batch, where: str, report: VerifyReport) -> None:
    try:
        rows = sum(batch.num_rows for batch in pa.ipc.open_stream(body))
    except (OSError, pa.ArrowException) as error:
        report.damages.append(f"{where} holds no Arrow stream: {error}")
        return
    if rows != header.rows:
        report.damages.append(f"{where} holds {rows} rows, its header says {header.rows}")


def _check_positions(
    streams: dict[int, StreamEntry],
    runs: list[Run],
    emptied: _Emptied,
    stretches: dict[int, list[tuple[int, int]]],
    report: VerifyReport,
) -> None:
    """Every position from 0 is in a run, in the log, or was removed by retention or a purge.

    Those below 0 are of what was backfilled: given out in stretches, of which not all are used.
    """
    for stream, entry in streams.items():
        name = entry.schema.name
        in_runs = sorted(
            [(r.first_position, r.end_position) for r in runs if r.stream_id == stream]
            + [(first, end) for number, first, end in emptied if number == stream]
        )
        reached = min([first for first, _ in in_runs[:1]] + [0])
        for first, end in in_runs:
            if first < reached:
                report.damages.append(f"stream {name!r}: two runs hold position {first}")
            elif first < 0:
                pass
            elif max(reached, entry.retained_position, 0) < first:
                begin = max(reached, entry.retained_position, 0)
                _missing(name, begin, first, "in no run", report)
            reached = max(reached, end)
        reached = max(reached, entry.retained_position, 0)
        for first, end in stretches[stream]:
            if first > reached:
                _missing(name, reached, first, "in no run and not in the log", report)
            reached = max(reached, end)


def _missing(name: str, first: int, end: int, where: str, report: VerifyReport) -> None:
    report.damages.append(f"stream {name!r}: positions {first} to {end} (excluded) are {where}")
