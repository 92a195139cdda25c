"""Rows of two streams against DuckDB over the pushed rows, with SQL that is written by hand."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import shedder
from shedder.errors import DeadlineExceeded, UnknownStream
from shedder.queries.answers.answer import InputProgress
from shedder.settings import Settings
from tests.engine.one_time_queries.recording_worker import relations_read, sent_rows
from tests.engine.rows_world import CREATE, LAYOUTS, as_bag, at, rows_of, tuples
from tests.engine.two_tenants import ACME, BOLT
from tests.server.worlds import connect
from tests.server_process import running

SETTINGS = Settings(listen="127.0.0.1:0", insecure=True, drain_s=5, overload="off", purge_share=1.0)
LEFT = [tuples(400, 1), tuples(300, 2, start_s=400), tuples(40, 3, start_s=100)]  # Late ones last.
RIGHT = [tuples(200, 4, start_s=100), tuples(250, 5, start_s=300)]

QUERIES = {
    "inner": "SELECT a.k AS k, a.g AS g, b.x AS x FROM a JOIN b ON a.k = b.k AND a.g = b.g",
    "self": "SELECT p.ts AS t, q.x AS x FROM a p JOIN a q ON p.ts = q.ts AND p.k = q.k",
    "three of one": "SELECT p.k AS k, q.x AS x, r.g AS g FROM a p JOIN a q ON p.ts = q.ts "
    "JOIN a r ON r.ts = q.ts AND r.k = p.k WHERE q.day IS NOT NULL AND r.ok",
    "lonely of one": "SELECT p.k AS k, p.x AS x FROM a p LEFT JOIN a q ON p.k = q.k AND p.g = q.g "
    "AND q.ok WHERE q.ts IS NULL AND p.g IS NULL",
    "spans of one": f"SELECT p.k AS k, q.x AS x, r.g AS g FROM a p JOIN a q ON p.k = q.k "
    f"JOIN a r ON r.k = p.k AND r.g = q.g WHERE p.ts >= {at(120)} AND q.ts < {at(150)} AND r.ok",
    "using": "SELECT k, a.day AS d, b.day AS e FROM a JOIN b USING (k) WHERE a.ok AND NOT b.ok",
    "left": "SELECT a.k AS k, b.g AS g FROM a LEFT JOIN b ON a.k = b.k AND b.ok AND b.x > 0",
    "lonely": "SELECT a.k AS k, a.x AS x FROM a LEFT JOIN b ON a.k = b.k AND a.g = b.g "
    "WHERE b.ts IS NULL AND a.g IS NULL",
    "full": "SELECT a.day AS d, b.day AS e FROM a FULL JOIN b ON a.day = b.day AND a.k = b.k",
    "union": "SELECT k, g FROM a UNION ALL SELECT k, g FROM b",
    "distinct union": "SELECT g, ok FROM a UNION SELECT g, ok FROM b",
    "except": "SELECT k FROM a EXCEPT SELECT k FROM b WHERE x > 0",
    "except all": "SELECT k FROM a EXCEPT ALL SELECT k FROM b",
    "intersect all": "SELECT k, ok FROM a INTERSECT ALL SELECT k, ok FROM b",
    "exists": "SELECT k, x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.x > a.x)",
    "not exists": "SELECT k, x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "in": "SELECT k FROM a WHERE g IN (SELECT g FROM b WHERE x > 12)",
    "not in": "SELECT k FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL)",
    "not in with NULL": "SELECT k FROM a WHERE k NOT IN (SELECT k FROM b)",
    "groups": "SELECT b.g AS g, COUNT(*) AS n, SUM(a.k) AS s, MAX(b.x) AS m FROM a JOIN b "
    "ON a.k = b.k GROUP BY b.g HAVING COUNT(*) > 5",
    "nested": "SELECT g, n FROM (SELECT g, COUNT(*) AS n FROM a GROUP BY g) AS c WHERE n > 10",
    "scalar": "SELECT k FROM a WHERE x > (SELECT MAX(x) FROM b WHERE ok)",
    "with": "WITH p AS (SELECT k, x FROM b WHERE x > 5) SELECT a.k AS k, p.x AS x FROM a JOIN p "
    "ON a.k = p.k",
    "times": f"SELECT a.k AS k, b.k AS l FROM a JOIN b ON a.ts = b.ts AND a.ts >= {at(300)} "
    f"WHERE b.ts < {at(500)}",
}
WINDOWED = f"""SELECT a.k AS k, b.x AS x FROM a [FROM {at(150)} TO {at(450)}]
    JOIN b [FROM {at(200)} TO {at(9_999)}] ON a.k = b.k"""
CONDITIONED = f"""SELECT a.k AS k, b.x AS x FROM a JOIN b ON a.k = b.k WHERE a.ts >= {at(150)}
    AND a.ts < {at(450)} AND b.ts >= {at(200)} AND b.ts < {at(9_999)}"""


def fill(engine) -> None:
    for stream, parts, layout in (("a", LEFT, LAYOUTS[0]), ("b", RIGHT, LAYOUTS[-1])):
        engine.execute(CREATE.format(stream, layout))
        for part in parts[:-1]:
            engine.push(stream, part)
            engine.seal(stream)
    engine.execute("DELETE FROM a WHERE k = 3 OR g = 'a'")
    engine.execute("DELETE FROM b WHERE ok AND k > 30")
    engine.push("a", LEFT[-1])
    engine.push("b", RIGHT[-1])


def kept(parts: list[pa.Table], condition: str) -> pa.Table:
    """The tuples that are left of those that were there at the DELETE, and the tail."""
    with duckdb.connect() as oracle:
        oracle.register("sealed", pa.concat_tables(parts[:-1]))
        left = oracle.sql(f"SELECT * FROM sealed WHERE ({condition}) IS NOT TRUE")
        return pa.concat_tables([left.to_arrow_table().cast(parts[0].schema), parts[-1]])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The engine, a client of its server, and DuckDB with tables of the same rows."""
    with shedder.open(tmp_path_factory.mktemp("joined") / "data", SETTINGS) as engine:
        fill(engine)
        with (
            running(engine, SETTINGS) as address,
            connect(str(address)) as client,
            duckdb.connect() as oracle,
        ):
            oracle.register("left_rows", kept(LEFT, "k = 3 OR g = 'a'"))
            oracle.register("right_rows", kept(RIGHT, "ok AND k > 30"))
            oracle.execute("CREATE TABLE a AS SELECT * FROM left_rows")
            oracle.execute("CREATE TABLE b AS SELECT * FROM right_rows")
            yield engine, client, oracle


def exact(oracle: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    table = oracle.sql(sql).to_arrow_table()
    if "s" in table.column_names:  # DuckDB's sums of integers are decimals.
        at = table.column_names.index("s")
        table = table.set_column(at, "s", table["s"].cast(pa.int64()))
    return as_bag(rows_of(table))


@pytest.mark.parametrize("name", QUERIES)
def test_rows_of_two_streams_are_those_of_duckdb(world, name):
    engine, client, oracle = world
    sql = QUERIES[name]
    expected = exact(oracle, sql)
    assert expected or name == "not in with NULL"
    for database in (engine, client):
        answer = database.execute(sql)
        assert as_bag(answer.rows()) == expected
        assert (answer.notes, answer.cut, answer.complete) == ((), "", True)


def test_an_answer_says_how_far_it_read_each_input(world):
    engine, client, _ = world
    pushed = [sum(part.num_rows for part in parts) for parts in (LEFT, RIGHT)]
    marks = [engine.execute(f"SELECT k FROM {name} LIMIT 1").watermark_us for name in "ab"]
    for database in (engine, client):
        answer = database.execute("SELECT l.k AS k FROM a l JOIN b ON l.k = b.k")
        assert answer.inputs == (
            InputProgress("a", "l", pushed[0], marks[0]),
            InputProgress("b", "b", pushed[1], marks[1]),
        )


@pytest.mark.parametrize("name", ["self", "three of one", "spans of one"])
def test_rows_of_the_log_are_sent_once_for_all_scans_of_a_stream(world, tmp_path, name):
    engine, _, oracle = world
    rows, relations = relations_read(engine, QUERIES[name], tmp_path)
    assert rows == len(exact(oracle, QUERIES[name]))
    assert sent_rows(relations) == LEFT[-1].num_rows
    assert {each.tail_of or each.name for each in relations} == {"r0"}


def test_windows_of_two_streams_are_stretches_of_time(world):
    engine, _, oracle = world
    expected = exact(oracle, CONDITIONED)
    assert expected
    for text in (WINDOWED, CONDITIONED):
        assert as_bag(engine.execute(text).rows()) == expected
    plan = engine.execute(f"EXPLAIN {CONDITIONED}").table["plan"].to_pylist()
    assert "[1970-01-01 00:02:30.000Z, 1970-01-01 00:07:30.000Z)" in "\n".join(plan)


@pytest.mark.slow
def test_damage_of_one_stream_is_told_by_its_name(tmp_path):
    with shedder.open(tmp_path / "data", SETTINGS) as engine:
        fill(engine)
        (run,) = engine.core.store.runs(engine.core.stream("b").id)
    (tmp_path / "data" / "runs" / run.file).unlink()
    with shedder.open(tmp_path / "data", SETTINGS) as engine:
        answer = engine.execute(QUERIES["left"])
        assert not answer.complete
        assert answer.notes[0].startswith("stream b: up to 200 rows are missing")
        assert all("stream b" in note for note in answer.notes)


@pytest.mark.slow
def test_a_stream_of_another_tenant_is_unknown_at_any_depth(tmp_path):
    with shedder.open(tmp_path / "data", SETTINGS) as engine:
        for asker, stream in ((ACME, "a"), (BOLT, "b")):
            engine.execute(CREATE.format(stream, "plain"), caller=asker)
        for text in (
            QUERIES["inner"],
            QUERIES["union"],
            QUERIES["not exists"],
            QUERIES["in"],
            QUERIES["scalar"],
            QUERIES["with"],
            "SELECT n FROM (SELECT k AS n FROM (SELECT k FROM a) AS c) AS d",
        ):
            with pytest.raises(UnknownStream, match=r"'a'.* b"):
                engine.execute(text, caller=BOLT)
            with pytest.raises(UnknownStream, match=r"'a'.* b"):
                engine.execute(f"EXPLAIN {text}", caller=BOLT)


@pytest.mark.slow
def test_a_join_of_a_billion_pairs_is_cut_at_the_limit_and_ends_with_its_reader(tmp_path):
    settings = SETTINGS.model_copy(update={"result_rows_max": 10_000})
    with shedder.open(tmp_path / "data", settings) as engine:
        engine.execute(CREATE.format("a", "plain"))
        engine.push("a", tuples(30_000, 1))
        answer = engine.execute("SELECT p.k AS k, q.x AS x FROM a p CROSS JOIN a q")
        assert answer.table.num_rows == 10_000
        assert answer.cut
        settled = "SELECT p.k AS k FROM a p CROSS JOIN a q WHERE p.x + q.x > 1000000"
        with pytest.raises(DeadlineExceeded):  # No row in all of its pairs.
            engine.execute(f"{settled} AND p.g || q.g LIKE '%z%'", timeout_s=0.5)
        with engine.execute_batches("SELECT p.k AS k FROM a p CROSS JOIN a q") as batches:
            next(batches)
        assert engine.execute("SELECT COUNT(*) AS n FROM a").rows()[0]["n"] == 30_000


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [False, True])
def test_rows_without_a_match_keep_a_filter_for_null(tmp_path, sealed):
    """DuckDB loses the filter if it makes an anti-join over a registered Arrow table."""
    with shedder.open(tmp_path / "data", SETTINGS) as engine:
        for stream, parts in (("a", LEFT), ("b", RIGHT)):
            engine.execute(CREATE.format(stream, "plain"))
            engine.push(stream, parts[0])
            if sealed:
                engine.seal(stream)
        with duckdb.connect() as oracle:
            for stream, parts in (("a", LEFT), ("b", RIGHT)):
                oracle.register("rows", parts[0])
                oracle.execute(f"CREATE TABLE {stream} AS SELECT * FROM rows")
            for text in (QUERIES["lonely"], f"{QUERIES['lonely']} AND a.ok IS NULL"):
                assert as_bag(engine.execute(text).rows()) == exact(oracle, text)
