"""kill -9 of a real server with row queries: a subscriber that resumes gets every row once."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.errors import Unavailable, Unreachable
from tests.engine.world import START_US
from tests.scale import scaled
from tests.seeds import seed
from tests.server_process import ServerProcess

CYCLES = scaled(4, 50)
ROWS = 199
APART_US = 1_000
WINDOW = 1_000  # Rows.
CREATE = (
    "CREATE STREAM events (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts "
    "LATENESS INTERVAL '0.05' SECOND"
)
QUERIES = {
    "picked": "SELECT id, kind FROM events WHERE kind > 2",
    "window": "SELECT id, kind FROM events [RANGE INTERVAL '1' SECOND] WHERE kind > 2",
    "joined": "SELECT id, c.n AS kind FROM events JOIN c ON kind = c.k",
    "gone": "SELECT DSTREAM(id, kind) FROM events [RANGE INTERVAL '1' SECOND] WHERE kind > 2",
}
SETTINGS = {
    "run_rows": "2000",
    "checkpoint_seconds": "0.1",
    "log_segment_bytes": "262144",
    "sample_rows": "256",
}


def batch_of(sequence: int) -> pa.Table:
    """Rows of a push; the oracle needs no more than its number."""
    ids = sequence * ROWS + np.arange(ROWS, dtype=np.int64)
    return pa.table(
        {"ts": pa.array(START_US + ids * APART_US, pa.timestamp("us")), "id": ids, "kind": ids % 6}
    )


class Reader:
    """A subscriber in a thread: it reads until the server dies, and then resumes."""

    def __init__(self, service: ServerProcess, name: str) -> None:
        self.rows: list[tuple[int, int]] = []
        self.kinds: list[int] = []
        self.more = threading.Condition()
        self._service = service
        self._name = name
        self._token: str | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Read from the first row on."""
        with self._service.connect() as client:
            self._token = client.query(self._name).answer().resume

    def start(self) -> None:
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join()

    def wait_for(self, rows: int) -> None:
        """Wait until so many rows have come."""
        with self.more:
            assert self.more.wait_for(lambda: len(self.rows) >= rows, 60), len(self.rows)

    def _read(self) -> None:
        try:
            with self._service.connect(patience_s=0.0) as client:
                for answer in client.query(self._name).subscribe(after=self._token):
                    table = answer.table
                    ids, signs = table["id"].to_pylist(), table["_sign"].to_pylist()
                    with self.more:
                        self.rows += zip(ids, signs, strict=True)
                        self.kinds += table["kind"].to_pylist()
                        self._token = answer.resume
                        self.more.notify()
        except (Unreachable, Unavailable):
            return


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServerProcess]:
    running = ServerProcess(tmp_path / "data", **SETTINGS)
    yield running
    with suppress(ProcessLookupError):  # The test has killed the last one.
        running.stop(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killing_the_server_loses_and_doubles_no_row(service: ServerProcess) -> None:
    chance = random.Random(seed("kill rows"))
    with service.connect() as client:
        client.execute(CREATE)
        client.execute("CREATE TABLE c (k BIGINT PRIMARY KEY, n BIGINT)")
        client.execute("INSERT INTO c VALUES (3, 0), (4, 0), (5, 0)")
        for name, text in QUERIES.items():
            client.register(name, text)
    picked, window, joined, left = readers = [Reader(service, name) for name in QUERIES]
    for reader in readers:
        reader.begin()
    patient = service.connect(patience_s=60)  # It outlives every server, with pushes in flight.
    producer = patient.producer("events", "p")
    changes = 0
    for _ in range(CYCLES):
        for reader in readers:
            reader.start()
        for at in range(chance.randrange(1, 60)):
            producer.push(batch_of(producer.next_sequence))
            if at % 8 == 0:
                with service.connect() as client:
                    client.execute("UPDATE c SET n = n + 1")
                    changes += 1
        picked.wait_for(1)
        service.stop(signal.SIGKILL)
        for reader in readers:
            reader.join()
        service.start_again()
        producer.flush()  # What was in flight is sent again, and stored once.
    for reader in readers:
        reader.start()
    ids = [id_ for id_ in range(producer.next_sequence * ROWS) if id_ % 6 > 2]
    newest_us = START_US + producer.next_sequence * ROWS * APART_US
    with service.connect() as client:
        client.heartbeat("events", newest_us)
        picked.wait_for(len(ids))
        held = client.query("window").answer().table["id"].to_pylist()
        gone = [id_ for id_ in ids if id_ < producer.next_sequence * ROWS - WINDOW]
        window.wait_for(len(ids))
        joined.wait_for(len(ids))
        left.wait_for(len(gone))
    patient.close()
    service.stop(signal.SIGKILL)
    for reader in readers:
        reader.join()
    assert picked.rows == [(id_, 1) for id_ in ids]
    assert sorted(held) == ids[len(gone) :]
    assert window.rows == [(id_, 1) for id_ in ids]
    assert joined.rows == [(id_, 1) for id_ in ids]
    versions = joined.kinds  # A later tuple joins the same version of the table, or a later one.
    assert versions == sorted(versions)
    assert 0 < versions[-1] <= changes
    assert left.rows == [(id_, 1) for id_ in gone]
