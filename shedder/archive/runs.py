"""Runs: writing a closed stretch of a stream as a Parquet file, verifying it, reading it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from shedder.archive.entries import Run, StreamEntry
from shedder.archive.files import DISK_FULL_ERRNOS, Bytes, Files, WriteFile
from shedder.archive.parquet import basics_of, open_writer, row_group_rows
from shedder.archive.segment import checksum
from shedder.errors import CorruptData, DiskFull, StorageFailed

FORMAT = "1"
SCAN_ROWS = 65_536

_COPY_BYTES = 4 << 20


class _Sink:
    """A file object for Arrow: writes through the seam, and sums the checksum up."""

    def __init__(self, file: WriteFile) -> None:
        self._file = file
        self.crc = 0
        self.size = 0
        self.closed = False

    def write(self, data: Bytes) -> int:
        """Append data; Arrow's pages are large, so nothing is buffered."""
        self._file.write([data])
        self.crc = checksum(data, self.crc)
        length = memoryview(data).nbytes
        self.size += length
        return length

    def tell(self) -> int:
        """Bytes written."""
        return self.size

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """The owner of the file closes it."""
        self.closed = True

    def readable(self) -> bool:
        """No."""
        return False

    def writable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """No."""
        return False


def run_file(stream_id: int, first_position: int, end_position: int) -> str:
    """A run's path below `runs/`."""
    return f"{stream_id}/{first_position:020d}-{end_position:020d}.parquet"


def write_run(
    files: Files,
    directory: Path,
    stream: StreamEntry,
    first_position: int,
    batches: Sequence[pa.RecordBatch],
) -> Run:
    """Write a run's file, durably and in place; the catalog has to be told afterwards.

    Args:
      files: the file system.
      directory: the data directory.
      stream: whose run it is.
      first_position: of the first row; the rows' positions are contiguous.
      batches: at least one row.

    Raises:
      DiskFull, StorageFailed: nothing is in `runs/`.
    """
    table = pa.Table.from_batches(batches)
    end_position = first_position + table.num_rows
    name = run_file(stream.id, first_position, end_position)
    target = directory / "runs" / name
    temporary = directory / "tmp" / name.replace("/", "-")
    metadata = {
        "shedder.format": FORMAT,
        "shedder.stream": stream.schema.name,
        "shedder.stream_id": str(stream.id),
        "shedder.first_position": str(first_position),
        "shedder.end_position": str(end_position),
        "shedder.layout": stream.schema.layout.value,
    }
    basics = basics_of(table)
    times = basics[stream.schema.time_column]
    assert isinstance(times.low, int)
    assert isinstance(times.high, int)
    try:
        files.make_directory(target.parent)
        with suppress(FileNotFoundError):
            files.unlink(temporary)
        size, crc = _write_file(files, temporary, table, metadata)
        files.rename(temporary, target)
        files.sync_directory(target.parent)
    except OSError as error:
        with suppress(OSError):
            files.unlink(temporary)
        if error.errno in DISK_FULL_ERRNOS:
            raise DiskFull(f"no space for run {name}: {error}") from error
        raise StorageFailed(f"cannot write run {name}: {error}") from error
    return Run(
        stream_id=stream.id,
        first_position=first_position,
        end_position=end_position,
        file=name,
        size_bytes=size,
        crc=crc,
        low_us=times.low,
        high_us=times.high,
        layout=stream.schema.layout,
        basics=basics,
    )


def _write_file(
    files: Files, path: Path, table: pa.Table, metadata: dict[str, str]
) -> tuple[int, int]:
    """Write and fsync; returns the file's size and checksum."""
    file = files.create(path)
    try:
        sink = _Sink(file)
        target = pa.PythonFile(sink, mode="w")  # type: ignore[arg-type]
        with open_writer(target, table, metadata) as writer:
            writer.write_table(table, row_group_size=row_group_rows(table))
        file.sync()
    finally:
        file.close()
    return sink.size, sink.crc


def verify_run(files: Files, directory: Path, run: Run) -> None:
    """Compare the file with what the catalog says.

    Raises:
      CorruptData: it is missing, or its size or checksum differs.
      StorageFailed: it cannot be read.
    """
    path = directory / "runs" / run.file
    try:
        file = files.open(path)
    except FileNotFoundError as error:
        raise CorruptData(f"{path} is missing; it held {_positions(run)}") from error
    except OSError as error:
        raise StorageFailed(f"cannot read {path}: {error}") from error
    try:
        if file.size != run.size_bytes:
            raise CorruptData(
                f"{path} has {file.size} bytes, not {run.size_bytes}; it held {_positions(run)}"
            )
        crc = 0
        for offset in range(0, run.size_bytes, _COPY_BYTES):
            crc = google_crc32c.extend(crc, file.read(offset, _COPY_BYTES))
    except OSError as error:
        raise StorageFailed(f"cannot read {path}: {error}") from error
    finally:
        file.close()
    if crc != run.crc:
        raise CorruptData(
            f"{path}: checksum {crc:#010x}, not {run.crc:#010x}; it held {_positions(run)}"
        )


def read_run(
    path: Path, run: Run, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a run in order of position, in batches of at most 65,536.

    Args:
      path: of the run's file, which must have been verified.
      run: what it is.
      columns: those that are wanted, all when None.

    Yields:
      the position of the first row, and the rows.

    Raises:
      CorruptData: it is no Parquet file, or a page fails its checksum, or rows are missing.
    """
    position = run.first_position
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            names = None if columns is None else list(columns)
            for batch in file.iter_batches(SCAN_ROWS, columns=names, use_threads=False):
                yield position, batch.replace_schema_metadata(None)
                position += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        raise CorruptData(f"cannot read {path}: {error}") from error
    if position != run.end_position:
        raise CorruptData(f"{path} ends at position {position}, not {run.end_position}")


def _positions(run: Run) -> str:
    return f"positions {run.first_position} to {run.end_position} (excluded)"
