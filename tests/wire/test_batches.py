"""Requests that carry a batch are read as Protobuf reads them, whatever wrote their bytes."""

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from shedder.v1.ingest_pb2 import AppendRequest, AppendStreamRequest, Batch, Producer
from shedder.wire.batches import (
    ALIGNMENT,
    FIELDS_MAX,
    append_stream_bytes,
    read_append,
    read_append_stream,
)

READERS = {AppendRequest: read_append, AppendStreamRequest: read_append_stream}


def varint(value: int, length: int = 1) -> bytes:
    """A varint of at least so many bytes; Protobuf takes also what is longer than needed."""
    encoded = bytearray()
    while value >= 0x80 or len(encoded) + 1 < length:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def as_protobuf_reads_it(kind, data):
    """The message without its payload, and the payload; None where there is no message."""
    try:
        message = kind.FromString(data)
    except DecodeError:
        return None
    payload = message.batch.arrow if message.HasField("batch") else b""
    if message.HasField("batch"):
        message.batch.ClearField("arrow")
    return message, payload


def as_we_read_it(kind, data):
    try:
        carrying = READERS[kind](data)
    except DecodeError:
        return None
    has_batch = carrying.request.HasField("batch")
    return carrying.request, bytes(carrying.payload) if has_batch else b""


SHORT = st.binary(max_size=12)


@st.composite
def fields(draw, inner=SHORT):
    """One field: any number, type and length, most of them well-formed."""
    number = draw(st.sampled_from([1, 2, 3, 3, 4, 9, 16, 0]))
    kind = draw(st.sampled_from([0, 2, 2, 2, 1, 5, 3, 4, 7]))
    tag = varint(number << 3 | kind, draw(st.sampled_from([1, 1, 1, 2, 6])))
    if kind != 2:
        return tag + draw(st.sampled_from([b"\1", b"\xff\1", bytes(4), bytes(8), b"\x80" * 11]))
    value = draw(inner)
    said = max(0, len(value) + draw(st.sampled_from([0, 0, 0, 0, 1, -1, 1 << 40])))
    return tag + varint(said, draw(st.sampled_from([1, 1, 2, 5, 6]))) + value


batch_bytes = st.lists(fields(), max_size=5).map(b"".join)
request_bytes = st.lists(fields(st.one_of(batch_bytes, st.binary(max_size=9))), max_size=4).map(
    b"".join
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
@given(data=st.one_of(request_bytes, st.binary(max_size=40)))
def test_any_bytes_are_read_as_protobuf_reads_them(kind, data):
    assert as_we_read_it(kind, data) == as_protobuf_reads_it(kind, data)


@given(
    data=st.builds(
        lambda batch, mutate_at, byte: batch[:mutate_at] + bytes([byte]) + batch[mutate_at + 1 :],
        st.binary(max_size=30).map(
            lambda arrow: AppendRequest(
                stream="s",
                producer=Producer(name="p", epoch=3),
                batch=Batch(sequence=300, rows=7, arrow=arrow, padding=b"\0\0"),
            ).SerializeToString()
        ),
        st.integers(0, 30),
        st.integers(0, 255),
    )
)
def test_a_request_with_a_changed_byte_is_read_as_protobuf_reads_it(data):
    assert as_we_read_it(AppendRequest, data) == as_protobuf_reads_it(AppendRequest, data)


@pytest.mark.slow
@given(
    sequence=st.integers(0, 2**63 - 1),
    rows=st.integers(0, 2**40),
    payload_bytes=st.one_of(st.integers(0, 300), st.integers(16_000, 17_000)),
)
def test_a_producer_writes_a_request_whose_payload_is_aligned(sequence, rows, payload_bytes):
    payload = bytes(payload_bytes)
    data = append_stream_bytes(sequence, rows, pa.py_buffer(payload))
    batch = AppendStreamRequest.FromString(data).batch
    assert (batch.sequence, batch.rows, batch.arrow) == (sequence, rows, payload)
    carrying = read_append_stream(data)
    assert bytes(carrying.payload) == payload
    if payload:
        assert pa.py_buffer(carrying.payload).address % ALIGNMENT == 0


def test_a_payload_is_a_view_of_the_request():
    data = append_stream_bytes(0, 1, pa.py_buffer(bytes(1000)))
    payload = read_append_stream(data).payload
    assert isinstance(payload, memoryview)
    assert payload.obj is data


def test_a_hello_stays_a_hello():
    data = AppendStreamRequest(hello=AppendStreamRequest.Hello(stream="s")).SerializeToString()
    assert read_append_stream(data).request.WhichOneof("message") == "hello"


def test_of_a_repeated_payload_the_last_one_counts():
    once = Batch(rows=1, arrow=b"first").SerializeToString()
    twice = once + Batch(arrow=b"last").SerializeToString()
    data = b"\x12" + varint(len(twice)) + twice
    carrying = read_append_stream(data)
    assert (carrying.payload, carrying.request.batch.rows) == (b"last", 1)


def test_a_request_of_many_fields_is_left_to_protobuf():
    many = b"\x10\x01" * FIELDS_MAX + Batch(arrow=b"payload").SerializeToString()
    carrying = read_append_stream(b"\x12" + varint(len(many)) + many)
    assert carrying.payload == b"payload"
    assert isinstance(carrying.payload, bytes)
