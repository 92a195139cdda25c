"""Integers at the ends of their fields: a clear refusal, and nothing is charged for it."""

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from shedder.client.append_requests import append_request
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from shedder.streams.dropped_counts import Dropped
from shedder.v1 import backfill_pb2, ingest_pb2, synopses_pb2
from shedder.wire.append_metadata import KEY
from shedder.wire.source_sampling import left_out_to_wire
from shedder.wire.summaries import merge_in_parts
from tests.streams.streams import trades

ENDS = [0, -1, 1 << 31, 1 << 53, 1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1]
RANGES = {
    FieldDescriptor.CPPTYPE_INT32: range(-(1 << 31), 1 << 31),
    FieldDescriptor.CPPTYPE_INT64: range(-(1 << 63), 1 << 63),
    FieldDescriptor.CPPTYPE_UINT32: range(1 << 32),
    FieldDescriptor.CPPTYPE_UINT64: range(1 << 64),
}
FINE = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
NUMBERS_OF_A_PRODUCER = {"epoch", "first_row", "skipped"}


def whole_numbers(message):
    """Each integer field of a message that is set, and of those inside it: how to set it."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            inner = value if field.is_repeated else [value] if message.HasField(field.name) else []
            if not (field.is_repeated and field.message_type.GetOptions().map_entry):
                for each in inner:
                    yield from whole_numbers(each)
        elif field.cpp_type in RANGES:
            yield message, field


def hostile(message):
    """Copies of a message with one integer at one of its ends."""
    for place in range(len(list(whole_numbers(message)))):
        for end in ENDS:
            copy = type(message)()
            copy.CopyFrom(message)
            inner, field = list(whole_numbers(copy))[place]
            if end in RANGES[field.cpp_type]:
                inner.ClearField(field.name)
                inner.MergeFrom(type(inner)(**{field.name: end}))
                yield field.name, end, copy


def code_of(call):
    """The status of a call."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.fixture
def held(client, engine):
    """A client whose tenant has a quota, of which each test may use a small part."""
    engine.core.tenants.tell({"default": {"rows_per_s": 1e5, "bytes_per_s": 1e8}})
    client.register("n", "SELECT COUNT(*) AS n FROM trades")
    return client


def check(held, call, name, end):
    """One call: no bug, no account is charged with what it declares, and the ledger can be told."""
    code = code_of(call)
    assert code in FINE, (name, end, code)
    if name in NUMBERS_OF_A_PRODUCER and end < 0:
        assert code is grpc.StatusCode.INVALID_ARGUMENT, (name, end)
    ledger = held.ledger("trades")
    assert ledger.refused_rows < 1 << 53
    assert held.push("trades", trades(3)).rows == 3  # Else the quota is used up for days.


def append_of():
    batch = trades(10)
    request = append_request("trades", "p", 1, 0, batch)
    request.batch.left_out.CopyFrom(left_out_to_wire(Dropped.of(trades(4), "ts")))
    request.batch.skipped = 0
    return request


@pytest.mark.slow
def test_of_a_batch(held, connection):
    for turn, (name, end, request) in enumerate(hostile(append_of())):
        request.producer.name = f"p{turn}"
        check(held, lambda: connection.stubs.ingest.Append(request), name, end)  # noqa: B023


@pytest.mark.slow
def test_of_a_batch_in_a_stream(held, connection):
    sent = append_of()
    hello = ingest_pb2.AppendStreamRequest.Hello(stream="trades", producer=sent.producer)
    for name, end, first in hostile(ingest_pb2.AppendStreamRequest(hello=hello)):
        call = connection.stubs.append_stream(iter([first.SerializeToString()]))
        check(held, lambda: list(call), name, end)  # noqa: B023
    batches = hostile(ingest_pb2.AppendStreamRequest(batch=sent.batch))
    for turn, (name, end, second) in enumerate(batches):
        hello.producer.name = f"p{turn}"
        requests = [ingest_pb2.AppendStreamRequest(hello=hello), second]
        call = connection.stubs.append_stream(iter([it.SerializeToString() for it in requests]))
        check(held, lambda: list(call), name, end)  # noqa: B023


@pytest.mark.slow
def test_of_what_a_batch_declares(held, connection):
    request = append_request("trades", "p", 0, 0, trades(10))
    size = len(request.batch.arrow)
    declared = ingest_pb2.Declared(stream="trades", rows=10, size_bytes=size)
    for name, end, each in hostile(declared):
        metadata = ((KEY, each.SerializeToString()),)
        check(held, lambda: connection.stubs.ingest.Append(request, metadata=metadata), name, end)  # noqa: B023


@pytest.mark.slow
def test_of_summaries(held, connection):
    builder = Summariser(Plans.from_json(held.plans("trades")))
    builder.add(trades(10))
    made = builder.summaries().to_bytes()
    merge = synopses_pb2.MergeRequest(
        stream="trades",
        producer=ingest_pb2.Producer(name="p", epoch=1),
        sequence=0,
        first_row=0,
        after=[
            synopses_pb2.Reached(producer=ingest_pb2.Producer(name="q", epoch=1), sequence=1),
        ],
    )
    for turn, (name, end, request) in enumerate(hostile(merge)):
        request.producer.name = f"p{turn}"
        parts = list(merge_in_parts(request, made, 1 << 20))
        check(held, lambda: connection.stubs.synopses.MergeInParts(iter(parts)), name, end)  # noqa: B023
        request.summaries = made
        check(held, lambda: connection.stubs.synopses.Merge(request), name, end)  # noqa: B023
    for _, end, whole in hostile(synopses_pb2.MergeInPartsRequest.Whole(size_bytes=5)):
        whole.merge.CopyFrom(merge)
        first = synopses_pb2.MergeInPartsRequest(whole=whole)
        in_parts = connection.stubs.synopses.MergeInParts
        check(held, lambda: in_parts(iter([first])), "size_bytes", end)  # noqa: B023


@pytest.mark.slow
@pytest.mark.parametrize("claimed", [1 << 40, (1 << 40) + 1, (1 << 62) - 1])
def test_of_the_rows_that_summaries_claim(held, connection, claimed):
    builder = Summariser(Plans.from_json(held.plans("trades")))
    builder.add(trades(10))
    made = builder.summaries().to_bytes().replace(b'"rows":10', b'"rows":%d' % claimed)
    head = int.from_bytes(made[:4], "little") + len(b"%d" % claimed) - 2
    request = synopses_pb2.MergeRequest(
        stream="trades", summaries=head.to_bytes(4, "little") + made[4:]
    )
    for _ in range(3):
        assert code_of(lambda: connection.stubs.synopses.Merge(request)) in FINE
        assert held.ledger("trades").refused_rows <= 3 << 40


@pytest.mark.slow
def test_of_a_heartbeat(held, connection):
    request = ingest_pb2.HeartbeatRequest(stream="trades", watermark_us=5)
    for name, end, each in hostile(request):
        check(held, lambda: connection.stubs.ingest.Heartbeat(each), name, end)  # noqa: B023


@pytest.mark.slow
def test_of_a_backfill(held, connection):
    named = {"stream": "trades", "name": "past"}
    begun = backfill_pb2.BeginRequest(**named, plan="whole", parts=2)
    for name, end, request in hostile(begun):
        request.name = f"of{end}"
        check(held, lambda: connection.stubs.backfill.Begin(request), name, end)  # noqa: B023
    connection.stubs.backfill.Begin(begun)
    write = backfill_pb2.WriteRequest(**named, part=1, attempt="a", file=0, offset=0, data=b"x")
    finish = backfill_pb2.FinishPartRequest(
        **named,
        part=1,
        attempt="a",
        rows=1,
        poison=0,
        files=[
            backfill_pb2.FinishPartRequest.RunFile(
                first_position=-1, end_position=0, size_bytes=1, crc=7
            )
        ],
    )
    adopt = backfill_pb2.AdoptRequest(**named, rows=5)
    stub = connection.stubs.backfill
    for message, method in ((write, stub.Write), (finish, stub.FinishPart), (adopt, stub.Adopt)):
        for name, end, request in hostile(message):
            check(held, lambda: method(request), name, end)  # noqa: B023


def declaring(rows):
    """A batch of ten rows that says that it has others."""
    request = append_request("trades", "p", 0, 0, trades(10))
    request.batch.rows = rows
    return request


@pytest.mark.parametrize("is_declared", [False, True])
@pytest.mark.parametrize("rows", [1 << 20, 1 << 40, 1 << 62])
def test_a_batch_that_is_refused_for_its_rows_uses_up_no_quota(held, connection, rows, is_declared):
    request = declaring(rows)
    declared = ingest_pb2.Declared(
        stream="trades", rows=rows, size_bytes=len(request.batch.arrow)
    ).SerializeToString()
    metadata = ((KEY, declared),) if is_declared else ()
    for _ in range(3):
        code = code_of(lambda: connection.stubs.ingest.Append(request, metadata=metadata))
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    started = held.push("trades", trades(10), producer="p", sequence=0)
    assert (started.rows, started.duplicate) == (10, False)
    assert held.ledger("trades").refused_batches == 3


def test_summaries_that_are_refused_use_up_no_quota(held, connection, engine):
    engine.core.tenants.tell({"default": {"bytes_per_s": 1e4}})
    request = synopses_pb2.MergeRequest(stream="trades", summaries=bytes(60_000))
    for _ in range(3):
        code = code_of(lambda: connection.stubs.synopses.Merge(request))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
