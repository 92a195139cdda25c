"""Each tenant uses its own names; those of others are not there, only taken."""

from __future__ import annotations

import pytest

import shedder
from shedder.archive.files.data_directory import FORMAT_TENANTS, format_of
from shedder.engine.runtime.caller import Caller
from shedder.errors import (
    NotFound,
    PermissionDenied,
    QueryExists,
    RollupExists,
    StreamExists,
    UnknownStream,
)

ACME, BOLT = Caller("acme"), Caller("bolt")
STREAM = "CREATE STREAM {} (ts TIMESTAMP NOT NULL, key BIGINT, value DOUBLE) TIMESTAMP BY ts"
QUERY = "CREATE QUERY {} AS SELECT COUNT(*) AS n FROM {}"
ROLLUP = "CREATE ROLLUP {} AS SELECT COUNT(*) AS n FROM {} [RANGE INTERVAL '1' HOUR] GROUP BY key"


@pytest.fixture
def engine(tmp_path):
    with shedder.open(tmp_path / "data") as engine:
        for caller, name in ((ACME, "a"), (BOLT, "b")):
            engine.execute(STREAM.format(name), caller=caller)
            engine.execute(QUERY.format(f"q{name}", name), caller=caller)
            engine.execute(ROLLUP.format(f"r{name}", name), caller=caller)
        yield engine


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM b",
        "EXPLAIN SELECT COUNT(*) FROM b",
        "EXPLAIN qb",
        "EXPLAIN CREATE QUERY x AS SELECT COUNT(*) FROM b",
        "CREATE QUERY x AS SELECT COUNT(*) FROM b",
        "DROP STREAM b",
        "DROP QUERY qb",
        "DROP ROLLUP rb",
        "ALTER QUERY qb SET THINNING 1/2",
        "ALTER QUERY qb SET WEIGHT 2",
        "ALTER QUERY qb SET BYTES 1 MIB",
        "ALTER QUERY qb SET INACTIVE",
        "ALTER STREAM b SET ARCHIVE plain",
        "ALTER STREAM b SET ON OVERLOAD BLOCK",
        "INSERT INTO b VALUES (TIMESTAMP '2026-01-01', 1, 1.0)",
        "INSERT INTO a SELECT * FROM b",
        "INSERT INTO b SELECT * FROM a",
        "DELETE FROM b",
        "PURGE STREAM b",
        "CREATE INDEX ON b (key)",
        "DROP INDEX ON b (key)",
        "DESCRIBE b",
        "DESCRIBE qb",
        ROLLUP.format("x", "b"),
    ],
)
def test_what_another_tenant_owns_is_not_there(engine, sql):
    with pytest.raises(NotFound) as raised:
        engine.execute(sql, caller=ACME)
    listed = str(raised.value).partition(";")[2].partition("are")[2]
    known = {name.strip() for name in listed.lstrip(":").split(",")} - {""}
    assert known <= {"a", "qa", "ra"}, raised.value
    engine.execute("DESCRIBE b", caller=BOLT)


@pytest.mark.parametrize("sql", ["DROP STREAM IF EXISTS b", "DROP QUERY IF EXISTS qb"])
def test_dropping_if_it_exists_leaves_what_another_tenant_owns(engine, sql):
    assert "does not exist" in engine.execute(sql, caller=ACME).table["status"][0].as_py()
    assert engine.query("qb", BOLT).text


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        (STREAM.format("b"), StreamExists),
        (STREAM.format("b").replace("STREAM b", "STREAM IF NOT EXISTS b"), StreamExists),
        (QUERY.format("qb", "a"), QueryExists),
        (ROLLUP.format("rb", "a"), RollupExists),
    ],
)
def test_a_taken_name_is_refused_and_nothing_else_is_told(engine, sql, error):
    with pytest.raises(error, match="is taken") as raised:
        engine.execute(sql, caller=ACME)
    assert "bolt" not in str(raised.value)
    assert "BIGINT" not in str(raised.value)


@pytest.mark.parametrize("sql", ["SCRUB", "BACKUP TO 'x'"])
def test_no_tenant_reads_all_files(engine, sql):
    with pytest.raises(PermissionDenied):
        engine.execute(sql, caller=ACME)


@pytest.mark.parametrize(
    ("sql", "column", "own"),
    [
        ("SHOW STREAMS", "stream", {"a"}),
        ("SHOW QUERIES", "query", {"qa"}),
        ("SHOW ROLLUPS", "rollup", {"ra"}),
        ("SHOW RUNS", "stream", set()),
        ("SHOW INDEXES", "stream", {"a"}),
        ("EXPLAIN ALLOCATION", "query", {"qa", None}),
    ],
)
def test_lists_show_a_tenant_its_own(engine, sql, column, own):
    for name in ("a", "b"):
        engine.execute(f"CREATE INDEX ON {name} (key)")
    assert set(engine.execute(sql, caller=ACME).table[column].to_pylist()) == own
    assert len(engine.execute(sql).table) >= 2 * len(own - {None})


@pytest.mark.slow
def test_an_operator_uses_all_names(engine):
    engine.execute("INSERT INTO b VALUES (TIMESTAMP '2026-01-01', 1, 1.0)")
    engine.execute("INSERT INTO a SELECT * FROM b")
    assert engine.execute("SELECT COUNT(*) AS n FROM a").rows()[0]["n"] == 1


def test_older_versions_refuse_a_directory_with_a_stream_of_a_tenant(tmp_path):
    with shedder.open(tmp_path / "owned") as owned:
        assert format_of(tmp_path / "owned") < FORMAT_TENANTS
        owned.execute(STREAM.format("s"), caller=ACME)
        assert format_of(tmp_path / "owned") == FORMAT_TENANTS


def test_a_stream_stays_its_tenants_over_a_restart(engine, tmp_path):
    engine.close()
    with shedder.open(tmp_path / "data") as again:
        assert again.execute("SHOW QUERIES", caller=ACME).table["query"].to_pylist() == ["qa"]
        with pytest.raises(UnknownStream):
            again.execute("SELECT COUNT(*) FROM b", caller=ACME)
        again.execute("ALTER STREAM b SET ARCHIVE plain", caller=BOLT)
    with shedder.open(tmp_path / "data") as again:
        assert again.schema("b").tenant == "bolt"


def test_a_directory_of_one_tenant_is_as_before(tmp_path):
    with shedder.open(tmp_path / "one") as engine:
        engine.execute(STREAM.format("s"))
        assert engine.schema("s").tenant == "default"
    assert format_of(tmp_path / "one") < FORMAT_TENANTS
