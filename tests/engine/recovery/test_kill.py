"""kill -9 of a real server under load: nothing acknowledged is lost, nothing is there twice.

Two producers die with each server and begin anew; a third one outlives them all and sends again
what was in flight. Each cycle kills the server after another number of batches.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.client.client import Client
from shedder.errors import Unavailable, Unreachable
from tests.engine.world import START_US
from tests.scale import scaled
from tests.seeds import seed
from tests.server_process import ServerProcess

CYCLES = scaled(4, 50)
AT_ONCE = 4  # Most batches that a producer has in flight.
ROWS = 499
APART = 1 << 40  # The ids of different producers never meet.
CREATE = (
    "CREATE STREAM events (ts TIMESTAMP, id BIGINT, value DOUBLE) TIMESTAMP BY ts "
    "LATENESS INTERVAL '1' HOUR"
)
WHOLE = (
    "SELECT COUNT(*) AS n, SUM(id) AS ids, MIN(id) AS low, MAX(id) AS high, SUM(value) AS v "
    "FROM events"
)
EXACT = (
    f"SELECT id >= {APART} AS second, id >= {2 * APART} AS third, COUNT(*) AS n, "
    "COUNT(DISTINCT id) AS ids, MIN(id) AS low, MAX(id) AS high "
    f"FROM events GROUP BY id >= {APART}, id >= {2 * APART}"
)
SETTINGS = {
    "run_rows": "20000",
    "checkpoint_seconds": "0.2",
    "log_segment_bytes": "262144",
    "sample_rows": "256",
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


class Countdown:
    """An event that is due once `batches` batches were pushed, or a producer has ended."""

    def __init__(self, batches: int) -> None:
        self.due = threading.Event()
        self._left = batches
        self._lock = threading.Lock()

    def count(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                self.due.set()


def produce(service: ServerProcess, number: int, oracle: Oracle, countdown: Countdown) -> None:
    """Push until the server dies; acknowledged and sent are counted as a crash leaves them."""
    try:
        with service.connect(patience_s=0.0) as client:
            producer = client.producer("events", f"p{number}")
            assert oracle.acknowledged <= producer.next_sequence <= oracle.sent
            oracle.acknowledged = oracle.sent = producer.next_sequence
            while True:
                for _ in range(AT_ONCE):
                    oracle.sent = max(oracle.sent, producer.next_sequence + 1)
                    producer.push(batch_of(number, producer.next_sequence))
                    countdown.count()
                producer.flush()
                oracle.acknowledged = producer.next_sequence
    except (Unreachable, Unavailable):
        return
    finally:
        countdown.due.set()


def check(client: Client, oracles: list[Oracle]) -> None:
    """acknowledged ⊆ recovered ⊆ sent, without holes or doubles, exactly and in the panes."""
    found = {row["second"] + row["third"]: row for row in client.execute(EXACT).rows()}
    total = 0
    for number, oracle in enumerate(oracles):
        row = found.get(number, {"n": 0, "ids": 0})
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
    assert ledger.applied == total
    assert ledger.accepted == ledger.applied + ledger.duplicate  # Those that were sent again.


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
def service(tmp_path: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path / "data", **SETTINGS)
    yield running
    running.stop(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killing_the_server_loses_and_doubles_nothing(service: ServerProcess) -> None:
    chance = random.Random(seed("kill"))
    pushed = 0
    oracles = [Oracle(), Oracle(), Oracle()]
    with service.connect() as client:
        client.execute(CREATE)
        client.register("whole", WHOLE)
        client.register(
            "window",
            "SELECT COUNT(*) AS n, SUM(id) AS ids, COUNT(DISTINCT id) AS d "
            "FROM events [RANGE INTERVAL '100' SECOND SLIDE INTERVAL '10' SECOND] "
            "CONFIDENCE 99.999999 PERCENT",  # The rows in the window differ from run to run.
        )
    patient = service.connect(patience_s=60)  # It outlives every server, with batches in flight.
    survivor = patient.producer("events", "survivor")
    for _ in range(CYCLES):
        batches = int(10 ** chance.uniform(0.0, 2.3))  # 1 to 200: before a run, or behind five.
        pushed += max(0, batches - 2 * AT_ONCE)
        countdown = Countdown(batches)
        threads = [
            threading.Thread(target=produce, args=(service, number, oracle, countdown))
            for number, oracle in enumerate(oracles[:2])
        ]
        for thread in threads:
            thread.start()
        countdown.due.wait()
        for _ in range(chance.randrange(1, 6)):
            survivor.push(batch_of(2, survivor.next_sequence))
        service.stop(signal.SIGKILL)
        for thread in threads:
            thread.join()
        service.start_again()
        survivor.flush()  # What was in flight is sent again, and stored once.
        oracles[2].acknowledged = oracles[2].sent = survivor.next_sequence
        with service.connect() as client:
            check(client, oracles)
    patient.close()
    with service.connect() as client:
        newest_us = START_US + max(oracle.sent for oracle in oracles) * ROWS * 1000
        client.heartbeat("events", newest_us)
        check_window(client)
    assert oracles[0].acknowledged + oracles[1].acknowledged >= pushed
    assert oracles[2].acknowledged >= CYCLES
