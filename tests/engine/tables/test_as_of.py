"""AS OF: rows of tables at past instants, against dicts of rows for each instant."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing
from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa
import pytest

from shedder.archive.log.table_changes import ChangeKind
from shedder.archive.tables.table_rows import TableRows, arrow_columns
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema
from shedder.engine.engine import Engine
from shedder.engine.tables.live_tables import LiveTable
from shedder.engine.tables.table_history import HistoryMemory, TableHistory
from shedder.errors import BadQuery, BeforeRetention, ShedderError, Unimplemented
from tests.engine.killed import copy_killed
from tests.engine.tables.worlds import CREATE, Changes, Key, Row
from tests.seeds import seed

SCHEMA = TableSchema(
    "t",
    (
        ColumnDefinition("a", ColumnType.BIGINT, False),
        ColumnDefinition("v", ColumnType.BIGINT, True),
        ColumnDefinition("b", ColumnType.VARCHAR, False),
    ),
    ("b", "a"),
)
KEYS = [(a, b) for a in range(4) for b in ("", "x", "é")]
Rows = dict[tuple[int, str], int | None]


class Clock:
    """A clock that its owner sets."""

    def __init__(self) -> None:
        self.us = 1_000

    def now_us(self) -> int:
        return self.us


def batch_of(rows: Rows, names: str) -> pa.RecordBatch:
    columns = {"a": [a for a, _ in rows], "v": list(rows.values()), "b": [b for _, b in rows]}
    whole = arrow_columns(SCHEMA.columns)
    schema = pa.schema([whole.field(name) for name in names])
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(rows: TableRows) -> Rows:
    return {(row["a"], row["b"]): row["v"] for row in rows.table().to_pylist()}


@pytest.mark.parametrize("world", range(4))
def test_rows_as_of_each_instant_are_those_that_were_there(world):
    """The clock stands still, and goes back, between some changes."""
    random, clock = Random(world), Clock()
    memory = HistoryMemory(clock.now_us, 1 << 20)
    history = TableHistory(memory)
    table = LiveTable(1, TableRows(SCHEMA), stored_version=-1, history=history)
    now, newest = Rows(), clock.us
    at: dict[int, tuple[int, Rows]] = {newest: (0, now)}
    for version in range(1, 61):
        clock.us += random.choice([-3, 0, 1, 7])
        keys = random.sample(KEYS, random.randrange(1, 6))
        if random.random() < 0.3:
            now = {key: row for key, row in now.items() if key not in keys}
            made = (ChangeKind.DELETE, batch_of(dict.fromkeys(keys), "ba"))
        else:
            put = {key: random.choice([None, version]) for key in keys}
            now = {**now, **put}
            made = (ChangeKind.UPSERT, batch_of(put, "avb"))
        table.change(lambda _, made=made: made, table.apply, clock.now_us)
        newest = max(newest, clock.us)
        at[newest] = (version, now)
    for us in range(1_000, newest + 3):
        version, expected = at[max(instant for instant in at if instant <= us)]
        found = table.past(us)()
        assert (rows_of(found), found.version, found.lost) == (expected, version, 0), us


def test_oldest_changes_are_forgotten_and_the_error_names_the_oldest_instant():
    clock = Clock()
    memory = HistoryMemory(clock.now_us, 100_000)
    history = TableHistory(memory)
    table = LiveTable(1, TableRows(SCHEMA), stored_version=-1, history=history)
    for n in range(200):
        clock.us += 10
        put = batch_of({(1, "x"): n}, "avb")
        table.change(lambda _, put=put: (ChangeKind.UPSERT, put), table.apply, clock.now_us)
        assert memory.size_bytes <= 100_000
    oldest = history.begin_us
    assert oldest == 1_000 + 10 * (200 - 24)  # Each change counts some 4,130 bytes.
    assert rows_of(table.past(oldest)()) == {(1, "x"): (oldest - 1_010) // 10}
    instant = f"TIMESTAMP '1970-01-01 00:00:00.{oldest:06}'"
    with pytest.raises(BeforeRetention, match=f"oldest instant that can be asked is {instant}"):
        table.past(oldest - 1)


def test_memory_of_histories_is_that_of_all_tables():
    clock = Clock()
    memory = HistoryMemory(clock.now_us, 45_000)
    histories = [TableHistory(memory) for _ in range(2)]
    tables = [LiveTable(1, TableRows(SCHEMA), stored_version=-1, history=it) for it in histories]
    for n in range(30):
        clock.us += 10
        put = batch_of({(1, "x"): n}, "avb")
        table = tables[n < 25 and n % 5 == 0]  # The second one has a change for each five.
        table.change(lambda _, put=put: (ChangeKind.UPSERT, put), table.apply, clock.now_us)
    assert memory.size_bytes <= 45_000
    assert [history.begin_us for history in histories] == [1_200, 1_160]
    assert rows_of(tables[1].past(1_210)()) == {(1, "x"): 20}
    assert rows_of(tables[1].past(1_209)()) == {(1, "x"): 15}


def test_positions_of_streams_at_changes_count_in_the_memory_of_histories():
    """Each change has the positions of 1,000 streams that have gone on."""
    clock, positions = Clock(), dict.fromkeys(range(1_000, 2_000), 1_000)
    memory = HistoryMemory(clock.now_us, 1 << 20, positions.copy)
    history = TableHistory(memory)
    table = LiveTable(1, TableRows(SCHEMA), stored_version=-1, history=history)
    tracemalloc.start()
    try:
        for n in range(60):
            for stream in positions:
                positions[stream] += 1
            put = batch_of({(1, "x"): n}, "avb")
            table.change(lambda _, put=put: (ChangeKind.UPSERT, put), table.apply, clock.now_us)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(history.changes) == (1 << 20) // 20_130
    assert taken / 2 <= memory.size_bytes <= 1 << 20


def test_places_of_dropped_tables_leave_the_memory_of_histories():
    clock = Clock()
    memory = HistoryMemory(clock.now_us, 100_000)
    kept, dropped = TableHistory(memory), TableHistory(memory)
    keys = batch_of({(1, "x"): 0}, "ab")
    kept.add(kept.place(), 2_000, keys, ())
    for _ in range(300):
        dropped.add(dropped.place(), 2_000, keys, ())
        memory.remove(dropped)
    kept.add(kept.place(), 3_000, keys, ())
    assert memory.size_bytes <= 100_000
    assert [each.changed_us for each in kept.changes] == [3_000]


def test_change_whose_place_was_forgotten_before_it_was_replayed_is_forgotten():
    clock = Clock()
    memory = HistoryMemory(clock.now_us, 20_000)
    late, full = TableHistory(memory), TableHistory(memory)
    keys = batch_of({(1, "x"): 0}, "ab")
    number = late.place()
    for _ in range(8):
        full.add(full.place(), 2_000, keys, ())
    late.add(number, 1_500, keys, ())
    assert (late.changes, late.begin_us, late.begin_number) == ((), 1_500, number)


def test_change_larger_than_the_history_leaves_no_earlier_instant():
    clock = Clock()
    memory = HistoryMemory(clock.now_us, 100)
    history = TableHistory(memory)
    table = LiveTable(1, TableRows(SCHEMA), stored_version=-1, history=history)
    for us, keys in ((2_000, KEYS[:1]), (3_000, KEYS)):
        clock.us = us
        put = batch_of(dict.fromkeys(keys, us), "avb")
        table.change(lambda _, put=put: (ChangeKind.UPSERT, put), table.apply, clock.now_us)
    assert (history.begin_us, memory.size_bytes) == (3_000, 0)
    assert rows_of(table.past(3_000)()) == dict.fromkeys(KEYS, 3_000)


def test_lost_changes_leave_no_earlier_instant():
    clock = Clock()
    memory = HistoryMemory(clock.now_us, 1 << 20)
    history = TableHistory(memory)
    table = LiveTable(1, TableRows(SCHEMA), stored_version=-1, history=history)
    clock.us = 2_000
    table.note_lost(1)
    with pytest.raises(BeforeRetention):
        table.past(1_999)
    assert rows_of(table.past(2_000)()) == {}


@pytest.fixture
def db(tmp_path):
    with Engine.open(tmp_path / "data") as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT)")
        yield db


def now_text() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(sep=" ")


@pytest.mark.slow
@pytest.mark.parametrize("words", ["AS OF", "FOR SYSTEM_TIME AS OF"])
def test_queries_read_tables_as_of_an_instant(db, words):
    db.execute("INSERT INTO s VALUES (TIMESTAMP '2026-01-05', 1), (TIMESTAMP '2026-01-06', 2)")
    db.execute("INSERT INTO t VALUES (1, 10), (3, 30)")
    then = f"{words} TIMESTAMP '{now_text()}'"
    db.execute("UPDATE t SET n = n + 1")
    db.execute("INSERT INTO t VALUES (2, 20)")
    db.execute("DELETE FROM t WHERE k = 3")
    expected_of = {
        f"SELECT k, n FROM t {then} ORDER BY k": [{"k": 1, "n": 10}, {"k": 3, "n": 30}],
        f"SELECT SUM(n) AS n FROM t {then} x WHERE x.k > 1": [{"n": 30}],
        f"SELECT s.k, o.n FROM s JOIN t {then} AS o ON s.k = o.k": [{"k": 1, "n": 10}],
        f"SELECT k FROM s WHERE k NOT IN (SELECT k FROM t {then})": [{"k": 2}],
        f"SELECT a.k, a.n, b.n AS m FROM t a JOIN t {then} b ON a.k = b.k": [
            {"k": 1, "n": 11, "m": 10}
        ],
    }
    for text, expected in expected_of.items():
        assert db.execute(text).rows() == expected, text
    [*_, scan, _, _] = [row["plan"] for row in db.execute(f"EXPLAIN SELECT k FROM t {then}").rows()]
    assert scan.strip() == f"Scan t {then}".replace("FOR SYSTEM_TIME ", "")


@pytest.mark.slow
def test_restarts_and_kills_keep_the_rows_as_of_each_instant(tmp_path):
    """A second table is created late; changes are replayed, or are in a checkpoint."""
    random, db = Random(seed("as of")), Engine.open(tmp_path / "0")
    db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
    db.execute(CREATE)
    changes, seen = Changes(random), [(now_text(), {})]
    for step in range(1, 40):
        match random.choices(["change", "push", "checkpoint", "restart", "kill"], ODDS)[0]:
            case "change":
                db.execute(changes.next())
                seen.append((now_text(), dict(changes.rows)))
            case "push":
                db.execute("INSERT INTO s VALUES (TIMESTAMP '2026-01-05', 1)")
            case "checkpoint":
                db.core.executor.call(db.checkpoints.now).result()
            case "restart":
                db.close()
                db = Engine.open(tmp_path / "0")
            case "kill":
                killed = copy_killed(db, tmp_path / str(step))
                with Engine.open(killed) as again:
                    check_instants(again, seen)
    db.close()
    with Engine.open(tmp_path / "0") as again:
        check_instants(again, seen)


ODDS = [0.6, 0.15, 0.1, 0.1, 0.05]


def check_instants(db: Engine, seen: list[tuple[str, dict[Key, Row]]]) -> None:
    for then, expected in seen:
        rows = db.execute(f"SELECT k, s, n, x FROM t AS OF TIMESTAMP '{then}'").rows()
        assert {(row["k"], row["s"]): (row["n"], row["x"]) for row in rows} == expected, then


@pytest.mark.slow
def test_instants_before_the_oldest_kept_change_are_refused_also_after_a_restart(tmp_path):
    """The history has 32 KiB: some 7 changes of one row."""
    path = tmp_path / "d"
    with Engine.open(path, table_bytes=1 << 19) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT)")
        then = []
        for n in range(12):
            db.execute(f"INSERT OR REPLACE INTO t VALUES (1, {n})")
            then.append(now_text())
        killed = copy_killed(db, tmp_path / "killed")
        oldest = db.core.tables["t"].history.begin_us
    for each in (path, killed):
        with Engine.open(each, table_bytes=1 << 19) as again:
            assert again.core.tables["t"].history.begin_us == oldest
            with pytest.raises(BeforeRetention, match="the oldest instant that can be asked"):
                again.execute(f"SELECT n FROM t AS OF TIMESTAMP '{then[3]}'")
            for n in (6, 11):
                text = f"SELECT n FROM t AS OF TIMESTAMP '{then[n]}'"
                assert again.execute(text).rows() == [{"n": n}]


@pytest.mark.slow
def test_a_table_that_no_checkpoint_knows_has_no_rows_before_its_first_change(db, tmp_path):
    then = now_text()
    db.execute("INSERT INTO t VALUES (1, 1)")
    now, killed = now_text(), copy_killed(db, tmp_path / "killed")
    with Engine.open(killed) as again:
        assert again.execute(f"SELECT n FROM t AS OF TIMESTAMP '{then}'").rows() == []
        assert again.execute(f"SELECT n FROM t AS OF TIMESTAMP '{now}'").rows() == [{"n": 1}]


@pytest.mark.slow
def test_a_checkpoint_of_an_earlier_version_has_no_history(tmp_path):
    """The rows are known from the first change after it on."""
    with Engine.open(tmp_path / "d") as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT)")
        db.execute("INSERT INTO t VALUES (1, 1)")
        then = now_text()
    with closing(sqlite3.connect(tmp_path / "d" / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("DELETE FROM checkpoint_parts WHERE key LIKE 'table_%'")
    with Engine.open(tmp_path / "d") as db:
        with pytest.raises(BeforeRetention):
            db.execute(f"SELECT n FROM t AS OF TIMESTAMP '{then}'")
        db.execute("UPDATE t SET n = 2")
        now, killed = now_text(), copy_killed(db, tmp_path / "killed")
    with Engine.open(killed) as db:
        assert db.execute(f"SELECT n FROM t AS OF TIMESTAMP '{now}'").rows() == [{"n": 2}]
        with pytest.raises(BeforeRetention):
            db.execute(f"SELECT n FROM t AS OF TIMESTAMP '{then}'")


@pytest.mark.slow
def test_instant_to_come_has_the_rows_of_now(db):
    db.execute("INSERT INTO t VALUES (1, 10)")
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    assert db.execute(f"SELECT n FROM t AS OF DATE '{tomorrow}'").rows() == [{"n": 10}]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT k FROM s AS OF TIMESTAMP '2026-01-05'", BadQuery, "s is a stream, and AS OF is"),
        ("SELECT k FROM t AS OF 5", BadQuery, "AS OF takes an instant"),
        ("SELECT k FROM t AS OF", BadQuery, "expected an instant after AS OF"),
        ("SELECT k FROM t AS OF TIMESTAMP 'soon'", BadQuery, "soon"),
        ("DELETE FROM t AS OF DATE '2026-01-05'", Unimplemented, "AS OF in this statement"),
        ("INSERT INTO t SELECT k, n FROM t AS OF DATE '2026-01-05'", Unimplemented, "AS OF"),
        ("CREATE QUERY q AS SELECT k FROM t AS OF DATE '2026-01-05'", BadQuery, "asked once"),
        ("CREATE VIEW v AS SELECT k FROM t AS OF DATE '2026-01-05'", BadQuery, "asked once"),
        (
            "WITH x AS (SELECT k FROM t) SELECT k FROM x AS OF DATE '2026-01-05'",
            BadQuery,
            "AS OF is of a table, not of a query in WITH",
        ),
    ],
)
def test_as_of_elsewhere_is_refused(db, text: str, error: type[ShedderError], message: str):
    with pytest.raises(error, match=message):
        db.execute(text)


def test_canonical_text_has_the_instant():
    statement = parse("select k from t for system_time as of date '2026-01-05' as x")
    assert isinstance(statement, RelationalSelect)
    assert statement.text == "SELECT k FROM t AS OF TIMESTAMP '2026-01-05 00:00:00' x"
    assert parse(statement.text) == statement
