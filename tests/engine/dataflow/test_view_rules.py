"""Rules of views and standing INSERTs: names, columns, cycles, tenants, and what a drop needs."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from shedder.archive.operations.verify import check
from shedder.engine.engine import Engine
from shedder.engine.runtime.caller import Caller
from shedder.errors import (
    BadQuery,
    FailedPrecondition,
    QueryExists,
    QuotaExceeded,
    RowQueryFailed,
    ShedderError,
    StreamExists,
    StreamInUse,
    TableInUse,
    TypeMismatch,
    UnknownColumn,
    UnknownStream,
)
from tests.engine.dataflow.worlds import CREATE, START_US, Subscriber, applied, batch, ids_of
from tests.engine.killed import copy_killed

pytestmark = pytest.mark.slow

VIEW = "CREATE VIEW v AS SELECT id, kind FROM s WHERE kind > 2"
ROWS = [(time, time, time % 6) for time in range(60)]


@pytest.fixture
def db(tmp_path):
    with Engine.open(tmp_path / "data", run_rows=64) as opened:
        opened.execute(CREATE)
        yield opened


def status(db, text, caller=None):
    answer = db.execute(text) if caller is None else db.execute(text, caller=caller)
    [row] = answer.table.to_pylist()
    return row["status"]


def test_a_view_is_a_stream_that_its_query_alone_writes(db):
    assert status(db, VIEW) == "view v created"
    assert status(db, VIEW) == "view v exists"
    assert status(db, "CREATE VIEW IF NOT EXISTS v AS SELECT id FROM s") == "view v exists"
    with pytest.raises(StreamExists, match="with another definition: SELECT id, kind FROM s"):
        db.execute("CREATE VIEW v AS SELECT id FROM s")
    row = pa.table({"id": [1], "kind": [5], "_ts": pa.array([START_US], pa.timestamp("us"))})
    for write in (
        lambda: db.push("v", row),
        lambda: db.heartbeat("v", START_US),
        lambda: db.backfills.begin_backfill("v", "years", parts=1),
        lambda: db.execute("INSERT INTO v SELECT * FROM v"),
        lambda: db.execute("INSERT INTO v VALUES (1)"),
        lambda: db.execute("CREATE QUERY q AS INSERT INTO v SELECT id, kind, ts FROM s"),
        lambda: db.execute("CREATE QUERY q AS INSERT INTO v SELECT id FROM s"),
        lambda: db.execute("EXPLAIN CREATE QUERY q AS INSERT INTO v SELECT id FROM s"),
    ):
        with pytest.raises(FailedPrecondition, match="'v' is a view"):
            write()
    with pytest.raises(BadQuery, match="DROP VIEW"):
        db.drop_query("v")


def test_rows_of_a_view_are_for_all_kinds_of_queries(db):
    db.execute(VIEW)
    db.register("sums", "SELECT COUNT(*) AS n FROM v")
    db.register("window", "SELECT * FROM v [RANGE INTERVAL '1' SECOND]")
    made, entered = Subscriber("v"), Subscriber("window")
    made.begin(db)
    entered.begin(db)
    db.push("s", batch(ROWS))
    db.heartbeat("s", START_US + 100)
    wanted = [time for time, _, kind in ROWS if kind > 2]
    assert ids_of(db, "v") == wanted
    made.read(db)
    assert made.got == [(it, it % 6, it, 1) for it in wanted]
    applied(db)
    entered.read(db)
    assert entered.got == made.got
    assert db.query("window").answer().table.column_names == ["id", "kind", "_ts"]
    assert db.query("sums").answer().table["n"].to_pylist() == [len(wanted)]
    [shown] = db.execute("SHOW VIEWS").table.to_pylist()
    assert (shown["view"], shown["stream"], shown["rows"]) == ("v", "s", len(wanted))
    assert shown["definition"] == VIEW
    plan = db.execute("EXPLAIN v").table["plan"].to_pylist()
    assert plan[0] == "standing row query v"
    assert f"  inserts into: v, {len(wanted)} rows" in plan[: plan.index("")]
    assert db.execute("SHOW QUERIES").table["query"].to_pylist() == ["sums", "window"]
    definitions = db.execute("SHOW STREAMS").table
    assert (
        definitions["definition"].to_pylist()[definitions["stream"].to_pylist().index("v")] == VIEW
    )


def test_what_a_view_reads_and_what_reads_it_is_not_dropped(db):
    db.execute(VIEW)
    db.execute("CREATE VIEW w AS SELECT id FROM v")
    db.execute("CREATE STREAM t (ts TIMESTAMP, id BIGINT) TIMESTAMP BY ts")
    db.execute("CREATE QUERY copy AS INSERT INTO t SELECT _ts, id FROM w")
    for text, reader in (
        ("DROP STREAM s", "v"),
        ("DROP VIEW v", "w"),
        ("DROP VIEW w", "copy"),
        ("DROP STREAM w", "copy"),
        ("DROP STREAM t", "copy"),
    ):
        with pytest.raises(StreamInUse, match=rf": {reader}\b"):
            db.execute(text)
    db.drop_query("copy")
    db.execute("DROP STREAM t")
    assert status(db, "DROP VIEW w") == "view w dropped"
    db.register("sums", "SELECT COUNT(*) AS n FROM v")
    with pytest.raises(StreamInUse, match="sums"):
        db.execute("DROP VIEW v")
    db.drop_query("sums")
    with pytest.raises(StreamInUse, match="is a view; DROP VIEW drops it with its rows"):
        db.execute("DROP STREAM v")
    db.execute("DROP VIEW v")
    assert status(db, "DROP VIEW IF EXISTS v") == "view v does not exist"
    with pytest.raises(UnknownStream, match="no view 's'; 's' is a stream"):
        db.execute("DROP VIEW s")
    db.execute("DROP STREAM s")


def test_a_refused_drop_names_all_readers_and_writers(db):
    db.execute("CREATE TABLE c (k BIGINT PRIMARY KEY)")
    db.execute("CREATE STREAM t (ts TIMESTAMP, id BIGINT) TIMESTAMP BY ts")
    db.execute("CREATE VIEW v AS SELECT id, kind FROM s JOIN c ON s.kind = c.k")
    for source, time in (("v", "_ts"), ("t", "ts")):
        db.register(f"{source}_sums", f"SELECT COUNT(*) AS n FROM {source}")
        db.register(f"{source}_counts", f"SELECT COUNT(*) AS n FROM {source} [RANGE 1 HOUR]")
        db.register(f"{source}_rows", f"SELECT x.{time} AS at, x.id FROM {source} x")
    db.execute("CREATE QUERY copy AS INSERT INTO t SELECT v._ts AS at, v.id FROM v")
    db.register("joined", "SELECT id FROM s JOIN c ON s.kind = c.k")
    of_v = "standing queries: v_counts, v_sums; standing row queries: copy, v_rows"
    of_t = "standing queries: t_counts, t_sums; standing row queries: t_rows"
    into = "queries that insert into it"
    with_view = "drop them first, v with DROP VIEW"
    for text, error, message in (
        ("DROP VIEW v", StreamInUse, f"view 'v' has {of_v}; drop them first"),
        ("DROP STREAM v", StreamInUse, f"stream 'v' has {of_v}; {into}: v; {with_view}"),
        ("DROP STREAM t", StreamInUse, f"stream 't' has {of_t}; {into}: copy; drop them first"),
        (
            "DROP STREAM s",
            StreamInUse,
            f"stream 's' has standing row queries: joined, v; {with_view}",
        ),
        ("DROP TABLE c", TableInUse, f"table 'c' has standing row queries: joined, v; {with_view}"),
    ):
        with pytest.raises(error) as raised:
            db.execute(text)
        assert str(raised.value) == message


def test_cycles_are_refused_and_named(db):
    db.execute("CREATE STREAM t (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts")
    db.execute("CREATE VIEW v AS SELECT ts, id, kind FROM s")
    db.execute("CREATE QUERY there AS INSERT INTO t SELECT ts, id, kind FROM v")
    for text, cycle in (
        ("CREATE VIEW x AS SELECT * FROM x", "x -> x"),
        ("CREATE QUERY q AS INSERT INTO s SELECT ts, id, kind FROM s", "s -> s"),
        ("CREATE QUERY q AS INSERT INTO s SELECT ts, id, kind FROM v", "v -> s -> v"),
        ("CREATE QUERY q AS INSERT INTO s SELECT ts, id, kind FROM t", "t -> s -> v -> t"),
    ):
        with pytest.raises(BadQuery, match=cycle):
            db.execute(text)
    assert db.execute("SHOW QUERIES").table["text"].to_pylist() == [
        "INSERT INTO t (ts, id, kind) SELECT ts, id, kind FROM v"
    ]


def test_a_stream_gets_only_rows_that_it_can_have(db):
    db.execute("CREATE STREAM t (ts TIMESTAMP, a INTEGER, b DOUBLE NOT NULL) TIMESTAMP BY ts")
    for query, error, message in (
        ("(ts, a) SELECT ts, id FROM s", BadQuery, "a value of b in each row"),
        ("SELECT id, id, id FROM s", TypeMismatch, "'ts' of stream 't' is TIMESTAMP"),
        ("SELECT ts, id, id FROM s", TypeMismatch, "'a' of stream 't' is INTEGER"),
        ("(ts, c) SELECT ts, id FROM s", UnknownColumn, "c"),
        ("SELECT ts, id FROM s", BadQuery, "2 values for the 3 columns"),
    ):
        with pytest.raises(error, match=message):
            db.execute(f"CREATE QUERY q AS INSERT INTO t {query}")
    insert = "CREATE QUERY q AS INSERT INTO t (ts, b) SELECT ts, id FROM s"
    assert status(db, insert) == "query q created"
    assert status(db, insert) == "query q exists"
    assert "  inserts into: t (ts, b), 0 rows" in db.execute("EXPLAIN q").table["plan"].to_pylist()
    with pytest.raises(QueryExists):
        db.execute("CREATE VIEW q AS SELECT id FROM s")


def test_a_row_that_the_stream_cannot_have_ends_its_query_alone(db):
    db.execute(VIEW)
    db.execute("CREATE STREAM t (ts TIMESTAMP, b DOUBLE NOT NULL) TIMESTAMP BY ts")
    db.execute("CREATE QUERY q AS INSERT INTO t SELECT ts, NULLIF(id, 3) FROM s")
    db.push("s", batch(ROWS))
    db.heartbeat("s", START_US + 100)
    assert ids_of(db, "v") == [time for time, _, kind in ROWS if kind > 2]
    with pytest.raises(RowQueryFailed, match=r"'q' failed .*b"):
        db.query("q").answer()


def test_answers_say_what_a_view_lacks(db):
    db.execute(VIEW)
    db.execute("CREATE VIEW over AS SELECT id FROM v")
    db.push("s", batch(ROWS))
    assert db.execute("SELECT id FROM over").complete
    db.push("s", batch([(5, 100, 5)]))  # Too late.
    for text in ("SELECT id FROM over", "SELECT COUNT(*) AS n FROM over"):
        answer = db.execute(text)
        assert not answer.complete
        assert "view v: tuples of s that are not in the rows: 1 came too late" in answer.notes


def test_a_failed_view_says_so(tmp_path):
    with Engine.open(tmp_path / "data", row_query_bytes_max=1 << 20) as db:
        db.execute(CREATE)
        db.execute("CREATE VIEW v AS SELECT id FROM s [RANGE INTERVAL '1' DAY] WHERE id >= 0")
        db.push("s", batch([(at, at, 0) for at in range(50_000)]))
        answer = db.execute("SELECT id FROM v")
        assert not answer.complete
        assert any("view v: query 'v' failed" in note for note in answer.notes)
        [shown] = db.execute("SHOW VIEWS").table.to_pylist()
        assert shown["failed"] in " ".join(answer.notes)


def test_a_view_is_its_definers_and_counts_for_them(tmp_path):
    acme, bolt = Caller("acme"), Caller("bolt")
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE, caller=acme)
        db.execute("CREATE STREAM own (ts TIMESTAMP, id BIGINT) TIMESTAMP BY ts", caller=bolt)
        with pytest.raises(UnknownStream, match="'s'"):
            db.execute(VIEW, caller=bolt)
        db.execute(VIEW, caller=acme)
        for text in (
            "SELECT id FROM v",
            "DROP VIEW v",
            "CREATE QUERY q AS INSERT INTO s SELECT ts, id, id FROM own",
        ):
            with pytest.raises(UnknownStream):
                db.execute(text, caller=bolt)
        for text in (
            "CREATE VIEW v AS SELECT id FROM own",
            "CREATE STREAM v (ts TIMESTAMP) TIMESTAMP BY ts",
        ):
            with pytest.raises(ShedderError, match="taken"):
                db.execute(text, caller=bolt)
        assert db.execute("SHOW VIEWS", caller=bolt).table.num_rows == 0
        assert status(db, "DROP VIEW IF EXISTS v", bolt) == "view v does not exist"
        assert db.schema("v").tenant == "acme"
        db.set_control("tenant", "acme", "queries", "1")
        with pytest.raises(QuotaExceeded, match="'acme' has 1 standing queries"):
            db.execute("CREATE VIEW w AS SELECT id FROM s", caller=acme)
        assert "w" not in db.core.streams
        # The operator's view of a tenant's stream is the operator's: its rows are for its owner.
        db.execute("CREATE VIEW all_of_them AS SELECT id FROM s")
        with pytest.raises(UnknownStream):
            db.execute("SELECT id FROM all_of_them", caller=acme)


def test_a_view_that_was_dropped_comes_again_without_its_rows(tmp_path, db):
    db.execute(VIEW)
    db.push("s", batch(ROWS))
    assert ids_of(db, "v")
    db.execute("DROP VIEW v")
    db.execute("CREATE VIEW v AS SELECT id FROM s WHERE kind = 0")
    assert ids_of(db, "v") == []
    db.push("s", batch([(time + 60, time + 60, time % 6) for time in range(60)]))
    db.heartbeat("s", START_US + 200)
    copied = copy_killed(db, tmp_path / "killed")
    wanted = list(range(60, 120, 6))
    assert ids_of(db, "v") == wanted
    with Engine.open(copied) as again:
        assert ids_of(again, "v") == wanted
        again.execute("DROP VIEW v")
        assert again.execute("SHOW VIEWS").table.num_rows == 0
    with Engine.open(copied) as again:
        assert list(again.core.streams) == ["s"]


def test_a_stream_that_a_stop_left_without_its_query_becomes_the_view(db):
    db.execute("CREATE STREAM v (id BIGINT, kind BIGINT, _ts TIMESTAMP NOT NULL) TIMESTAMP BY _ts")
    assert status(db, VIEW) == "view v created"
    db.execute("CREATE STREAM w (id BIGINT, _ts TIMESTAMP NOT NULL) TIMESTAMP BY _ts")
    db.push("w", pa.table({"id": [1], "_ts": pa.array([START_US], pa.timestamp("us"))}))
    with pytest.raises(StreamExists, match="'w' is a stream with tuples"):
        db.execute("CREATE VIEW w AS SELECT id FROM s")


def test_backup_and_check_know_views(tmp_path, db):
    db.execute(VIEW)
    db.push("s", batch(ROWS))
    before = ids_of(db, "v")
    db.seal("v")
    db.backup(tmp_path / "copy")
    assert check(tmp_path / "copy").ok
    with Engine.open(tmp_path / "copy") as copy:
        assert ids_of(copy, "v") == before
        copy.push("s", batch([(time + 60, time + 60, 5) for time in range(60)]))
        copy.heartbeat("s", START_US + 200)
        assert ids_of(copy, "v") == [time for time, _, kind in ROWS if kind > 2] + [*range(60, 120)]


def test_a_view_over_a_table_has_all_rows_as_of_each_slide(db, tmp_path):
    db.execute("CREATE TABLE c (k BIGINT PRIMARY KEY, tier VARCHAR)")
    db.execute("INSERT INTO c VALUES (0, 'a'), (1, 'b')")
    window = "s [RANGE INTERVAL '20' SECOND SLIDE INTERVAL '20' SECOND]"
    db.execute(
        f"CREATE VIEW v AS SELECT c.tier, COUNT(*) AS n FROM {window} "
        "JOIN c ON s.kind = c.k GROUP BY c.tier"
    )
    second = 1_000_000
    db.push("s", batch([(at * second, at, at % 3) for at in range(30)]))
    db.execute("UPDATE c SET tier = 'z' WHERE k = 1")
    db.push("s", batch([(at * second, at, at % 3) for at in range(30, 60)]))
    db.heartbeat("s", START_US + 60 * second + 21)
    tiers = [
        ("a" if at % 3 == 0 else "b" if at < 30 else "z", at) for at in range(60) if at % 3 < 2
    ]
    slide, wanted = 20 * second, Counter[tuple[int, str]]()
    for tier, at in tiers:
        wanted[(START_US + at * second) // slide * slide + slide, tier] += 1

    def rows(opened):
        table = opened.execute("SELECT tier, n, _ts FROM v").table
        times = table.column("_ts").cast(pa.int64()).to_pylist()
        keys = zip(times, table["tier"].to_pylist(), strict=True)
        return dict(zip(keys, table["n"].to_pylist(), strict=True))

    complete = {key: n for key, n in wanted.items() if key[0] <= START_US + 60 * second}
    assert rows(db) == {(instant - 1, tier): n for (instant, tier), n in complete.items()}
    with Engine.open(copy_killed(db, tmp_path / "killed")) as again:
        assert rows(again) == rows(db)
