"""Backups that a server makes for clients who may ask for them, and who may go away."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import shedder
from shedder.cli.backup import backup
from shedder.cli.commands import run
from shedder.cli.exits import ExitCode
from shedder.errors import BadSetting, PermissionDenied
from shedder.server import query as server_query
from shedder.server.identity import Identity, Scope
from shedder.settings import Settings
from shedder.v1 import query_pb2
from tests.streams.streams import trades


@pytest.fixture
def settings(tmp_path):
    return Settings(listen="127.0.0.1:0", insecure=True, backup_directory=tmp_path / "backups")


@pytest.mark.slow
def test_the_command_makes_a_servers_backup(client, address, tmp_path, capfd):
    client.push("trades", trades(1_000))
    assert run(["backup", "monday", "--connect", address]) == ExitCode.FINE
    assert "backup monday made" in capfd.readouterr().err
    with shedder.open(tmp_path / "backups" / "monday") as copy:
        assert copy.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 1_000


def test_a_server_is_not_told_how_to_copy(address, tmp_path):
    with pytest.raises(BadSetting, match="--copy goes with --data"):
        backup("monday", connect=address, copy=True)
    assert not (tmp_path / "backups").exists()


def test_a_client_that_goes_away_ends_its_backup(client, engine, tmp_path):
    """The backup waits for the catalog, which somebody holds; then its client leaves."""
    client.push("trades", trades(1_000))
    request = query_pb2.ExecuteRequest(sql="BACKUP TO 'monday'")
    connection = client._connection
    with engine.core.store.catalog.turn():
        call = connection.open(connection.query.Execute, request)
        with ThreadPoolExecutor(1) as other:
            while not (begun := list(engine.tasks._running.values())):
                other.submit(client.control, "task").result()
            call.cancel()
            while not begun[0]._cancelled.is_set():
                other.submit(client.control, "task").result()
    while engine.tasks.facts():
        client.control("task")
    assert list((tmp_path / "backups").iterdir()) == []


def test_only_an_admin_makes_backups():
    somebody = Identity("somebody", frozenset({Scope.QUERY}))
    with pytest.raises(PermissionDenied, match="backups"):
        server_query.check_scopes(somebody, "BACKUP TO 'x'", None)
