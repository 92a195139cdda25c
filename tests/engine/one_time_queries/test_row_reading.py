"""Reading of rows: few row groups, damage, limits, cancellation, and work on files meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.archive.tasks.progress import Progress
from shedder.engine.engine import Engine
from shedder.errors import BudgetExceeded, Cancelled, DeadlineExceeded, Unavailable
from tests.engine.one_time_queries.stopped_worker import StoppedWorker, linux
from tests.engine.rows_world import LAYOUTS, as_bag, at, filled, rows_of, tuples
from tests.scale import scaled

ROWS = 4_000

pytestmark = pytest.mark.slow  # Each test opens an engine.


def files_of(db: Engine) -> list[Path]:
    runs = db.core.store.runs(db.core.stream("s").id)
    return [db.core.store.directory / "runs" / run.file for run in runs]


def damage(path: Path, groups: list[int]) -> None:
    """Flip a bit in each column chunk of some row groups; the metadata stay whole."""
    metadata = pq.read_metadata(path)
    data = bytearray(path.read_bytes())
    for group in groups:
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            data[start + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)


def restarted(db: Engine) -> Engine:
    """The engine over the same directory, which has verified no file yet."""
    directory = db.core.store.directory
    db.close()
    return Engine.open(directory, allocation_seconds=1e6, purge_share=1.0)


@pytest.mark.parametrize("layout", LAYOUTS[:: scaled(3, 1)])
def test_a_limit_reads_one_row_group_of_a_sealed_stream(tmp_path, layout):
    """All other row groups are damaged, and so are all other files."""
    db = filled(tmp_path / "data", layout, ROWS)
    db.seal("s")
    *older, newest = files_of(db)
    db = restarted(db)
    with db:
        groups = pq.read_metadata(newest).num_row_groups
        damage(newest, list(range(1, groups)))
        for path in older:
            damage(path, list(range(pq.read_metadata(path).num_row_groups)))
        answer = db.execute("SELECT * FROM s LIMIT 5")
        assert (len(answer.rows()), answer.sources) == (5, ("1 row group",))
        assert answer.notes == ()
        assert set(map(repr, answer.rows())) <= set(map(repr, rows_of(tuples(ROWS, 7))))


def test_a_limit_reads_the_tail_first(tmp_path):
    with filled(tmp_path / "data", "plain", 100) as db:
        assert db.execute("SELECT * FROM s LIMIT 25").sources == ("the log",)
        some = db.execute("SELECT * FROM s LIMIT 26")
        assert (some.sources, some.archive_share_read) == (("1 row group", "the log"), 25 / 75)
        some = db.execute("SELECT * FROM s LIMIT 76")
        assert (some.sources, some.archive_share_read) == (("3 row groups", "the log"), 1.0)
        with_time = f"SELECT * FROM s [FROM {at(0)} TO {at(20)}] LIMIT 5"
        assert db.execute(with_time).sources == ("1 row group",)


def test_columns_that_a_plan_does_not_read_are_not_read(tmp_path):
    db = filled(tmp_path / "data", "plain", ROWS)
    db.seal("s")
    path = files_of(db)[-1]
    db = restarted(db)
    with db:
        chunk = pq.read_metadata(path).row_group(0).column(3)
        data = bytearray(path.read_bytes())
        data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
        path.write_bytes(data)
        assert pq.read_metadata(path).schema.column(3).name == "x"
        assert db.execute("SELECT ts, k FROM s LIMIT 5").notes == ()
        assert "1,000 rows are missing" in db.execute("SELECT x FROM s LIMIT 5").notes[0]


def test_runs_outside_of_a_time_are_not_read(tmp_path):
    with filled(tmp_path / "data", "plain", ROWS) as db:
        assert db.execute(f"SELECT * FROM s WHERE ts < {at(900)}").sources == ("1 run",)
        recent = db.execute("SELECT * FROM s WHERE ts > NOW() - INTERVAL 5 MINUTES")
        assert recent.sources == ("the log",)
        assert 290 < recent.table.num_rows < 310
        newest = db.execute("SELECT ts, k FROM s ORDER BY ts DESC LIMIT 20")
        assert newest.sources == ("the log",)
        oldest = db.execute("SELECT ts, k FROM s ORDER BY ts LIMIT 20")
        assert oldest.sources == ("1 run",)


@pytest.mark.parametrize(
    ("text", "served"),
    [
        ("SELECT * FROM s", False),
        ("SELECT * FROM s", True),
        ("SELECT * FROM s LIMIT 3500", True),
    ],
)
def test_rows_of_a_damaged_run_are_counted_and_the_others_are_answered(tmp_path, text, served):
    """served: the run was verified before it was damaged."""
    db = filled(tmp_path / "data", "plain", ROWS)
    if not served:
        db = restarted(db)
    with db:
        rows = rows_of(tuples(ROWS, 7))
        if served:
            assert as_bag(db.execute("SELECT * FROM s").rows()) == as_bag(rows)
        path = files_of(db)[1]
        path.write_bytes(path.read_bytes()[:-1])
        for _ in range(2):
            answer = db.execute(text)
            assert not answer.complete
            assert answer.notes[0] == (
                "stream s: up to 1,000 rows are missing, because their runs are damaged"
            )
            assert "positions 1000 to 2000" in answer.notes[1]
            assert as_bag(answer.rows()) == as_bag(rows[:1_000] + rows[2_000:])
        elsewhere = db.execute(f"SELECT * FROM s WHERE ts < {at(900)}")
        assert (elsewhere.notes, elsewhere.complete) == ((), True)


def test_newest_rows_are_found_although_their_run_is_damaged(tmp_path):
    db = filled(tmp_path / "data", "plain", ROWS)
    db.seal("s")
    path = files_of(db)[-1]
    db = restarted(db)
    with db:
        path.unlink()
        answer = db.execute("SELECT ts FROM s ORDER BY ts DESC LIMIT 3")
        times = sorted((r["ts"] for r in rows_of(tuples(ROWS, 7))[:3_000]), reverse=True)
        assert [row["ts"] for row in answer.rows()] == times[:3]
        assert not answer.complete


@pytest.mark.parametrize("rows_max", [1, ROWS - 1])
def test_an_answer_is_cut_at_the_row_limit_and_says_so(tmp_path, rows_max):
    with filled(tmp_path / "data", "plain", ROWS, result_rows_max=rows_max) as db:
        answer = db.execute("SELECT k FROM s")
        assert answer.table.num_rows == rows_max
        assert answer.cut == (
            f"cut behind {rows_max:,} rows, the limit of an answer (result_rows_max)"
        )
        assert str(answer).splitlines()[-1] == f"NOT ALL ROWS: {answer.cut}"
        assert answer.cut in answer.explain()
        assert db.execute(f"SELECT k FROM s LIMIT {rows_max}").cut == ""


def test_an_answer_is_cut_at_the_byte_limit_and_says_so(tmp_path):
    with filled(tmp_path / "data", "plain", ROWS, result_bytes_max=1 << 16) as db:
        texts = pa.array(["x" * 1_000] * 100)
        times = pa.array(np.arange(100), pa.timestamp("us"))
        db.push("s", pa.table({"ts": times, "g": texts}))
        answer = db.execute("SELECT g || g AS g FROM s WHERE LENGTH(g) = 1000")
        assert 25 <= answer.table.num_rows <= 32
        assert "at the limit of 65,536 bytes (result_bytes_max)" in answer.cut


@pytest.fixture
def db(tmp_path):
    with filled(tmp_path / "data", "plain", ROWS) as engine:
        yield engine


def is_well(db: Engine) -> bool:
    """Return whether the next query is answered, and no file stays pinned."""
    return (
        db.execute("SELECT * FROM s").table.num_rows == ROWS
        and db.core.store.facts()["files_in_use"] == 0
    )


@linux
def test_a_cancel_ends_the_reading_at_once(db):
    stopped = StoppedWorker(db)
    with pytest.raises(Cancelled, match="rows of s"):
        db.execute("SELECT * FROM s", watch=lambda p: stopped.once_requested(p.cancel))
    assert is_well(db)


@linux
def test_a_deadline_ends_the_reading(db):
    StoppedWorker(db)
    with pytest.raises(DeadlineExceeded, match="exact answer"):
        db.execute("SELECT * FROM s", timeout_s=0.2)
    assert is_well(db)


@linux
def test_a_killed_worker_is_reported_and_replaced(db):
    stopped = StoppedWorker(db)
    with pytest.raises(BudgetExceeded, match="killed"):
        db.execute("SELECT * FROM s", watch=lambda _: stopped.once_requested(stopped.kill))
    assert is_well(db)


@linux
def test_a_closing_engine_ends_the_reading(tmp_path):
    db = filled(tmp_path / "data", "plain", ROWS)
    stopped, closing = StoppedWorker(db), []

    def close(_: Progress) -> None:
        closing.append(stopped.once_requested(db.close))

    with pytest.raises(Unavailable, match="closed"):
        db.execute("SELECT * FROM s", watch=close)
    closing[0].join()


def test_a_reader_that_leaves_ends_the_query_and_its_task(db):
    big = tuples(300_000, 3, start_s=10_000)
    db.push("s", big)
    with db.execute_batches("SELECT * FROM s") as batches:
        next(batches)
    assert list(batches) == []
    db.services.tasks.close()  # Returns when all tasks have ended.
    assert db.core.store.facts()["files_in_use"] == 0
    assert list((db.core.store.directory / "tmp").glob("tmp*")) == []


def test_rows_that_are_purged_and_deleted_meanwhile_are_still_read(db):
    """A snapshot holds the files until its rows are read."""
    rows = rows_of(tuples(ROWS, 7))
    with db.execute_batches("SELECT * FROM s") as batches:
        first = next(batches)
        db.execute("DELETE FROM s WHERE k > 0")
        db.execute("PURGE STREAM s")
        taken = [row for batch in (first, *batches) for row in batch.to_pylist()]
    assert as_bag(taken) == as_bag(rows)
    left = [row for row in rows if row["k"] is None or row["k"] <= 0]
    assert as_bag(db.execute("SELECT * FROM s").rows()) == as_bag(left)


def test_a_slow_reader_does_not_keep_other_queries_waiting(db):
    with db.execute_batches("SELECT * FROM s") as batches:
        next(batches)
        assert db.execute("SELECT COUNT(*) AS n, MAX(g) AS g FROM s").rows()[0]["n"] == ROWS


def test_explain_prints_the_tree_with_what_is_read(db):
    text = "SELECT ts, k + 1 AS more FROM s WHERE ts >= {} ORDER BY ts DESC LIMIT 20"
    lines = db.execute(f"EXPLAIN {text.format(at(2_900))}").table["plan"].to_pylist()
    assert lines == [
        "Order by ts DESC, limit 20",
        "  Project s.ts AS ts, s.k + 1 AS more",
        "    Filter s.ts >= TIMESTAMP '1970-01-01 00:48:20'",
        "      Scan s",
        "        event times [1970-01-01 00:48:20.000Z, ∞)",
        "        at most 1,000 rows of 1 run (2 pruned), 1,000 of the log",
        "        columns ts, k",
    ]
    lines = db.execute("EXPLAIN SELECT k FROM s LIMIT 5").table["plan"].to_pylist()
    assert "      row groups until 5 rows are there" in lines
