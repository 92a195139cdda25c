"""Long work ends when its caller has left: a real server, real signals, real cancels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.archive.operations.verify import check
from shedder.archive.tasks.progress import Progress
from shedder.errors import BadSetting, Cancelled, DeadlineExceeded
from shedder.v1 import query_pb2
from tests.archive.child_processes import exact_worker_process, exact_worker_processes
from tests.server.worlds import connection_to
from tests.server_process import ServerProcess

COUNT = "SELECT COUNT(*) AS n FROM trades"
CLI = [sys.executable, "-m", "shedder.cli.main"]

pytestmark = pytest.mark.slow


def rows() -> pa.Table:
    random = np.random.default_rng(1)
    times = pa.array(np.arange(20_000) * 1_000, pa.timestamp("us"))
    return pa.table({"ts": times, "price": random.lognormal(size=20_000)})


@pytest.fixture
def server(tmp_path):
    """Scrubs read a kilobyte per second there: they last until they are called off."""
    server = ServerProcess(
        tmp_path / "data", scrub_bytes_per_second="1024", backup_directory=str(tmp_path / "backups")
    )
    yield server
    server.stop()
    assert check(tmp_path / "data").ok


@pytest.fixture
def client(server):
    with server.connect() as client:
        client.execute("CREATE STREAM trades (ts TIMESTAMP, price DOUBLE) TIMESTAMP BY ts")
        for part in (rows().slice(0, 10), rows().slice(10)):
            client.push("trades", part)
            client.seal("trades")
        yield client


@pytest.fixture
def connection(server):
    connection = connection_to(server.address)
    yield connection
    connection.close()


def tasks(client) -> list[str]:
    return [row["value"] for row in client.control("task").to_pylist() if row["key"] == "what"]


def until(condition) -> None:
    while not condition():
        pass  # Each look is a call to the server.


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_question_whose_client_leaves_takes_its_scan_along(server, client, connection):
    """The scan hangs, as its worker is stopped; the cancel kills it, and the next has a new one."""
    assert client.execute(COUNT).rows()[0]["n"] == 20_000
    worker = exact_worker_process(server.pid)
    os.kill(worker, signal.SIGSTOP)

    def ask_and_leave() -> None:
        call = connection.open(connection.stubs.query.Execute, query_pb2.ExecuteRequest(sql=COUNT))
        until(lambda: tasks(client))
        call.cancel()
        until(lambda: not tasks(client))

    ask_and_leave()
    while worker in exact_worker_processes(
        server.pid
    ):  # A client that left before the scan ends no worker.
        ask_and_leave()
    assert client.execute(COUNT).rows()[0]["n"] == 20_000


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_scan_that_hangs_ends_at_its_deadline(server, client):
    client.execute(COUNT)
    worker = exact_worker_process(server.pid)
    os.kill(worker, signal.SIGSTOP)
    timeout_s = 0.3
    while worker in exact_worker_processes(
        server.pid
    ):  # A deadline before the scan begins ends no worker.
        with pytest.raises(DeadlineExceeded):
            client.execute(COUNT, timeout_s=timeout_s)
        until(lambda: not tasks(client))
        timeout_s *= 2
    assert client.execute(COUNT).rows()[0]["n"] == 20_000


def test_ctrl_c_ends_the_command_and_the_work_at_the_server(server, client):
    command = [*CLI, "sql", "--connect", server.address, "-c", "SCRUB"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    until(lambda: "scrub" in tasks(client))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), said
    assert b"Traceback" not in said
    until(lambda: not tasks(client))


def test_work_at_the_server_tells_how_far_it_is_and_is_called_off_from_here(client):
    begun, seen = [], threading.Event()

    def watch(work: Progress) -> None:
        begun.append(work)
        seen.set()

    def call_off() -> None:
        seen.wait()
        until(lambda: begun[0].done)
        begun[0].cancel()

    other = threading.Thread(target=call_off)
    other.start()
    with pytest.raises(Cancelled, match="scrub was cancelled at"):
        client.execute("SCRUB", watch=watch)
    other.join()
    (work,) = begun
    assert (work.what, work.unit) == ("scrub", "bytes")
    assert 0 < work.done < work.total
    until(lambda: not tasks(client))


def test_a_statement_that_ends_soon_has_an_answer_and_no_news(client):
    begun: list[Progress] = []
    assert client.execute(COUNT, watch=begun.append).rows()[0]["n"] == 20_000
    assert all(work.what for work in begun)


def test_a_period_that_would_keep_the_server_busy_is_refused(client, connection):
    request = query_pb2.ExecuteRequest(sql=COUNT, progress_period_s=0.001)
    with pytest.raises(BadSetting, match="a period of"):
        connection.read(connection.open(connection.stubs.query.Execute, request))


def test_a_deadline_ends_background_reading_at_the_server(client):
    with pytest.raises(DeadlineExceeded):
        client.execute("SCRUB", timeout_s=0.2)
    until(lambda: not tasks(client))


def test_ctrl_c_in_a_process_of_ones_own_leaves_a_whole_directory(tmp_path):
    with shedder.open(tmp_path / "data") as db:
        db.execute("CREATE STREAM trades (ts TIMESTAMP, price DOUBLE) TIMESTAMP BY ts")
        db.push("trades", rows())
        db.seal("trades")
        db.execute("DELETE FROM trades WHERE price > 0")
    environment = os.environ | {"SHEDDER_SCRUB_BYTES_PER_SECOND": "1024"}
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [*CLI, "sql", "-d", str(tmp_path / "data"), "-c", f"{COUNT}; SCRUB"],
            env=environment,
            stdout=out,
            stderr=subprocess.PIPE,
        )
        until(said.read_bytes)  # The first answer is there; now it scrubs.
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), errors
    assert b"Traceback" not in errors
    report = check(tmp_path / "data")
    assert report.damages == []
    assert not list((tmp_path / "data" / "tmp").glob("*.parquet"))
