"""Tables after power loss, kills, full disks and damage: all acknowledged changes, none half."""

from __future__ import annotations

import errno
import random
import shutil
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import FORMAT_TABLES, format_of
from shedder.archive.operations.backup import restore
from shedder.archive.operations.repair import repair
from shedder.archive.operations.verify import check
from shedder.engine.engine import Engine
from shedder.errors import CorruptData, DiskFull, Unavailable, Unreachable
from tests.archive.power import PowerFiles
from tests.engine.catalogs import full_catalog
from tests.engine.checkpointed import checkpoint, opened
from tests.engine.killed import copy_killed
from tests.engine.tables.worlds import CREATE, Changes, Key, Row, rows_of
from tests.scale import scaled
from tests.seeds import seed
from tests.server_process import ServerProcess

Rows = dict[Key, Row]


class Photographed(PowerFiles):
    """At each call of the file system, a directory as it might be if power failed there.

    may_be: contents of the table that are right now; empty: no photo is taken.
    """

    def __init__(self, root: Path, beside: Path) -> None:
        super().__init__(root)
        self.may_be: list[Rows] = []
        self.photos: list[tuple[Path, list[Rows]]] = []
        self._beside = beside
        self._taking = threading.Lock()

    def step(self, kind: str) -> OSError | None:
        if self.may_be and self._taking.acquire(blocking=False):
            target = self._beside / f"photo {len(self.photos)}"
            self.crash_into(target, seed=len(self.photos))
            self.photos.append((target, list(self.may_be)))
            self._taking.release()
        return super().step(kind)


@pytest.mark.slow
def test_power_may_fail_at_any_call_and_a_change_is_there_or_not(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = Photographed(root, tmp_path)
    changes = Changes(random.Random(seed("table power")))
    with opened(root, files) as db:
        db.execute(CREATE)
        for step in range(scaled(14, 60)):
            before = changes.rows
            statement = changes.next()
            files.may_be = [before, changes.rows]
            db.execute(statement)
            files.may_be = [changes.rows]
            if step % 4 == 3:
                checkpoint(db)
        files.may_be = []
    assert len(files.photos) > 20
    for photo, may_be in files.photos[:: scaled(5, 1)]:
        with opened(photo) as db:
            assert rows_of(db) in may_be
            db.execute("INSERT OR REPLACE INTO t VALUES (99, 'a', 1, 1)")
        assert check(photo).ok


@pytest.mark.slow
def test_a_killed_server_has_every_change_that_it_acknowledged(tmp_path: Path) -> None:
    service = ServerProcess(tmp_path / "data", checkpoint_seconds="0.1")
    changes = Changes(random.Random(seed("table kill")))
    chance = random.Random(seed("table kill, when"))
    may_be: list[Rows] = [{}]
    try:
        with service.connect() as client:
            client.execute(CREATE)
        for _ in range(scaled(3, 20)):
            due, left = threading.Event(), chance.randrange(1, 60)
            killer = threading.Thread(
                target=lambda due=due: (due.wait(), service.stop(signal.SIGKILL))
            )
            killer.start()
            try:
                with service.connect(patience_s=0.0) as client:
                    while True:
                        left -= 1
                        if left == 0:
                            due.set()
                        before = changes.rows
                        statement = changes.next()
                        may_be = [before, changes.rows]
                        client.execute(statement)
                        may_be = [changes.rows]
            except (Unreachable, Unavailable):
                due.set()
            killer.join()
            with opened(tmp_path / "data") as db:
                found = rows_of(db)
            assert found in may_be
            changes.rows = found
            assert check(tmp_path / "data").ok
            service.start_again()
    finally:
        service.stop(signal.SIGKILL)


def change_and_checkpoint_until_full(db: Engine) -> None:
    while True:
        checkpoint(db)
        db.execute("UPDATE t SET x = x")


@pytest.mark.parametrize("calls", range(6))
def test_a_full_disk_loses_no_change_and_the_next_checkpoint_has_all(
    tmp_path: Path, calls: int
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = PowerFiles(root)
    with opened(root, files) as db:
        db.execute(CREATE)
        db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
        checkpoint(db)
        db.execute("UPDATE t SET n = 7")
        files.fail_in(calls, errno.ENOSPC)
        with pytest.raises(DiskFull):
            change_and_checkpoint_until_full(db)
        files.heal()
        version = db.core.tables["t"].version
        db.execute("UPDATE t SET n = n + 1")
        checkpoint(db)
        assert db.core.tables["t"].version == version + 1
        assert len(list(root.glob("tables/*/*"))) == 1
    with opened(root) as db:
        assert rows_of(db) == {(1, "a"): (8, 3.0)}


def test_a_full_catalog_leaves_no_image_that_it_does_not_name(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(CREATE)
        db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
        db.execute("CREATE STREAM s (ts TIMESTAMP, x BIGINT) TIMESTAMP BY ts")
        checkpoint(db)
        before = list(tmp_path.glob("tables/*/*"))
        db.execute("UPDATE t SET n = 7")
        db.push("s", {"ts": pa.array(range(20_000), pa.timestamp("us")), "x": range(20_000)})
        with full_catalog(db), pytest.raises(DiskFull):
            checkpoint(db)
        assert list(tmp_path.glob("tables/*/*")) == before
        checkpoint(db)
        assert [path.name for path in tmp_path.glob("tables/*/*")] == [f"{2:020}.parquet"]
    with opened(tmp_path) as db:
        assert rows_of(db) == {(1, "a"): (7, 3.0)}


def test_a_checkpoint_writes_the_image_of_a_changed_table_only(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(CREATE)
        db.execute("CREATE TABLE u (k BIGINT PRIMARY KEY)")
        for statement in ("INSERT INTO t VALUES (1, 'a', 2, 3)", "INSERT INTO u VALUES (1)"):
            db.execute(statement)
        checkpoint(db)
        first = {path: path.stat().st_ino for path in tmp_path.glob("tables/*/*")}
        db.execute("DELETE FROM u")
        checkpoint(db)
        second = {path: path.stat().st_ino for path in tmp_path.glob("tables/*/*")}
        assert sorted(first) == [tmp_path / f"tables/{n}/{1:020}.parquet" for n in (1, 2)]
        assert sorted(second) == [tmp_path / f"tables/{n}/{n:020}.parquet" for n in (1, 2)]
        assert first.items() & second.items() == {
            (tmp_path / f"tables/1/{1:020}.parquet", first[tmp_path / f"tables/1/{1:020}.parquet"])
        }
    with opened(tmp_path) as db:
        assert (rows_of(db), db.core.tables["u"].rows.rows) == ({(1, "a"): (2, 3.0)}, 0)


@pytest.mark.parametrize("has_image", [True, False])
def test_after_a_kill_changes_of_a_dropped_table_are_not_those_of_its_name(
    tmp_path: Path, has_image: bool
) -> None:
    with opened(tmp_path / "open") as db:
        db.execute(CREATE)
        db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
        if has_image:
            checkpoint(db)
        db.execute("UPDATE t SET n = 4")
        db.execute("DROP TABLE t")
        db.execute("CREATE TABLE t (k VARCHAR PRIMARY KEY, x BIGINT)")
        db.execute("INSERT INTO t VALUES ('b', 5)")
        data = copy_killed(db, tmp_path / "data")
    assert check(data).ok
    with opened(data) as db:
        assert db.core.tables["t"].rows.table().to_pylist() == [{"k": "b", "x": 5}]
        assert (db.core.tables["t"].version, db.core.tables["t"].rows.lost) == (1, 0)


def test_only_a_directory_with_tables_is_refused_by_older_versions(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        before = format_of(tmp_path)
        db.execute(CREATE)
    assert before is not None
    assert (before < FORMAT_TABLES, format_of(tmp_path)) == (True, FORMAT_TABLES)


def with_rows_in_log(directory: Path) -> None:
    """As `with_rows`, as a kill leaves it."""
    with with_rows(directory / "open") as db:
        copy_killed(db, directory / "killed")
    shutil.rmtree(directory / "open")
    for path in list((directory / "killed").iterdir()):
        path.rename(directory / path.name)
    (directory / "killed").rmdir()


def with_rows(directory: Path) -> Engine:
    """A table of which one row is in an image and one in the log."""
    db = opened(directory)
    db.execute(CREATE)
    db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
    checkpoint(db)
    db.execute("INSERT INTO t VALUES (2, 'b', 4, 5)")
    return db


@pytest.mark.parametrize("link", [True, False])
def test_a_backup_has_image_and_changes(tmp_path: Path, link: bool) -> None:
    with with_rows(tmp_path / "data") as db:
        expected = rows_of(db)
        db.backup(tmp_path / "copy", link=link)
        db.execute("DELETE FROM t")
        checkpoint(db)
    report = check(tmp_path / "copy")
    assert (report.ok, report.tables, report.table_rows) == (True, 1, 1)
    restore(tmp_path / "copy", tmp_path / "again", link=link)
    for copy in ("copy", "again"):
        with opened(tmp_path / copy) as db:
            assert rows_of(db) == expected


def test_a_damaged_image_is_found_by_a_check_and_refused_at_the_start(tmp_path: Path) -> None:
    with_rows(tmp_path).close()
    [image] = tmp_path.glob("tables/*/*")
    whole = image.read_bytes()
    image.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    report = check(tmp_path)
    assert [image.name in damage for damage in report.damages] == [True]
    with pytest.raises(CorruptData, match=image.name):
        opened(tmp_path)
    image.write_bytes(whole)
    with opened(tmp_path) as db:
        assert rows_of(db) == {(1, "a"): (2, 3.0), (2, "b"): (4, 5.0)}


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_repair_sets_a_damaged_image_aside_and_names_the_loss(
    tmp_path: Path, is_missing: bool
) -> None:
    with_rows_in_log(tmp_path)
    [image] = tmp_path.glob("tables/*/*")
    image.write_bytes(b"no Parquet")
    if is_missing:
        image.unlink()
    repaired = repair(tmp_path)
    assert (len(repaired.done), len(repaired.lost)) == (0, 1)
    assert "table 't'" in repaired.lost[0]
    kept = list(tmp_path.glob("quarantine/unknown-tables-*"))
    assert [path.read_bytes() for path in kept] == ([] if is_missing else [b"no Parquet"])
    with opened(tmp_path) as db:
        assert rows_of(db) == {(2, "b"): (4, 5.0)}
        assert db.core.tables["t"].rows.lost == 1
        db.execute("INSERT INTO t VALUES (3, 'c', 6, 7)")
    report = check(tmp_path)
    assert any("table 't': 1 changes are lost" in damage for damage in report.damages)
    with opened(tmp_path) as db:
        assert set(rows_of(db)) == {(2, "b"), (3, "c")}
        assert db.execute("SHOW TABLES").table["lost_changes"].to_pylist() == [1]


def test_a_repair_takes_no_copy_for_a_newer_image(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(CREATE)
        db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
        checkpoint(db)
        [image] = tmp_path.glob("tables/*/*")
        old = image.read_bytes()
        db.execute("UPDATE t SET n = 9")
        checkpoint(db)
    (image.parent / "copy.parquet").write_bytes(old)
    (tmp_path / "DURABLE").unlink()
    repaired = repair(tmp_path)
    assert ["its name is not that of an image" in lost for lost in repaired.lost] == [True]
    [kept] = tmp_path.glob("quarantine/unknown-tables-*")
    assert kept.read_bytes() == old
    with opened(tmp_path) as db:
        assert rows_of(db) == {(1, "a"): (9, 3.0)}


def test_a_repair_lists_the_image_that_an_old_catalog_lacks(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(CREATE)
        db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
        checkpoint(db)
        copy_killed(db, tmp_path / "old")
        db.execute("INSERT INTO t VALUES (2, 'b', 4, 5)")
        checkpoint(db)
        db.execute("UPDATE t SET n = 9")
        newer = copy_killed(db, tmp_path / "newer")
    for name in ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"):
        (newer / name).unlink()
        (newer / name).write_bytes((tmp_path / "old" / name).read_bytes())
    with pytest.raises(CorruptData):
        opened(newer)
    repaired = repair(newer)
    assert [f"{2:020}.parquet is listed again: 2 rows" in done for done in repaired.done] == [True]
    with opened(newer) as db:
        assert rows_of(db) == {(1, "a"): (9, 3.0), (2, "b"): (9, 5.0)}
        assert db.core.tables["t"].rows.lost == 0


@pytest.mark.parametrize("is_last", [True, False])
def test_a_change_that_damage_took_is_counted_and_answers_say_so(
    tmp_path: Path, is_last: bool
) -> None:
    with opened(tmp_path / "open") as db:
        db.execute(CREATE)
        db.execute("CREATE STREAM s (ts TIMESTAMP, x BIGINT) TIMESTAMP BY ts")
        db.execute("INSERT INTO s VALUES (TIMESTAMP '2026-01-01 00:00:00', 7)")
        for k in (1, 2, 3):
            db.execute(f"INSERT INTO t VALUES ({k}, 'a', {k}000, 0)")
        data = copy_killed(db, tmp_path / "data")
    damage_change(data, 3 if is_last else 2)
    for _ in range(2):
        with opened(data) as db:
            assert set(rows_of(db)) == {(1, "a"), (2 if is_last else 3, "a")}
            assert db.execute("SHOW TABLES").table["lost_changes"].to_pylist() == [1]
            answer = db.execute("SELECT * FROM t")
            assert not answer.complete
            assert answer.notes == (
                "table t: 1 changes are missing, or may be, because bytes of the log are damaged",
            )
            of_stream = db.execute("SELECT COUNT(*) AS n FROM s")
            assert (of_stream.rows()[0]["n"], of_stream.complete, of_stream.notes) == (1, True, ())
            checkpoint(db)
        assert any("table 't': 1 changes are lost" in text for text in check(data).damages)
    with opened(data) as db:
        db.execute("INSERT INTO t VALUES (4, 'a', 0, 0)")
        assert db.core.tables["t"].rows.lost == 1


def damage_change(directory: Path, number: int) -> None:
    """Flip a bit in the body of a change of the only table."""
    [path] = directory.glob("log/*.log")
    data = bytearray(path.read_bytes())
    at = data.index((number * 1_000).to_bytes(8, "little"))
    data[at] ^= 1
    path.write_bytes(data)
