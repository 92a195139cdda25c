"""Run writer: writes one Parquet file of a run durably, with checksums of all pieces."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from shedder.archive.encoding.parquet_encoding import open_writer
from shedder.archive.files.background_writer import WriteBehind
from shedder.archive.files.file_system import Bytes, Files, failure
from shedder.archive.metadata.catalog_entries import Footer
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.errors import Cancelled, CommitUnknown, ShedderError

PIECES = "shedder.pieces"
PIECE = np.dtype([("size", "<u4"), ("crc", "<u4")])
"""A piece is what Arrow wrote at once: a page, its header. No piece crosses a column chunk."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file in place: its name below `runs/`, its checksum, and that of its footer."""

    name: str
    size_bytes: int
    crc: int
    footer: Footer


class _Sink:
    """A file object for Arrow: hands on what it is given, and counts it."""

    def __init__(self, behind: WriteBehind, on_progress: ProgressCallback) -> None:
        self._behind = behind
        self._on_progress = on_progress
        self.size = 0
        self.closed = False

    def write(self, data: Bytes) -> int:
        """Append data; Arrow's pages are large, so nothing is gathered."""
        self._on_progress()
        self._behind.write(data)
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


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Writer of the Parquet files of runs, for one data directory.

    on_progress: called now and then; an exception that it raises ends the writing.
    written: names of the files, in order.
    """

    files: Files
    directory: Path
    on_progress: ProgressCallback = no_progress
    written: list[str] = field(default_factory=list)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Remove the files that were written in the block, if the block raises.

        They stay if the catalog may have them after a restart, which removes them otherwise.
        """
        begun = len(self.written)
        try:
            yield
        except CommitUnknown:
            raise
        except ShedderError:  # others may come after the catalog was told
            for name in self.written[begun:]:
                with suppress(OSError):  # an orphan then, which the next start removes
                    self.files.unlink(self.directory / "runs" / name)
            del self.written[begun:]
            raise

    def write(
        self,
        name: str,
        like: pa.Table,
        metadata: dict[str, str],
        groups: Iterable[pa.Table],
        statistics: Sequence[str] | None = None,
    ) -> WrittenFile:
        """Write a file durably and in place; the catalog has to be told afterwards.

        Args:
          name: below `runs/`; where there is a file of this name, it gets a number.
          like: rows by whose values encodings are chosen, with all columns.
          metadata: of the file.
          groups: a row group each.
          statistics: columns whose smallest and largest values are kept by group; None: all.

        Raises:
          DiskFull, StorageFailed, or what `on_progress` raises: nothing is in `runs/`.
        """
        temporary = self.directory / "tmp" / name.replace("/", "-")
        try:
            self.files.make_directory((self.directory / "runs" / name).parent)
            name = self._free(name)
            target = self.directory / "runs" / name
            with suppress(FileNotFoundError):
                self.files.unlink(temporary)
            written = self._write(name, temporary, like, metadata, groups, statistics)
            self.files.rename(temporary, target)
            self.written.append(name)
            self.files.sync_directory(target.parent)
        except Cancelled:
            self._forget(temporary, name)
            raise
        except OSError as error:
            self._forget(temporary, name)
            raise failure(error, f"run {name}") from error
        return written

    def _free(self, name: str) -> str:
        """The name, with a number when a file has it: of an older layout that may still be read."""
        taken = set(self.files.names((self.directory / "runs" / name).parent))
        stem, found, number = name.removesuffix(".parquet"), name, 0
        while Path(found).name in taken:
            number += 1
            found = f"{stem}.{number}.parquet"
        return found

    def _forget(self, temporary: Path, name: str) -> None:
        with suppress(OSError):
            self.files.unlink(temporary)
        if self.written and self.written[-1] == name:  # its name may not be durable
            self.written.pop()
            with suppress(OSError):
                self.files.unlink(self.directory / "runs" / name)

    def _write(
        self,
        name: str,
        path: Path,
        like: pa.Table,
        metadata: dict[str, str],
        groups: Iterable[pa.Table],
        statistics: Sequence[str] | None,
    ) -> WrittenFile:
        file = self.files.create(path)
        try:
            with closing(WriteBehind(file)) as behind:
                sink = _Sink(behind, self.on_progress)
                target = pa.PythonFile(sink, mode="w")  # type: ignore[arg-type]
                with open_writer(target, like, metadata, statistics) as writer:
                    for group in groups:
                        self.on_progress()
                        writer.write_table(group, row_group_size=max(1, group.num_rows))
                    behind.settle()
                    writer.add_key_value_metadata({PIECES: _packed(behind.pieces)})
                    begins = sink.size
                    behind.begin_last()
                behind.settle()
            file.sync()
        finally:
            file.close()
        return WrittenFile(name, sink.size, behind.crc, Footer(begins, behind.crc_of_last))


def unpacked(text: bytes) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The pieces of a file up to its footer, from its metadata; dtype PIECE."""
    return np.frombuffer(base64.b64decode(text), PIECE)


def _packed(pieces: list[tuple[int, int]]) -> str:
    return base64.b64encode(np.array(pieces, PIECE).tobytes()).decode()
