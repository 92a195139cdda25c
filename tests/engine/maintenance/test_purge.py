"""PURGE: deleted rows leave the files, by a statement or by themselves; answers stay the same."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from shedder.archive.operations.verify import check
from shedder.archive.tasks.progress import Progress
from shedder.engine.engine import Engine
from shedder.engine.maintenance.run_rewriter import PURGED_AFTER_QUIETS
from shedder.errors import Cancelled, DiskFull, UnknownStream
from tests.archive.power import PowerFiles
from tests.engine.deleted_rows import QUESTION, ROWS, bad, filled, said
from tests.engine.supervised import INDEXES, REWRITES, Supervised, settle
from tests.engine.world import CREATE, requests

LAYOUTS = ["plain", "hybrid(blocks=4, block_rows=50)", "eager(0.5)", "lazy"]
GONE = int(bad(requests(ROWS, 1, disorder_s=5)).sum())


@pytest.fixture(params=LAYOUTS)
def engine(tmp_path, request):
    with filled(tmp_path / "data", request.param) as engine:
        yield engine


def purged(engine: Engine) -> int:
    return sum(run.purged for run in engine.core.store.runs(1))


@pytest.mark.slow
def test_answers_stay_the_same_and_the_files_lose_the_rows(engine):
    engine.execute("CREATE INDEX ON requests (client)")
    engine.execute("DELETE FROM requests WHERE hits < 25")
    by_index = "SELECT COUNT(*) AS n, SUM(hits) AS s FROM requests WHERE client = 1"
    before = [engine.execute(text).rows() for text in (QUESTION, by_index)]
    size = sum(run.size_bytes for run in engine.core.store.runs(1))
    assert said(engine, "PURGE STREAM requests") == f"{GONE:,} deleted rows purged from requests"
    assert said(engine, "PURGE requests").startswith("0 deleted rows")
    settle(engine, INDEXES)
    assert engine.core.store.indexes.unindexed(1) == []
    assert [engine.execute(text).rows() for text in (QUESTION, by_index)] == before
    assert purged(engine) == GONE
    assert sum(run.size_bytes for run in engine.core.store.runs(1)) < size
    assert engine.ledger("requests").deleted == GONE
    directory = engine.core.store.directory
    engine.close()
    assert check(directory).ok
    with Engine.open(directory, machine=Supervised()) as again:
        assert again.execute(QUESTION).rows() == before[0]
        query = again.register("late", "SELECT COUNT(*) AS n, MIN(hits) AS lo FROM requests")
        (row,) = query.answer().rows()
        assert (row["n"], row["lo"]) == (ROWS - GONE, 25)


@pytest.mark.slow
def test_a_purge_lets_the_catalog_count_again(tmp_path):
    with filled(tmp_path, "hybrid(blocks=4, block_rows=50)") as engine:
        text = "SELECT COUNT(*) AS n, SUM(hits) AS s FROM requests REDUCE BY uniform(0.5)"
        engine.execute("DELETE FROM requests WHERE hits < 25")
        whole = engine.execute(text.split(" REDUCE", maxsplit=1)[0])
        before = engine.execute(text)
        engine.execute("PURGE STREAM requests")
        part = engine.execute(text)
        for each in (before, part):
            assert each.archive is not None
            assert each.archive.blocks_read < each.archive.blocks
        assert before.rows()[0]["n_bound"] == "interval"
        (row,), (exact,) = part.rows(), whole.rows()
        assert row["n"] == exact["n"]  # The catalog knows how many rows there are.
        assert row["n_bound"] == "exact"
        assert row["s_low"] < row["s_high"]
        assert abs(row["s"] - exact["s"]) < 3 * (row["s_high"] - row["s_low"])


@pytest.mark.slow
def test_rollups_are_right_before_and_after(tmp_path):
    with filled(tmp_path, "hybrid(blocks=4, block_rows=50)") as engine:
        kept = "SELECT domain, COUNT(*), SUM(hits) FROM requests [RANGE 1 MINUTE] GROUP BY domain"
        sql = "SELECT domain, COUNT(*) AS n, SUM(hits) AS s FROM requests GROUP BY domain"
        engine.execute(f"CREATE ROLLUP minutes AS {kept}")
        settle(engine, REWRITES)
        engine.execute("DELETE FROM requests WHERE hits < 25")
        expected = sorted(map(str, engine.execute(sql).rows()))
        settle(engine, REWRITES)
        engine.execute("PURGE STREAM requests")
        answer = engine.execute(sql)
        assert sorted(map(str, answer.rows())) == expected
        assert "rollup minutes" in answer.sources
        assert engine.core.store.rollups.due(1) == []


@pytest.mark.slow
def test_what_is_deleted_to_a_large_share_goes_by_itself(tmp_path):
    with Engine.open(tmp_path, purge_share=0.2, purge_after_s=1e6, machine=Supervised()) as engine:
        engine.execute(CREATE)
        engine.push("requests", requests(ROWS, 1, disorder_s=5))
        engine.execute("DELETE FROM requests WHERE hits < 0")  # A twentieth.
        settle(engine, REWRITES)
        assert purged(engine) == 0
        engine.execute("DELETE FROM requests WHERE hits < 25")
        settle(engine, REWRITES)
        assert purged(engine) == GONE


@pytest.mark.slow
@pytest.mark.parametrize("later_us", [2_000_000, -(10**15)], ids=["later", "clock jumps back"])
def test_the_rest_goes_when_nothing_was_deleted_for_a_while(tmp_path, later_us):
    now = [1_700_000_000_000_000]
    machine = Supervised(lambda: now[0], ticks=False)
    with Engine.open(tmp_path, machine=machine, purge_after_s=60.0) as engine:
        engine.execute(CREATE)
        engine.push("requests", requests(ROWS, 1, disorder_s=5))
        engine.execute("DELETE FROM requests WHERE hits < 0")
        now[0] += 59_000_000
        engine.housekeeping.tick()
        settle(engine, REWRITES)
        assert purged(engine) == 0
        now[0] += later_us
        engine.housekeeping.tick()
        settle(engine, REWRITES)
        hits = np.asarray(requests(ROWS, 1, disorder_s=5)["hits"])
        assert purged(engine) == (hits < 0).sum()


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True], ids=["one process", "restarted"])
def test_deletions_that_never_cease_do_not_keep_rows_in_files(tmp_path, again):
    now = [1_700_000_000_000_000]

    def opened() -> Engine:
        machine = Supervised(lambda: now[0], ticks=False)
        return Engine.open(tmp_path, machine=machine, purge_after_s=60.0)

    engine = opened()
    engine.execute(CREATE)
    engine.push("requests", requests(ROWS, 1, disorder_s=5))
    deleted = 0
    for minute in range(PURGED_AFTER_QUIETS + 2):
        assert (purged(engine) > 0) == (minute > PURGED_AFTER_QUIETS), minute
        said(engine, f"DELETE FROM requests WHERE hits = {minute}")
        settle(engine, REWRITES)
        if again:
            engine.close()
            engine = opened()
        deleted = engine.ledger("requests").deleted
        now[0] += 59_999_999
        engine.housekeeping.tick()
        settle(engine, REWRITES)
    assert 0 < purged(engine) <= deleted
    (row,) = engine.execute("SELECT COUNT(*) AS n FROM requests").rows()
    assert row["n"] == ROWS - deleted
    engine.close()


@pytest.mark.slow
def test_a_full_disk_ends_a_purge_and_the_next_one_succeeds(tmp_path):
    disk = PowerFiles(tmp_path)
    machine = Supervised(files=disk)
    with Engine.open(tmp_path, machine=machine, purge_share=1.0) as engine:
        engine.execute(f"{CREATE} ARCHIVE hybrid(blocks=4, block_rows=50)")
        engine.push("requests", requests(ROWS, 1, disorder_s=5))
        engine.execute("DELETE FROM requests WHERE hits < 25")
        before = engine.execute(QUESTION).rows()
        disk.fail_next("create", errno.ENOSPC)
        with pytest.raises(DiskFull):
            engine.execute("PURGE STREAM requests")
        assert purged(engine) == 0
        assert engine.execute(QUESTION).rows() == before
        assert [path.name for path in (tmp_path / "tmp").iterdir() if path.is_file()] == []
        assert said(engine, "PURGE STREAM requests").startswith(f"{GONE:,}")
        assert engine.execute(QUESTION).rows() == before


def test_a_purge_can_be_called_off(engine):
    engine.execute("DELETE FROM requests WHERE hits < 25")
    with pytest.raises(Cancelled, match="purge of requests"):
        engine.execute("PURGE STREAM requests", watch=Progress.cancel)
    assert purged(engine) == 0
    assert said(engine, "PURGE STREAM requests").startswith(f"{GONE:,}")


def test_an_unknown_stream_is_refused(engine):
    with pytest.raises(UnknownStream, match="nowhere"):
        engine.execute("PURGE STREAM nowhere")
