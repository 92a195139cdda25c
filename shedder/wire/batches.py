"""Requests that carry a batch, with its bytes handed on as they lie in the request.

Protobuf copies a `bytes` field when it parses and again when it is read, and when it is set and
again when the message is serialised. Megabytes of Arrow need none of that: here the field is cut
out of the wire format (a length and then the bytes), and only the few bytes around it are a
message. Whatever is unusual is left to Protobuf, so that both read the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from shedder.streams.push_parts import WHOLE, Part
from shedder.v1.ingest_pb2 import (
    AppendRequest,
    AppendStreamRequest,
    AppendStreamResponse,
    Batch,
    LeftOut,
)

Request = TypeVar("Request", AppendRequest, AppendStreamRequest)

LENGTH_BYTES_MAX = 5  # Protobuf takes no longer one.
ALIGNMENT = 8  # Where Arrow's numbers must lie; a request as bytes lies at a multiple of 16.
FIELDS_MAX = 32  # A request of many tiny fields would cost a loop over them.

_BYTES = 2  # The wire type of bytes, texts and messages.
_FIXED_BYTES = {1: 8, 5: 4}
_VARINT = 0
_ARROW = Batch.ARROW_FIELD_NUMBER
_BATCH = {
    AppendRequest: AppendRequest.BATCH_FIELD_NUMBER,
    AppendStreamRequest: AppendStreamRequest.BATCH_FIELD_NUMBER,
}


@dataclass(frozen=True, slots=True)
class Carrying(Generic[Request]):
    """A request whose `batch.arrow` is empty, and the payload that was there."""

    request: Request
    payload: bytes | memoryview


def read_append(data: bytes) -> Carrying[AppendRequest]:
    """A request of Append.

    Raises:
      DecodeError: the bytes are not one.
    """
    return _read(AppendRequest, data)


def read_append_stream(data: bytes) -> Carrying[AppendStreamRequest]:
    """A request of AppendStream.

    Raises:
      DecodeError: the bytes are not one.
    """
    return _read(AppendStreamRequest, data)


def append_stream(channel: Any) -> Any:
    """The method AppendStream of a channel, whose requests are bytes already."""
    return channel.stream_stream(
        "/shedder.v1.Ingest/AppendStream", response_deserializer=AppendStreamResponse.FromString
    )


def append_stream_bytes(
    sequence: int,
    rows: int,
    payload: pa.Buffer,
    left_out: LeftOut | None = None,
    part: Part = WHOLE,
) -> bytes:
    """A batch as a serialised request of AppendStream; the payload lies at a multiple of 8."""
    before = Batch(
        sequence=sequence,
        rows=rows,
        left_out=left_out,
        first_row=part.first_row,
        more=not part.is_last,
        skipped=part.skipped,
    )
    for padding in range(2 * ALIGNMENT):  # Twice: one byte more can make a length longer, too.
        before.padding = bytes(padding)
        batch = before.SerializeToString() + _tag(_ARROW) + _varint(payload.size)
        head = _tag(_BATCH[AppendStreamRequest]) + _varint(len(batch) + payload.size) + batch
        if len(head) % ALIGNMENT == 0:
            break
    return b"".join((head, memoryview(payload)))


def _read(kind: type[Request], data: bytes) -> Carrying[Request]:
    batch = _only_field(data, 0, len(data), _BATCH[kind])
    arrow = batch and _only_field(data, batch.start, batch.end, _ARROW)
    if not batch or not arrow:
        request = kind.FromString(data)
        payload = request.batch.arrow
        if payload:  # Else clearing it would make a batch of a hello.
            request.batch.ClearField("arrow")
        return Carrying(request, payload)
    inner_bytes = arrow.tag - batch.start + batch.end - arrow.end
    rest = b"".join(
        (
            data[: batch.tag],
            _tag(_BATCH[kind]),
            _varint(inner_bytes),
            data[batch.start : arrow.tag],
            data[arrow.end :],
        )
    )
    return Carrying(kind.FromString(rest), memoryview(data)[arrow.start : arrow.end])


@dataclass(frozen=True, slots=True)
class _Field:
    """Where a field of bytes lies: its tag, then its length, then [start, end)."""

    tag: int
    start: int
    end: int


def _only_field(data: bytes, at: int, end: int, number: int) -> _Field | None:
    """Find the field with this number between at and end; None unless it occurs once.

    Also None if the fields around it are not plain: then the full parser has to read them.
    """
    found = None
    for _ in range(FIELDS_MAX):
        if at == end:
            return found
        tag = at
        kind = data[tag] & 7
        if data[tag] >> 7:  # A number over 15.
            return None
        if kind == _BYTES:
            length, start = _read_varint(data, tag + 1, end)
            at = start + length
            if data[tag] >> 3 == number:
                if found is not None or start - tag > 1 + LENGTH_BYTES_MAX:
                    return None
                found = _Field(tag, start, at)
        elif kind == _VARINT:
            _, at = _read_varint(data, tag + 1, end)
        elif kind in _FIXED_BYTES:
            at = tag + 1 + _FIXED_BYTES[kind]
        else:
            return None
        if at > end:
            return None
    return None


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at `at`, and where it ends; past the end when it is none."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 0, end + 1


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _tag(number: int) -> bytes:
    return bytes([number << 3 | _BYTES])
