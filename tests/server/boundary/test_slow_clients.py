"""Clients that send or read slowly hold no place that others need."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from queue import SimpleQueue

import grpc
import pytest

from shedder.errors import Overloaded
from shedder.server.call_context import CallLimits
from shedder.v1 import ingest_pb2, query_pb2
from tests.server.boundary.raw_http2 import Raw
from tests.server.worlds import PATIENCE_S, connect
from tests.streams.streams import trades

COUNTS = "SELECT COUNT(*) AS n FROM trades [RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND]"
APPEND_STREAM = "/shedder.v1.Ingest/AppendStream"
SUBSCRIBE = "/shedder.v1.Query/Subscribe"


def hello(stream="trades", name="p"):
    producer = ingest_pb2.Producer(name=name)
    message = ingest_pb2.AppendStreamRequest.Hello(stream=stream, producer=producer)
    return ingest_pb2.AppendStreamRequest(hello=message).SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("limits", [CallLimits(calls_max=4, idle_s_min=0.0)])
def test_idle_producers_give_way_and_go_on_without_a_loss(client, address):
    """Three streams are all that one tenant may have of four; six producers take turns."""
    opened = [client.producer("trades", f"p{number}") for number in range(6)]
    for turn in range(2):
        for number, producer in enumerate(opened):
            producer.push(trades(10, 10 * turn + number))
            producer.flush()
    for producer in opened:
        producer.close()
    ledger = client.ledger("trades")
    assert (ledger.applied, ledger.refused_batches) == (120, 0)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [CallLimits(calls_max=4)])
def test_producers_and_subscribers_have_places_of_their_own(client, address):
    query = client.register("counts", COUNTS)
    producers = [client.producer("trades", f"p{number}") for number in range(3)]
    for number, producer in enumerate(producers):
        producer.push(trades(10, number))
        producer.flush()
    with connect(address, patience_s=0) as other:
        with pytest.raises(Overloaded, match="3 append streams are in flight"):
            other.producer("trades", "late").push(trades(10, 9))
        slides = [query.subscribe() for _ in range(3)]
        with pytest.raises(Overloaded, match="3 subscriptions are in flight"):
            next(other.query("counts").subscribe())
        for each in slides:
            each.close()
    for producer in producers:
        producer.close()


@pytest.mark.parametrize("limits", [CallLimits(request_s_max=0.2)])
@pytest.mark.parametrize(
    "method",
    ["/shedder.v1.Query/Execute", "/shedder.v1.Query/Subscribe", "/shedder.v1.Ingest/Append"],
)
def test_a_request_that_does_not_arrive_gives_its_place_back(address, method):
    with Raw(address) as connection:
        stream = connection.open(method)
        connection.send(stream, b"x" * 100, 16_000)
        assert connection.wait_for_end(stream)


@pytest.mark.parametrize("limits", [CallLimits(calls_max=4, receipt_s_max=0.2)])
def test_a_producer_that_takes_no_response_gives_its_place_back(client, address):
    """Its window is closed: even the welcome cannot be sent. It gets the end when it reads on."""
    with Raw(address, window_bytes=0) as connection:
        streams = [connection.open(APPEND_STREAM) for _ in range(3)]
        for number, stream in enumerate(streams):
            connection.send(stream, hello(name=f"s{number}"))
        for stream in streams:
            while stream not in connection.headers:  # Sent when the call has its place.
                connection.receive()
        with ExitStack() as stack:  # Three more take all places, so each stream gave its own back.
            for number in range(3):
                producer = stack.enter_context(client.producer("trades", f"p{number}"))
                producer.push(trades(10, number))  # Tries again until there is a place.
                assert producer.flush().position == 10 * (number + 1)
        for stream in streams:
            connection.allow(stream, 1 << 20)
            assert b"the client took no response for 0 s" in connection.wait_for_end(stream)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [CallLimits(receipt_s_max=0.1, unread_s_max=0.1)])
def test_a_producer_that_takes_no_end_of_its_call_loses_its_connection(client, address):
    with Raw(address, window_bytes=0) as connection:
        connection.send(connection.open(APPEND_STREAM), hello())
        assert connection.is_at_its_end()
    client.push("trades", trades(10, 1))


@pytest.mark.parametrize("limits", [CallLimits(idle_s_max=0.2)])
def test_an_idle_producer_is_ended_and_goes_on(client, address):
    with client.producer("trades", "p") as producer:
        for number in range(2):
            producer.push(trades(10, number))
            assert producer.flush().position == 10 * (number + 1)
            error = end_of_idle_call(address)  # Younger than that of the producer.
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert "no batch arrived for 0 s" in error.details()


def end_of_idle_call(address) -> grpc.RpcError:
    """Return the error that ends an AppendStream of a hello and nothing else."""
    requests = SimpleQueue()
    requests.put(hello(name="idle"))
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(APPEND_STREAM)(iter(requests.get, None), timeout=PATIENCE_S)
        with pytest.raises(grpc.RpcError) as found:
            list(call)
    requests.put(None)
    return found.value


@pytest.mark.slow
@pytest.mark.parametrize("limits", [CallLimits(calls_max=4, idle_s_min=0.0)])
def test_subscribers_that_take_no_answer_give_way(client, address):
    """Their windows are closed, so the first answer waits for them for ever."""
    query = client.register("counts", COUNTS)
    request = query_pb2.SubscribeRequest(name="counts").SerializeToString()
    with Raw(address, window_bytes=0) as connection:
        for _ in range(3):
            stream = connection.open(SUBSCRIBE)
            connection.send(stream, request, is_last=True)
            while stream not in connection.headers:  # Sent when the call has begun to listen.
                connection.receive()
        client.push("trades", trades(10, 1))
        for attempt in range(1, 1_000):  # A place is free once an answer waits for its client.
            slides = query.subscribe()
            client.heartbeat("trades", attempt * 100_000_000)
            with suppress(Overloaded):
                next(slides)
                break
        else:
            raise AssertionError("no subscriber gave way")
        slides.close()
