"""More comes over the wire than can be applied: load is shed, no batch is lost, and it ends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import grpc
import numpy as np
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.server.worlds import connect

ROWS = 8_192
BATCHES_MIN = 40
PRODUCERS = 2
QUERIES = 8


def batches(producer):
    rng = np.random.default_rng(producer)
    for number in count():
        times = np.full(ROWS, 1_700_000_000_000_000 + number * 10_000)
        yield pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us")),
                "key": rng.zipf(1.2, ROWS) % 1_000_000,
                "value": rng.lognormal(1, 1, ROWS),
            }
        )


def flood(address, producer, enough):
    """Push as fast as the server accepts until `enough` is set; return the number of batches."""
    with connect(address) as client, client.producer("trades", f"p{producer}") as sender:
        for number, table in enumerate(batches(producer), 1):
            sender.push(table)
            if number >= BATCHES_MIN and enough.is_set():
                return number
    raise AssertionError


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"overload": "on"})


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_flood_over_the_wire_is_thinned_answered_and_over(engine, client, address):
    """The only flood in real time; simulated floods check the amount of thinning."""
    for number in range(QUERIES):
        client.register(
            f"q{number}",
            "SELECT COUNT(*) AS n, TOP(key, 5) AS t, QUANTILE(value, 0.9) AS q, SUM(value) AS s "
            f"FROM trades WHERE key >= {number}",
        )
    enough = threading.Event()
    with (
        grpc.insecure_channel(address) as channel,
        ThreadPoolExecutor(PRODUCERS) as pool,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        floods = [pool.submit(flood, address, number, enough) for number in range(PRODUCERS)]
        while not all(each.done() for each in floods) or engine.overload.state.overloaded:
            status = health.Check(health_pb2.HealthCheckRequest()).status
            assert status == health_pb2.HealthCheckResponse.SERVING
            answer = client.query("q0").answer()  # Invoke is answered all the while.
            if answer.thinning < 1.0 or any(each.done() for each in floods):
                enough.set()  # Or one has failed.
    sent = sum(each.result() for each in floods)
    ledger = client.ledger("trades")
    assert ledger.applied == sent * ROWS  # Every acknowledged tuple is stored once.
    for query in ledger.queries:
        assert query.read + query.thinned + query.late == ledger.applied
    assert max(query.thinned for query in ledger.queries) > 0
    assert set(engine.core.standing_query("q0")[1].state.levels) == {0}
