"""One-time row queries of tables, against Python over the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.runtime.caller import Caller
from shedder.errors import BadQuery, KeyExists, UnknownColumn, UnknownStream
from tests.engine.checkpointed import opened
from tests.engine.one_time_queries.recording_worker import relations_read, sent_rows

ROWS = [
    {"k": k, "name": None if k % 7 == 0 else f"n{k % 5}", "x": k / 4 - 20} for k in range(1, 200)
]

pytestmark = pytest.mark.slow


@pytest.fixture
def db(tmp_path: Path):
    with opened(tmp_path / "data") as engine:
        engine.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, name VARCHAR, x DOUBLE)")
        engine.push("t", {name: [row[name] for row in ROWS] for name in ("k", "name", "x")})
        engine.execute("CREATE TABLE empty (k BIGINT PRIMARY KEY, x DOUBLE)")
        yield engine


def bag(rows: list[dict[str, object]]) -> list[str]:
    return sorted(map(repr, rows))


def test_rows_of_a_table_are_answered_by_any_clause(db: Engine) -> None:
    def answer(sql: str) -> list[dict[str, object]]:
        return db.execute(sql).rows()

    assert bag(answer("SELECT * FROM t")) == bag(ROWS)
    assert bag(answer("SELECT k + 1 AS n FROM t WHERE x > 0 AND name = 'n3'")) == bag(
        [{"n": row["k"] + 1} for row in ROWS if row["x"] > 0 and row["name"] == "n3"]
    )
    assert bag(answer("SELECT DISTINCT name FROM t")) == bag(
        [{"name": name} for name in {row["name"] for row in ROWS}]
    )
    assert answer("SELECT a.k FROM t a ORDER BY a.x DESC LIMIT 3 OFFSET 2") == [
        {"k": row["k"]} for row in ROWS[::-1][2:5]
    ]
    some = answer("SELECT k FROM t LIMIT 5")
    assert len({row["k"] for row in some} & {row["k"] for row in ROWS}) == len(some) == 5
    assert answer("SELECT 7 AS seven FROM t WHERE name IS NULL") == [
        {"seven": 7} for row in ROWS if row["name"] is None
    ]
    assert db.execute("SELECT * FROM empty").table.column_names == ["k", "x"]
    assert answer("SELECT * FROM empty") == []


def test_rows_of_a_table_are_sent_once_for_all_of_its_scans(db: Engine, tmp_path: Path) -> None:
    sql = "SELECT a.k, b.x FROM t a JOIN t b ON a.name = b.name WHERE b.k < 4"
    rows, relations = relations_read(db, sql, tmp_path)
    names = [row["name"] for row in ROWS]
    assert rows == sum(names[:3].count(name) for name in names if name is not None)
    assert sent_rows(relations) == len(ROWS)


def test_aggregates_of_a_table_are_exact(db: Engine) -> None:
    [one] = db.execute("SELECT COUNT(*) AS n, SUM(k) AS s, MIN(x) AS low FROM t WHERE k > 9").rows()
    assert one == {
        "n": sum(row["k"] > 9 for row in ROWS),
        "s": sum(row["k"] for row in ROWS if row["k"] > 9),
        "low": 10 / 4 - 20,
    }
    groups = Counter(row["name"] for row in ROWS)
    assert bag(
        db.execute(
            "SELECT name, COUNT(*) AS n FROM t GROUP BY name HAVING COUNT(*) > 30 ORDER BY name"
        ).rows()
    ) == bag([{"name": name, "n": n} for name, n in groups.items() if n > 30])
    assert db.execute("SELECT COUNT(*) AS n FROM empty").rows() == [{"n": 0}]
    plan = db.execute("EXPLAIN SELECT COUNT(*) FROM t").table["plan"].to_pylist()
    assert "199 rows of a table" in "\n".join(plan)


@pytest.fixture
def joined(db: Engine) -> tuple[Engine, list[dict[str, object]]]:
    """A stream beside the table, in a run and in the log; and its tuples."""
    db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
    keys = [None if n % 11 == 0 else n * 7 % 260 for n in range(300)]
    times = pa.array(range(300), pa.timestamp("us"))
    table = pa.table({"ts": times, "k": pa.array(keys, pa.int64())})
    db.push("s", table.slice(0, 200))
    db.seal("s")
    db.push("s", table.slice(200))
    return db, table.to_pylist()


def test_a_stream_joins_the_present_rows_of_a_table(joined) -> None:
    db, tuples = joined
    db.execute("UPDATE t SET name = 'new' WHERE k = 7")
    names = {row["k"]: "new" if row["k"] == 7 else row["name"] for row in ROWS}
    inner = [{"k": it["k"], "name": names[it["k"]]} for it in tuples if it["k"] in names]
    left = [{"k": it["k"], "name": names.get(it["k"])} for it in tuples]
    counts = Counter(row["name"] for row in inner)
    absent = [{"k": it["k"]} for it in tuples if it["k"] is not None and it["k"] not in names]
    seen = {it["k"] for it in tuples}
    for sql, expected in (
        ("SELECT s.k, t.name FROM s JOIN t ON s.k = t.k", inner),
        ("SELECT s.k, t.name FROM s LEFT JOIN t ON s.k = t.k", left),
        (
            "SELECT t.name, COUNT(*) AS n FROM s JOIN t ON s.k = t.k GROUP BY t.name",
            [{"name": name, "n": n} for name, n in counts.items()],
        ),
        ("SELECT k FROM s WHERE k NOT IN (SELECT k FROM t)", absent),
        (
            "SELECT k FROM t EXCEPT SELECT k FROM s",
            [{"k": row["k"]} for row in ROWS if row["k"] not in seen],
        ),
        (
            "SELECT a.k, b.name FROM t a JOIN t b ON a.k = b.k + 1 WHERE a.k < 5",
            [{"k": k, "name": names[k - 1]} for k in (2, 3, 4)],
        ),
    ):
        answer = db.execute(sql)
        assert bag(answer.rows()) == bag(expected), sql
        assert answer.complete
        assert "table t" in answer.sources


def test_rows_of_a_query_can_be_inserted_into_a_table(joined) -> None:
    db, tuples = joined
    db.execute("CREATE TABLE u (k BIGINT PRIMARY KEY, name VARCHAR)")
    db.execute("INSERT INTO u SELECT k, name FROM t WHERE k < 4")
    assert bag(db.execute("SELECT * FROM u").rows()) == bag(
        [{"k": row["k"], "name": row["name"]} for row in ROWS if row["k"] < 4]
    )
    with pytest.raises(KeyExists, match="key k = 1 is there"):
        db.execute("INSERT INTO u (k) SELECT k FROM t")
    db.execute("INSERT OR REPLACE INTO u (name, k) SELECT 'seen', k FROM s WHERE k IS NOT NULL")
    seen = {it["k"]: "seen" for it in tuples if it["k"] is not None}
    old = {row["k"]: row["name"] for row in ROWS if row["k"] < 4}
    assert bag(db.execute("SELECT * FROM u").rows()) == bag(
        [{"k": k, "name": name} for k, name in (old | seen).items()]
    )
    db.execute("CREATE TABLE copy (k BIGINT PRIMARY KEY, name VARCHAR, x DOUBLE)")
    db.execute("INSERT INTO copy SELECT * FROM t")
    assert bag(db.execute("SELECT * FROM copy").rows()) == bag(ROWS)
    db.execute("DELETE FROM copy")
    db.execute("INSERT INTO copy (k, x) SELECT COUNT(*), MAX(x) FROM t")
    assert db.execute("SELECT * FROM copy").rows() == [{"k": 199, "name": None, "x": 199 / 4 - 20}]
    db.execute("INSERT OR REPLACE INTO copy SELECT k, NULL, NULL FROM t WHERE k = 1")
    db.execute("INSERT INTO copy SELECT COUNT(*) + 1, NULL, 1 FROM t")
    assert bag(db.execute("SELECT * FROM copy WHERE k IN (1, 200)").rows()) == bag(
        [{"k": 1, "name": None, "x": None}, {"k": 200, "name": None, "x": 1.0}]
    )


def test_an_answer_has_the_newest_rows_and_says_what_was_read(db: Engine) -> None:
    db.execute("DELETE FROM t WHERE k > 2")
    db.execute("UPDATE t SET x = 0")
    answer = db.execute("SELECT k, x FROM t ORDER BY k")
    assert answer.rows() == [{"k": 1, "x": 0.0}, {"k": 2, "x": 0.0}]
    assert (answer.complete, answer.sources, answer.watermark_us) == (True, ("table t",), None)
    plan = "\n".join(db.execute("EXPLAIN SELECT k FROM t WHERE x > 0").table["plan"].to_pylist())
    assert "Scan t\n" in plan
    assert "2 rows of a table, as of its change 3" in plan
    assert plan.endswith("columns k, x")


def test_a_reading_keeps_the_rows_with_which_it_began(db: Engine) -> None:
    db.push("t", {"k": np.arange(1_000, 400_000)})
    with db.execute_batches("SELECT k FROM t") as batches:
        found = [next(batches)]
        db.execute("DELETE FROM t")
        found += batches
    assert sum(batch.num_rows for batch in found) == len(ROWS) + 399_000
    assert db.execute("SELECT k FROM t").rows() == []


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        ("SELECT z FROM t", UnknownColumn, "z"),
        ("SELECT * FROM t [RANGE 1 HOUR]", BadQuery, "t is a table and has no window"),
        ("SELECT NOW() AS n FROM t", BadQuery, "NOW()"),
        ("SELECT * FROM u", UnknownStream, "'u'"),
    ],
)
def test_a_query_that_cannot_be_is_refused(
    db: Engine, sql: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as refused:
        db.execute(sql)
    assert said in str(refused.value)


def test_a_limit_and_an_offset_may_add_up_to_more_than_64_bits(db: Engine) -> None:
    db.execute("CREATE TABLE few (k BIGINT PRIMARY KEY)")
    db.execute("INSERT INTO few VALUES (7), (8)")
    assert len(db.execute(f"SELECT k FROM few LIMIT {2**63 - 1} OFFSET 1").rows()) == 1


def test_a_tenant_reads_its_own_tables_only(db: Engine) -> None:
    acme, bolt = Caller("acme"), Caller("bolt")
    db.execute("CREATE TABLE own (k BIGINT PRIMARY KEY)", caller=acme)
    db.execute("INSERT INTO own VALUES (7)", caller=acme)
    assert db.execute("SELECT k FROM own", caller=acme).rows() == [{"k": 7}]
    with pytest.raises(UnknownStream, match="no stream 'own'"):
        db.execute("SELECT k FROM own", caller=bolt)
