"""Cache of open run files that are read in part, for the next partial read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from shedder.archive.files.file_system import Files, ReadFile, unread
from shedder.archive.layouts.checksummed_file import CheckedFile, Footers
from shedder.archive.metadata.catalog_entries import Run
from shedder.errors import CorruptData

OPEN_FILES: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A run's file, and what reads it."""

    file: ReadFile
    checked: CheckedFile
    parquet: pq.ParquetFile

    def close(self) -> None:
        self.parquet.close()
        self.file.close()


class OpenFiles:
    """Files of runs that were read last, still open: opening takes longer than a small part.

    Each is lent to one reader at a time. Safe from any thread.

    forgotten: how often files were to be closed; what was lent before that may be one of them.
    """

    def __init__(self, files_max: int = OPEN_FILES) -> None:
        """Keep up to so many."""
        self._max = files_max
        self._held: OrderedDict[tuple[str, int], _Opened] = OrderedDict()
        self.forgotten = 0
        self._lock = threading.RLock()  # A snapshot may be collected, and forget, at any moment.

    def take(self, run: Run) -> _Opened | None:
        """Take the run's open file for one reader; None: the reader has to open it."""
        with self._lock:
            found = self._held.pop((run.file, run.crc), None)
        if found is not None:
            found.checked.take_bytes_read()  # Those of the last reader.
        return found

    def give(self, run: Run, opened: _Opened, forgotten: int) -> None:
        """Back, or for the first time; the one that was not used for the longest time is closed.

        forgotten: as it was before the file was taken, or opened; if it is not any more, the file
        is closed, too: there may be another one of its name by now.
        """
        with self._lock:
            if forgotten != self.forgotten:
                evicted: list[_Opened | None] = [opened]
            else:
                evicted = [self._held.pop((run.file, run.crc), None)]
                self._held[run.file, run.crc] = opened
                if len(self._held) > self._max:
                    evicted.append(self._held.popitem(last=False)[1])
        for each in evicted:
            if each is not None:
                each.close()

    def forget(self, name: str | None = None) -> None:
        """Close the files of this name below `runs/`; without a name all."""
        with self._lock:
            self.forgotten += 1
            keys = [key for key in self._held if name in (None, key[0])]
            evicted = [self._held.pop(key) for key in keys]
        for each in evicted:
            each.close()


@contextmanager
def opened(
    files: Files,
    path: Path,
    run: Run,
    footers: Footers | None = None,
    kept: OpenFiles | None = None,
) -> Iterator[tuple[pq.ParquetFile, CheckedFile]]:
    """A run's file, whose parts are verified as they are read.

    kept: those that are open already; this one stays open there, unless reading it failed.

    Raises:
      CorruptData: it is missing or damaged, or a part that was read inside is.
      StorageFailed: it cannot be read.
    """
    forgotten = 0 if kept is None else kept.forgotten
    known = None if kept is None else kept.take(run)
    try:
        if known is None:
            known = _open(files, path, run, footers)
        yield known.parquet, known.checked
    except pa.ArrowException as error:
        raise CorruptData(f"cannot read {path}: {error}") from error
    except OSError as error:
        raise unread(path, error, run.positions_text) from error
    else:
        if kept is not None:
            kept.give(run, known, forgotten)
            known = None
    finally:
        if known is not None:
            known.close()


def _open(files: Files, path: Path, run: Run, footers: Footers | None) -> _Opened:
    try:
        file = files.open(path)
    except FileNotFoundError as error:
        raise CorruptData(f"{path} is missing; it held {run.positions_text}") from error
    try:
        checked = CheckedFile(file, path, run, footers)
        source = pa.PythonFile(checked, mode="r")  # type: ignore[arg-type]
        metadata = None if checked.footer is None else checked.footer.metadata
        parquet = pq.ParquetFile(source, metadata=metadata, pre_buffer=False)
    except BaseException:
        file.close()
        raise
    return _Opened(file, checked, parquet)
