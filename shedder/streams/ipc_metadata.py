"""The outside of an Arrow IPC stream: what its metadata declares, read before Arrow decodes it.

A compressed body, a dictionary or a column of nulls can declare gigabytes in a few bytes, so the
declarations are looked at first, here, and only what passes is handed to Arrow. The layout is
that of Arrow's Message.fbs, Schema.fbs and the encapsulated message format (columnar format
1.0). Arrow verifies the same flatbuffers again; where it accepts, it reads what is read here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from flatbuffers import encode
from flatbuffers import number_types as numbers
from flatbuffers.table import Table

from shedder.errors import BadBatch

CONTINUATION = 0xFFFFFFFF
PREFIX = struct.Struct("<II")  # continuation marker, metadata bytes
BUFFER = struct.Struct("<qq")  # offset, bytes: one struct of RecordBatch.buffers
METADATA_BYTES_MAX = 1 << 20


class Header(IntEnum):
    """The union MessageHeader of Message.fbs."""

    SCHEMA = 1
    DICTIONARY = 2
    RECORD_BATCH = 3


@dataclass(frozen=True, slots=True)
class Envelope:
    """A stream of one schema and one record batch, as declared.

    schema_bytes: length of the schema message, which begins the payload.
    batch_bytes: length of the record batch message, which follows it.
    rows, columns, buffers: what the record batch declares.
    """

    schema_bytes: int
    batch_bytes: int
    rows: int
    columns: int
    buffers: int


def open_envelope(payload: memoryview) -> Envelope:
    """Read the declarations of a payload: schema, one record batch, end of stream.

    Raises:
      BadBatch: it is cut short, is something else, or uses what a batch may not use.
    """
    try:
        return _open(payload)
    except (struct.error, IndexError, ValueError, TypeError, OverflowError) as error:
        raise BadBatch(f"the Arrow metadata cannot be read: {error}") from None


def _open(payload: memoryview) -> Envelope:
    kind, schema, body_start, body_bytes = _message(payload, 0)
    if kind != Header.SCHEMA:
        raise BadBatch(f"the stream begins with {_name(kind)}, not with a schema")
    if body_bytes:
        raise BadBatch(f"the schema message has a body of {body_bytes} bytes")
    if _number(schema, 0, numbers.Int16Flags):
        raise BadBatch("the batch is big-endian; send little-endian")
    schema_bytes = body_start
    kind, batch, body_start, body_bytes = _message(payload, schema_bytes)
    if kind != Header.RECORD_BATCH:
        raise BadBatch(f"after the schema comes {_name(kind)}, not one record batch")
    end = body_start + body_bytes
    if body_bytes < 0 or end > len(payload):
        raise BadBatch(f"cut short: {end} bytes are declared, {len(payload)} are there")
    _expect_end(payload[end:])
    if batch.Offset(_slot(3)):
        raise BadBatch("the body is compressed; send it uncompressed")
    if batch.Offset(_slot(4)):
        raise BadBatch("the batch has variadic buffers (string views); send plain strings")
    rows = _number(batch, 0, numbers.Int64Flags)
    if rows < 0:
        raise BadBatch(f"the batch declares {rows} rows")
    buffers = _buffers(batch, body_bytes)
    return Envelope(schema_bytes, end - schema_bytes, rows, _length(batch, 1), buffers)


def _message(payload: memoryview, start: int) -> tuple[int, Table, int, int]:
    """The encapsulated message at start: kind, header table, where its body begins, body bytes."""
    marker, metadata_bytes = PREFIX.unpack_from(payload, start)
    begin = start + PREFIX.size
    if marker != CONTINUATION:
        raise BadBatch("not an Arrow IPC stream: the continuation marker is missing")
    if not 8 <= metadata_bytes <= METADATA_BYTES_MAX or metadata_bytes % 8:
        raise BadBatch(f"a message declares {metadata_bytes} bytes of metadata")
    if begin + metadata_bytes > len(payload):
        raise BadBatch(f"cut short: metadata of {metadata_bytes} bytes at {begin} is not all there")
    metadata = payload[begin : begin + metadata_bytes]
    message = Table(metadata, encode.Get(numbers.UOffsetTFlags.packer_type, metadata, 0))
    kind = _number(message, 1, numbers.Uint8Flags)
    header = message.Offset(_slot(2))
    if not header:
        raise BadBatch("a message has no header")
    table = Table(metadata, message.Indirect(message.Pos + header))
    body_bytes = _number(message, 3, numbers.Int64Flags)
    return kind, table, begin + metadata_bytes, body_bytes


def _buffers(batch: Table, body_bytes: int) -> int:
    """Return how many buffers there are; together they may not be longer than the body.

    Buffers that share bytes would make a small payload large as soon as it is copied.
    """
    count = _length(batch, 2)
    if not count:
        return 0
    start = batch.Vector(batch.Offset(_slot(2)))
    total = 0
    for index in range(count):
        offset, size = BUFFER.unpack_from(batch.Bytes, start + index * BUFFER.size)
        if offset < 0 or size < 0 or offset % 8:
            raise BadBatch(f"buffer {index} lies at {offset} and has {size} bytes")
        total += size
    if total > body_bytes:
        raise BadBatch(f"the buffers have {total} bytes together, the body has {body_bytes}")
    return count


def _expect_end(rest: memoryview) -> None:
    """After the batch: nothing, or the end-of-stream marker."""
    if len(rest) not in (0, PREFIX.size) or (rest and PREFIX.unpack(rest) != (CONTINUATION, 0)):
        raise BadBatch(f"{len(rest)} bytes follow the record batch; send one batch per message")


def _slot(field: int) -> int:
    """Return where a field's entry lies in a vtable: after its two lengths, two bytes each."""
    return 4 + 2 * field


def _number(table: Table, field: int, flags: type) -> int:
    """An integer field, 0 when it is absent, as flatbuffers has it."""
    offset = table.Offset(_slot(field))
    return int(table.Get(flags, table.Pos + offset)) if offset else 0


def _length(table: Table, field: int) -> int:
    """The length of a vector field, 0 when it is absent."""
    offset = table.Offset(_slot(field))
    return int(table.VectorLen(offset)) if offset else 0


def _name(kind: int) -> str:
    return Header(kind).name.lower().replace("_", " ") if kind in set(Header) else f"kind {kind}"
