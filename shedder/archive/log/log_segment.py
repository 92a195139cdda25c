"""One segment of the log as bytes: heads, records, and a scan that survives damage.

The format is docs/archive_format.md; nothing here knows about directories or recovery.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import pyarrow as pa

from shedder.archive.files.checksum import checksum
from shedder.archive.files.file_system import Bytes, Files, ReadFile
from shedder.errors import CorruptData, NewerFormat

SEGMENT_VERSION = 1
SEGMENT_HEAD_BYTES = 64
RECORD_HEAD_BYTES = 32
HEADER_BYTES_MAX = 0xFFFF
BODY_BYTES_MAX = 0x7FFFFFFF

_SEGMENT_MAGIC = b"SHEDLOG\0"
_SEGMENT = struct.Struct("<8sIIQI")  # magic, version, salt, first sequence, reused; then checksum
_MARKER = b"SHR1"
_RECORD = struct.Struct("<QIIIHBB")  # sequence, checksum, body, unsynced, header, kind, zero
_SEARCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log.

    unsynced: how many records right before this one were not known to be durable when it was
    written. offset, end: the bytes of its segment that it takes.
    """

    sequence: int
    kind: int
    header: bytes
    body: pa.Buffer
    unsynced: int
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that hold no valid record.

    Sequences [first_sequence, end_sequence) are lost; end_sequence is None where nothing valid
    follows in the segment. `complete`: a whole record of the right length is there but its
    checksum is wrong, so this is not simply a write that was cut short. kind: the record's, where
    it is complete.
    """

    path: Path
    offset: int
    length: int
    first_sequence: int
    end_sequence: int | None
    complete: bool = False
    kind: int | None = None

    def __str__(self) -> str:
        """File, range and what is lost, for people."""
        end = "unknown" if self.end_sequence is None else str(self.end_sequence)
        return (
            f"{self.path}: {self.length} damaged bytes at offset {self.offset}; "
            f"records from {self.first_sequence} up to {end} (excluded) are lost"
        )


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """What a segment says about itself: the seed of its checksums and its first sequence.

    is_reused: it is written over an older segment, whose bytes follow its last record until the
    next segment begins.
    """

    salt: int
    first_sequence: int
    is_reused: bool = False

    def to_bytes(self) -> bytes:
        """The 64 bytes at the segment's beginning."""
        fields = _SEGMENT.pack(
            _SEGMENT_MAGIC, SEGMENT_VERSION, self.salt, self.first_sequence, self.is_reused
        )
        return (fields + struct.pack("<I", google_crc32c.value(fields))) * 2

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> SegmentHead:
        """Read the first good copy.

        Raises:
          CorruptData: neither copy is good.
          NewerFormat: a good copy has a higher version.
        """
        for copy in (data[:32], data[32:64]):
            if len(data) < SEGMENT_HEAD_BYTES or google_crc32c.value(copy[:28]) != int.from_bytes(
                copy[28:], "little"
            ):
                continue
            magic, version, salt, first_sequence, is_reused = _SEGMENT.unpack(copy[:28])
            if magic != _SEGMENT_MAGIC:
                continue
            if version > SEGMENT_VERSION:
                raise NewerFormat(f"{path} has log format {version}, this is {SEGMENT_VERSION}")
            return cls(salt, first_sequence, bool(is_reused))
        raise CorruptData(f"{path}: both copies of the segment head (bytes 0-63) are damaged")


def record_parts(
    salt: int, sequence: int, unsynced: int, kind: int, parts: Sequence[Bytes]
) -> tuple[list[Bytes], int]:
    """Frame a payload without copying it.

    Args:
      salt: the segment's.
      sequence: the record's number.
      unsynced: records right before it that are not known to be durable.
      kind: 0 to 255.
      parts: the header (at most 65,535 bytes), then the pieces of the body.

    Returns:
      the buffers to write, in order, and their length in bytes (a multiple of 8).
    """
    header = parts[0] if parts else b""
    crc = salt
    total = 0
    for part in parts:
        crc = checksum(part, crc)
        total += memoryview(part).nbytes
    header_bytes = memoryview(header).nbytes
    body_bytes = total - header_bytes
    assert header_bytes <= HEADER_BYTES_MAX
    assert body_bytes <= BODY_BYTES_MAX
    padding = bytes(-total % 8)
    crc = google_crc32c.extend(crc, padding)
    fields = _RECORD.pack(sequence, crc, body_bytes, unsynced, header_bytes, kind, 0)
    head = _MARKER + struct.pack("<I", google_crc32c.extend(salt, fields)) + fields
    return [head, *parts, padding], RECORD_HEAD_BYTES + total + len(padding)


def scan(
    file: ReadFile, path: Path, head: SegmentHead, from_sequence: int = 0, end: int | None = None
) -> Iterator[Record | Damage]:
    """Read a segment's records in order, and say where bytes are damaged.

    Records below from_sequence are stepped over by their heads alone, bodies unread.

    Args:
      file: the segment.
      path: its path, for messages.
      head: its head.
      from_sequence: the first sequence that is wanted.
      end: where the segment ends; the file's size when None.

    Yields:
      records with rising sequences, and damages between or after them.
    """
    end = file.size if end is None else end
    offset, expected = SEGMENT_HEAD_BYTES, head.first_sequence
    bad_from: int | None = None
    while offset < end:
        found = _read_record(
            file, head.salt, offset, end, expected=expected, from_sequence=from_sequence
        )
        if isinstance(found, Record):
            if bad_from is not None:
                yield Damage(path, bad_from, offset - bad_from, expected, found.sequence)
                bad_from = None
            elif found.sequence > expected:
                yield Damage(path, offset, 0, expected, found.sequence)
            expected, offset = found.sequence + 1, found.end
            if found.sequence >= from_sequence:
                yield found
        elif found is None:
            bad_from = offset if bad_from is None else bad_from
            offset = _next_marker(file, offset + 8, end)
        else:  # the head is good, the payload is not
            if bad_from is not None:
                yield Damage(path, bad_from, offset - bad_from, expected, found.sequence)
                bad_from, expected = None, found.sequence
            kind = found.kind if found.sequence == expected else None
            yield Damage(path, offset, found.length, expected, found.sequence + 1, True, kind)
            expected, offset = found.sequence + 1, offset + found.length
    if bad_from is not None:
        yield Damage(path, bad_from, end - bad_from, expected, None)


def header_of(files: Files, damage: Damage) -> bytes:
    """The header of a complete record, which may be damaged itself: no checksum is of it alone."""
    assert damage.complete
    file = files.open(damage.path)
    try:
        raw = file.read(damage.offset, RECORD_HEAD_BYTES)
        header_bytes = _RECORD.unpack(raw[8:])[4]
        return file.read(damage.offset + RECORD_HEAD_BYTES, header_bytes)
    finally:
        file.close()


@dataclass(frozen=True, slots=True)
class _BadPayload:
    """A record whose head is good and whose payload is not."""

    sequence: int
    length: int
    kind: int


def _read_record(
    file: ReadFile, salt: int, offset: int, end: int, *, expected: int, from_sequence: int
) -> Record | _BadPayload | None:
    """The record at offset; None when there is no good head or the file ends before its end."""
    raw = file.read(offset, RECORD_HEAD_BYTES)
    if len(raw) < RECORD_HEAD_BYTES or raw[:4] != _MARKER:
        return None
    if google_crc32c.extend(salt, raw[8:]) != int.from_bytes(raw[4:8], "little"):
        return None
    sequence, crc, body_bytes, unsynced, header_bytes, kind, _ = _RECORD.unpack(raw[8:])
    total = header_bytes + body_bytes
    length = RECORD_HEAD_BYTES + total + (-total % 8)
    if sequence < expected or offset + length > end:
        return None
    if sequence < from_sequence:
        return Record(sequence, kind, b"", _EMPTY, unsynced, offset, offset + length)
    header, padding = bytearray(header_bytes), bytearray(-total % 8)
    body = pa.allocate_buffer(body_bytes) if body_bytes else _EMPTY
    parts = [
        memoryview(header),
        memoryview(body) if body_bytes else memoryview(b""),
        memoryview(padding),
    ]
    got = file.read_into(offset + RECORD_HEAD_BYTES, parts)
    header_read = bytes(header)
    read_crc = google_crc32c.extend(salt, header_read)
    read_crc = google_crc32c.extend(google_crc32c.extend(read_crc, body), bytes(padding))
    if got != length - RECORD_HEAD_BYTES or read_crc != crc:
        return _BadPayload(sequence, length, kind)
    return Record(sequence, kind, header_read, body, unsynced, offset, offset + length)


_EMPTY = pa.py_buffer(b"")


def _next_marker(file: ReadFile, offset: int, end: int) -> int:
    """The next multiple of 8 at or after offset that holds a record's marker, or end."""
    offset += -offset % 8
    while offset < end:
        window = file.read(offset, min(_SEARCH_BYTES, end - offset))
        found = window.find(_MARKER)
        while found >= 0 and found % 8:
            found = window.find(_MARKER, found + 1)
        if found >= 0:
            return offset + found
        if len(window) < _SEARCH_BYTES:
            break
        offset += _SEARCH_BYTES  # a multiple of 8, so no marker lies across the border
    return end
