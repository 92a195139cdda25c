"""Disk buffer: batches that the server has not acknowledged, in order, on the producer's disk.

One directory per stream and producer. Each batch is an Arrow IPC file that any Arrow library reads,
written under another name, synced and renamed, so that it is there whole or not at all. Its name
says all that must be known before it is read: epoch, number of the push, rows, and the CRC-32C of
its bytes. The name of one of several batches of a push also has its first row, and whether it is
the last one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import google_crc32c
import pyarrow as pa

from shedder.archive.files.data_directory import DirectoryLock
from shedder.archive.files.file_system import Files, OsFiles, atomic_write, failure
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import CorruptData, DiskFull, StorageFailed
from shedder.streams.batches import arrow_schema, empty_batch
from shedder.streams.push_parts import WHOLE, Part

Result = TypeVar("Result")

TEMPORARY = "tmp.arrow"
LOST = ".lost"  # Ends the name of a batch that is declared lost: it counts as one without rows.
_NAME = re.compile(
    r"(\d{10,19})-(\d{19})(?:\+(\d{19})(e?))?-(\d{1,10})-([0-9a-f]{8})\.arrow(\.lost)?"
)  # Epochs of more than 10 digits are not padded; the largest, 2^62, has 19.
_SAID = b"shedder"  # The key in the schema's metadata under which a file says whose it is,
_BESIDE = b"shedder.beside"  # ... and what its writer wants to know of it later.


@dataclass(frozen=True, slots=True)
class Spilled:
    """One batch on disk.

    epoch, sequence: numbers under which it will be sent.
    rows: number of its rows.
    crc: CRC-32C of the file.
    lost: an operator has declared it lost.
    first_row, is_last: its place in its push.
    """

    path: Path
    epoch: int
    sequence: int
    rows: int
    crc: int
    size_bytes: int
    lost: bool = False
    first_row: int = 0
    is_last: bool = True

    @property
    def part(self) -> Part:
        """Its place in its push. If it is lost, the push goes on after its rows."""
        is_whole = self.is_last and not self.first_row
        skipped = self.rows if self.lost and not is_whole else 0
        return Part(self.first_row, self.is_last, skipped)

    @property
    def end(self) -> tuple[int, int, int]:
        """Return epoch, number and first row of the next batch."""
        if self.is_last:
            return self.epoch, self.sequence + 1, 0
        return self.epoch, self.sequence, self.first_row + self.rows


class Spill:
    """The batches of one producer of one stream, by number, without gaps. For one process.

    waiting: what is on disk, the oldest first.
    """

    def __init__(
        self, directory: Path, schema: StreamSchema, producer: str, files: Files | None = None
    ) -> None:
        """Open what is there, and keep other processes away until `close`.

        Raises:
          DirectoryLocked: another process has it.
          CorruptData: a number is missing between others, or a name is none of ours.
          StorageFailed, DiskFull: the directory cannot be made or read.
        """
        self._files = OsFiles() if files is None else files
        self._schema = schema
        self._producer = producer
        self.directory = directory / f"{quote(schema.name, safe='')}@{quote(producer, safe='')}"
        self._trying(lambda: self._files.make_directory(self.directory))
        self._lock = DirectoryLock.take(self.directory)
        self._is_open = True
        self._forgotten: deque[Path] = deque()  # Not to be sent, and still to be removed.
        try:
            self.waiting = deque(self._trying(self._found))
        except BaseException:
            self._lock.release()
            raise

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def rows(self) -> int:
        """Rows on disk."""
        return sum(spilled.rows for spilled in self.waiting)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(spilled.size_bytes for spilled in self.waiting)

    def write(
        self,
        batch: pa.RecordBatch,
        *,
        epoch: int,
        sequence: int,
        part: Part = WHOLE,
        beside: bytes = b"",
    ) -> None:
        """Put a batch behind the others; it is durable when this returns.

        part: its place in its push. beside: kept with it, for `beside`.

        Raises:
          DiskFull, StorageFailed: nothing of it is kept.
        """
        last = self.waiting[-1] if self.waiting else None
        assert last is None or last.end == (epoch, sequence, part.first_row)
        if last is None:  # Numbers may have gone by that were never on disk.
            self._trying(self._remove_forgotten)
        content = self._file_of(batch, self._said(epoch, sequence, part), beside)
        crc = google_crc32c.value(content.to_pybytes())
        number = f"{epoch:010}-{sequence:019}{_place_text(part)}"
        target = self.directory / f"{number}-{batch.num_rows}-{crc:08x}.arrow"
        temporary = self.directory / TEMPORARY

        def put() -> None:
            with suppress(FileNotFoundError):
                self._files.unlink(temporary)
            atomic_write(self._files, temporary, target, [content])

        with self._reverting(target):
            self._trying(put)
        spilled = Spilled(
            target,
            epoch,
            sequence,
            batch.num_rows,
            crc,
            content.size,
            first_row=part.first_row,
            is_last=part.is_last,
        )
        self.waiting.append(spilled)

    def read(self, spilled: Spilled) -> pa.RecordBatch:
        """A batch from disk, as it was written.

        Raises:
          CorruptData: it is not; the message names the file, which stays where it is.
          StorageFailed: it cannot be read.
        """
        if spilled.lost:
            return empty_batch(self._schema)
        content = self._trying(spilled.path.read_bytes)
        if google_crc32c.value(content) != spilled.crc:
            raise self._damaged(spilled, "its bytes are not those of its checksum")
        file = pa.ipc.open_file(pa.BufferReader(content))
        said = self._said(spilled.epoch, spilled.sequence, spilled.part)
        if (file.schema.metadata or {}).get(_SAID) != said:
            raise self._damaged(spilled, "it is of another stream, producer or number")
        batch = file.get_batch(0)
        if batch.num_rows != spilled.rows:
            raise self._damaged(spilled, f"it has {batch.num_rows} rows")
        if not batch.schema.equals(arrow_schema(self._schema)):
            raise self._damaged(spilled, "the stream's columns are others now")
        return batch.replace_schema_metadata(None)

    def beside(self, spilled: Spilled) -> bytes | None:
        """What was given to `write` with a batch; None: nothing was.

        Raises:
          CorruptData: the file is no longer what was written.
          StorageFailed: it cannot be read.
        """
        content = self._trying(spilled.path.read_bytes)
        if google_crc32c.value(content) != spilled.crc:
            raise self._damaged(spilled, "its bytes are not those of its checksum")
        metadata = pa.ipc.open_file(pa.BufferReader(content)).schema.metadata or {}
        return metadata.get(_BESIDE)

    def drop_last(self) -> None:
        """Forget the newest batch; it is gone, durably, when this returns.

        Raises:
          StorageFailed: the file cannot be removed.
        """
        last = self.waiting[-1]
        self._trying(lambda: self._files.unlink(last.path))
        self._trying(lambda: self._files.sync_directory(self.directory))
        self.waiting.pop()

    def drop_before(self, sequence: int, first_row: int = 0) -> None:
        """Forget stored batches: all pushes before this one, and earlier rows of this one.

        A file that cannot be removed is as good as forgotten, by its number. Those behind it stay,
        too, so that no number is missing between others, and all go as soon as it can be removed.
        """
        end = (sequence, first_row)
        while self.waiting and self.waiting[0].end[1:] <= end:
            self._forgotten.append(self.waiting.popleft().path)
        with suppress(OSError):
            self._remove_forgotten()

    def _remove_forgotten(self) -> None:
        while self._forgotten:
            with suppress(FileNotFoundError):
                self._files.unlink(self._forgotten[0])
            self._forgotten.popleft()

    def close(self) -> None:
        """Let another process have it."""
        if self._is_open:
            self._is_open = False
            self._lock.release()

    def _found(self) -> Iterator[Spilled]:
        found: list[Spilled] = []
        for name in self._files.names(self.directory):
            if name in (TEMPORARY, "LOCK"):
                continue
            match = _NAME.fullmatch(name)
            if match is None:
                raise CorruptData(f"{self.directory / name} is no spilled batch; move it away")
            path = self.directory / name
            epoch, sequence, first_row = int(match[1]), int(match[2]), int(match[3] or 0)
            is_last = match[3] is None or match[4] == "e"
            size, crc, rows = path.stat().st_size, int(match[6], 16), int(match[5])
            is_lost = match[7] is not None
            found.append(
                Spilled(path, epoch, sequence, rows, crc, size, is_lost, first_row, is_last)
            )
        found.sort(key=lambda spilled: (spilled.epoch, spilled.sequence, spilled.first_row))
        for before, after in pairwise(found):
            if (after.epoch, after.sequence, after.first_row) != before.end:
                raise CorruptData(
                    f"{self.directory} lacks what belongs between {before.path.name} and "
                    f"{after.path.name}; put it back"
                )
        return iter(found)

    def _file_of(self, batch: pa.RecordBatch, said: bytes, beside: bytes) -> pa.Buffer:
        metadata = {_SAID: said} | ({_BESIDE: beside} if beside else {})
        schema = batch.schema.with_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    def _said(self, epoch: int, sequence: int, part: Part) -> bytes:
        names = f"{quote(self._schema.name, safe='')} {quote(self._producer, safe='')}"
        return f"{names} {epoch} {sequence}{_place_text(part)}".encode()

    def _damaged(self, spilled: Spilled, problem: str) -> CorruptData:
        return CorruptData(
            f"{spilled.path} is damaged: {problem}. Put a good copy in its place, or add "
            f"{LOST!r} to its name to go on without its {spilled.rows:,} rows"
        )

    @contextmanager
    def _reverting(self, target: Path) -> Iterator[None]:
        """A batch that may not be durable is not there."""
        try:
            yield
        except (DiskFull, StorageFailed):
            with suppress(OSError):
                self._files.unlink(target)
            raise

    def _trying(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except OSError as error:
            raise failure(error, f"the spill in {self.directory}", "use") from error


def _place_text(part: Part) -> str:
    """The place in its push, in a file's name; none of a batch that is a whole push."""
    if part.is_last and not part.first_row:
        return ""
    return f"+{part.first_row:019}{'e' if part.is_last else ''}"
