"""kill -9 of a real server under load: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.client.client import Client
from shedder.errors import Unavailable, Unreachable
from tests.engine.world import START_US

CYCLES = int(os.environ.get("KILL_CYCLES", "50"))
ROWS = 499
APART = 1 << 40  # The ids of two producers never meet.
CREATE = (
    "CREATE STREAM events (ts TIMESTAMP, id BIGINT, value DOUBLE) TIMESTAMP BY ts "
    "LATENESS INTERVAL '1' HOUR"
)
WHOLE = (
    "SELECT COUNT(*) AS n, SUM(id) AS ids, MIN(id) AS low, MAX(id) AS high, SUM(value) AS v "
    "FROM events"
)
EXACT = (
    f"SELECT id >= {APART} AS second, COUNT(*) AS n, COUNT(DISTINCT id) AS ids, MIN(id) AS low, "
    f"MAX(id) AS high FROM events GROUP BY id >= {APART}"
)
SETTINGS = {
    "SHEDDER_RUN_ROWS": "20000",
    "SHEDDER_CHECKPOINT_SECONDS": "0.2",
    "SHEDDER_LOG_SEGMENT_BYTES": "262144",
    "SHEDDER_SAMPLE_ROWS": "256",
}


def batch_of(producer: int, sequence: int) -> pa.Table:
    """What a producer sends under a number; the oracle needs no more than the number."""
    ids = producer * APART + sequence * ROWS + np.arange(ROWS, dtype=np.int64)
    return pa.table(
        {
            "ts": pa.array(START_US + (ids % APART) * 1000, pa.timestamp("us")),
            "id": ids,
            "value": (ids % 1000).astype(np.float64),
        }
    )


@dataclass
class Oracle:
    """What one producer knows for certain, outside of the server. Counts of batches."""

    acknowledged: int = 0
    sent: int = 0


class Service:
    """A server process that can be killed and started again on the same port and directory."""

    def __init__(self, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "shedder.cli.main", "serve", "--insecure"]
        command += ["--data", str(self._directory), "--listen", self.address]
        log = (self._directory.parent / "server.log").open("ab")
        self._process = subprocess.Popen(
            command, env=os.environ | SETTINGS, stdout=subprocess.PIPE, stderr=log
        )
        log.close()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()  # The address, as soon as calls are answered.
        assert line, (self._directory.parent / "server.log").read_text()[-4000:]

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def connect(self, **options: Any) -> Client:
        return shedder.connect(self.address, insecure=True, **options)


def produce(service: Service, number: int, oracle: Oracle, stop: threading.Event) -> None:
    """Push until the server dies; acknowledged and sent are counted as a crash leaves them."""
    try:
        with service.connect(patience_s=0.0) as client:
            producer = client.producer("events", f"p{number}")
            assert oracle.acknowledged <= producer.next_sequence <= oracle.sent
            oracle.acknowledged = oracle.sent = producer.next_sequence
            while not stop.is_set():
                for _ in range(4):
                    oracle.sent = max(oracle.sent, producer.next_sequence + 1)
                    producer.push(batch_of(number, producer.next_sequence))
                producer.flush()
                oracle.acknowledged = producer.next_sequence
    except (Unreachable, Unavailable):
        return


def check(client: Client, oracles: list[Oracle]) -> None:
    """acknowledged ⊆ recovered ⊆ sent, without holes or doubles, exactly and in the panes."""
    found = {bool(row["second"]): row for row in client.execute(EXACT).rows()}
    total = 0
    for number, oracle in enumerate(oracles):
        row = found.get(bool(number), {"n": 0, "ids": 0})
        assert oracle.acknowledged * ROWS <= row["n"] <= oracle.sent * ROWS
        assert row["n"] == row["ids"]
        assert row["n"] % ROWS == 0
        if row["n"]:
            assert row["low"] == number * APART
            assert row["high"] == number * APART + row["n"] - 1
        total += row["n"]
    standing = client.query("whole").answer().rows()[0]
    exact = client.execute(WHOLE).rows()[0]
    assert {name: standing[name] for name in exact} == exact
    assert standing["n"] == total
    ledger = client.ledger("events")
    assert ledger.accepted == ledger.applied == total


def check_window(client: Client) -> None:
    """A window of panes from before and after many restarts, against its exact answer."""
    answer = client.query("window").answer()
    assert answer.start_us is not None
    exact = client.execute(
        "SELECT COUNT(*) AS n, SUM(id) AS ids, COUNT(DISTINCT id) AS d FROM events "
        "[FROM TIMESTAMP '1970-01-01' TO TIMESTAMP '2100-01-01'] WHERE ts >= $1 AND ts < $2",
        [answer.window[0], answer.window[1]],
    ).rows()[0]
    row = answer.rows()[0]
    assert (row["n"], row["ids"]) == (exact["n"], exact["ids"])
    assert row["d_low"] <= exact["d"] <= row["d_high"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path / "data")
    running.start()
    yield running
    running.kill()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killing_the_server_loses_and_doubles_nothing(service: Service) -> None:
    chance = random.Random(11)
    oracles = [Oracle(), Oracle()]
    with service.connect() as client:
        client.execute(CREATE)
        client.register("whole", WHOLE)
        client.register(
            "window",
            "SELECT COUNT(*) AS n, SUM(id) AS ids, COUNT(DISTINCT id) AS d "
            "FROM events [RANGE INTERVAL '100' SECOND SLIDE INTERVAL '10' SECOND]",
        )
    for _ in range(CYCLES):
        stop = threading.Event()
        threads = [
            threading.Thread(target=produce, args=(service, number, oracle, stop))
            for number, oracle in enumerate(oracles)
        ]
        for thread in threads:
            thread.start()
        stop.wait(chance.uniform(0.05, 0.6))
        service.kill()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        service.start()
        with service.connect() as client:
            check(client, oracles)
    with service.connect() as client:
        newest_us = START_US + max(oracle.sent for oracle in oracles) * ROWS * 1000
        client.heartbeat("events", newest_us)
        check_window(client)
    assert min(oracle.acknowledged for oracle in oracles) > CYCLES
