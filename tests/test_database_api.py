"""The words of the database, spoken by the embedded engine and by the client alike."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shedder
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from shedder.errors import (
    BadBatch,
    BadQuery,
    BadSetting,
    BadTimestamp,
    PrecisionUnavailable,
    QueryExists,
    SchemaMismatch,
    SequenceGap,
    ShedderError,
    StaleEpoch,
    StreamExists,
    StreamInUse,
    TypeMismatch,
    UnknownColumn,
    UnknownQuery,
    UnknownStream,
)
from shedder.queries.answers.database_api import Database
from shedder.settings import Settings
from shedder.streams.batch_conversion import conform
from tests.server_process import running

SECOND = 1_000_000
NOON = 1_767_268_800 * SECOND  # 2026-01-01 12:00 UTC
CREATE = (
    "CREATE STREAM visits (ts TIMESTAMP, page VARCHAR, ms DOUBLE, visitor BIGINT) "
    "TIMESTAMP BY ts LATENESS INTERVAL '1' SECOND"
)
MINUTE = "[RANGE INTERVAL '1' MINUTE SLIDE INTERVAL '10' SECOND]"


@pytest.fixture(params=["open", "connect"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    settings = Settings(
        listen="127.0.0.1:0", insecure=True, sample_rows=1_000, drain_s=5, overload="off"
    )
    with shedder.open(tmp_path / "data", settings) as engine:
        if request.param == "open":
            engine.execute(CREATE)
            yield engine
            return
        with (
            running(engine, settings) as address,
            shedder.connect(str(address), timeout_s=120.0) as client,
        ):
            client.execute(CREATE)
            yield client


def visits(rows: int, first_s: float = 0.0, step_s: float = 0.01) -> pa.Table:
    at = np.arange(rows)
    return pa.table(
        {
            "ts": pa.array(
                (NOON + (first_s + at * step_s) * SECOND).astype(np.int64), pa.timestamp("us")
            ),
            "page": pa.array(np.array(["/", "/a", "/b"], object)[at % 3], pa.string()),
            "ms": 10.0 + at % 7,
            "visitor": pa.array(at % 100, pa.int64()),
        }
    )


def one(db: Database, sql: str) -> dict:
    rows = db.execute(sql).rows()
    assert len(rows) == 1
    return rows[0]


# --- rows in ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "batch", "batches", "pandas", "polars"])
def test_rows_come_in_as_whatever_holds_columns(db: Database, kind: str) -> None:
    table = visits(300)
    data = {
        "table": lambda: table,
        "batch": lambda: table.to_batches()[0],
        "batches": table.to_batches,
        "pandas": table.to_pandas,
        "polars": lambda: pl.from_arrow(table),
    }[kind]()
    receipt = db.push("visits", data)
    assert (receipt.position, receipt.duplicate) == (300, False)
    assert one(db, "SELECT COUNT(*) AS n, SUM(ms) AS s FROM visits")["n"] == 300


@pytest.mark.slow
def test_columns_that_may_be_null_and_are_not_there_are_null(db: Database) -> None:
    db.push("visits", visits(10).drop_columns(["page", "ms"]))
    counted = "SELECT COUNT(*) AS n, COUNT(page) AS p, COUNT(ms) AS m, COUNT(visitor) AS v"
    row = one(db, f"{counted} FROM visits")
    assert [row[name] for name in "npmv"] == [10, 0, 0, 10]


@pytest.mark.slow
def test_a_replayed_batch_is_acknowledged_and_not_applied_again(db: Database) -> None:
    for sequence in (0, 1, 1, 0, 2):
        receipt = db.push("visits", visits(10), producer="p", sequence=sequence)
    assert not receipt.duplicate
    assert receipt.position == 30
    assert db.push("visits", visits(10), producer="p", sequence=1).duplicate
    assert one(db, "SELECT COUNT(*) AS n FROM visits")["n"] == 30
    ledger = db.ledger("visits")
    assert (ledger.accepted, ledger.applied, ledger.duplicate) == (60, 30, 30)


@pytest.mark.slow
def test_a_gap_and_a_stale_epoch_are_refused_with_the_numbers(db: Database) -> None:
    db.push("visits", visits(10), producer="p", epoch=1, sequence=0)
    with pytest.raises(SequenceGap, match="sent sequence 5, expected 1"):
        db.push("visits", visits(10), producer="p", epoch=1, sequence=5)
    with pytest.raises(StaleEpoch, match="at epoch 1, got 0"):
        db.push("visits", visits(10), producer="p", epoch=0, sequence=1)
    db.push("visits", visits(10), producer="p", epoch=2, sequence=0)
    assert one(db, "SELECT COUNT(*) AS n FROM visits")["n"] == 20


@pytest.mark.slow
def test_empty_batches_and_tables_are_fine(db: Database) -> None:
    db.push("visits", visits(0))
    db.push("visits", visits(5))
    db.push("visits", visits(0).to_batches() or visits(0))
    assert one(db, "SELECT COUNT(*) AS n FROM visits")["n"] == 5


def _without(name: str) -> pa.Table:
    return visits(3).drop_columns([name])


def _replaced(name: str, values: list) -> pa.Table:
    table = visits(3)
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (_without("ts"), SchemaMismatch, "ts"),
        (visits(3).append_column("more", pa.array([1, 2, 3])), SchemaMismatch, "more"),
        (_replaced("ms", ["1", "2", "x"]), SchemaMismatch, "ms"),
        (_replaced("visitor", [1.5, 2.0, 3.0]), SchemaMismatch, "visitor"),
        (_replaced("ts", [None, None, datetime.datetime(2026, 1, 1)]), BadTimestamp, "2"),
    ],
)
def test_rows_that_do_not_fit_are_refused_whole_and_by_name(
    db: Database, data: pa.Table, error: type[ShedderError], says: str
) -> None:
    db.push("visits", visits(2))
    with pytest.raises(error, match=says):
        db.push("visits", data)
    db.push("visits", visits(2))
    assert one(db, "SELECT COUNT(*) AS n FROM visits")["n"] == 4


@pytest.mark.slow
def test_a_hundred_columns_are_no_trouble(db: Database) -> None:
    names = [f"c{i}" for i in range(99)]
    columns = ", ".join(f"{name} DOUBLE" for name in names)
    db.execute(f"CREATE STREAM wide (ts TIMESTAMP, {columns}) TIMESTAMP BY ts")
    data = {"ts": pa.array([NOON, NOON + 1], pa.timestamp("us"))}
    data |= {name: pa.array([1.0, float(i)]) for i, name in enumerate(names)}
    db.push("wide", pa.table(data))
    assert one(db, "SELECT SUM(c98) AS s FROM wide")["s"] == 99.0


@pytest.mark.slow
def test_nan_counts_as_null_and_infinities_are_values(db: Database) -> None:
    db.push("visits", _replaced("ms", [math.nan, 1.0, None]))
    whole = db.register("whole", "SELECT COUNT(ms) AS n, SUM(ms) AS s, MAX(ms) AS h FROM visits")
    for row in (
        whole.answer().rows()[0],
        one(db, "SELECT COUNT(ms) AS n, SUM(ms) AS s, MAX(ms) AS h FROM visits"),
    ):
        assert (row["n"], row["s"], row["h"]) == (1, 1.0, 1.0)
    receipt = db.push("visits", _replaced("ms", [math.inf, 1.0, 2.0]))
    assert whole.answer(after=receipt).rows()[0]["s"] == math.inf
    receipt = db.push("visits", _replaced("ms", [-math.inf, 1.0, 2.0]))
    assert whole.answer(after=receipt).rows()[0]["s"] is None
    assert one(db, "SELECT SUM(ms) AS s FROM visits")["s"] is None


@pytest.mark.slow
def test_a_tuple_years_in_the_future_closes_no_window_and_is_not_lost(db: Database) -> None:
    query = db.register("n", f"SELECT COUNT(*) AS n FROM visits {MINUTE}")
    db.push("visits", visits(1_000))
    future = visits(1)
    future = future.set_column(
        0, "ts", pa.array([NOON + 40 * 365 * 86_400 * SECOND], pa.timestamp("us"))
    )
    db.push("visits", future)
    answer = query.answer(after=db.push("visits", visits(1_000, first_s=10)))
    assert answer.end_us is not None
    assert answer.end_us <= NOON + 20 * SECOND
    assert one(db, "SELECT COUNT(*) AS n FROM visits")["n"] == 2_001
    assert db.ledger("visits").queries[0].late == 1


# --- streams and queries ------------------------------------------------------------------------


def test_names_that_are_not_there_are_named_with_those_that_are(db: Database) -> None:
    with pytest.raises(UnknownStream, match=r"no stream 'visit'; there are visits"):
        db.push("visit", visits(1))
    with pytest.raises(UnknownStream, match="visits"):
        db.execute("SELECT COUNT(*) FROM visit")
    with pytest.raises(UnknownColumn, match=r"'pagee'.*ts, page, ms, visitor"):
        db.execute("SELECT COUNT(pagee) FROM visits")
    with pytest.raises(UnknownQuery, match="no query 'q'"):
        db.query("q")


def test_streams_are_created_once_and_dropped_when_nothing_stands_on_them(db: Database) -> None:
    db.execute(CREATE.replace("CREATE STREAM", "CREATE STREAM IF NOT EXISTS"))
    with pytest.raises(StreamExists, match="ts TIMESTAMP"):
        db.execute("CREATE STREAM visits (ts TIMESTAMP) TIMESTAMP BY ts")
    db.register("q", "SELECT COUNT(*) AS n FROM visits")
    with pytest.raises(StreamInUse, match="q"):
        db.execute("DROP STREAM visits")
    db.execute("DROP QUERY q")
    db.execute("DROP STREAM visits")
    with pytest.raises(UnknownStream):
        db.push("visits", visits(1))
    db.execute("DROP STREAM IF EXISTS visits")


def test_queries_are_created_in_sql_too(db: Database) -> None:
    db.push("visits", visits(30))
    granted = db.execute("CREATE QUERY q AS SELECT COUNT(DISTINCT visitor) AS v FROM visits")
    assert granted.table.num_rows > 0
    assert db.query("q").answer().rows()[0]["v"] == 30
    assert "q" in db.execute("SHOW QUERIES").table.to_pydict()["query"]
    again = db.register("q", "select count(distinct visitor) as v from visits")
    assert again.text == db.query("q").text
    assert repr(again) == f"<Query q: {again.text}>"
    with pytest.raises(QueryExists, match="another text"):
        db.register("q", "SELECT COUNT(*) AS v FROM visits")
    db.execute("DROP QUERY q")
    db.execute("DROP QUERY IF EXISTS q")


@pytest.mark.slow
def test_parameters_are_bound_as_values(db: Database) -> None:
    db.push("visits", visits(30))
    sql = "SELECT COUNT(*) AS n FROM visits WHERE page = ? AND ms < ?"
    assert db.execute(sql, ["/a", 100]).rows()[0]["n"] == 10
    assert db.execute(sql, ["/a' OR '1' = '1", 100]).rows()[0]["n"] == 0
    named = "SELECT COUNT(*) AS n FROM visits WHERE visitor < :most"
    assert db.execute(named, {"most": 7}).rows()[0]["n"] == 7


@pytest.mark.parametrize(
    ("sql", "error", "says"),
    [
        ("SELECT COUNT(*) FROM visits [RANGE INTERVAL '0' SECOND]", BadQuery, "0"),
        (
            "SELECT COUNT(*) FROM visits [RANGE INTERVAL '1' DAY SLIDE INTERVAL '86' MILLISECOND]",
            BadQuery,
            "panes",
        ),
        ("SELECT COUNT(*) FROM visits WITHIN 0 PERCENT", BadQuery, "0"),
        ("SELECT COUNT(*) FROM visits WITHIN 200 PERCENT", BadQuery, "200"),
        ("SELECT COUNT(*) FROM visits WITHIN 1 PERCENT CONFIDENCE 100 PERCENT", BadQuery, "100"),
        ("SELECT QUANTILE(ms, 1.5) FROM visits", BadQuery, "1.5"),
        ("SELECT SUM(page) FROM visits", TypeMismatch, "page|VARCHAR"),
        ("SELECT page, COUNT(*) FROM visits", BadQuery, "page"),
        ("SELECT COUNT(*) FROM visits WHERE", BadQuery, "line 1"),
        ("SELECT COUNT(*) FROM visits [ROWS 0]", BadQuery, "0"),
        ("SELECT COUNT(*) FROM visits JOIN other ON visits.ms = other.ms", UnknownStream, "other"),
        ("SELECT v.ms FROM visits v, visits w", BadQuery, "CROSS JOIN"),
        ("SELECT * FROM visits WITHIN 1 PERCENT", BadQuery, "WITHIN"),
        ("SELECT " + "(" * 10_000 + "1" + ")" * 10_000, BadQuery, "words|deep"),
        ("DELETE FROM visits WHERE", BadQuery, "line 1"),
    ],
)
def test_questions_that_make_no_sense_are_refused_with_the_value(
    db: Database, sql: str, error: type[ShedderError], says: str
) -> None:
    with pytest.raises(error, match=says):
        db.execute(sql)


def test_only_a_question_can_stand(db: Database) -> None:
    with pytest.raises((BadSetting, BadQuery)):
        db.register("q", "SHOW STREAMS")


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_one_time_question_without_target_is_exact(db: Database) -> None:
    db.push("visits", visits(3_000))
    answer = db.execute(
        "SELECT page, COUNT(*) AS n, AVG(ms) AS m, COUNT(DISTINCT visitor) AS v, MEDIAN(ms) AS d "
        "FROM visits WHERE visitor < 50 GROUP BY page ORDER BY page"
    )
    table = visits(3_000).to_pandas()
    wanted = table[table.visitor < 50].groupby("page")
    assert answer.table["n"].to_pylist() == wanted.size().tolist()
    assert answer.table["m"].to_pylist() == pytest.approx(wanted.ms.mean().tolist())
    assert answer.table["v"].to_pylist() == wanted.visitor.nunique().tolist()
    assert set(answer.table["n_bound"].to_pylist()) == {"exact"}


def test_a_target_lets_the_sample_answer_and_the_interval_holds_the_truth(db: Database) -> None:
    db.push("visits", visits(50_000, step_s=0.001))
    answer = db.execute(
        "SELECT COUNT(*) AS n, AVG(ms) AS m FROM visits WHERE visitor < 50 "
        "WITHIN 50 PERCENT CONFIDENCE 99.9999 PERCENT"  # Each stream draws its own sample.
    )
    row = answer.rows()[0]
    assert "sample" in answer.sources
    assert row["n_low"] <= 25_000 <= row["n_high"]
    assert row["n_met"]
    assert row["m_met"]


def test_a_standing_query_answers_its_last_slide_and_tells_every_slide(db: Database) -> None:
    query = db.register("n", f"SELECT page, COUNT(*) AS n FROM visits {MINUTE} GROUP BY page")
    slides = iter(query.subscribe())
    receipt = db.push("visits", visits(4_000, step_s=0.02))
    answer = query.answer(after=receipt)
    assert answer.window[1] == datetime.datetime(2026, 1, 1, 12, 1, 10, tzinfo=datetime.UTC)
    assert sum(answer.table["n"].to_pylist()) == 3_000
    seen = next(slides)
    assert seen.end_us is not None
    assert seen.end_us <= NOON + 70 * SECOND
    db.heartbeat("visits", NOON + 200 * SECOND)
    while seen.end_us < NOON + 200 * SECOND:
        seen = next(slides)
    assert sum(seen.table["n"].to_pylist()) == 0
    assert query.answer().end_us == seen.end_us


def test_contracts_decide_what_happens_to_a_value_that_misses(db: Database) -> None:
    db.push("visits", visits(20_000, step_s=0.001))
    ask = (
        "SELECT COUNT(DISTINCT visitor) AS v, COUNT(*) AS n FROM visits WITHIN 0.01 PERCENT ELSE {}"
    )
    with pytest.raises(PrecisionUnavailable, match=r"%.*KiB"):
        db.register("fail", ask.format("FAIL"))
    omit = db.register(
        "omit",
        "SELECT TOP(visitor, 5) AS t, QUANTILE(ms, 0.5) AS q FROM visits "
        "WITHIN 0.0001 PERCENT ELSE OMIT",
    )
    row = omit.answer().rows()[0]
    assert row["q"] is None
    assert row["q_low"] <= 13.0 <= row["q_high"]
    assert not row["q_met"]
    widen = db.register("widen", ask.format("WIDEN")).answer().rows()[0]
    assert widen["v_low"] <= 100 <= widen["v_high"]


def test_having_order_and_limit_act_on_the_answer(db: Database) -> None:
    db.push("visits", visits(3_000))
    query = db.register(
        "top",
        "SELECT visitor, COUNT(*) AS n FROM visits WHERE visitor < 10 GROUP BY visitor "
        "HAVING COUNT(*) >= 30 ORDER BY visitor DESC LIMIT 3",
    )
    assert query.answer().table["visitor"].to_pylist() == [9, 8, 7]


def test_explain_and_describe_tell_what_there_is(db: Database) -> None:
    query = db.register(
        "q", f"SELECT COUNT(DISTINCT visitor) AS v FROM visits {MINUTE} WITHIN 2 PERCENT"
    )
    text = query.explain()
    for word in ("hll", "panes", "bytes", "predicted error"):
        assert word in text
    plan = "\n".join(db.execute("EXPLAIN SELECT COUNT(*) FROM visits").table["plan"].to_pylist())
    assert "archive" in plan
    assert db.execute("DESCRIBE visits").table["column"].to_pylist() == [
        "ts",
        "page",
        "ms",
        "visitor",
    ]


@pytest.mark.slow
def test_the_answer_is_a_table_that_pandas_takes(db: Database) -> None:
    db.push("visits", visits(30))
    frame = db.execute("SELECT page, COUNT(*) AS n FROM visits GROUP BY page").table.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame.n.sum() == 30


def test_summaries_built_elsewhere_are_merged_once(db: Database) -> None:
    db.register("ms", "SELECT page, COUNT(*) AS n, SUM(visitor) AS s FROM visits GROUP BY page")
    builder = Summariser(Plans.from_json(db.plans("visits")))
    for batch in conform(visits(900), builder.schema):
        builder.add(batch)
    made = builder.summaries().to_bytes()
    assert db.merge("visits", made, producer="p", sequence=0).rows == 900
    assert db.merge("visits", made, producer="p", sequence=0).duplicate
    with pytest.raises(SequenceGap):
        db.merge("visits", made, producer="p", sequence=7)
    with pytest.raises(BadBatch, match="no summaries"):
        db.merge("visits", made[:-1])
    assert {row["page"]: row["n"] for row in db.query("ms").answer().rows()} == dict.fromkeys(
        ("/", "/a", "/b"), 300
    )
    assert db.ledger("visits").applied == 900


def test_garbage_bytes_never_reach_a_stream(db: Database) -> None:
    if not hasattr(db, "append"):
        pytest.skip("the client sends no raw bytes; tests/wire does")
    with pytest.raises(BadBatch):
        db.append("visits", b"garbage" * 100, producer="", epoch=0, sequence=None)
    ledger = db.ledger("visits")
    assert (ledger.refused_batches, ledger.accepted) == (1, 0)
