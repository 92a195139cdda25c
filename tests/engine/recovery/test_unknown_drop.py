"""DROP STREAM whose commit failed, and which a restart finds nevertheless."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from shedder.archive.files.file_system import OsFiles
from shedder.archive.operations.verify import check
from shedder.engine.engine import Engine
from shedder.errors import CommitUnknown
from tests.engine.catalogs import Connection, connection_of, reachable
from tests.engine.killed import copy_killed
from tests.engine.world import CREATE, requests


def fail_durable_commit(connection: Connection) -> None:
    """Let the next commit fail once it is durable, and every commit after it."""

    def fail(_: set[str]) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def fail_after(changed: set[str]) -> None:
        connection.before_commit = fail
        fail(changed)

    connection.after_commit = fail_after


@pytest.mark.slow
def test_a_restart_that_finds_an_unknown_drop_opens_with_the_stream_gone(tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    with reachable():
        db = Engine.open(tmp_path / "data", checkpoint_seconds=1e6)
        db.execute(CREATE)
        db.push("requests", requests(2_000, seed=1))
        fail_durable_commit(connection_of(db))
        with pytest.raises(CommitUnknown, match="a restart may find this commit"):
            db.execute("DROP STREAM requests")
        db.push("requests", requests(500, seed=2))
        copy_killed(db, directory)
    with Engine.open(directory) as again:
        assert again.execute("SHOW STREAMS").rows() == []
        again.execute(CREATE)
        again.push("requests", requests(300, seed=3))
        assert again.execute("SELECT COUNT(*) AS n FROM requests").rows()[0]["n"] == 300
    with Engine.open(directory) as again:
        assert again.execute("SELECT COUNT(*) AS n FROM requests").rows()[0]["n"] == 300
    report = check(directory, OsFiles())
    assert (report.damages, report.notes) == ([], [])
