"""Statements on tables: rows against a dict, errors that change nothing, limits and owners."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.runtime.caller import Caller
from shedder.errors import (
    BadBatch,
    BadQuery,
    BudgetExceeded,
    KeyExists,
    QuotaExceeded,
    RateExceeded,
    SchemaMismatch,
    ShedderError,
    StreamExists,
    TableExists,
    TypeMismatch,
    Unimplemented,
    UnknownColumn,
    UnknownStream,
    UnknownTable,
)
from tests.engine.checkpointed import checkpoint, opened
from tests.engine.tables.worlds import CREATE, Changes, rows_of
from tests.scale import scaled
from tests.seeds import seed

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts"
ACME, BOLT = Caller("acme"), Caller("bolt")


@pytest.fixture
def db(tmp_path: Path):
    with opened(tmp_path / "data") as engine:
        yield engine


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory):
    """An engine with a stream and a table of one row, which no test changes."""
    with opened(tmp_path_factory.mktemp("unchanged") / "data") as engine:
        engine.execute(STREAM)
        engine.execute(CREATE)
        engine.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
        yield engine


def test_statements_leave_the_rows_that_a_dict_has_also_after_restarts(tmp_path: Path) -> None:
    changes = Changes(random.Random(seed("table statements")))
    with opened(tmp_path) as db:
        db.execute(CREATE)
    for _ in range(scaled(4, 20)):
        with opened(tmp_path) as db:
            assert rows_of(db) == changes.rows
            for step in range(12):
                db.execute(changes.next())
                assert rows_of(db) == changes.rows
                if step == 5:
                    checkpoint(db)


@pytest.mark.parametrize("rows", [0, 1, 200_000])
def test_a_push_puts_rows_in_the_place_of_those_with_their_keys(db: Engine, rows: int) -> None:
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, x DOUBLE NOT NULL)")
    db.execute("INSERT INTO t VALUES (0, 7), (-1, 8)")
    keys = np.arange(rows)
    receipt = db.push("t", {"x": np.full(rows, 0.5), "k": keys})
    assert (receipt.stream, receipt.rows) == ("t", rows)
    found = db.core.tables["t"].rows.table().sort_by("k")
    first = [-1] if rows else [-1, 0]
    assert found["k"].to_pylist() == [*first, *keys]
    assert found["x"].to_pylist()[: len(first)] == ([8.0] if rows else [8.0, 7.0])


def test_arrays_that_change_after_a_push_leave_the_table_as_it_is(tmp_path: Path) -> None:
    keys, values = np.arange(5), np.arange(5) / 2
    with opened(tmp_path) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, x DOUBLE)")
        db.push("t", {"k": keys, "x": values})
        keys[:], values[:] = 99, -1.0
        expected = [{"k": k, "x": k / 2} for k in range(5)]
        assert db.core.tables["t"].rows.table().to_pylist() == expected
        checkpoint(db)
    with opened(tmp_path) as db:
        assert db.core.tables["t"].rows.table().to_pylist() == expected


def test_a_push_of_text_that_is_no_utf_8_is_refused(db: Engine) -> None:
    db.execute("CREATE TABLE t (k VARCHAR PRIMARY KEY)")
    text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    with pytest.raises(BadBatch, match="UTF8"):
        db.push("t", {"k": text})
    assert db.core.tables["t"].version == 0


def test_names_of_columns_in_statements_are_found_in_any_case(db: Engine) -> None:
    db.execute("CREATE TABLE t (Id BIGINT, n BIGINT, PRIMARY KEY (id))")
    db.execute("INSERT INTO t (ID, N) VALUES (1, 2)")
    db.execute("INSERT INTO t (N, id) SELECT n, t.ID + 1 FROM t")
    db.execute("UPDATE t SET N = T.iD * 10 WHERE t.N = 2 AND ID = 2")
    db.execute("DELETE FROM t WHERE T.id = 1")
    assert db.core.tables["t"].rows.table().to_pylist() == [{"Id": 2, "n": 20}]
    with pytest.raises(BadQuery, match="a column is named twice: ID, n, id"):
        db.execute("INSERT INTO t (ID, n, id) VALUES (1, 2, 3)")
    with pytest.raises(BadQuery, match=r"'u\.n'"):
        db.execute("UPDATE t SET n = u.n")


def test_of_equal_keys_in_a_push_the_last_row_stays(db: Engine) -> None:
    db.execute("CREATE TABLE t (k VARCHAR PRIMARY KEY, n INTEGER)")
    db.push("t", {"k": ["a", "b", "a"], "n": [1, 2, 3]})
    assert db.core.tables["t"].rows.table().sort_by("k").to_pylist() == [
        {"k": "a", "n": 3},
        {"k": "b", "n": 2},
    ]


def test_the_answer_of_a_query_can_be_inserted(db: Engine) -> None:
    db.execute(STREAM)
    db.push("s", {"ts": pa.array([1, 2, 3], pa.timestamp("us")), "k": [5, 5, 6]})
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT)")
    db.execute("INSERT INTO t (n, k) SELECT COUNT(*), k FROM s GROUP BY k")
    assert sorted(map(str, db.core.tables["t"].rows.table().to_pylist())) == [
        "{'k': 5, 'n': 2}",
        "{'k': 6, 'n': 1}",
    ]


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("INSERT INTO t VALUES (1, 'a', 0, 0)", KeyExists, "key k = 1, s = 'a' is there"),
        (
            "INSERT INTO t VALUES (5, 'a', 0, 0), (5, 'a', 1, 1)",
            KeyExists,
            "key k = 5, s = 'a' is in the statement twice",
        ),
        ("INSERT INTO t (k, n) VALUES (5, 1)", SchemaMismatch, "nulls in 's', which is NOT NULL"),
        ("INSERT INTO t VALUES (NULL, 'a', 0, 0)", SchemaMismatch, "nulls in 'k'"),
        ("INSERT INTO t VALUES ('x', 'a', 0, 0)", TypeMismatch, "'k' is BIGINT"),
        ("INSERT INTO t VALUES (1, 'a')", BadQuery, "2 values for the 4 columns"),
        ("INSERT INTO t (z) VALUES (1)", UnknownColumn, "no column 'z'"),
        ("INSERT INTO t VALUES (9, 'a', 0, 0) PRODUCER 'p'", BadQuery, "PRODUCER is for streams"),
        ("INSERT INTO u VALUES (1)", UnknownStream, "'u'"),
        ("UPDATE t SET k = 2", BadQuery, "'k' is of the primary key"),
        ("UPDATE t SET n = 1, N = 2", BadQuery, "UPDATE sets 'n' twice"),
        ("UPDATE t SET n = 'x'", TypeMismatch, "'n' is BIGINT"),
        ("UPDATE t SET n = x / 2", SchemaMismatch, "'n' is double, which is not BIGINT"),
        ("UPDATE t SET z = 1", UnknownColumn, "no column 'z'"),
        ("UPDATE t SET n = SUM(n)", BadQuery, "SUM"),
        ("UPDATE t SET n = 1 WHERE z = 1", UnknownColumn, "no column 'z'"),
        ("UPDATE t SET n = 1 WHERE k", TypeMismatch, "WHERE takes a condition"),
        (
            "UPDATE t SET n = 1 WHERE k IN (SELECT k FROM s)",
            Unimplemented,
            "a subquery in this place",
        ),
        ("UPDATE t SET n = (SELECT MAX(k) FROM s)", Unimplemented, "a subquery in this place"),
        ("DELETE FROM t WHERE EXISTS (SELECT k FROM s)", Unimplemented, "in this place"),
        (
            "INSERT INTO t (k) SELECT s.k FROM s JOIN s b ON s.k = b.k",
            Unimplemented,
            "joins in this statement",
        ),
        (
            "INSERT INTO t (k) SELECT DISTINCT k FROM s",
            Unimplemented,
            "SELECT DISTINCT in this statement",
        ),
        ("UPDATE s SET k = 1", UnknownTable, "no table 's'; there are: t"),
        ("DELETE FROM t [RANGE 1 HOUR] WHERE k = 1", BadQuery, "a table, which has no window"),
        ("DELETE FROM t WHERE z = 1", UnknownColumn, "no column 'z'"),
        ("DROP TABLE u", UnknownTable, "no table 'u'; there are: t"),
        ("DROP TABLE s", UnknownTable, "no table 's'"),
        ("DROP STREAM t", UnknownStream, "'t' is a table, and a stream is needed here"),
        ("SELECT COUNT(*) FROM t [RANGE 1 HOUR]", BadQuery, "'t' is a table, which has no window"),
        ("SELECT COUNT(*) FROM t WITHIN 5 PERCENT", BadQuery, "answered exactly"),
        ("CREATE TABLE s (k BIGINT PRIMARY KEY)", StreamExists, "'s' is a stream"),
        ("CREATE STREAM t (ts TIMESTAMP) TIMESTAMP BY ts", TableExists, "'t' is a table"),
        ("CREATE TABLE t (k BIGINT PRIMARY KEY)", TableExists, "PRIMARY KEY (k, s)"),
        ("CREATE TABLE u (k BIGINT)", BadQuery, "one PRIMARY KEY, not 0"),
        ("CREATE TABLE u (k DOUBLE PRIMARY KEY)", BadQuery, "'k' is DOUBLE"),
        ("CREATE TABLE u (k BIGINT, PRIMARY KEY (k, K))", BadQuery, "'K' twice"),
        ("CREATE TABLE u (k BIGINT, PRIMARY KEY (z))", BadQuery, "no column 'z'"),
        ('CREATE TABLE "" (k BIGINT PRIMARY KEY)', BadQuery, "empty name"),
        ("INSERT OR REPLACE INTO s VALUES (NULL, 1)", BadQuery, "'s' is a stream without keys"),
    ],
)
def test_a_wrong_statement_is_refused_and_changes_nothing(
    unchanged: Engine, statement: str, error: type[ShedderError], said: str
) -> None:
    with pytest.raises(error) as refused:
        unchanged.execute(statement)
    assert said in str(refused.value)
    assert rows_of(unchanged) == {(1, "a"): (2, 3.0)}
    assert (set(unchanged.core.tables), set(unchanged.core.streams)) == ({"t"}, {"s"})
    assert unchanged.core.tables["t"].version == 1


@pytest.mark.parametrize(
    "data",
    [
        {"k": [1.5], "s": ["a"]},
        {"k": [1], "s": [None]},
        {"k": [1], "s": ["a"], "z": [1]},
        {"k": [1]},
    ],
    ids=["type", "null key", "unknown column", "missing key"],
)
def test_a_push_that_does_not_fit_is_refused(db: Engine, data: dict[str, list[object]]) -> None:
    db.execute(CREATE)
    with pytest.raises(SchemaMismatch):
        db.push("t", data)
    assert db.core.tables["t"].version == 0


def test_calls_of_streams_say_that_the_name_is_a_table(db: Engine) -> None:
    db.execute(CREATE)
    for call in (
        lambda: db.heartbeat("t", 1),
        lambda: db.seal("t"),
        lambda: db.schema("t"),
        lambda: db.ledger("t"),
        lambda: db.producer("t", "p"),
    ):
        with pytest.raises(UnknownStream, match="'t' is a table, and a stream is needed here"):
            call()


def test_concurrent_updates_are_not_lost(db: Engine) -> None:
    db.execute(CREATE)
    db.execute("INSERT INTO t VALUES (1, 'a', 0, 0)")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: db.execute("UPDATE t SET n = n + 1"), range(60)))
    assert rows_of(db) == {(1, "a"): (60, 0.0)}
    assert db.core.tables["t"].version == 61


def test_a_reader_keeps_the_rows_that_it_took(db: Engine) -> None:
    db.execute(CREATE)
    db.execute("INSERT INTO t VALUES (1, 'a', 0, 0)")
    before = db.core.tables["t"].rows.table()
    db.execute("UPDATE t SET n = 5")
    assert before["n"].to_pylist() == [0]
    assert db.core.tables["t"].rows.table()["n"].to_pylist() == [5]


def test_tables_are_shown_and_described(db: Engine) -> None:
    assert db.execute("SHOW TABLES").table.num_rows == 0
    db.execute(CREATE + " RETROACTIVE")
    db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
    [shown] = db.execute("SHOW TABLES").table.to_pylist()
    definition = shown.pop("definition")
    assert definition == (
        "CREATE TABLE t (k BIGINT NOT NULL, s VARCHAR NOT NULL, n BIGINT, x DOUBLE, "
        "PRIMARY KEY (k, s)) RETROACTIVE"
    )
    size_bytes = shown.pop("size_bytes")
    assert size_bytes > 0
    assert shown == {"table": "t", "rows": 1, "version": 1, "lost_changes": 0, "image": None}
    facts = {row["key"]: row["value"] for row in db.control("table", "t").to_pylist()}
    assert facts | {"id": "1"} == {
        "id": "1",
        "tenant": "default",
        "rows": "1",
        "size_bytes": str(size_bytes),
        "version": "1",
        "lost_changes": "0",
    }
    assert db.execute(definition).rows() == [{"status": "table t exists"}]
    assert db.execute("DESCRIBE TABLE t").table.select(["column", "key_place"]).to_pylist() == [
        {"column": "k", "key_place": 1},
        {"column": "s", "key_place": 2},
        {"column": "n", "key_place": None},
        {"column": "x", "key_place": None},
    ]


def test_a_table_of_a_dropped_name_is_new_also_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(CREATE)
        db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)")
        checkpoint(db)
        db.execute("INSERT INTO t VALUES (2, 'a', 2, 3)")
        held = db.core.tables["t"]
        db.execute("DROP TABLE t")
        assert not list(tmp_path.glob("tables/*/*"))
        with pytest.raises(UnknownTable):
            db.services.tables.change(held, lambda rows: None)
        assert db.execute("DROP TABLE IF EXISTS t").rows() == [{"status": "table t does not exist"}]
        db.execute(CREATE)
        db.execute("INSERT INTO t VALUES (3, 'a', 2, 3)")
    with opened(tmp_path) as db:
        assert rows_of(db) == {(3, "a"): (2, 3.0)}


def test_a_table_larger_than_its_memory_is_refused_and_rows_can_be_deleted(tmp_path: Path) -> None:
    with Engine.open(tmp_path, table_bytes=1 << 16, audit="off") as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        db.push("t", {"k": np.arange(8_000)})
        with pytest.raises(BudgetExceeded, match=r"limit of 65,536 \(settings table_bytes"):
            db.push("t", {"k": np.arange(8_000, 9_000)})
        assert db.core.tables["t"].rows.rows == 8_000
        db.execute("DELETE FROM t WHERE k >= 4000")
        db.push("t", {"k": np.arange(8_000, 9_000)})
        assert db.core.tables["t"].rows.rows == 5_000


def test_rows_that_are_inserted_count_at_the_rate_of_their_tenant(db: Engine) -> None:
    db.execute(CREATE, caller=ACME)
    db.quotas.set_quota("acme", "rows_per_s", "0.001")
    db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)", caller=ACME)  # It may be paid off later.
    for word in ("INSERT", "INSERT OR REPLACE"):
        with pytest.raises(RateExceeded, match="acme"):
            db.execute(f"{word} INTO t VALUES (2, 'a', 2, 3)", caller=ACME)
    db.execute("UPDATE t SET n = 9", caller=ACME)
    assert rows_of(db) == {(1, "a"): (9, 3.0)}


def test_rows_of_tables_count_as_bytes_of_their_tenant(db: Engine) -> None:
    db.execute(CREATE, caller=ACME)
    db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)", caller=ACME)
    db.quotas.set_quota("acme", "archive_bytes", "1")
    with pytest.raises(QuotaExceeded, match="acme"):
        db.execute("INSERT INTO t VALUES (2, 'a', 2, 3)", caller=ACME)
    db.execute("DELETE FROM t", caller=ACME)
    db.execute("INSERT INTO t VALUES (2, 'a', 2, 3)", caller=ACME)
    [row] = [r for r in db.execute("SHOW TENANTS").table.to_pylist() if r["tenant"] == "acme"]
    assert row["archive_bytes"] == db.core.tables["t"].rows.size_bytes


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO t VALUES (9, 'a', 0, 0)", UnknownStream),
        ("UPDATE t SET n = 1", UnknownTable),
        ("DELETE FROM t", UnknownStream),
        ("DROP TABLE t", UnknownTable),
        ("DESCRIBE t", UnknownStream),
        ("SELECT COUNT(*) FROM t", UnknownStream),
        (CREATE, TableExists),
        ("CREATE STREAM t (ts TIMESTAMP) TIMESTAMP BY ts", TableExists),
    ],
)
def test_another_tenant_learns_nothing_of_a_table(
    db: Engine, statement: str, error: type[ShedderError]
) -> None:
    db.execute(CREATE, caller=ACME)
    db.execute("INSERT INTO t VALUES (1, 'a', 2, 3)", caller=ACME)
    with pytest.raises(error) as refused:
        db.execute(statement, caller=BOLT)
    assert "acme" not in str(refused.value)
    assert "there are t" not in str(refused.value)
    assert db.execute("SHOW TABLES", caller=BOLT).table.num_rows == 0
    assert db.execute("DROP TABLE IF EXISTS t", caller=BOLT).rows() == [
        {"status": "table t does not exist"}
    ]
    assert rows_of(db) == {(1, "a"): (2, 3.0)}
    assert db.execute("SHOW TABLES", caller=ACME).table.num_rows == 1
