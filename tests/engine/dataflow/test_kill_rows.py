"""kill -9 of a real server with row queries: a subscriber that resumes gets every row once."""

from __future__ import annotations

import random
import threading

import pytest

from shedder.errors import Unavailable, Unreachable
from tests.engine.dataflow.killed_server import CREATE, pushing, serving
from tests.scale import scaled
from tests.seeds import seed
from tests.server_process import ServerProcess

CYCLES = scaled(2, 50)
WINDOW = 1_000  # Rows.
QUERIES = {
    "picked": "SELECT id, kind FROM events WHERE kind > 2",
    "window": "SELECT id, kind FROM events [RANGE INTERVAL '1' SECOND] WHERE kind > 2",
    "joined": "SELECT id, c.n AS kind FROM events JOIN c ON kind = c.k",
    "alike": "SELECT e.id, e.kind FROM events [RANGE INTERVAL '1' SECOND] e WHERE e.kind > 2",
    "gone": "SELECT DSTREAM(id, kind) FROM events [RANGE INTERVAL '1' SECOND] WHERE kind > 2",
}


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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killing_the_server_loses_and_doubles_no_row(tmp_path):
    chance = random.Random(seed("kill rows"))
    with serving(tmp_path / "data") as service, pushing(service) as pushes:
        with service.connect() as client:
            client.execute(f"{CREATE} LATENESS INTERVAL '0.05' SECOND")
            client.execute("CREATE TABLE c (k BIGINT PRIMARY KEY, n BIGINT)")
            client.execute("INSERT INTO c VALUES (3, 0), (4, 0), (5, 0)")
            for name, text in QUERIES.items():
                client.register(name, text)
        picked, window, joined, alike, left = readers = [Reader(service, name) for name in QUERIES]
        for reader in readers:
            reader.begin()

        def end_readers() -> None:
            for reader in readers:
                reader.join()

        changes = 0
        for _ in range(CYCLES):
            for reader in readers:
                reader.start()
            for at in pushes.push(chance):
                if at % 8 == 0:
                    with service.connect() as client:
                        client.execute("UPDATE c SET n = n + 1")
                        changes += 1
            picked.wait_for(1)
            pushes.kill(end_readers)
        for reader in readers:
            reader.start()
        ids = [id_ for id_ in range(pushes.end) if id_ % 6 > 2]
        with service.connect() as client:
            client.heartbeat("events", pushes.end_us)
            picked.wait_for(len(ids))
            held = client.query("window").answer().table["id"].to_pylist()
            gone = [id_ for id_ in ids if id_ < pushes.end - WINDOW]
            window.wait_for(len(ids))
            alike.wait_for(len(ids))
            assert "also in" in client.query("alike").explain()
            joined.wait_for(len(ids))
            left.wait_for(len(gone))
    end_readers()
    assert picked.rows == [(id_, 1) for id_ in ids]
    assert sorted(held) == ids[len(gone) :]
    assert window.rows == alike.rows == [(id_, 1) for id_ in ids]
    assert joined.rows == [(id_, 1) for id_ in ids]
    versions = joined.kinds  # A later tuple joins the same version of the table, or a later one.
    assert versions == sorted(versions)
    assert 0 < versions[-1] <= changes
    assert left.rows == [(id_, 1) for id_ in gone]
