"""More comes over the wire than can be applied: work is shed, nobody is lost, and it ends."""

from __future__ import annotations

import threading

import grpc
import numpy as np
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import shedder

ROWS = 8_192
BATCHES = 40
PRODUCERS = 2
QUERIES = 8


def batches(producer):
    rng = np.random.default_rng(producer)
    for number in range(BATCHES):
        times = np.full(ROWS, 1_700_000_000_000_000 + number * 10_000)
        yield pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us")),
                "key": rng.zipf(1.2, ROWS) % 1_000_000,
                "value": rng.lognormal(1, 1, ROWS),
            }
        )


def flood(address, producer, failed):
    try:
        with (
            shedder.connect(address) as client,
            client.producer("trades", f"p{producer}") as sender,
        ):
            for table in batches(producer):
                sender.push(table)
    except BaseException as error:
        failed.append(error)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_flood_over_the_wire_is_thinned_answered_and_over(engine, client, address):
    for number in range(QUERIES):
        client.register(
            f"q{number}",
            "SELECT COUNT(*) AS n, TOP(key, 5) AS t, QUANTILE(value, 0.9) AS q, SUM(value) AS s "
            f"FROM trades WHERE key >= {number}",
        )
    failed: list[BaseException] = []
    threads = [
        threading.Thread(target=flood, args=(address, number, failed))
        for number in range(PRODUCERS)
    ]
    for thread in threads:
        thread.start()
    overloaded = False
    least = 1.0
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while any(thread.is_alive() for thread in threads) or engine.overload.state.overloaded:
            status = health.Check(health_pb2.HealthCheckRequest()).status
            assert status == health_pb2.HealthCheckResponse.SERVING
            overloaded |= engine.overload.state.overloaded
            answer = client.query("q0").answer()  # Invoke is answered all the while.
            least = min(least, answer.thinning)
    for thread in threads:
        thread.join()
    assert not failed
    assert overloaded
    assert least < 1.0
    ledger = client.ledger("trades")
    assert ledger.applied == PRODUCERS * BATCHES * ROWS  # What was acknowledged is there, once.
    for query in ledger.queries:
        assert query.read + query.thinned + query.late == ledger.applied
    assert set(engine.core.published("q0")[1].standing.levels) == {0}
