"""A registration from afar ends at its timeout with the error of an engine in this process."""

import threading
from contextlib import contextmanager

import pyarrow as pa
import pytest

from shedder import errors
from shedder.v1 import query_pb2
from tests.server.worlds import connect_async

PICKED = "SELECT key FROM trades WHERE key < 5"
TIMEOUT_S = 0.05
STATEMENTS = (
    f"CREATE QUERY q AS {PICKED}",
    f"CREATE VIEW v AS {PICKED}",
    "CREATE QUERY q AS INSERT INTO copies (ts, key) SELECT ts, key FROM trades",
)


@contextmanager
def held(engine):
    """The apply thread does nothing during the block."""
    begun, opened = threading.Event(), threading.Event()

    def hold():
        begun.set()
        opened.wait(60)

    engine.core.executor.post(hold)
    begun.wait()
    try:
        yield
    finally:
        opened.set()


def too_late(name):
    waits = "it waits for the records before it, which have 1 rows to go: trades is at position 0"
    return pytest.raises(
        errors.DeadlineExceeded,
        match=rf"query '{name}' was not registered within [\d.e-]+ s; {waits} of 1",
    )


def push(client):
    row = {"ts": pa.array([1], pa.timestamp("us")), "key": [1], "value": [1.0]}
    client.push("trades", pa.table(row))


def test_registration_ends_at_its_timeout_and_leaves_nothing(engine, client):
    client.execute("CREATE STREAM copies (ts TIMESTAMP, key BIGINT) TIMESTAMP BY ts")
    with held(engine):
        push(client)
        with too_late("q"):
            client.register("q", PICKED, timeout_s=TIMEOUT_S)
        for statement in STATEMENTS:
            with too_late("v" if " v " in statement else "q"):
                client.execute(statement, timeout_s=TIMEOUT_S)
    assert client.execute("SHOW QUERIES").rows() == client.execute("SHOW VIEWS").rows() == []
    assert client.execute("SHOW STREAMS").table["stream"].to_pylist() == ["trades", "copies"]
    client.register("q", PICKED, timeout_s=60).drop()
    for statement in STATEMENTS[1:]:
        client.execute(statement, timeout_s=60)


async def test_registration_on_an_event_loop_ends_at_its_timeout(engine, client, address):
    async with await connect_async(address) as remote:
        with held(engine):
            push(client)
            with too_late("q"):
                await remote.register("q", PICKED, timeout_s=TIMEOUT_S)
        assert await remote.register("q", PICKED, timeout_s=60)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_timeout_of_a_registration_that_makes_no_sense_is_refused(client, connection, timeout_s):
    request = query_pb2.RegisterRequest(name="q", sql=PICKED, timeout_s=timeout_s)
    with pytest.raises((errors.BadSetting, errors.DeadlineExceeded)):
        connection.call(connection.stubs.query.Register, request)


def test_registration_waits_no_longer_than_its_timeout_for_another_definition(engine, client):
    begun, opened = threading.Event(), threading.Event()

    def define():
        with engine.services.ddl:
            begun.set()
            opened.wait(60)

    thread = threading.Thread(target=define)
    thread.start()
    begun.wait()
    try:
        with pytest.raises(errors.DeadlineExceeded, match="it waits for another definition"):
            client.register("q", PICKED, timeout_s=TIMEOUT_S)
    finally:
        opened.set()
        thread.join()
