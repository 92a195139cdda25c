"""Backups that a server makes for clients with the scope admin, also if the client leaves."""

from contextlib import closing
from queue import SimpleQueue

import pytest

import shedder
from shedder.cli.backup import backup
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from shedder.cql.binding.parse import parse
from shedder.engine.runtime.caller import Scope
from shedder.errors import BadSetting, Cancelled, PermissionDenied
from shedder.server import query as server_query
from shedder.server.authentication import Identity
from shedder.settings import Settings
from shedder.v1 import query_pb2
from tests.server.worlds import PATIENCE_S, Front, connection_to
from tests.server_process import running
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


class Watched(Front):
    """An engine that says which long pieces of work begin, and when their statements end."""

    def __init__(self, engine):
        super().__init__(engine)
        self.begun, self.ended = SimpleQueue(), SimpleQueue()

    def execute(self, *args, watch, **named):
        def begins(progress):
            self.begun.put(progress)
            watch(progress)

        try:
            return self.engine.execute(*args, watch=begins, **named)
        except Cancelled as error:
            self.ended.put(error)
            raise


def test_a_client_that_goes_away_ends_its_backup(client, engine, settings, tmp_path):
    """The backup waits for the catalog, which the test holds; then its client leaves."""
    client.push("trades", trades(1_000))
    request = query_pb2.ExecuteRequest(sql="BACKUP TO 'monday'")
    front = Watched(engine)
    with running(front, settings) as address, closing(connection_to(address)) as connection:
        with engine.core.store.catalog.turn():
            call = connection.open(connection.stubs.query.Execute, request)
            backup = front.begun.get()
            call.cancel()
            backup.wait(PATIENCE_S)  # Until the backup is cancelled.
        assert "backup" in str(front.ended.get())
    assert engine.tasks.facts() == []
    assert list((tmp_path / "backups").iterdir()) == []


def test_only_an_admin_makes_backups():
    somebody = Identity("reader", frozenset({Scope.QUERY}))
    with pytest.raises(PermissionDenied, match="backups"):
        server_query.check_scopes(somebody, parse("BACKUP TO 'x'"))
