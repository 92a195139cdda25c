"""The log: an append-only, checksummed sequence of records in segments.

One thread appends and syncs; any thread may read or drop old segments. The format and the rules of
recovery are docs/archive_format.md.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from shedder.archive.files.durable_marks import DurableMarks
from shedder.archive.files.file_system import Bytes, Files, OsFiles, WriteFile, failure, unused
from shedder.archive.log.descriptor_reserve import DescriptorReserve
from shedder.archive.log.log_segment import (
    BODY_BYTES_MAX,
    HEADER_BYTES_MAX,
    SEGMENT_HEAD_BYTES,
    Damage,
    Record,
    SegmentHead,
    record_parts,
    scan,
)
from shedder.archive.log.recycled_segments import Spares
from shedder.archive.log.segment_recovery import LogRecovery, SegmentState, inspect, make_durable
from shedder.errors import BatchTooLarge, DiskFull, ShedderError, StorageFailed

MARK = 0
"""The kind of the record that an orderly close writes."""

SEGMENT_BYTES = 64 << 20


@dataclass(slots=True, eq=False)
class Log:
    """An open log. Make it with `Log.open`.

    recovery: what opening found. `next_sequence`: the number that the next record gets.
    `durable_sequence`: all records below it are on disk.
    """

    directory: Path
    recovery: LogRecovery
    _files: Files
    _segment_bytes: int
    _segments: list[SegmentState]
    _active: WriteFile
    _salt: int
    next_sequence: int
    durable_sequence: int
    _durable_size: int
    _spares: Spares
    _reserve: DescriptorReserve
    _marks: DurableMarks | None = None
    _readers: int = 0
    _failed: ShedderError | None = None
    _keepers: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        files: Files | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        quarantine: Path | None = None,
        at_least: int = 0,
        needed_from: int | None = None,
        marks: DurableMarks | None = None,
    ) -> Self:
        """Open or create the log in a directory, verify it, and cut off a torn tail.

        Args:
          directory: of the segments; made when missing.
          files: the file system; the real one when None.
          segment_bytes: when a segment would grow over this, the next one begins.
          quarantine: where cut or damaged bytes are copied to; `directory/quarantine` when None.
          at_least: a sequence below which everything is known to have been durable (the
            checkpoint's); the log continues at or above it even if its records are lost.
          needed_from: no record at or above this sequence was dropped, so one that is missing is
            damage; None: not known.
          marks: of the directory; they name the durable records, and each sync updates them.

        Raises:
          NewerFormat: a segment was written by a newer version.
          StorageFailed: reading or writing failed.
        """
        files = OsFiles() if files is None else files
        quarantine = directory / "quarantine" if quarantine is None else quarantine
        try:
            files.make_directory(directory)
            spares = Spares(files, directory)
            if marks is not None:
                at_least = max(at_least, marks.found.sequence)
            segments, recovery = inspect(files, directory, quarantine, at_least, needed_from)
            last = segments[-1].path if segments else directory
            headless = any(path > last for path in recovery.lost_segments)
            if not segments or headless or recovery.next_sequence < at_least:
                first = max(at_least, recovery.next_sequence)
                active, state = _create_segment(files, directory, first)
                segments.append(state)
                next_sequence = first
            else:
                active = files.append(segments[-1].path)
                make_durable(files, active, segments[-1])
                files.sync_directory(directory)
                next_sequence = recovery.next_sequence
            for path in recovery.lost_segments:
                files.make_directory(quarantine)
                files.rename(path, unused(files, quarantine / path.name))
        except OSError as error:
            raise failure(error, f"the log in {directory}", "open") from error
        if marks is not None:
            marks.note_sequence(next_sequence)
        return cls(
            directory=directory,
            recovery=recovery,
            _files=files,
            _segment_bytes=segment_bytes,
            _segments=segments,
            _active=active,
            _salt=segments[-1].head.salt,
            next_sequence=next_sequence,
            durable_sequence=next_sequence,
            _durable_size=active.size,
            _spares=spares,
            _reserve=DescriptorReserve(),
            _marks=marks,
        )

    @property
    def first_sequence(self) -> int:
        """The first sequence of the oldest segment."""
        with self._lock:
            return self._segments[0].head.first_sequence

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments."""
        with self._lock:
            return sum(segment.size for segment in self._segments[:-1]) + self._active.size

    def append(self, kind: int, parts: Sequence[Bytes]) -> int:
        """Write one record; it is durable after the next `sync`.

        Args:
          kind: 0 to 255.
          parts: the header (at most 65,535 bytes), then the pieces of the body; not copied.

        Returns:
          the record's sequence.

        Raises:
          BatchTooLarge: header or body are over the format's limits.
          DiskFull: nothing of the record is in the log; later appends may work.
          StorageFailed: the log takes no more records.
        """
        self._check()
        header_bytes = memoryview(parts[0]).nbytes if parts else 0
        body_bytes = sum(memoryview(part).nbytes for part in parts[1:])
        if header_bytes > HEADER_BYTES_MAX or body_bytes > BODY_BYTES_MAX:
            raise BatchTooLarge(
                f"a record of {header_bytes} + {body_bytes} bytes; a header has at most "
                f"{HEADER_BYTES_MAX}, a body {BODY_BYTES_MAX}"
            )
        size = self._active.size
        if size > SEGMENT_HEAD_BYTES and size + header_bytes + body_bytes > self._segment_bytes:
            self._roll()
        sequence = self.next_sequence
        unsynced = sequence - self.durable_sequence
        framed, _ = record_parts(self._salt, sequence, unsynced, kind, parts)
        self._write(framed)
        self.next_sequence = sequence + 1
        return sequence

    def sync(self) -> None:
        """Make all records durable.

        Raises:
          StorageFailed: fsync failed. What was not durable is cut off, and the log takes no more.
        """
        self._check()
        if self.durable_sequence == self.next_sequence:
            return
        try:
            self._active.sync()
        except OSError as error:
            raise self._poison(f"fsync failed: {error}") from error
        self.durable_sequence = self.next_sequence
        self._durable_size = self._active.size
        if self._marks is not None:
            self._marks.note_sequence(self.durable_sequence)

    def read(self, from_sequence: int = 0) -> Iterator[Record]:
        """Read records in order, from the first one at or after from_sequence.

        Records that damage has destroyed are left out (`recovery.damages` lists them), and so are
        those that `drop_before` removed. Reading ends at what was written when it began.

        Raises:
          StorageFailed: reading failed.
        """
        with self._lock:
            segments = list(self._segments)
            end = self._active.size
            self._readers += 1
        try:
            yield from self._read_segments(segments, from_sequence, end)
        finally:
            with self._lock:
                self._readers -= 1

    def _read_segments(
        self, segments: list[SegmentState], from_sequence: int, end: int
    ) -> Iterator[Record]:
        for number, segment in enumerate(segments):
            last = number == len(segments) - 1
            if not last and segments[number + 1].head.first_sequence <= from_sequence:
                continue
            try:
                yield from self._read_segment(segment, from_sequence, end if last else segment.size)
            except FileNotFoundError:
                with self._lock:
                    dropped = segment not in self._segments
                if not dropped:
                    raise StorageFailed(f"{segment.path} is gone") from None
            except OSError as error:
                raise StorageFailed(f"cannot read {segment.path}: {error}") from error

    def drop_before(self, sequence: int) -> int:
        """Drop the segments that hold no record at or after sequence.

        Their files are kept for the next segments, as far as `Spares` takes them.

        Returns:
          the bytes that the log has become shorter by.

        Raises:
          StorageFailed: a segment could not be dropped; those before it are.
        """
        freed = 0
        if self._marks is not None and not self._marks.sync():
            return freed  # The records prove damage to the catalog until its mark does.
        try:
            while True:
                with self._lock:
                    if (
                        self._keepers
                        or len(self._segments) < 2
                        or self._segments[1].head.first_sequence > sequence
                    ):
                        break
                    oldest = self._segments[0]
                    self._remove(oldest)
                    del self._segments[0]
                freed += oldest.size
        finally:
            self._spares.settle()
        return freed

    def _remove(self, segment: SegmentState) -> None:
        """Take a segment's name away."""
        # A reader has the file open: unlinking leaves its bytes as they are, reusing it does not.
        may_keep = not self._readers and segment.size <= self._segment_bytes
        try:
            if not (may_keep and self._spares.keep(segment.path)):
                self._files.unlink(segment.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StorageFailed(f"cannot delete {segment.path}: {error}") from error

    @contextmanager
    def kept(self) -> Iterator[None]:
        """No segment is deleted meanwhile; `drop_before` does nothing."""
        with self._lock:
            self._keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self._keepers -= 1

    def durable_files(self, from_sequence: int) -> list[tuple[Path, int]]:
        """The segments with the records from a sequence on, and how much of each is durable.

        Only the last one still changes, and it grows.
        """
        with self._lock:
            held = list(zip(self._segments, [*self._segments[1:], None], strict=True))
            return [
                (segment.path, segment.size if after is not None else self._durable_size)
                for segment, after in held
                if after is None or after.head.first_sequence > from_sequence
            ]

    def close(self) -> None:
        """Sync, mark the end as durable, and close. A log that failed is just closed."""
        try:
            if self._failed is None:
                self.sync()
                with suppress(DiskFull):  # the mark only makes later damage easier to tell
                    self.append(MARK, [b""])
                    self._end_segment()
        finally:
            self._active.close()
            self._reserve.close()
            self._failed = StorageFailed(f"the log in {self.directory} is closed")

    def _check(self) -> None:
        if self._failed is not None:
            raise type(self._failed)(*self._failed.args)

    def _read_segment(
        self, segment: SegmentState, from_sequence: int, end: int
    ) -> Iterator[Record]:
        file = self._files.open(segment.path)
        try:
            for found in scan(file, segment.path, segment.head, from_sequence, end):
                if not isinstance(found, Damage):
                    yield found
        finally:
            file.close()

    def _write(self, parts: Sequence[Bytes]) -> None:
        size = self._active.size
        try:
            self._active.write(parts)
        except OSError as error:
            try:
                self._active.truncate(size)
            except OSError as second:
                raise self._poison(f"write failed: {error}; then truncate: {second}") from error
            what = f"{_nbytes(parts)} bytes at {size} of {self._segments[-1].path}"
            if isinstance(failed := failure(error, what), DiskFull):
                raise failed from error
            raise self._poison(f"write failed: {error}") from error

    def _roll(self) -> None:
        """Begin the next segment; the present one becomes durable first."""
        self._end_segment()
        spare = self._spares.take()
        with self._reserve.released():
            try:
                active, state = _create_segment(
                    self._files, self.directory, self.next_sequence, spare
                )
            except OSError as error:
                what = f"the next segment of {self.directory}"
                if isinstance(failed := failure(error, what), DiskFull):
                    raise failed from error
                raise self._poison(f"cannot begin the next segment: {error}") from error
            self._active.close()
        with self._lock:
            self._segments[-1].end(self._active.size)
            self._segments.append(state)
            self._active = active
            self._durable_size = active.size
        self._salt = state.head.salt

    def _end_segment(self) -> None:
        """Make it durable, without the bytes of an older segment behind its last record."""
        self.sync()
        if not self._segments[-1].head.is_reused:
            return
        try:
            self._active.truncate(self._active.size)
            self._active.sync()
        except OSError as error:
            raise self._poison(f"cannot end the segment: {error}") from error

    def _poison(self, problem: str) -> StorageFailed:
        """Take no more records, and let nothing be read that may not be on disk."""
        path = self._segments[-1].path
        self._failed = StorageFailed(
            f"{path}: {problem}; ingest has stopped until the directory is opened again"
        )
        with suppress(OSError):
            self._active.truncate(self._durable_size)
        self.next_sequence = self.durable_sequence
        return self._failed


def _create_segment(
    files: Files, directory: Path, first_sequence: int, spare: Path | None = None
) -> tuple[WriteFile, SegmentState]:
    """A new segment with a durable head and a durable name; nothing is left when it fails.

    spare: a file to write it over. It gets the segment's name once the head is durable, so that
    no file of that name ever has another head.
    """
    path = directory / f"{first_sequence:020d}.log"
    head = SegmentHead(secrets.randbits(32), first_sequence, is_reused=spare is not None)
    name = path if spare is None else spare
    try:
        file = files.create(path) if spare is None else files.reuse(spare)
    except OSError:
        if spare is not None:
            with suppress(OSError):  # Else it is deleted when the log is opened again.
                files.unlink(spare)
        raise
    try:
        file.write([head.to_bytes()])
        file.sync()
        if spare is not None:
            files.rename(spare, path)
            name = path
        files.sync_directory(directory)
    except OSError:
        file.close()
        files.unlink(name)
        raise
    return file, SegmentState(path, head, file.size)


def _nbytes(parts: Sequence[Bytes]) -> int:
    return sum(memoryview(part).nbytes for part in parts)
