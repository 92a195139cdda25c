"""`shedder backup` and `shedder restore`, and BACKUP TO through an engine and a server."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import shedder
from examples.requests import requests
from shedder.archive.tasks.progress import Progress
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from shedder.errors import BadSetting, Cancelled, DeadlineExceeded, TargetExists

STREAM = """
    CREATE STREAM requests (ts TIMESTAMP NOT NULL, client BIGINT, domain VARCHAR, status BIGINT,
                            bytes BIGINT, latency_ms DOUBLE) TIMESTAMP BY ts
"""
QUESTION = (
    "SELECT domain, COUNT(*) AS n, SUM(bytes) AS b FROM requests GROUP BY domain ORDER BY domain"
)


@pytest.fixture
def database(tmp_path):
    with shedder.open(tmp_path / "data", backup_directory=tmp_path / "backups") as database:
        database.execute(STREAM)
        database.push("requests", requests(2_000), producer="web", sequence=0)
        database.seal("requests")
        database.register("busy", "SELECT domain, COUNT(*) AS n FROM requests GROUP BY domain")
        database.push("requests", requests(500))
        yield database


def answered(directory) -> list:
    with shedder.open(directory) as database:
        assert database.last_sequence("requests", "web") == (0, 0)
        assert sum(row["n"] for row in database.query("busy").answer().rows()) == 2_500
        return database.execute(QUESTION).rows()


@pytest.mark.slow
def test_a_backup_of_a_running_engine_answers_the_same(database, tmp_path):
    expected = database.execute(QUESTION).rows()
    status = database.execute("BACKUP TO 'monday'").table["status"][0].as_py()
    assert "bytes linked" in status
    database.push("requests", requests(100))
    assert answered(tmp_path / "backups" / "monday") == expected
    with pytest.raises(TargetExists):
        database.execute("BACKUP TO 'monday'")


@pytest.mark.parametrize("name", ["../x", "/tmp/x", ".hidden", "", "a b", "x" * 101])
def test_a_backup_stays_in_its_directory(database, name):
    with pytest.raises(BadSetting, match="cannot be named"):
        database.execute(f"BACKUP TO '{name}'")


def test_without_a_directory_of_backups_there_are_none(tmp_path):
    with (
        shedder.open(tmp_path / "data") as database,
        pytest.raises(BadSetting, match="backup_directory"),
    ):
        database.execute("BACKUP TO 'monday'")


def test_a_backup_is_listed_while_it_runs_and_can_be_called_off(database, tmp_path):
    seen = []

    def watch(progress: Progress) -> None:
        seen.extend(row for row in database.control().to_pylist() if row["entity"] == "task")
        (number,) = {row["name"] for row in seen}
        database.set_control("task", number, "cancel", "")

    with pytest.raises(Cancelled):
        database.backup(tmp_path / "b", watch=watch)
    assert {row["key"] for row in seen} == {"what", "unit", "done", "total", "share"}
    assert not (tmp_path / "b").exists()
    assert "task" not in database.control()["entity"].to_pylist()
    with pytest.raises(BadSetting, match="no task '99' is running"):
        database.set_control("task", "99", "cancel", "")


def test_a_backup_that_is_not_done_in_time_leaves_nothing(database, tmp_path):
    def watch(progress: Progress) -> None:
        progress.wait(250.0)  # The deadline comes first, and ends this.
        with pytest.raises(Cancelled):
            progress.advance()

    with pytest.raises(DeadlineExceeded):
        database.backup(tmp_path / "b", timeout_s=0.01, watch=watch)
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_the_commands_make_backups_and_restore_them(database, tmp_path, capfd):
    expected = database.execute(QUESTION).rows()
    data, target = str(tmp_path / "data"), str(tmp_path / "target")
    assert run(["backup", target, "-d", data]) == ExitCode.USAGE  # It is served.
    database.close()
    assert run(["backup", target, "-d", data]) == ExitCode.FINE
    assert run(["backup", target, "-d", data]) == ExitCode.USAGE
    assert "not empty" in capfd.readouterr().err
    assert run(["restore", target, str(tmp_path / "again"), "--copy"]) == ExitCode.FINE
    assert answered(tmp_path / "again") == expected
    (run_file,) = (tmp_path / "target" / "runs").rglob("*.parquet")
    damaged = bytearray(run_file.read_bytes())
    damaged[50] ^= 1
    run_file.unlink()
    run_file.write_bytes(damaged)
    assert run(["restore", target, str(tmp_path / "third")]) == ExitCode.DAMAGED
    assert not (tmp_path / "third").exists()
    assert run(["check", "-d", data]) == ExitCode.FINE  # The original is another file.


def test_ctrl_c_leaves_nothing(database, tmp_path, monkeypatch):
    database.close()
    link, handler = os.link, signal.getsignal(signal.SIGINT)

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        link(*args)

    monkeypatch.setattr(os, "link", interrupted)
    assert threading.current_thread() is threading.main_thread()
    arguments = ["backup", str(tmp_path / "b"), "-d", str(tmp_path / "data")]
    assert run(arguments) == ExitCode.INTERRUPTED
    assert not (tmp_path / "b").exists()
    assert signal.getsignal(signal.SIGINT) is handler
