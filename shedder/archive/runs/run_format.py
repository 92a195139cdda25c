"""Runs by layout: the stream's layout writes, verifies and reads a closed range of positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.files.file_system import Files, unread
from shedder.archive.layouts.eager import EagerLayout
from shedder.archive.layouts.hybrid import HybridLayout
from shedder.archive.layouts.lazy import LazyLayout
from shedder.archive.layouts.plain import PlainLayout
from shedder.archive.layouts.protocol import ArchiveLayout
from shedder.archive.layouts.row_source import Rows
from shedder.archive.metadata.catalog_entries import Run, StreamEntry
from shedder.archive.tasks.progress import STEP_BYTES, ProgressCallback, no_progress
from shedder.cql.statements.archive_layout import Eager, Hybrid, Layout, Lazy, Plain
from shedder.cql.text.durations import timestamp_text
from shedder.errors import CorruptData


def implementation(layout: Layout) -> ArchiveLayout:
    """What writes and reads runs of a layout."""
    match layout:
        case Plain():
            return PlainLayout()
        case Eager():
            return EagerLayout()
        case Lazy():
            return LazyLayout()
        case Hybrid():
            return HybridLayout()


def write_run(
    files: Files,
    directory: Path,
    stream: StreamEntry,
    first_position: int,
    batches: Sequence[pa.RecordBatch],
    previous: Run | None = None,
) -> Run:
    """Write a run in its stream's layout, durably; the catalog has to be told afterwards.

    Args:
      files: the file system.
      directory: the data directory.
      stream: whose run it is.
      first_position: of the first row; the rows' positions are contiguous.
      batches: at least one row.
      previous: the stream's run before it, if there is one.

    Raises:
      DiskFull, StorageFailed: nothing is in `runs/`.
    """
    layout = implementation(stream.schema.layout)
    place = RunPlace(files, directory)
    table = pa.Table.from_batches(batches)
    return layout.insert(place, stream, Rows.whole(table, first_position), previous)


def read_run(
    path: Path,
    run: Run,
    columns: Sequence[str] | None = None,
    on_progress: ProgressCallback = no_progress,
) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
    """The rows of a run in order of position, in batches of at most 65,536.

    Args:
      path: of the run's file, which must have been verified.
      run: what it is.
      columns: those that are wanted, all when None.
      on_progress: called between reads; what it raises ends the reading.

    Yields:
      positions, int64 [rows], rising, with gaps where rows were purged; and the rows.

    Raises:
      CorruptData: it is no Parquet file, or a page fails its checksum, or rows are missing.
    """
    return implementation(run.layout).scan(path, run, columns, on_progress)


def verify_run(
    files: Files, directory: Path, run: Run, on_progress: Callable[[int], None] | None = None
) -> None:
    """Compare the file with what the catalog says.

    Args:
      files: the file system.
      directory: the data directory.
      run: what the catalog says.
      on_progress: called with the bytes that were read, every few; what it raises ends the reading.

    Raises:
      CorruptData: it is missing, or its size or checksum differs, or its disk cannot read it.
      StorageFailed: it cannot be read.
    """
    verify_file(files, directory / "runs" / run.file, run, on_progress)


def verify_file(
    files: Files, path: Path, run: Run, on_progress: Callable[[int], None] | None = None
) -> None:
    """As `verify_run`, of a file of the run that lies anywhere."""
    try:
        file = files.open(path)
    except FileNotFoundError as error:
        raise CorruptData(f"{path} is missing; it held {run.positions_text}") from error
    except OSError as error:
        raise unread(path, error, run.positions_text) from error
    try:
        if file.size != run.size_bytes:
            raise CorruptData(
                f"{path} has {file.size} bytes, not {run.size_bytes}; it held {run.positions_text}"
            )
        crc = 0
        for offset in range(0, run.size_bytes, STEP_BYTES):
            data = file.read(offset, STEP_BYTES)
            crc = google_crc32c.extend(crc, data)
            if on_progress is not None:
                on_progress(len(data))
    except OSError as error:
        raise unread(path, error, run.positions_text) from error
    finally:
        file.close()
    if crc != run.crc:
        raise CorruptData(
            f"{path}: checksum {crc:#010x}, not {run.crc:#010x}; it held {run.positions_text}"
        )


def file_crc(files: Files, path: Path) -> tuple[int, int]:
    """The size of a file, and the CRC-32C of all of it.

    Raises:
      OSError.
    """
    file = files.open(path)
    try:
        crc = 0
        for offset in range(0, file.size, STEP_BYTES):
            crc = google_crc32c.extend(crc, file.read(offset, STEP_BYTES))
        return file.size, int(crc)
    finally:
        file.close()


def missing_text(run: Run) -> str:
    """The tuples of a run, for messages that say that they are not there."""
    stretch = f"{timestamp_text(run.low_us)} to {timestamp_text(run.high_us)}"
    return f"{run.rows:,} tuples, {run.positions_text}, event times {stretch},"
