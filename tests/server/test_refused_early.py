"""A batch that is declared is let in, or refused, before anything of it is received."""

from __future__ import annotations

import gc
import threading
import time
from contextlib import suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shedder import errors
from shedder.client.failures import translated
from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.streams.batches import encode
from shedder.v1.ingest_pb2 import AppendRequest, AppendResponse, Batch
from shedder.wire.append_metadata import KEY, declared_metadata
from tests.streams.streams import trades

METHOD = "/shedder.v1.Ingest/Append"
WAIT_S = 250.0  # A call that hangs ends before pytest ends the test.
ROWS = 1_000
ARROW = encode(trades(ROWS))
REQUEST = AppendRequest(stream="trades", batch=Batch(rows=ROWS, arrow=ARROW))
DECLARED = declared_metadata("trades", ROWS, len(ARROW))


@pytest.fixture
def channel(client, address):
    with grpc.insecure_channel(address) as channel:
        yield channel


@pytest.fixture
def append(channel):
    """Calls Append with a declaration, as clients do whose requests come as one message."""
    call = channel.unary_unary(
        METHOD,
        request_serializer=AppendRequest.SerializeToString,
        response_deserializer=AppendResponse.FromString,
    )

    def append(request=REQUEST, declared=DECLARED):
        try:
            response = call(request, timeout=WAIT_S, metadata=[declared] if declared else None)
        except grpc.RpcError as error:
            raise translated(error, "here") from None
        return response.receipt

    return append


@pytest.fixture
def announce(channel):
    """Calls Append and sends nothing until it is told to; the error that came nevertheless."""
    call = channel.stream_unary(
        METHOD,
        request_serializer=AppendRequest.SerializeToString,
        response_deserializer=AppendResponse.FromString,
    )

    def announce(*declared, timeout_s=WAIT_S):
        closed = threading.Event()

        def requests():
            closed.wait()
            yield from ()

        try:
            call(requests(), timeout=timeout_s, metadata=declared)
        except grpc.RpcError as error:
            return translated(error, "here")
        finally:
            closed.set()
        raise AssertionError("nothing was sent, and it was acknowledged")

    return announce


def shut(engine):
    """The door lets nothing in for a long time."""
    core = engine.core
    core.door.hold(1.0, {"trades": 1.0}, core.machine.monotonic_s(), 0.1)
    while core.door.wait_ms("trades", 1 << 40, core.machine.monotonic_s()):
        pass


def test_who_is_refused_is_so_before_anything_of_the_batch_is_sent(client, engine, announce):
    shut(engine)
    error = announce(DECLARED)
    assert isinstance(error, errors.Overloaded)
    assert error.retry_after_ms == 5_000
    ledger = client.ledger("trades")
    assert (ledger.refused_batches, ledger.refused_rows, ledger.accepted) == (1, ROWS, 0)


@pytest.mark.slow
def test_without_a_declaration_nothing_is_decided_before_it_has_come(engine, append, announce):
    shut(engine)
    assert isinstance(announce(timeout_s=0.2), errors.DeadlineExceeded)
    with pytest.raises(errors.Overloaded):  # And it is not decoded then.
        append(AppendRequest(stream="trades", batch=Batch(rows=3, arrow=b"junk")), declared=None)


def test_health_and_control_are_answered_while_batches_are_refused(client, engine, channel, append):
    shut(engine)
    health = health_pb2_grpc.HealthStub(channel)
    for _ in range(5):
        with pytest.raises(errors.Overloaded):
            append()
        status = health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S).status
        assert status == health_pb2.HealthCheckResponse.SERVING
        assert client.control().num_rows > 0
    assert client.ledger("trades").refused_batches == 5


def test_what_is_let_in_is_acknowledged_with_or_without_a_declaration(client, append):
    assert append().position == ROWS
    assert append(declared=None).position == 2 * ROWS
    ledger = client.ledger("trades")
    assert (ledger.applied, ledger.refused_batches) == (2 * ROWS, 0)


LIES = [
    declared_metadata("trades", ROWS - 1, len(ARROW)),
    declared_metadata("trades", ROWS, len(ARROW) + 1),
    declared_metadata("trades", 0, 0),
    declared_metadata("others", ROWS, len(ARROW)),
]


@pytest.mark.parametrize("lie", LIES)
def test_who_lies_is_refused_and_others_have_his_place(client, engine, append, lie):
    client.execute("CREATE STREAM others (ts TIMESTAMP NOT NULL) TIMESTAMP BY ts")
    engine.quotas.set_quota(DEFAULT_TENANT, "rows_per_s", "1")
    for _ in range(3):
        with pytest.raises(errors.InvalidRequest, match="the request has"):
            append(declared=lie)
    assert append().position == ROWS  # The quota was not used up: in debt it would be for minutes.
    with pytest.raises(errors.RateExceeded):
        append()
    assert client.ledger("trades").applied == ROWS
    assert client.ledger("others").applied == 0


@pytest.mark.parametrize(
    ("declared", "error"),
    [
        (declared_metadata("trades", -1, 8), errors.InvalidRequest),
        (declared_metadata("trades", 1, -8), errors.InvalidRequest),
        ((KEY, b"\xff\xff"), errors.InvalidRequest),
        (declared_metadata("trades", 1 << 62, 8), errors.BatchTooLarge),
        (declared_metadata("trades", 1, 1 << 62), errors.BatchTooLarge),
        (declared_metadata("absent", 1, 8), errors.UnknownStream),
        (declared_metadata("", 1, 8), errors.UnknownStream),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_sent(client, append, announce, declared, error):
    assert isinstance(announce(declared), error)
    assert client.ledger("trades").refused_rows == 0
    assert append().position == ROWS


def test_two_declarations_are_one_too_many(announce):
    assert isinstance(announce(DECLARED, DECLARED), errors.InvalidRequest)


def test_who_leaves_before_he_sends_gives_his_place_back(client, engine, channel, append):
    engine.quotas.set_quota(DEFAULT_TENANT, "rows_per_s", "1")
    never = threading.Event()

    def requests():
        never.wait()
        yield from ()

    call = channel.stream_unary(METHOD).future(requests(), timeout=WAIT_S, metadata=[DECLARED])
    rates = engine.core.tenants.rates
    while not rates.wait_ms(DEFAULT_TENANT, 0, 0, time.monotonic()):
        pass  # No other call is admitted once this one was.
    call.cancel()
    never.set()
    receipt = None
    while receipt is None:  # Until the place is free again.
        with suppress(errors.RateExceeded):
            receipt = append()
    assert client.ledger("trades").applied == ROWS


@pytest.mark.slow
def test_a_stream_that_blocks_waits_before_it_receives(client, engine, append):
    client.execute("ALTER STREAM trades SET ON OVERLOAD BLOCK")
    engine.quotas.set_quota(DEFAULT_TENANT, "rows_per_s", str(10 * ROWS))
    for number in range(1, 8):  # Three are over the quota at any time.
        assert append().position == number * ROWS
    ledger = client.ledger("trades")
    assert (ledger.applied, ledger.refused_batches) == (7 * ROWS, 0)


@pytest.mark.parametrize("data", [None, b"\xff\xff\xff"])
def test_a_call_without_a_request_or_with_junk_is_told_so(client, channel, data):
    call = channel.stream_unary(METHOD)
    with pytest.raises(grpc.RpcError) as raised:
        call(iter([] if data is None else [data]), timeout=WAIT_S)
    error = translated(raised.value, "here")
    assert isinstance(error, errors.InvalidRequest)
    assert client.ledger("trades").applied == 0


def test_nothing_of_a_refused_call_is_held_when_it_is_over(append, engine):
    """Errors of aborted calls held their frames, and these the requests: 0.5 MB of each of 1.6."""
    core = engine.core
    core.door.hold(1.0, {"trades": 1.0}, core.machine.monotonic_s(), 0.1)
    append(declared=None)  # One comes in, and the others have to wait until it is paid off.
    before = errors_alive()
    for _ in range(60):
        with pytest.raises(errors.Overloaded):
            append(declared=None)
    gc.collect()
    assert errors_alive() - before < 10  # The newest calls may not be over yet.


def errors_alive() -> int:
    """Return the number of errors that something still refers to."""
    kinds = (errors.ShedderError, grpc.aio.AbortError)
    return sum(isinstance(each, kinds) for each in gc.get_objects())
