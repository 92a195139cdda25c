"""Rows that a server sends: whole or in parts, to new and old clients, until they leave."""

from __future__ import annotations

import grpc
import pyarrow as pa
import pytest

import shedder
from shedder.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    ResourceExhausted,
    UnknownStream,
)
from shedder.server.call_context import CallLimits
from shedder.settings import Settings
from shedder.v1 import query_pb2
from shedder.wire import tables
from shedder.wire.answers import answer_from_wire
from tests.archive.child_processes import exact_worker_process
from tests.engine.one_time_queries.stopped_worker import StoppedWorker, linux
from tests.engine.rows_world import CREATE, as_bag, rows_of, tuples
from tests.server.worlds import connect, connect_async, connection_to
from tests.server_process import running

FEW, MANY = 100, 20_000


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    settings = Settings(listen="127.0.0.1:0", insecure=True, drain_s=5, overload="off")
    with shedder.open(tmp_path_factory.mktemp("rows") / "data", settings) as engine:
        for stream, count in (("few", FEW), ("many", MANY), ("none", 0)):
            engine.execute(CREATE.format(stream, "plain"))
            engine.push(stream, tuples(count, 7))
            engine.seal(stream)
        engine.execute(CREATE.format("large", "plain"))
        times = pa.array([0], pa.timestamp("us"))
        engine.push("large", pa.table({"ts": times, "g": ["x" * 30_000]}))
        engine.push("many", tuples(50, 8, start_s=MANY))
        yield engine, settings


@pytest.fixture(scope="module")
def address(engine):
    served, settings = engine
    with running(served, settings) as address:
        yield str(address)


@pytest.fixture
def client(address):
    with connect(address) as client:
        yield client


@pytest.fixture
def stub(address):
    connection = connection_to(address)
    yield connection.stubs.query
    connection.close()


def expected(stream: str) -> list[str]:
    counts = {"few": [(FEW, 7, 0)], "many": [(MANY, 7, 0), (50, 8, MANY)], "none": []}
    return as_bag(
        [row for n, seed, at in counts[stream] for row in rows_of(tuples(n, seed, start_s=at))]
    )


@pytest.mark.parametrize("stream", ["none", "few", "many"])
def test_rows_come_whole_to_execute(client, stream):
    answer = client.execute(f"SELECT * FROM {stream}")
    assert as_bag(answer.rows()) == expected(stream)
    assert answer.outputs == ("ts", "k", "g", "x", "ok", "day")
    assert (answer.complete, answer.cut, answer.notes) == (True, "", ())
    assert answer.elapsed_ms > 0


@pytest.mark.parametrize("stream", ["none", "few", "many"])
def test_rows_come_in_batches(client, stream):
    with client.execute_batches(f"SELECT * FROM {stream}") as batches:
        parts = list(batches)
    assert as_bag([row for part in parts for row in part.to_pylist()]) == expected(stream)
    assert batches.answer.table.num_rows == 0
    assert batches.answer.table.schema == batches.schema
    assert (len(parts) > 3) == (stream == "many")


@pytest.mark.parametrize("stream", ["none", "few", "many"])
async def test_rows_come_in_batches_on_an_event_loop(address, stream):
    async with await connect_async(address) as client:
        rows = []
        async with await client.execute_batches(f"SELECT * FROM {stream}") as batches:
            async for batch in batches:
                rows += batch.to_pylist()
        assert as_bag(rows) == expected(stream)
        assert batches.answer.query == f"SELECT * FROM {stream}"
        assert as_bag((await client.execute(f"SELECT * FROM {stream}")).rows()) == expected(stream)


def test_a_client_that_takes_no_parts_gets_one_response(stub):
    request = query_pb2.ExecuteRequest(sql="SELECT * FROM many")
    (response,) = stub.Execute(request)
    assert as_bag(answer_from_wire(response.answer).rows()) == expected("many")


def test_a_client_that_takes_parts_gets_the_rows_before_the_answer(stub):
    request = query_pb2.ExecuteRequest(sql="SELECT * FROM many", in_parts=True)
    *parts, last = stub.Execute(request)
    rows = [row for part in parts for row in tables.from_bytes(part.rows).to_pylist()]
    assert as_bag(rows) == expected("many")
    assert not any(part.HasField("answer") for part in parts)
    assert (last.rows, answer_from_wire(last.answer).table.num_rows) == (b"", 0)


def test_few_rows_are_one_response(stub):
    request = query_pb2.ExecuteRequest(sql="SELECT * FROM few", in_parts=True)
    (response,) = stub.Execute(request)
    assert as_bag(answer_from_wire(response.answer).rows()) == expected("few")


def test_rows_of_no_stream_and_bad_rows_are_refused(client):
    with pytest.raises(UnknownStream, match="nothing"):
        client.execute_batches("SELECT * FROM nothing")
    with pytest.raises(UnknownStream, match="nothing"):
        client.execute("SELECT * FROM nothing")


def test_batches_of_other_statements_are_those_of_their_tables(client):
    with client.execute_batches("SELECT COUNT(*) AS n FROM many") as batches:
        (batch,) = batches
    assert batch["n"].to_pylist() == [MANY + 50]


@pytest.mark.slow
def test_a_large_batch_is_sent_in_parts_that_fit_and_a_large_row_is_refused(engine):
    served, settings = engine
    limits = CallLimits(answer_bytes_max=1 << 17)
    with running(served, settings, limits) as address, connect(str(address)) as client:
        assert as_bag(client.execute("SELECT * FROM many").rows()) == expected("many")
        sixfold = "SELECT " + " || ".join(["g"] * 6) + " AS g FROM large"
        assert client.execute("SELECT g FROM large").table["g"].to_pylist() == ["x" * 30_000]
        with pytest.raises(ResourceExhausted, match="a row has 180,0"):
            client.execute(sixfold)
        old = connection_to(str(address))
        request = query_pb2.ExecuteRequest(sql="SELECT * FROM many")
        with pytest.raises(grpc.RpcError, match="ask with LIMIT"):
            list(old.stubs.query.Execute(request))
        old.close()


@pytest.mark.slow
def test_a_cut_answer_says_so_over_the_wire(tmp_path):
    settings = Settings(
        listen="127.0.0.1:0", insecure=True, overload="off", drain_s=5, result_rows_max=9_000
    )
    with shedder.open(tmp_path / "data", settings) as engine:
        engine.execute(CREATE.format("many", "plain"))
        engine.push("many", tuples(MANY, 7))
        with running(engine, settings) as address, connect(str(address)) as client:
            answer = client.execute("SELECT k FROM many")
            assert (answer.table.num_rows, answer.cut[:22]) == (9_000, "cut behind 9,000 rows,")
            with client.execute_batches("SELECT k FROM many") as batches:
                assert sum(batch.num_rows for batch in batches) == 9_000
            assert batches.answer.cut == answer.cut


@pytest.mark.slow
@linux
def test_a_client_that_leaves_ends_the_query(engine, client):
    """The worker is stopped before it answers; the cancel kills it, and the next has a new one."""
    served, _ = engine
    stopped = StoppedWorker(served)
    with pytest.raises(Cancelled):
        client.execute_batches(
            "SELECT * FROM many", watch=lambda progress: stopped.once_requested(progress.cancel)
        )
    assert as_bag(client.execute("SELECT * FROM many").rows()) == expected("many")
    assert exact_worker_process() != stopped.pid


def test_batches_that_are_not_taken_are_dropped(client):
    with client.execute_batches("SELECT * FROM many") as batches:
        next(batches)
    assert list(batches) == []
    assert as_bag(client.execute("SELECT * FROM few").rows()) == expected("few")


def test_a_timeout_ends_a_query_of_rows(client):
    with pytest.raises(DeadlineExceeded):
        client.execute("SELECT * FROM many", timeout_s=1e-9)


def test_a_client_that_takes_no_rows_in_time_is_left(engine):
    """With no time at all, that is every client."""
    served, settings = engine
    with (
        running(served, settings, CallLimits(receipt_s_max=0.0)) as address,
        connect(str(address)) as client,
    ):
        with pytest.raises(InvalidRequest, match="took no rows for 0 s"):
            client.execute("SELECT * FROM many")
        assert client.execute("SELECT * FROM few").table.num_rows == FEW  # In one response.
