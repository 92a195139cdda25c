"""What goes wrong goes wrong cleanly: restarts, floods, bugs, failing disks."""

import re
import socket
import urllib.request
from concurrent.futures import Future
from contextlib import ExitStack, closing

import pytest
from grpc_health.v1 import health_pb2
from structlog.testing import capture_logs

from shedder import errors
from shedder.server.call_context import CallLimits
from shedder.server.health import INGEST, QUERY
from shedder.settings import Settings
from shedder.streams.batches import encode
from tests.server.worlds import (
    CREATE_TRADES,
    Front,
    Holding,
    Listened,
    again,
    connect,
    connection_to,
    health_of,
    overloaded,
)
from tests.server_process import running
from tests.streams.streams import trades

COUNT = "SELECT COUNT(*) AS n FROM trades"
SECRET = "the key is under the mat in /etc/shadow"


@pytest.mark.slow
def test_a_producer_goes_on_when_the_server_is_restarted(engine, settings):
    engine.execute(CREATE_TRADES)
    with running(engine, settings) as address:
        client = connect(address)
        producer = client.producer("trades", "p")
        for seed in range(3):
            producer.push(trades(100, seed))
        assert producer.flush().position == 300
        producer.push(trades(100, 3))
    with running(engine, again(settings, address)):
        producer.push(trades(100, 4))
        assert producer.flush().position == 500
        assert client.push("trades", trades(100, 5)).position == 600
        producer.close()
        client.close()
    assert engine.ledger("trades").applied == 600
    assert engine.last_sequence("trades", "p") == (0, 4)


def test_a_push_that_finds_no_server_for_long_says_so(engine, settings):
    engine.execute(CREATE_TRADES)
    with running(engine, settings) as address:
        client = connect(address, patience_s=0.2)
    with client, pytest.raises(errors.Unreachable):
        client.push("trades", trades(1))


def test_a_producer_that_crashed_goes_on_where_it_stopped(client):
    crashed = client.producer("trades", "p", epoch=1)
    for seed in range(3):
        crashed.push(trades(10, seed))
    crashed.flush()
    resumed = client.producer("trades", "p")
    assert (resumed.epoch, resumed.next_sequence) == (1, 3)
    resumed.push(trades(10, 2), sequence=2)  # It is not sure about this one, so it sends it again.
    resumed.push(trades(10, 3))
    assert resumed.flush().position == 40
    replaced = client.producer("trades", "p", epoch=2)
    replaced.push(trades(10, 4))
    replaced.flush()
    crashed.push(trades(10, 5))
    with pytest.raises(errors.StaleEpoch):
        crashed.flush()
    assert client.ledger("trades").applied == 50


def test_open_calls_are_told_that_the_server_stops(engine, settings):
    engine.execute(CREATE_TRADES)
    engine.register("count", COUNT)
    with running(engine, settings) as address:
        client = connect(address, patience_s=0)
        slides = client.query("count").subscribe()
        producer = client.producer("trades", "p")
        producer.push(trades(10))
        producer.flush()
    with pytest.raises(errors.Draining):
        list(slides)
    producer.push(trades(10))
    with pytest.raises((errors.Draining, errors.Unreachable)):
        producer.flush()
    client.close()


class FullAtFirst(Front):
    """An engine without room for the next `refusals` batches."""

    refusals = 0.0

    def append(self, *args, **named):
        if self.refusals > 0:
            self.refusals -= 1
            raise overloaded(1)
        return self.engine.append(*args, **named)


def test_a_flood_is_waited_for(engine, settings):
    engine.execute(CREATE_TRADES)
    front = FullAtFirst(engine)
    with running(front, settings) as address, connect(address) as client:
        front.refusals = 3
        with client.producer("trades", "p") as producer:
            producer.push(trades(10))
            assert producer.flush().position == 10
        front.refusals = 2
        assert client.push("trades", trades(10)).position == 20
    assert front.refusals == 0


def test_a_flood_that_lasts_is_refused(engine, settings):
    engine.execute(CREATE_TRADES)
    front = FullAtFirst(engine)
    front.refusals = float("inf")
    with (
        running(front, settings, CallLimits(append_patience_s=0.01)) as address,
        connect(address, patience_s=0.01) as client,
    ):
        for push in (client.push, lambda *_: _flush(client.producer("trades", "q"))):
            with pytest.raises(errors.Overloaded) as raised:
                push("trades", trades(10))
            assert raised.value.retry_after_ms == 1


def _flush(producer):
    producer.push(trades(10))
    producer.flush()


class Broken(Front):
    """An engine in which four methods have a bug."""

    def broken(self, *_args, **_named):
        raise ValueError(SECRET)

    ledger = execute = append = control = broken


class Halted(Front):
    """An engine that has halted."""

    def ledger(self, *_args, **_named):
        raise errors.InternalError(SECRET)


class FailedDisk(Front):
    """An engine whose log cannot be written."""

    def append(self, *_args, **_named):
        failed: Future = Future()
        failed.set_exception(errors.StorageFailed("fsync: input/output error"))
        return failed


@pytest.fixture
def served(engine, settings):
    """A function that serves a front, and returns a client and the server's address."""
    engine.execute(CREATE_TRADES)
    with ExitStack() as stack:

        def serve(front):
            address = str(stack.enter_context(running(front, settings)))
            return stack.enter_context(connect(address)), address

        yield serve


def test_a_bug_is_a_correlation_id_and_nothing_else(engine, served):
    client, _ = served(Broken(engine))
    for ask in (
        lambda: client.ledger("trades"),
        lambda: client.execute(COUNT),
        lambda: client.push("trades", trades(1)),
        lambda: _flush(client.producer("trades", "p")),
        client.control,
    ):
        with capture_logs() as logged, pytest.raises(errors.InternalError) as raised:
            ask()
        (request_id,) = re.findall(r"internal error ([0-9a-f]{16});", str(raised.value))
        assert SECRET not in str(raised.value)
        (bug,) = [entry for entry in logged if entry["event"] == "bug"]
        assert (bug["request_id"], str(bug["exc_info"])) == (request_id, SECRET)


@pytest.mark.slow
def test_an_internal_error_of_the_engine_is_not_shown_either(engine, served):
    client, _ = served(Halted(engine))
    with pytest.raises(errors.InternalError, match=r"internal error [0-9a-f]{16}"):
        client.ledger("trades")


@pytest.mark.slow
def test_a_failing_disk_stops_ingest_and_says_so_to_probes(engine, served):
    client, address = served(FailedDisk(engine))
    assert health_of(address, INGEST) == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(errors.StorageFailed):
        client.push("trades", trades(1))
    assert health_of(address, INGEST) == health_pb2.HealthCheckResponse.NOT_SERVING
    assert health_of(address, QUERY) == health_pb2.HealthCheckResponse.SERVING
    assert client.execute(COUNT).rows()[0]["n"] == 0


def test_a_second_server_does_not_get_the_port(engine, settings, address):
    with (
        pytest.raises(errors.BadSetting, match="cannot listen"),
        running(engine, again(settings, address)),
    ):
        pass


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_a_timeout_that_makes_no_sense_is_refused(client, connection, timeout_s):
    from shedder.v1 import query_pb2

    request = query_pb2.ExecuteRequest(sql=COUNT, timeout_s=timeout_s)
    call = connection.open(connection.stubs.query.Execute, request)
    with pytest.raises((errors.BadSetting, errors.DeadlineExceeded)):
        connection.read(call)


@pytest.mark.slow
def test_prometheus_finds_what_was_counted(engine):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(
        listen="127.0.0.1:0", insecure=True, metrics_listen=f"127.0.0.1:{port}", drain_s=5
    )
    with running(engine, settings) as address, connect(address) as client:
        client.execute(CREATE_TRADES)
        client.push("trades", trades(10), producer="p", sequence=0)
        client.push("trades", trades(10), producer="p", sequence=0)
        with pytest.raises(errors.UnknownStream):
            client.push("nothing", trades(10))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            lines = response.read().decode().splitlines()
    assert 'shedder_ingest_rows_total{disposition="stored"} 10.0' in lines
    assert 'shedder_ingest_rows_total{disposition="duplicate"} 10.0' in lines
    method = "/shedder.v1.Ingest/DescribeStream"
    assert f'grpc_server_handled_total{{code="NOT_FOUND",method="{method}"}} 1.0' in lines
    assert any(line.startswith("shedder_control{") and '"trades"' in line for line in lines)


def test_a_call_that_is_given_up_neither_undoes_nor_breaks_its_batch(engine, served):
    from shedder.v1 import ingest_pb2

    front = Holding(engine)
    client, address = served(front)
    front.holds = True
    request = ingest_pb2.AppendRequest(
        stream="trades", batch=ingest_pb2.Batch(arrow=encode(trades(10)), rows=10)
    )
    with closing(connection_to(address)) as connection:
        call = connection.stubs.ingest.Append.future(request)
        front.came.acquire()
        call.cancel()
    ((appended, waits),) = front.held
    assert appended.result().position == 10
    assert client.ledger("trades").applied == 10
    assert not waits.cancelled()
    front.let_go()


@pytest.mark.slow
def test_a_connection_lost_with_batches_in_flight_loses_and_doubles_nothing(client):
    producer = client.producer("trades", "p")
    for seed in range(60):
        producer.push(trades(100, seed))
        if seed % 7 == 0:
            producer.disconnect()
    assert producer.flush().position == 6_000
    assert client.ledger("trades").applied == 6_000
    assert client.last_sequence("trades", "p") == (0, 59)


def test_a_subscriber_that_leaves_is_not_told_any_more(engine, served):
    front = Listened(engine)
    client, _ = served(front)
    query = client.register("count", COUNT)
    subscriptions = [query.subscribe() for _ in range(5)]
    listeners = engine.core.standing_query("count")[1].listeners
    assert len(listeners) == 5
    for slides in subscriptions:
        slides.close()
    for _ in subscriptions:
        front.left.acquire()
    assert len(listeners) == 0
