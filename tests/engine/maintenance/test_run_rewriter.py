"""ALTER STREAM … SET ARCHIVE: in the background, seen, called off, taken up again."""

import errno
import threading

import pytest

from shedder.archive.operations.verify import check
from shedder.cql.statements.archive_layout import Hybrid
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.errors import BadQuery, UnknownStream
from tests.archive.bad_disk import BadDisk
from tests.archive.power import PowerFiles
from tests.engine.relaid import CREATE, rows
from tests.engine.supervised import REWRITES, GatedFiles, Supervised, settle

SQL = "SELECT COUNT(*) AS n, SUM(v) AS s, FIRST(v) AS f, LAST(v) AS l FROM s"


def filled(directory, runs: int = 5, machine: Environment | None = None):
    db = Engine.open(directory, machine=machine or Supervised())
    db.execute(CREATE)
    for number in range(runs):
        db.push("s", rows(number * 100, number * 100 + 100))
        db.seal("s")
    return db


class GatedPower(GatedFiles, PowerFiles):
    """Files with a gate, on a disk on which calls can fail."""


def archive(db) -> tuple[str, float]:
    (row,) = db.execute("SHOW STREAMS").table.to_pylist()
    return row["archive"], row["relaid"]


def truth(db) -> tuple:
    row = db.execute(SQL).table.to_pylist()[0]
    return row["n"], row["s"], row["f"], row["l"]


def expected(n: int) -> tuple:
    return n, n * (n - 1) // 2, 0, n - 1


@pytest.mark.slow
def test_a_layout_changes_in_the_background(tmp_path):
    with filled(tmp_path) as db:
        assert archive(db) == ("plain", 1.0)
        said = db.execute("ALTER STREAM s SET ARCHIVE hybrid(blocks=4, block_rows=10)")
        assert "5 runs are being rewritten" in str(said.table.to_pylist())
        db.push("s", rows(500, 600))
        assert truth(db) == expected(600)
        settle(db, REWRITES)
        assert archive(db) == ("hybrid(blocks=4, block_rows=10)", 1.0)
        assert [run.blocks for run in db.core.store.runs(1)] == [4] * 5
        assert truth(db) == expected(600)
        (row,) = db.execute("SHOW STREAMS").table.to_pylist()
        assert row["definition"].endswith("ARCHIVE hybrid(blocks=4, block_rows=10)")
    assert check(tmp_path).ok
    with Engine.open(tmp_path, machine=Supervised()) as db:
        assert truth(db) == expected(600)
        assert archive(db)[0] == "hybrid(blocks=4, block_rows=10)"


@pytest.mark.slow
def test_a_rewrite_that_was_cancelled_goes_on_after_a_restart(tmp_path):
    machine = Supervised()
    db = filled(tmp_path, machine=machine)
    with machine.held("shedder-relayout"):
        db.execute("ALTER STREAM s SET ARCHIVE eager(0.5)")
        assert archive(db) == ("eager(0.5)", 0.0)
        called_off = machine.called_off("shedder-relayout")
        closer = threading.Thread(target=db.close)
        closer.start()
        called_off.wait()
    closer.join()
    assert len(list((tmp_path / "runs" / "1").iterdir())) == 5  # No run has its copy.
    with Engine.open(tmp_path, machine=Supervised()) as db:
        settle(db, REWRITES)
        assert archive(db) == ("eager(0.5)", 1.0)
        assert [len(run.copies) for run in db.core.store.runs(1)] == [1] * 5
        assert truth(db) == expected(500)
    assert check(tmp_path).ok


@pytest.mark.slow
def test_a_second_change_takes_the_place_of_the_first(tmp_path):
    with filled(tmp_path, 12) as db:
        for layout in ("hybrid(blocks=2, block_rows=1)", "lazy", "eager(0.9)", "plain"):
            db.execute(f"ALTER STREAM s SET ARCHIVE {layout}")
        settle(db, REWRITES)
        assert archive(db) == ("plain", 1.0)
        assert truth(db) == expected(1200)
        assert {str(run.layout) for run in db.core.store.runs(1)} == {"Plain()"}
    assert check(tmp_path).notes == []


@pytest.mark.slow
def test_a_rewrite_is_a_task_that_can_be_called_off(tmp_path):
    files = GatedFiles()
    with filled(tmp_path, machine=Supervised(files=files)) as db:
        with files.shut() as reached:  # The rewriter stops at its first run.
            db.execute("ALTER STREAM s SET ARCHIVE hybrid(blocks=4, block_rows=10)")
            reached.wait()
            (task,) = [row for row in db.control().to_pylist() if row["key"] == "what"]
            assert task["value"] == "rewrite of s"
            db.tasks.cancel(task["name"])
        settle(db, REWRITES)
        assert archive(db)[1] == 0.0
        assert truth(db) == expected(500)
        db.execute("ALTER STREAM s SET ARCHIVE hybrid(blocks=4, block_rows=10)")
        settle(db, REWRITES)
        assert archive(db)[1] == 1.0
        assert truth(db) == expected(500)


def test_damage_is_met_by_quarantine_and_the_rest_is_rewritten(tmp_path):
    filled(tmp_path).close()
    path = sorted((tmp_path / "runs" / "1").iterdir())[1]
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    with Engine.open(tmp_path, machine=Supervised()) as db:
        db.execute("ALTER STREAM s SET ARCHIVE hybrid(blocks=4, block_rows=10)")
        settle(db, REWRITES)
        ((run, _),) = db.core.store.quarantine.runs(1)
        assert run.first_position == 100
        assert sum(run.blocks == 4 for run in db.core.store.runs(1)) == 4


@pytest.mark.slow
def test_a_run_that_cannot_be_read_keeps_no_other_waiting_and_is_tried_again(tmp_path):
    filled(tmp_path).close()
    disk = BadDisk(errno.EACCES)
    with Engine.open(tmp_path, machine=Supervised(files=disk, ticks=False)) as db:
        disk.bad.add(db.core.store.runs(1)[1].file.rpartition("/")[2])
        db.execute("ALTER STREAM s SET ARCHIVE hybrid(blocks=4, block_rows=10)")
        settle(db, REWRITES)
        assert archive(db)[1] == 0.8
        assert db.core.store.quarantine.runs(1) == []
        disk.bad.clear()
        db.housekeeping.tick()
        settle(db, REWRITES)
        assert archive(db)[1] == 1.0
        assert truth(db) == expected(500)


@pytest.mark.slow
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_what_a_full_disk_has_stopped_goes_on_by_itself(tmp_path, is_cancelled):
    filled(tmp_path).close()
    disk = GatedPower(tmp_path)
    with Engine.open(tmp_path, machine=Supervised(files=disk, ticks=False)) as db:
        disk.fail_next("create", errno.ENOSPC)
        db.execute("ALTER STREAM s SET ARCHIVE hybrid(blocks=4, block_rows=10)")
        settle(db, REWRITES)
        assert archive(db)[1] == 0.0
        if is_cancelled:
            with disk.shut() as reached:
                db.relayouts.wake("s")
                reached.wait()
                db.relayouts.stop("s")
            settle(db, REWRITES)
        db.housekeeping.tick()
        settle(db, REWRITES)
        assert archive(db)[1] == (0.0 if is_cancelled else 1.0)
        assert truth(db) == expected(500)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("ALTER STREAM nothing SET ARCHIVE plain", UnknownStream),
        ("ALTER STREAM s SET ARCHIVE tape", BadQuery),
        ("ALTER STREAM s SET ARCHIVE hybrid(blocks=0)", BadQuery),
        ("ALTER STREAM s SET ARCHIVE eager(1)", BadQuery),
        ("ALTER STREAM s SET plain", BadQuery),
        ("ALTER STREAM s", BadQuery),
    ],
)
def test_bad_changes_are_refused(tmp_path, sql, error):
    with filled(tmp_path, 1) as db:
        with pytest.raises(error):
            db.execute(sql)
        assert archive(db) == ("plain", 1.0)


@pytest.mark.slow
def test_deleted_rows_and_indexes_outlive_a_change(tmp_path):
    with filled(tmp_path) as db:
        db.execute("CREATE INDEX ON s (v)")
        db.execute("DELETE FROM s WHERE v >= 100 AND v < 250")
        kept = [n for n in range(500) if not 100 <= n < 250]
        for layout in ("hybrid(blocks=4, block_rows=10)", "eager(0.5)", "lazy", "plain"):
            db.execute(f"ALTER STREAM s SET ARCHIVE {layout}")
            settle(db, REWRITES)
            assert archive(db) == (layout, 1.0)
            assert truth(db) == (len(kept), sum(kept), 0, 499)
            for value, found in ((300, 1), (120, 0), (777, 0)):
                row = db.execute(f"SELECT COUNT(*) AS n FROM s WHERE v = {value}").table.to_pylist()
                assert row[0]["n"] == found
    report = check(tmp_path)
    assert (report.damages, report.notes) == ([], [])


@pytest.mark.slow
def test_a_run_that_was_begun_before_the_layout_changed_is_laid_out_when_it_is_there(tmp_path):
    """The rewriter has looked by then, and saw nothing of the run."""
    with filled(tmp_path, runs=2) as db:
        db.core.store.set_layout(1, Hybrid(blocks=4, block_rows=10))
        settle(db, REWRITES)
        assert len(db.core.store.layouts.unlike(1)) == 2
        db.push("s", rows(200, 300))
        db.seal("s")
        settle(db, REWRITES)
        assert not db.core.store.layouts.unlike(1)
        assert truth(db) == expected(300)
