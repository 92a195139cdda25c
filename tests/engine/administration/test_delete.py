"""DELETE: rows go, once and for good, from every reader; positions and ledger stay exact."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shedder.archive.layouts.blocks import Wanted
from shedder.archive.layouts.readable_part import part_of
from shedder.archive.metadata.deleted_positions import Deleted
from shedder.archive.operations.verify import check
from shedder.archive.store.scan import stretches
from shedder.archive.tasks.progress import Progress
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Eager, Hybrid, Plain
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, Cancelled, CorruptData, UnknownColumn, UnknownStream
from tests.archive.worlds import part_blocks
from tests.engine.catalogs import connection_of, reachable
from tests.engine.deleted_rows import QUESTION, ROWS, bad, filled, said
from tests.engine.world import CREATE, START_US, requests


@pytest.fixture(params=["plain", "hybrid(blocks=4)"])
def engine(tmp_path, request):
    with filled(tmp_path / "data", request.param) as engine:
        yield engine


@pytest.fixture(scope="module", params=["plain", "hybrid(blocks=4)"])
def unchanged(tmp_path_factory, request):
    """An engine that no test changes."""
    with filled(tmp_path_factory.mktemp("unchanged"), request.param) as engine:
        yield engine


def truth_without(tmp_path, keep) -> list:
    """What an engine says that has only ever seen the rows that are kept."""
    with Engine.open(tmp_path / "truth") as engine:
        engine.execute(CREATE)
        table = requests(ROWS, 1, disorder_s=5)
        engine.push("requests", table.filter(pa.array(keep(table))))
        return engine.execute(QUESTION).rows()


@pytest.mark.slow
def test_exact_answers_are_those_of_the_rows_that_are_left(engine, tmp_path):
    table = requests(ROWS, 1, disorder_s=5)
    gone = int(bad(table).sum())
    assert said(engine, "DELETE FROM requests WHERE hits < 25") == (
        f"{gone:,} rows deleted from requests"
    )
    expected = truth_without(tmp_path, lambda table: ~bad(table))
    assert engine.execute(QUESTION).rows() == expected
    assert said(engine, "DELETE FROM requests WHERE hits < 20").startswith("0 rows")
    ledger = engine.ledger("requests")
    assert (ledger.applied, ledger.accepted, ledger.deleted) == (ROWS, ROWS, gone)
    directory = engine.core.store.directory
    engine.close()
    assert check(directory).ok
    with Engine.open(directory) as again:
        assert again.execute(QUESTION).rows() == expected
        assert again.ledger("requests").deleted == gone
        again.push("requests", requests(10, 2))
        (row,) = again.execute("SELECT COUNT(*) AS n FROM requests").rows()
        assert row["n"] == ROWS - gone + 10


def test_every_other_reader_skips_them_too(engine):
    engine.execute(f"{CREATE.replace('requests', 'copied')}")
    gone = int(bad(requests(ROWS, 1, disorder_s=5)).sum())
    engine.execute("DELETE FROM requests WHERE hits < 25")
    engine.execute("INSERT INTO copied SELECT * FROM requests")
    assert engine.ledger("copied").applied == ROWS - gone
    query = engine.register("late", "SELECT COUNT(*) AS n, MIN(hits) AS lo FROM requests")
    (row,) = query.answer().rows()
    assert (row["n"], row["lo"]) == (ROWS - gone, 25)
    store = engine.core.store
    found = [batch["hits"].to_numpy() for _, batch in store.scan(1, columns=["hits"])]
    assert len(np.concatenate(found)) == ROWS - gone
    assert np.concatenate(found).min() == 25
    with store.snapshot(1) as snapshot:
        wanted = Wanted("ts", ("hits", POSITION))
        for run in snapshot.runs:
            blocks = list(snapshot.read_blocks(run, range(run.blocks), wanted))
            assert sum(block.rows for block in blocks) == run.rows
            assert all(block.table.column_names == ["hits", POSITION] for block in blocks)
            assert min(block.table["hits"].to_numpy().min() for block in blocks) >= 25


@pytest.mark.slow
def test_a_target_is_not_met_from_a_sample_that_holds_deleted_rows(engine):
    text = "SELECT COUNT(*) AS n FROM requests WITHIN 20 PERCENT"
    assert "sample" in ",".join(engine.execute(text).sources)
    engine.execute("DELETE FROM requests WHERE hits < 25")
    answer = engine.execute(text)
    assert answer.rows()[0]["n_bound"] == "exact"
    assert answer.rows()[0]["n"] == int((~bad(requests(ROWS, 1, disorder_s=5))).sum())


@pytest.mark.slow
def test_a_standing_query_is_exact_again_once_its_panes_are_rebuilt(engine):
    left = int((~bad(requests(ROWS, 1, disorder_s=5))).sum())
    query = engine.register("whole", "SELECT COUNT(*) AS n FROM requests")
    answers = query.subscribe()
    engine.execute("DELETE FROM requests WHERE hits < 25")
    rows = [row for answer in [query.answer()] for row in answer.rows()]
    while (rows[-1]["n"], rows[-1]["n_bound"]) != (left, "exact"):
        rows += next(answers).rows()  # Until pytest's timeout, if the panes are not rebuilt.
    assert all(row["n_low"] <= left <= row["n_high"] for row in rows if "n_low" in row)
    assert all(row["n"] == left for row in rows if row["n_bound"] == "exact")


@pytest.mark.slow
def test_a_window_and_no_condition_choose_rows_as_well(engine):
    stretch = f"[FROM CAST({START_US} AS TIMESTAMP) TO CAST({START_US + 60_000_000} AS TIMESTAMP)]"
    table = requests(ROWS, 1, disorder_s=5)
    inside = np.asarray(table["ts"].cast(pa.int64())) < START_US + 60_000_000
    assert said(engine, f"DELETE FROM requests {stretch}").startswith(f"{inside.sum():,} rows")
    assert said(engine, "DELETE FROM requests").startswith(f"{ROWS - inside.sum():,} rows")
    (row,) = engine.execute("SELECT COUNT(*) AS n, MAX(hits) AS m FROM requests").rows()
    assert (row["n"], row["m"]) == (0, None)


def test_retention_and_drop_take_the_marks_along(engine):
    engine.execute("DELETE FROM requests WHERE hits < 25")
    store = engine.core.store
    store.retention.apply(1, START_US + 10**12)
    assert store.catalog.annotations.deleted() == {}
    assert len(store.catalog.annotations.deletions()) == 1
    engine.execute("DROP STREAM requests")
    assert store.catalog.annotations.deletions() == []


@pytest.mark.slow
def test_a_run_that_is_laid_out_anew_keeps_its_deletions(engine):
    engine.execute("DELETE FROM requests WHERE hits < 25")
    expected = engine.execute(QUESTION).rows()
    store = engine.core.store
    for layout in (Eager((0.5,)), Hybrid(2), Plain()):
        store.set_layout(1, layout)
        for run in store.layouts.unlike(1):
            assert store.layouts.rewrite(run)
        assert engine.execute(QUESTION).rows() == expected
        with store.snapshot(1) as snapshot:
            for run in snapshot.runs:
                blocks = part_blocks(snapshot, part_of(run, 0.5), Wanted("ts", ("hits",)))
                assert all((block.table["hits"].to_numpy() >= 25).all() for block in blocks)
    engine.close()
    with Engine.open(store.directory) as again:
        assert again.execute(QUESTION).rows() == expected


@pytest.mark.slow
def test_a_backup_has_the_deletions(engine, tmp_path):
    engine.execute("DELETE FROM requests WHERE hits < 25")
    expected = engine.execute(QUESTION).rows()
    engine.backup(tmp_path / "backup")
    with Engine.open(tmp_path / "backup") as copy:
        assert copy.execute(QUESTION).rows() == expected


@pytest.mark.slow
def test_a_cancelled_delete_deletes_nothing(engine):
    with pytest.raises(Cancelled, match="delete of requests"):
        engine.execute("DELETE FROM requests", watch=Progress.cancel)
    assert engine.ledger("requests").deleted == 0
    (row,) = engine.execute("SELECT COUNT(*) AS n FROM requests").rows()
    assert row["n"] == ROWS


def test_a_delete_that_is_durable_says_so_whatever_halts_the_engine_then(tmp_path):
    with reachable():
        engine = filled(tmp_path / "data", "plain")
    with engine:
        executor = engine.core.executor

        def halt(changed: set[str]) -> None:
            if "deletions" in changed:
                executor.post(lambda: 1 / 0)

        connection_of(engine).after_commit = halt
        assert said(engine, "DELETE FROM requests") == f"{ROWS:,} rows deleted from requests"
        assert executor.halted
    with Engine.open(tmp_path / "data") as again:
        assert again.ledger("requests").deleted == ROWS


@pytest.mark.parametrize("text", ["DELETE FROM requests WHERE hits < 25", "CREATE INDEX {}"])
def test_a_damaged_run_is_told_and_in_quarantine_from_then_on(engine, text):
    store = engine.core.store
    engine.close()
    run = store.runs(1)[0]
    path = store.directory / "runs" / run.file
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with Engine.open(store.directory) as again:
        text = text.format("ON requests (hits)")
        with pytest.raises(CorruptData):
            again.execute(text)
        assert [found for found, _ in again.core.store.quarantine.runs(1)] == [run]
        assert again.ledger("requests").deleted == 0
        if text.startswith("DELETE"):
            with pytest.raises(CorruptData, match="quarantine"):
                again.execute(text)
        else:
            again.execute(text)  # Of the other runs.
            assert again.core.store.indexes.columns(1) == ("hits",)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("DELETE FROM nowhere", UnknownStream, "nowhere"),
        ("DELETE FROM requests WHERE size > 1", UnknownColumn, "size"),
        ("DELETE FROM requests WHERE COUNT(*) > 1", BadQuery, "aggregate"),
        ("DELETE requests", BadQuery, "FROM"),
        ("DELETE FROM requests LIMIT 5", BadQuery, "LIMIT"),
        ("DELETE FROM requests [RANGE INTERVAL '1' DAY]", BadQuery, "fixed stretch"),
    ],
)
def test_what_makes_no_sense_is_refused(unchanged, text, error, says):
    with pytest.raises(error, match=says):
        unchanged.execute(text)


@pytest.mark.slow
@given(st.lists(st.booleans(), min_size=1, max_size=100))
def test_a_mask_survives_its_packing(flags):
    class Stretch:
        stretch = len(flags)
        first_position = 7

    mask = np.array(flags)
    packed = Deleted.of(mask)
    assert packed.rows == mask.sum()
    assert (packed.mask(Stretch) == mask).all()
    assert (packed.positions(Stretch) == np.flatnonzero(mask) + 7).all()
    rebuilt = np.zeros(len(flags), bool)
    for begin, end in stretches(mask):
        rebuilt[begin:end] = True
    assert (rebuilt == mask).all()


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(1, 40)),
            st.tuples(st.just("delete"), st.integers(-5, 100)),
            st.tuples(st.just("seal"), st.just(0)),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=12,
    )
)
def test_whatever_is_pushed_and_deleted_is_left_as_said(tmp_path_factory, steps):
    directory = tmp_path_factory.mktemp("delete") / "data"
    engine = Engine.open(directory)
    engine.execute(f"{CREATE} ARCHIVE hybrid(blocks=2)")
    left: list[int] = []
    pushed = deleted = 0
    for number, (word, value) in enumerate(steps):
        if word == "push":
            table = requests(value, number)
            engine.push("requests", table)
            left += table["hits"].to_pylist()
            pushed += value
        elif word == "delete":
            engine.execute("DELETE FROM requests WHERE hits < ?", [value])
            deleted += sum(hits < value for hits in left)
            left = [hits for hits in left if hits >= value]
        elif word == "seal":
            engine.seal("requests")
        else:
            engine.close()
            engine = Engine.open(directory)
        (row,) = engine.execute("SELECT COUNT(*) AS n, SUM(hits) AS s FROM requests").rows()
        assert (row["n"], row["s"]) == (len(left), sum(left) if left else None)
        ledger = engine.ledger("requests")
        assert (ledger.applied, ledger.deleted) == (pushed, deleted)
    engine.close()
