"""Log records: the small header of each kind. Bodies are Arrow IPC bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from shedder.archive.log.log_segment import HEADER_BYTES_MAX

_BATCH = struct.Struct("<IIQqQQII")
_IDLE = struct.Struct("<IIq")
_HEARTBEAT = struct.Struct("<IIqq")
_LEVEL = struct.Struct("<IIq")
_SIZES = struct.Struct("<IIqQ")
_SIZE = np.dtype("<u4")
_BUILT = struct.Struct("<IIQqQQQ")  # No longer than a batch's, so that a producer's name fits.
_LEVEL_FROM = struct.Struct("<IIqQ")
_FORCED = 0x80  # Of a level: the operator has said it.
_PUSH_END = struct.Struct("<QQI")  # Between the numbers of a header and the producer's name.
_PUSHED = 1 << 8  # Of the flags in the bytes of a header: there is a PushEnd.
_LAST = 1  # Of a PushEnd's own flags: it is the last part of its push,
_HASHED = 2  # ... and the fingerprint is known.

DROPPED = 1
"""A batch's flag: others of it were dropped, or left out at the source; its body says how many."""

SUMMARISED = 2
"""A batch's flag: summaries of it came before, so it is for the archive, and no query reads it."""

FOLLOW = 1
"""A flag of summaries: their producer will send their tuples for the archive."""

PRODUCER_BYTES_MAX = HEADER_BYTES_MAX - _BATCH.size - _PUSH_END.size
"""The longest producer name, in bytes of UTF-8."""

MADE_PREFIX = "\0"
"""Begins the producer of rows that a standing query inserts; no client can have such a name."""


class RecordType(IntEnum):
    """The kinds of records; a reader skips those that it does not know."""

    MARK = 0
    BATCH = 1
    HEARTBEAT = 2
    LEVEL = 3
    SIZES = 4
    BUILT = 5
    LEVEL_FROM = 6
    ALTERED = 7
    TABLE = 8  # Of log.table_changes.
    IDLE = 9


@dataclass(frozen=True, slots=True)
class PushEnd:
    """Progress of a named producer's push with this record; one push has one number.

    end_row: rows of the push up to here, as pushed. fingerprint: of these rows
    (streams.content_fingerprint); None: not known. is_last: the push ends here.
    """

    end_row: int
    fingerprint: int | None
    is_last: bool

    def to_bytes(self) -> bytes:
        """The bytes inside of a header."""
        flags = _LAST * self.is_last | _HASHED * (self.fingerprint is not None)
        return _PUSH_END.pack(self.end_row, self.fingerprint or 0, flags)


def _after_numbers(header: bytes, at: int, flags: int) -> tuple[str, PushEnd | None]:
    """The producer's name at the end of a header, and the PushEnd before it."""
    if not flags & _PUSHED:
        return header[at:].decode(), None
    end_row, fingerprint, own = _PUSH_END.unpack_from(header, at)
    push = PushEnd(end_row, fingerprint if own & _HASHED else None, bool(own & _LAST))
    return header[at + _PUSH_END.size :].decode(), push


@dataclass(frozen=True, slots=True)
class Batch:
    """Header of one batch of tuples.

    stream: id in the catalog.
    producer, epoch, sequence: the sender, its incarnation, and its number of the batch (not the
      log sequence).
    first_position: position of the first row.
    flags: DROPPED, SUMMARISED.
    push: progress of the producer's push; None: anonymous, or of an earlier version.
    """

    stream: int
    producer: str
    epoch: int
    sequence: int
    first_position: int
    rows: int
    arrival_us: int
    flags: int = 0
    push: PushEnd | None = None

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
                self.flags | _PUSHED * (self.push is not None),
                0,
            )
            + (b"" if self.push is None else self.push.to_bytes())
            + name
        )

    @classmethod
    def from_bytes(cls, header: bytes) -> Batch:
        """Read a header that `to_bytes` wrote (the log has verified its checksum)."""
        stream, rows, first, arrival, epoch, sequence, flags, _ = _BATCH.unpack_from(header)
        producer, push = _after_numbers(header, _BATCH.size, flags)
        flags &= ~_PUSHED
        return cls(stream, producer, epoch, sequence, first, rows, arrival, flags, push)


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
class Idle:
    """A stream counts as idle until its next record: row queries of several do not wait for it."""

    stream: int
    arrival_us: int

    def to_bytes(self) -> bytes:
        """The header's bytes."""
        return _IDLE.pack(self.stream, 0, self.arrival_us)

    @classmethod
    def from_bytes(cls, header: bytes) -> Idle:
        """Read a header that `to_bytes` wrote."""
        stream, _, arrival_us = _IDLE.unpack(header)
        return cls(stream, arrival_us)


@dataclass(frozen=True, slots=True)
class Level:
    """From here on a standing query's synopses read at these levels, as the operator says.

    stream: of the query. query: its name. levels: one per synopsis of its plan, in order; at
    level j the share 2^-j of the tuples is read. forced: those whose level load does not change.
    """

    stream: int
    query: str
    levels: tuple[int, ...]
    arrival_us: int
    forced: frozenset[int] = frozenset()

    @property
    def fits(self) -> bool:
        """Return whether a record can hold it."""
        return _level_bytes(self.query, self.levels) <= HEADER_BYTES_MAX

    def to_bytes(self) -> bytes:
        """The header's bytes; it must fit."""
        assert self.fits
        fixed = _LEVEL.pack(self.stream, len(self.levels), self.arrival_us)
        marked = (level | _FORCED * (part in self.forced) for part, level in enumerate(self.levels))
        return fixed + bytes(marked) + self.query.encode()

    @classmethod
    def from_bytes(cls, header: bytes) -> Level:
        """Read a header that `to_bytes` wrote."""
        stream, parts, arrival_us = _LEVEL.unpack_from(header)
        name_at = _LEVEL.size + parts
        marked = header[_LEVEL.size : name_at]
        levels = tuple(level & ~_FORCED for level in marked)
        forced = frozenset(part for part, level in enumerate(marked) if level & _FORCED)
        return cls(stream, header[name_at:].decode(), levels, arrival_us, forced)


@dataclass(frozen=True, slots=True)
class LevelFrom:
    """From an earlier record on a standing query's synopses have read at these levels, by load.

    It stands behind batches that wait to be applied, and has been in force for them: what sheds
    work must not wait for the work.

    from_sequence: the log's number of the first record that was applied so. The rest as Level has
    it.
    """

    stream: int
    query: str
    levels: tuple[int, ...]
    arrival_us: int
    from_sequence: int

    @property
    def fits(self) -> bool:
        """Return whether a record can hold it."""
        return _level_bytes(self.query, self.levels) <= HEADER_BYTES_MAX

    def to_bytes(self) -> bytes:
        """The header's bytes; it must fit."""
        assert self.fits
        fixed = _LEVEL_FROM.pack(self.stream, len(self.levels), self.arrival_us, self.from_sequence)
        return fixed + bytes(self.levels) + self.query.encode()

    @classmethod
    def from_bytes(cls, header: bytes) -> LevelFrom:
        """Read a header that `to_bytes` wrote."""
        stream, parts, arrival_us, from_sequence = _LEVEL_FROM.unpack_from(header)
        name_at = _LEVEL_FROM.size + parts
        levels = tuple(header[_LEVEL_FROM.size : name_at])
        return cls(stream, header[name_at:].decode(), levels, arrival_us, from_sequence)


def _level_bytes(query: str, levels: tuple[int, ...]) -> int:
    return _LEVEL_FROM.size + len(levels) + len(query.encode())


@dataclass(frozen=True, slots=True)
class Sizes:
    """From here on a standing query's new panes have synopses of these sizes.

    Panes that are larger shrink to them; smaller ones stay.

    stream: of the query. query: its name. sizes: one per synopsis of its plan, in order; 0 where
    it has none. group_bytes: the cap on the groups of each synopsis.
    """

    stream: int
    query: str
    sizes: tuple[int, ...]
    group_bytes: int
    arrival_us: int

    @property
    def fits(self) -> bool:
        """Return whether a record can hold it."""
        size = _SIZES.size + _SIZE.itemsize * len(self.sizes) + len(self.query.encode())
        return size <= HEADER_BYTES_MAX

    def to_bytes(self) -> bytes:
        """The header's bytes; it must fit."""
        assert self.fits
        fixed = _SIZES.pack(self.stream, len(self.sizes), self.arrival_us, self.group_bytes)
        return fixed + np.array(self.sizes, _SIZE).tobytes() + self.query.encode()

    @classmethod
    def from_bytes(cls, header: bytes) -> Sizes:
        """Read a header that `to_bytes` wrote."""
        stream, parts, arrival_us, group_bytes = _SIZES.unpack_from(header)
        sizes = np.frombuffer(header, _SIZE, parts, _SIZES.size)
        name = header[_SIZES.size + sizes.nbytes :].decode()
        return cls(stream, name, tuple(sizes.tolist()), group_bytes, arrival_us)


@dataclass(frozen=True, slots=True)
class Built:
    """The header of summaries that were built elsewhere; the body is engine.summaries' bytes.

    stream, producer, epoch, sequence, arrival_us: as of a Batch. position: of the stream when they
    came; they take none themselves. rows: the tuples that they were built of. flags: FOLLOW.
    push: as of a Batch.
    """

    stream: int
    producer: str
    epoch: int
    sequence: int
    position: int
    rows: int
    arrival_us: int
    flags: int = 0
    push: PushEnd | None = None

    @property
    def end_position(self) -> int:
        """Return where the stream was, and is."""
        return self.position

    def to_bytes(self) -> bytes:
        """The header's bytes. Numbers must fit their fields; a producer, PRODUCER_BYTES_MAX."""
        name = self.producer.encode()
        assert len(name) <= PRODUCER_BYTES_MAX
        return (
            _BUILT.pack(
                self.stream,
                self.flags | _PUSHED * (self.push is not None),
                self.rows,
                self.arrival_us,
                self.epoch,
                self.sequence,
                self.position,
            )
            + (b"" if self.push is None else self.push.to_bytes())
            + name
        )

    @classmethod
    def from_bytes(cls, header: bytes) -> Built:
        """Read a header that `to_bytes` wrote."""
        stream, flags, rows, arrival, epoch, sequence, position = _BUILT.unpack_from(header)
        producer, push = _after_numbers(header, _BUILT.size, flags)
        flags &= ~_PUSHED
        return cls(stream, producer, epoch, sequence, position, rows, arrival, flags, push)
