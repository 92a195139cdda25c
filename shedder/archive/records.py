"""What the records of the log hold: the small header of each kind. Bodies are Arrow IPC bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from shedder.archive.segment import HEADER_BYTES_MAX

_BATCH = struct.Struct("<IIQqQQII")
_HEARTBEAT = struct.Struct("<IIqq")
_LEVEL = struct.Struct("<IIq")

PRODUCER_BYTES_MAX = HEADER_BYTES_MAX - _BATCH.size
"""The longest producer name, in bytes of UTF-8."""


class Kind(IntEnum):
    """The kinds of records; a reader skips those that it does not know."""

    MARK = 0
    BATCH = 1
    HEARTBEAT = 2
    LEVEL = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """The header of one batch of tuples.

    stream: the catalog's id. producer, epoch, sequence: who sent it, which incarnation, its
    number there (not the log's). first_position: of its first row. flags: none yet, zero.
    """

    stream: int
    producer: str
    epoch: int
    sequence: int
    first_position: int
    rows: int
    arrival_us: int
    flags: int = 0

    @property
    def end_position(self) -> int:
        """The position after its last row."""
        return self.first_position + self.rows

    def to_bytes(self) -> bytes:
        """The header's bytes. Numbers must fit their fields; a producer, PRODUCER_BYTES_MAX."""
        name = self.producer.encode()
        assert len(name) <= PRODUCER_BYTES_MAX
        return (
            _BATCH.pack(
                self.stream,
                self.rows,
                self.first_position,
                self.arrival_us,
                self.epoch,
                self.sequence,
                self.flags,
                0,
            )
            + name
        )

    @classmethod
    def from_bytes(cls, header: bytes) -> Batch:
        """Read a header that `to_bytes` wrote (the log has verified its checksum)."""
        stream, rows, first, arrival, epoch, sequence, flags, _ = _BATCH.unpack_from(header)
        producer = header[_BATCH.size :].decode()
        return cls(stream, producer, epoch, sequence, first, rows, arrival, flags)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A promise that no tuples before watermark_us will come to a stream."""

    stream: int
    watermark_us: int
    arrival_us: int

    def to_bytes(self) -> bytes:
        """The header's bytes."""
        return _HEARTBEAT.pack(self.stream, 0, self.watermark_us, self.arrival_us)

    @classmethod
    def from_bytes(cls, header: bytes) -> Heartbeat:
        """Read a header that `to_bytes` wrote."""
        stream, _, watermark_us, arrival_us = _HEARTBEAT.unpack(header)
        return cls(stream, watermark_us, arrival_us)


@dataclass(frozen=True, slots=True)
class Level:
    """From here on a standing query's synopses read at these levels.

    stream: of the query. query: its name. levels: one per synopsis of its plan, in order; at
    level j the share 2^-j of the tuples is read.
    """

    stream: int
    query: str
    levels: tuple[int, ...]
    arrival_us: int

    @property
    def fits(self) -> bool:
        """Whether a record can hold it."""
        size = _LEVEL.size + len(self.levels) + len(self.query.encode())
        return size <= HEADER_BYTES_MAX

    def to_bytes(self) -> bytes:
        """The header's bytes; it must fit."""
        assert self.fits
        fixed = _LEVEL.pack(self.stream, len(self.levels), self.arrival_us)
        return fixed + bytes(self.levels) + self.query.encode()

    @classmethod
    def from_bytes(cls, header: bytes) -> Level:
        """Read a header that `to_bytes` wrote."""
        stream, parts, arrival_us = _LEVEL.unpack_from(header)
        name_at = _LEVEL.size + parts
        levels = tuple(header[_LEVEL.size : name_at])
        return cls(stream, header[name_at:].decode(), levels, arrival_us)
