"""Images of tables: Parquet files below `tables/`, one for the newest checkpoint of each table.

The name of a file is `<id>/<version>.parquet`. Spark and DuckDB read it as it is; its columns are
those of the table.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shedder.archive.files.checksum import checksum
from shedder.archive.files.durable_marks import DurableMarks
from shedder.archive.files.file_system import Files, atomic_write, failure, unread
from shedder.archive.files.unknown_files import keep_unknown
from shedder.archive.metadata.table_entries import TableEntry, TableImage
from shedder.archive.tables.table_rows import TableRows
from shedder.archive.tasks.progress import STEP_BYTES, ProgressCallback, no_progress
from shedder.errors import CorruptData

FOLDER = "tables"
_NAME = re.compile(r"([1-9][0-9]{0,9})/[0-9]{20}\.parquet")
_VERSION, _LOST = b"shedder.version", b"shedder.lost"


class TableImages:
    """Image files of a data directory. Any thread may call it."""

    def __init__(self, files: Files, directory: Path, marks: DurableMarks) -> None:
        self._files = files
        self._directory = directory
        self._marks = marks
        self._lock = threading.Lock()
        self._keepers = 0
        self._retired: set[str] = set()

    def write(self, table_id: int, rows: TableRows) -> TableImage:
        """Write all rows into a durable file, which the catalog does not name yet.

        Raises:
          DiskFull, StorageFailed: the file may be there in part; the next start removes it.
        """
        sink = pa.BufferOutputStream()
        metadata = {_VERSION: str(rows.version), _LOST: str(rows.lost)}
        table = rows.table().replace_schema_metadata(metadata)
        pq.write_table(table, sink, compression="zstd", compression_level=1)
        data = sink.getvalue()
        name = f"{table_id}/{rows.version:020}.parquet"
        target = self._directory / FOLDER / name
        temporary = self._directory / "tmp" / f"table-{table_id}.parquet"
        try:
            self._files.make_directory(target.parent)
            with suppress(FileNotFoundError):
                self._files.unlink(temporary)
            atomic_write(self._files, temporary, target, [data])
        except OSError as error:
            raise failure(error, str(target)) from error
        with self._lock:
            self._retired.discard(name)
        crc = checksum(data)
        return TableImage(name, rows.version, rows.rows, rows.lost, data.size, crc)

    def read(self, entry: TableEntry) -> TableRows:
        """Read the rows of a table as of its image; no rows where it has none.

        Raises:
          CorruptData: the file is missing, or not what it was. StorageFailed: it cannot be read.
        """
        if entry.image is None:
            return TableRows(entry.schema)
        path = self._directory / FOLDER / entry.image.file
        return rows_of_image(entry, read_image(self._files, path, entry.image), path)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """No file is removed meanwhile."""
        with self._lock:
            self._keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self._keepers -= 1

    def discard(self, names: Iterable[str]) -> None:
        """Unlink files that no commit has named."""
        for name in names:
            with suppress(OSError):  # An orphan then, which the next start removes.
                self._files.unlink(self._directory / FOLDER / name)

    def retire(self, names: Iterable[str]) -> None:
        """Note files that a commit has replaced; `remove_retired` removes them."""
        with self._lock:
            self._retired.update(names)

    def remove_retired(self) -> None:
        """Unlink retired files once the marks of their commits are durable, unless files are kept.

        What stays is removed by the next call, or by the next start.
        """
        with self._lock:
            names = sorted(self._retired)
        if not names or not self._marks.sync():
            return
        with self._lock:
            if self._keepers:
                return
            for name in self._retired.intersection(names):
                with suppress(OSError):
                    self._files.unlink(self._directory / FOLDER / name)
            self._retired.difference_update(names)

    def recover(
        self, entries: Sequence[TableEntry], *, last_table: int, proven: bool
    ) -> tuple[list[str], list[Path]]:
        """Remove leftovers of a crash, and move other files that no entry names into quarantine.

        Args:
          entries: of all tables.
          last_table: the highest id that was given to a table.
          proven: the catalog is known to be the newest, so an image that it does not name is a
            leftover of a crash.

        Returns:
          names of files that were removed, and where the others are now.

        Raises:
          OSError.
        """
        named = {entry.image.file for entry in entries if entry.image is not None}
        removed, kept = [], []
        for name in image_names(self._files, self._directory):
            if name in named:
                continue
            table_id = table_of(name)
            if proven and table_id is not None and table_id <= last_table:
                self._files.unlink(self._directory / FOLDER / name)
                removed.append(name)
            else:
                kept.append(keep_unknown(self._files, self._directory, f"{FOLDER}/{name}"))
        return removed, kept


def image_names(files: Files, directory: Path) -> list[str]:
    """The files below `tables/` of a data directory."""
    root = directory / FOLDER
    if not root.is_dir():
        return []
    folders = [name for name in files.names(root) if (root / name).is_dir()]
    return [f"{folder}/{name}" for folder in folders for name in files.names(root / folder)]


def table_of(name: str) -> int | None:
    """The id of the table in the name of an image; None: `write` gives no such name."""
    said = _NAME.fullmatch(name)
    return None if said is None else int(said[1])


def read_image(
    files: Files, path: Path, image: TableImage, on_progress: ProgressCallback = no_progress
) -> bytes:
    """The bytes of an image file, which match its checksum.

    Raises:
      CorruptData: the file is missing, or not what it was. StorageFailed: it cannot be read.
    """
    held = f"{image.rows:,} rows of a table, as of change {image.version}"
    try:
        data = image_bytes(files, path, on_progress)
    except FileNotFoundError:
        raise CorruptData(f"{path} is missing; it held {held}") from None
    except OSError as error:
        raise unread(path, error, held) from error
    if len(data) != image.size_bytes or checksum(data) != image.crc:
        raise CorruptData(f"{path} fails its checksum; it held {held}")
    return data


def image_bytes(files: Files, path: Path, on_progress: ProgressCallback = no_progress) -> bytes:
    """All bytes of a file.

    Raises:
      OSError.
    """
    file = files.open(path)
    try:
        parts = []
        for offset in range(0, file.size, STEP_BYTES):
            on_progress()
            parts.append(file.read(offset, STEP_BYTES))
        return b"".join(parts)
    finally:
        file.close()


def rows_of_image(entry: TableEntry, data: bytes, path: Path) -> TableRows:
    """The rows in the bytes of an image.

    Raises:
      CorruptData: the bytes are no image of this table.
    """
    empty = TableRows(entry.schema)
    try:
        table = pq.read_table(pa.BufferReader(data))
        metadata: dict[bytes, Any] = table.schema.metadata or {}
        version, lost = int(metadata[_VERSION]), int(metadata[_LOST])
        table = table.replace_schema_metadata(None).cast(empty.table().schema)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise CorruptData(f"{path} is no image of table {entry.schema.name!r}: {error}") from error
    return empty.restored(table, version=version, lost=lost)
