"""A run's file of which only some parts are read, each verified when it is."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shedder.archive.encoding.run_writer import PIECES, unpacked
from shedder.archive.files.checksum import checksum
from shedder.archive.files.file_system import ReadFile
from shedder.archive.metadata.catalog_entries import Run
from shedder.errors import CorruptData

FOOTERS_BYTES: Final = 16 << 20  # Of files; some times as much in memory.


@dataclass(frozen=True, slots=True, eq=False)
class ReadFooter:
    """A footer that was verified: the Parquet metadata, and where pieces begin and their checksums.

    schema: the file's, without metadata. begins: [pieces + 1]. crcs: [pieces].
    """

    metadata: pq.FileMetaData
    schema: pa.Schema
    begins: list[int]
    crcs: list[int]
    _chunks: dict[tuple[int, frozenset[str]], list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: bytes, offset: int) -> Self:
        """From the bytes of a footer that begins at an offset of its file."""
        metadata = pq.read_metadata(pa.BufferReader(data))
        pieces = unpacked((metadata.metadata or {})[PIECES.encode()])
        begins = [0, *np.cumsum(pieces["size"], dtype=np.int64).tolist()]
        assert begins[-1] == offset
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        return cls(metadata, schema, begins, pieces["crc"].tolist())

    def stretches(self, groups: Sequence[int], names: frozenset[str]) -> list[tuple[int, int]]:
        """Return begins and lengths of columns of some row groups, neighbours joined."""
        return _joined(part for group in sorted(groups) for part in self._of_group(group, names))

    def _of_group(self, group: int, names: frozenset[str]) -> list[tuple[int, int]]:
        known = self._chunks.get((group, names))
        if known is None:
            its = self.metadata.row_group(group)
            chunks = [its.column(at) for at in range(its.num_columns)]
            known = self._chunks[group, names] = _joined(
                (
                    chunk.dictionary_page_offset or chunk.data_page_offset,
                    chunk.total_compressed_size,
                )
                for chunk in chunks
                if chunk.path_in_schema in names
            )
        return known


def _joined(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Begins and lengths, those that touch as one."""
    found: list[tuple[int, int]] = []
    for begin, length in parts:
        if found and sum(found[-1]) == begin:
            first, before = found.pop()
            found.append((first, before + length))
        else:
            found.append((begin, length))
    return found


class Footers:
    """The footers that were used last, so that a small part of a run costs no more than it. Safe
    from any thread."""

    def __init__(self, size_bytes_max: int = FOOTERS_BYTES) -> None:
        """Keep up to so many bytes of footers, as they are in files."""
        self._max = size_bytes_max
        self._held: OrderedDict[tuple[str, int], ReadFooter] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def find(self, run: Run) -> ReadFooter | None:
        """That of a run's file; None: it has to be read."""
        with self._lock:
            found = self._held.get((run.file, run.crc))
            if found is not None:
                self._held.move_to_end((run.file, run.crc))
            return found

    def keep(self, run: Run, footer: ReadFooter) -> None:
        """Hold on to one; those that were not used for the longest time go."""
        with self._lock:
            if (run.file, run.crc) in self._held:
                return
            self._held[run.file, run.crc] = footer
            self._size += footer.metadata.serialized_size
            while self._size > self._max:
                _, evicted = self._held.popitem(last=False)
                self._size -= evicted.metadata.serialized_size

    def forget(self) -> None:
        """Read all of them again when they are needed."""
        with self._lock:
            self._held.clear()
            self._size = 0


class CheckedFile:
    """A file object for Arrow over the pieces of a file; counts the bytes that are read.

    Arrow asks for whole column chunks; whole pieces are read, and none is handed out whose checksum
    is not that of the footer, nor a footer whose checksum is not the catalog's. A file whose run
    knows no footer has been verified as a whole before.
    """

    def __init__(
        self, file: ReadFile, path: Path, run: Run, footers: Footers | None = None
    ) -> None:
        """Read and verify the footer, unless footers has it.

        Raises:
          CorruptData: it is not as the catalog says.
          OSError: it cannot be read.
        """
        self._file, self._path, self._run = file, path, run
        self._at = 0
        self.closed = False
        self._bytes_read = 0
        if file.size != run.size_bytes:
            raise self._corrupt(f"has {file.size} bytes, not {run.size_bytes}")
        self.footer: ReadFooter | None = None
        self._begins: list[int] | None = None
        if run.footer is not None:
            known = None if footers is None else footers.find(run)
            if known is None:
                footer = self._load(run.footer.offset, run.size_bytes, run.footer.crc)
                known = ReadFooter.of(footer, run.footer.offset)
                if footers is not None:
                    footers.keep(run, known)
            self.footer = known
            self._crcs, self._begins = known.crcs, known.begins

    def read(self, size: int = -1) -> bytes:
        """The next bytes. Raises CorruptData, OSError."""
        begin = self._at
        end = self._run.size_bytes if size < 0 else min(begin + size, self._run.size_bytes)
        if self._begins is None:
            self._at = end
            return self._load(begin, end)
        first = bisect_right(self._begins, begin) - 1
        last = bisect_left(self._begins, end)
        assert last < len(self._begins), "Arrow has the footer already"
        low, high = self._begins[first], self._begins[last]
        data = self._load(low, high)
        view = memoryview(data)
        for piece in range(first, last):
            a, b = self._begins[piece] - low, self._begins[piece + 1] - low
            if checksum(view[a:b]) != self._crcs[piece]:
                raise self._corrupt(f"bytes {low + a} to {low + b} fail their checksum")
        self._at = end
        return data if (low, high) == (begin, end) else data[begin - low : end - low]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        self._at = offset + (0, self._at, self._run.size_bytes)[whence]
        return self._at

    def expect(self, stretches: Sequence[tuple[int, int]]) -> None:
        """Nothing will be read but these, begins and lengths. Raises OSError."""
        self._file.expect(stretches)

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def close(self) -> None:
        """The owner of the file closes it."""
        self.closed = True

    def readable(self) -> bool:
        """Yes."""
        return True

    def writable(self) -> bool:
        """No."""
        return False

    def seekable(self) -> bool:
        """Yes."""
        return True

    def take_bytes_read(self) -> int:
        """Return the number of bytes that were read since the last call, and count from 0."""
        bytes_read, self._bytes_read = self._bytes_read, 0
        return bytes_read

    def _load(self, begin: int, end: int, crc: int | None = None) -> bytes:
        data = self._file.read(begin, end - begin)
        self._bytes_read += len(data)
        if len(data) != end - begin or (crc is not None and checksum(data) != crc):
            raise self._corrupt(f"bytes {begin} to {end} fail their checksum")
        return data

    def _corrupt(self, what: str) -> CorruptData:
        run = self._run
        held = run.positions_text
        return CorruptData(f"{self._path}: {what}; it held {held}")
