"""Row queries against lists of Python: layouts, deletions, late and backfilled rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.errors import BadQuery, BeforeRetention, UnknownColumn, UnknownStream
from spark_ingest.parts import send_part
from synopses.kernels.hashing import position_keys
from tests.engine.rows_world import (
    CREATE,
    LAYOUTS,
    as_bag,
    at,
    filled,
    moment,
    rows_of,
    tuples,
)
from tests.engine.two_tenants import ACME, BOLT
from tests.scale import scaled

ROWS = 2_000


@pytest.fixture(scope="module", params=LAYOUTS[:: scaled(3, 1)])
def engine(tmp_path_factory, request):
    """Three runs with a backfilled one before them, and a tail; rows of all are deleted."""
    with filled(tmp_path_factory.mktemp("rows"), request.param, ROWS) as engine:
        past = tuples(300, 8, start_s=-400)
        state = engine.backfills.begin_backfill("s", "old", "a plan", 1)
        newest_us = -90 * 1_000_000
        send_part(engine.backfills, state, "old", 0, past, watermark_us=newest_us)
        engine.backfills.adopt_backfill("s", "old", rows=300)
        engine.execute("DELETE FROM s WHERE k = 7 OR day = CAST('1970-01-03' AS DATE)")
        late = tuples(50, 9, start_s=100)
        engine.push("s", late)
        kept = [
            row
            for row in rows_of(pa.concat_tables([past, tuples(ROWS, 7)]))
            if row["k"] != 7 and row["day"] != moment(2 * 86_400).date()
        ]
        yield engine, kept + rows_of(late)


def found(db: Engine, text: str) -> list[dict[str, Any]]:
    answer = db.execute(text)
    assert answer.notes == ()
    assert answer.cut == ""
    return answer.rows()


def test_all_rows_are_the_rows_that_were_pushed_and_not_deleted(engine):
    db, rows = engine
    answer = db.execute("SELECT * FROM s")
    assert as_bag(answer.rows()) == as_bag(rows)
    assert answer.outputs == ("ts", "k", "g", "x", "ok", "day")
    assert answer.approximate == ()
    assert (answer.complete, answer.confidence, answer.met) == (True, 1.0, None)
    assert answer.position == ROWS + 50


def test_a_condition_keeps_the_rows_for_which_it_is_true(engine):
    db, rows = engine
    kept = [
        {"k": r["k"], "g": r["g"]} for r in rows if r["k"] is not None and r["k"] > 20 and r["ok"]
    ]
    assert as_bag(found(db, "SELECT k, g FROM s WHERE k > 20 AND ok")) == as_bag(kept)


def test_expressions_are_computed_for_each_row(engine):
    db, rows = engine
    texts = [{"u": f"{r['g']}!", "twice": r["k"] * 2} for r in rows if r["k"] and r["g"]]
    text = "SELECT g || '!' AS u, k * 2 AS twice FROM s WHERE k <> 0 AND g IS NOT NULL"
    assert as_bag(found(db, text)) == as_bag(texts)


@pytest.mark.parametrize("window", [(0, 700), (-400, 10), (600, 99_999), (5_000, 6_000)])
def test_a_window_and_a_condition_on_the_time_keep_the_same_rows(engine, window):
    db, rows = engine
    start, end = window
    kept = [r for r in rows if moment(start) <= r["ts"] < moment(end)]
    framed = found(db, f"SELECT * FROM s [FROM {at(start)} TO {at(end)}]")
    said = found(db, f"SELECT * FROM s WHERE ts >= {at(start)} AND ts < {at(end)}")
    assert as_bag(framed) == as_bag(said) == as_bag(kept)


def test_a_sliding_window_is_the_last_one_that_the_watermark_has_passed(engine):
    db, rows = engine
    watermark = max(r["ts"] for r in rows) - (moment(5) - moment(0))
    seconds = int((watermark - moment(0)).total_seconds()) // 10 * 10
    kept = [r for r in rows if moment(seconds - 60) <= r["ts"] < moment(seconds)]
    answer = db.execute("SELECT * FROM s [RANGE 1 MINUTE SLIDE 10 SECONDS]")
    assert as_bag(answer.rows()) == as_bag(kept)
    assert answer.end_us == seconds * 1_000_000
    assert answer.watermark_us == int((watermark - moment(0)).total_seconds()) * 1_000_000


def in_order(rows):
    """Rows by event time; rows of one time in any order."""
    return sorted(rows, key=lambda row: row["ts"])


@pytest.mark.parametrize("count", [1, 7, 700])
def test_a_window_of_rows_holds_the_newest_ones(engine, count):
    """Positions decide among rows of one time, so only times are compared there."""
    db, rows = engine
    some = found(db, f"SELECT * FROM s [ROWS {count}]")
    newest = in_order(rows)[-count:]
    assert [row["ts"] for row in in_order(some)] == [row["ts"] for row in newest]
    oldest = newest[0]["ts"]
    assert as_bag([r for r in some if r["ts"] > oldest]) == as_bag(
        [r for r in rows if r["ts"] > oldest]
    )


def test_a_window_of_rows_of_each_partition_holds_its_newest_ones(engine):
    db, rows = engine
    some = found(db, "SELECT g, ts FROM s [PARTITION BY g ROWS 3]")
    for g in ("a", "b", "ü", "it's", None):
        newest = in_order(r for r in rows if r["g"] == g)[-3:]
        assert sorted(r["ts"] for r in some if r["g"] == g) == [r["ts"] for r in newest]


def test_a_condition_inside_of_a_window_of_rows_comes_before_it(engine):
    db, rows = engine
    some = found(db, f"SELECT ts FROM s [ROWS 5 WHERE ts < {at(600)} AND k > 0]")
    kept = [r for r in rows if r["ts"] < moment(600) and r["k"] is not None and r["k"] > 0]
    assert sorted(row["ts"] for row in some) == [row["ts"] for row in in_order(kept)[-5:]]


def test_now_holds_the_rows_of_the_last_microsecond_before_the_watermark(engine):
    db, rows = engine
    watermark = max(r["ts"] for r in rows) - (moment(5) - moment(0))
    assert found(db, "SELECT * FROM s [NOW]") == []
    db_rows = found(db, f"SELECT ts FROM s [FROM {at(1_900)} SLIDE 1 SECOND]")
    kept = [r["ts"] for r in rows if moment(1_900) <= r["ts"] < watermark]
    assert sorted(row["ts"] for row in db_rows) == sorted(kept)


def test_first_and_last_of_rows_are_by_time_and_position(engine):
    db, rows = engine
    text = "SELECT LAST(n) AS n FROM (SELECT g, LAST(ts) AS n FROM s [ROWS 50] GROUP BY g) AS c"
    with pytest.raises(BadQuery, match="FIRST and LAST"):
        db.execute(text)
    (row,) = found(db, "SELECT MAX(n) AS n FROM (SELECT g, LAST(ts) AS n FROM s GROUP BY g) AS c")
    assert row["n"] == max(r["ts"] for r in rows)


@pytest.mark.parametrize("limit", [0, 1, 5, 49, 50, 51, 500, 10_000, 2**63 - 1])
@pytest.mark.parametrize("offset", [0, 3])
def test_a_limit_without_order_gives_so_many_of_the_rows(engine, limit, offset):
    db, rows = engine
    some = found(db, f"SELECT * FROM s LIMIT {limit} OFFSET {offset}")
    assert len(some) == min(limit, len(rows) - offset)
    assert set(map(repr, some)) <= set(map(repr, rows))
    assert len(set(map(repr, some))) >= len(some) - (len(rows) - len(set(map(repr, rows))))


@pytest.mark.parametrize("order", ["", "ORDER BY ts", "ORDER BY k DESC"])
def test_a_limit_and_an_offset_may_add_up_to_more_than_64_bits(engine, order):
    db, rows = engine
    most = 2**63 - 1
    assert found(db, f"SELECT * FROM s {order} LIMIT {most} OFFSET {most}") == []
    assert len(found(db, f"SELECT * FROM s {order} LIMIT {most} OFFSET 1")) == len(rows) - 1


@pytest.mark.parametrize("direction", ["ASC", "DESC"])
@pytest.mark.parametrize("limit", [1, 60, 700, 10_000])
def test_order_by_time_with_a_limit_gives_one_end_of_the_stream(engine, direction, limit):
    db, rows = engine
    some = found(db, f"SELECT ts, x FROM s ORDER BY ts {direction} LIMIT {limit}")
    times = sorted((r["ts"] for r in rows), reverse=direction == "DESC")[:limit]
    assert [row["ts"] for row in some] == times
    pairs = {(r["ts"], repr(r["x"])) for r in rows}
    assert {(row["ts"], repr(row["x"])) for row in some} <= pairs


def test_order_by_other_columns_has_nulls_last(engine):
    db, rows = engine
    some = found(db, "SELECT k, x FROM s ORDER BY k DESC, x LIMIT 900 OFFSET 10")
    keys = sorted(
        rows,
        key=lambda r: (r["k"] is None, -(r["k"] or 0), r["x"] is None, r["x"] or 0.0),
    )
    assert some == [{"k": r["k"], "x": r["x"]} for r in keys[10:910]]


def test_distinct_rows_come_once(engine):
    db, rows = engine
    kinds = {(r["g"], r["ok"]) for r in rows}
    some = found(db, "SELECT DISTINCT g, ok FROM s")
    assert len(some) == len(kinds)
    assert {(row["g"], row["ok"]) for row in some} == kinds


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("layout", [LAYOUTS[0], LAYOUTS[-1]])
def test_a_stream_with_hardly_any_rows_has_columns(tmp_path, count, layout):
    with filled(tmp_path / "data", layout, count) as db:
        for text in (
            "SELECT * FROM s",
            "SELECT * FROM s LIMIT 5",
            "SELECT * FROM s ORDER BY ts LIMIT 5",
        ):
            answer = db.execute(text)
            assert answer.outputs == ("ts", "k", "g", "x", "ok", "day")
            assert answer.rows() == rows_of(tuples(count, 7))
        db.seal("s")
        assert db.execute("SELECT * FROM s LIMIT 5").rows() == rows_of(tuples(count, 7))


def test_batches_are_the_rows_of_the_answer(engine):
    db, rows = engine
    with db.execute_batches("SELECT * FROM s") as batches:
        with pytest.raises(BadQuery, match="take the batches"):
            _ = batches.answer
        taken = [row for batch in batches for row in batch.to_pylist()]
    assert as_bag(taken) == as_bag(rows)
    answer = batches.answer
    assert (answer.table.num_rows, answer.table.schema) == (0, batches.schema)
    assert answer.elapsed_ms > 0


def test_batches_of_other_statements_are_those_of_their_tables(engine):
    db, rows = engine
    with db.execute_batches("SELECT COUNT(*) AS n FROM s") as batches:
        (batch,) = batches
    assert batch["n"].to_pylist() == [len(rows)]
    assert batches.answer.complete


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT * FROM nowhere", UnknownStream),
        ("SELECT q FROM s", UnknownColumn),
        ("SELECT * FROM s WHERE k", Exception),
    ],
)
def test_a_query_that_cannot_be_bound_says_so_before_the_first_batch(engine, text, error):
    db, _ = engine
    with pytest.raises(error):
        db.execute_batches(text)
    with pytest.raises(error):
        db.execute(f"EXPLAIN {text}")


@pytest.mark.slow
def test_a_window_before_what_is_kept_is_refused(tmp_path):
    create = CREATE.format("s", "plain").replace("ARCHIVE", "RETAIN INTERVAL '1' HOUR ARCHIVE")
    with Engine.open(tmp_path / "data", checkpoint_seconds=1e6) as db:
        db.execute(create)
        for first in range(0, 20_000, 1_000):
            db.push("s", tuples(1_000, 7, start_s=first))
            db.seal("s")
        db.core.executor.call(db.checkpoints.tidy).result()
        with pytest.raises(BeforeRetention, match="retention has removed"):
            db.execute(f"SELECT * FROM s [FROM {at(0)} TO {at(100)}]")
        assert found(db, f"SELECT * FROM s WHERE ts < {at(100)}") == []
        landmark = db.execute(f"SELECT * FROM s [FROM {at(19_000)} SLIDE 1 SECOND]")
        assert landmark.start_us == 19_000 * 1_000_000
        assert landmark.table.num_rows > 900


def test_answers_of_rows_are_tables_for_people(engine):
    db, rows = engine
    text = str(db.execute("SELECT ts, k FROM s ORDER BY ts"))
    head, _, first, *rest = text.splitlines()
    assert head.split() == ["ts", "k"]
    assert first.startswith(str(min(r["ts"] for r in rows)))
    assert rest[-1] == f"… {len(rows) - 50:,} more rows"


@pytest.mark.slow
def test_rows_of_another_tenant_are_of_a_stream_that_does_not_exist(tmp_path):
    with Engine.open(tmp_path / "data") as db:
        for asker, stream in ((ACME, "a"), (BOLT, "b")):
            db.execute(CREATE.format(stream, "plain"), caller=asker)
        db.push("a", tuples(3, 1))
        assert db.execute("SELECT k FROM a", caller=ACME).table.num_rows == 3
        for asker, table in ((ACME, "hidden"), (BOLT, "own")):
            db.execute(f"CREATE TABLE {table} (k BIGINT PRIMARY KEY)", caller=asker)
        with pytest.raises(UnknownStream, match=r"no stream 'c'; there are b, own$"):
            db.execute("SELECT b.k FROM b JOIN c ON b.k = c.k", caller=BOLT)
        for text in ("SELECT k FROM a", "EXPLAIN SELECT k FROM a"):
            with pytest.raises(UnknownStream, match=r"'a'.* b"):
                db.execute(text, caller=BOLT)
            with pytest.raises(UnknownStream, match=r"'a'.* b"):
                db.execute_batches(text, caller=BOLT)


def test_a_sample_has_the_tuples_whose_random_keys_are_small(tmp_path):
    """Positions of pushed tuples count from 0; the seed is the stream's."""
    with filled(tmp_path / "sampled", LAYOUTS[-1], ROWS) as db:
        seed = db.services.core.streams["s"].schema.seed
        small = position_keys(seed, 0, ROWS) < 0.1 * 2**64
        kept = rows_of(tuples(ROWS, 7).filter(pa.array(small)))
        assert as_bag(found(db, "SELECT * FROM s SAMPLE(10)")) == as_bag(kept)
        assert found(db, "SELECT COUNT(*) AS n FROM s SAMPLE(10)") == [{"n": len(kept)}]
        newest = "SELECT ts FROM s SAMPLE(10) ORDER BY ts DESC LIMIT 5"
        assert found(db, newest) == [{"ts": r["ts"]} for r in in_order(kept)[:-6:-1]]
        assert len(found(db, "SELECT * FROM s SAMPLE(10) LIMIT 9")) == 9


def test_a_sample_of_a_stream_with_a_backfill_is_a_part_of_its_rows(engine):
    db, rows = engine
    sampled = found(db, "SELECT * FROM s SAMPLE(20)")
    assert 0.1 * len(rows) < len(sampled) < 0.3 * len(rows)
    assert not Counter(as_bag(sampled)) - Counter(as_bag(rows))
    assert as_bag(found(db, "SELECT * FROM s SAMPLE(20)")) == as_bag(sampled)
