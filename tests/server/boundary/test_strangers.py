"""Peers without an identity cost next to no memory, and keep no other peer out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shedder.engine.runtime.caller import Scope
from shedder.server.anonymous_calls import AnonymousLimits
from shedder.server.authentication import new_token
from shedder.server.call_context import CallLimits
from shedder.v1 import ingest_pb2, synopses_pb2
from tests.server.boundary.raw_http2 import FRAME_BYTES_MAX, WINDOW_BYTES, Raw
from tests.server.worlds import (
    CREATE_TRADES,
    METHODS,
    PATIENCE_S,
    connect,
    health_of,
    wait_until_reached,
)
from tests.server_process import ServerProcess, running
from tests.streams.streams import trades

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
SERVING = health_pb2.HealthCheckResponse.SERVING
MESSAGE_BYTES = 16 << 20


@contextmanager
def raw(count: int, address: str, ca_pem: bytes | None = None, **options) -> Iterator[list[Raw]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Raw(address, ca_pem, **options)) for _ in range(count)]


def filled(connection: Raw, streams: list[int], bytes_max: int) -> int:
    """Send bytes of unfinished requests as far as the server takes them; return how many."""
    sent = 0
    connection.socket.settimeout(0.3)
    while True:
        for stream in streams:
            while stream not in connection.ended and sent < bytes_max:
                size = min(connection.room(stream), FRAME_BYTES_MAX)
                if size <= 0:
                    break
                connection.send_more(stream, bytes(size))
                sent += size
        try:
            connection.receive()
        except TimeoutError:  # The server takes no more.
            return sent


@pytest.fixture
def secured(tmp_path, authority) -> Iterator[tuple[ServerProcess, str]]:
    """A server process with TLS and tokens, and the token of an administrator."""
    token, entry = new_token("admin", [Scope.ADMIN])
    authority.tokens_file.write_text(entry)
    process = ServerProcess(
        tmp_path / "data",
        is_insecure=False,
        tls_cert=str(authority.cert),
        tls_key=str(authority.key),
        tokens_file=str(authority.tokens_file),
    )
    yield process, token
    process.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "count", "grown_max"), [("/shedder.v1.Query/Execute", 10, 0), (CHECK, 2, 4)]
)
def test_unfinished_requests_of_strangers_are_not_kept(
    secured, authority, method, count, grown_max
):
    """16 requests of 16 MiB each. Of probes two are received at a time, each in two copies."""
    process, token = secured
    with connect(process.address, ca=authority.ca_pem, token=token) as client:
        client.execute(CREATE_TRADES)
        before = process.rss_bytes()
        most = before
        with raw(count, process.address, authority.ca_pem) as connections:
            for connection in connections:
                streams = [connection.open(method) for _ in range(16)]
                for stream in streams:
                    connection.send(stream, b"", MESSAGE_BYTES)
                filled(connection, streams, 16 * (MESSAGE_BYTES - 64))
                most = max(most, process.rss_bytes())
            assert most - before < grown_max * MESSAGE_BYTES + (48 << 20)
            assert client.push("trades", trades(10)).position == 10


def garbage(size_bytes: int) -> bytes:
    return b"\xff" * size_bytes


@pytest.mark.slow
def test_refused_requests_are_not_kept_until_the_collector_comes(tmp_path):
    """Each error had a cycle, through its traceback, with the request: 16 MiB a call."""
    process = ServerProcess(tmp_path / "data")
    batch = ingest_pb2.Batch(rows=1, arrow=garbage(8 << 20))
    append = ingest_pb2.AppendRequest(stream="trades", batch=batch).SerializeToString()
    hello = ingest_pb2.AppendStreamRequest(
        hello=ingest_pb2.AppendStreamRequest.Hello(stream="trades")
    ).SerializeToString()
    streamed = ingest_pb2.AppendStreamRequest(batch=batch).SerializeToString()
    merge = synopses_pb2.MergeRequest(
        stream="trades", summaries=garbage(8 << 20)
    ).SerializeToString()
    calls = [
        ("unary_unary", "Query/Unregister", garbage(8 << 20)),
        ("unary_unary", "Ingest/Append", append),
        ("stream_stream", "Ingest/AppendStream", [hello, streamed]),
        ("unary_unary", "Synopses/Merge", merge),
    ]
    with process.connect() as client, grpc.insecure_channel(process.address) as channel:
        client.execute(CREATE_TRADES)
        for kind, method, request in calls:
            grown = []
            for _ in range(25):
                call = getattr(channel, kind)(f"/shedder.v1.{method}")
                with pytest.raises(grpc.RpcError):
                    list(call(iter(request))) if kind == "stream_stream" else call(request)
                grown.append(process.rss_bytes())
            assert grown[-1] - grown[5] < 80 << 20, (method, grown)
    process.stop()


def test_a_stranger_is_refused_before_the_first_byte_of_the_request(engine, authority):
    """The server ends each call while nothing but headers has come."""
    secure = authority.settings(tokens_file=authority.tokens_file)
    with running(engine, secure) as address, Raw(str(address), authority.ca_pem) as connection:
        for method in METHODS:
            stream = connection.open(method)
            assert connection.wait_for_end(stream), method
            assert connection.room(stream) <= WINDOW_BYTES


@pytest.fixture
def limits():
    return CallLimits(calls_max=64, anonymous=AnonymousLimits(calls_max=24))


@pytest.mark.slow
def test_watches_of_strangers_leave_room_for_probes_and_for_everybody_else(client, address):
    """Ten connections with 40 watches each; the first version refused every call above a limit."""
    with raw(10, address) as connections:
        for connection in connections:
            for _ in range(40):
                stream = connection.open(WATCH)
                connection.send(stream, b"", is_last=True)
            while stream not in connection.headers:  # The last one is answered, one way or another.
                connection.receive()
        with grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
            assert next(watch).status == SERVING
            assert health_of(address, "") == SERVING
            watch.cancel()
        assert client.push("trades", trades(10)).position == 10
        with connect(address) as another:
            assert another.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 10


def test_a_probe_with_a_long_name_is_refused(address):
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="x" * 257)
        for call in (lambda: stub.Check(request), lambda: next(stub.Watch(request))):
            with pytest.raises(grpc.RpcError) as found:
                call()
            assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "257 characters; at most 256" in found.value.details()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [pytest.param({"connections_max": 12}, id="of 12")], indirect=True
)
def test_idle_connections_of_strangers_give_way_to_clients(client, address):
    """All connections are taken; those that never showed an identity are closed within seconds."""
    client.push("trades", trades(10, 1))
    with raw(11, address) as connections:
        for connection in connections:
            connection.receive()  # gRPC has accepted it.
        wait_until_reached(address)
        with connect(address) as another:
            assert another.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 10
        assert client.push("trades", trades(10, 2)).position == 20  # A known peer stays.
