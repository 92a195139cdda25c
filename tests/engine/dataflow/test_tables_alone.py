"""Standing row queries over tables alone, over kills, against loops over dicts of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby, pairwise

import numpy as np
import pytest

from shedder.archive.files.data_directory import FORMAT_TABLE_CHANGES, format_of
from shedder.engine.engine import Engine
from shedder.engine.runtime.caller import Caller
from shedder.errors import BadQuery, BadSetting, TableInUse, UnknownQuery, UnknownStream
from tests.engine.dataflow.table_world import KilledEngine
from tests.engine.killed import copy_killed
from tests.scale import scaled
from tests.seeds import seed

TABLES = (
    "CREATE TABLE c (k BIGINT PRIMARY KEY, n BIGINT)",
    "CREATE TABLE d (a BIGINT, b VARCHAR, n BIGINT, PRIMARY KEY (a, b)) RETROACTIVE",
)
Row = tuple[object, ...]
Left = dict[int, int | None]
Right = dict[tuple[int, str], int | None]
Made = Callable[[Left, Right], list[Row]]


def groups(c: Left, d: Right) -> list[Row]:
    found: dict[str, list[int | None]] = {}
    for (_, b), n in d.items():
        found.setdefault(b, []).append(n)
    known = {b: [n for n in ns if n is not None] for b, ns in found.items()}
    return [(b, len(ns), sum(known[b]) if known[b] else None) for b, ns in found.items()]


def pairs(c: Left, d: Right) -> list[Row]:
    return [(k, b, m) for k, n in c.items() for (a, b), m in d.items() if n == a]


QUERIES: dict[str, tuple[str, Made]] = {
    "some": (
        "SELECT k + 1 AS next, n FROM c WHERE n > 3",
        lambda c, d: [(k + 1, n) for k, n in c.items() if n is not None and n > 3],
    ),
    "groups": ("SELECT b, COUNT(*) AS rows, SUM(n) AS total FROM d GROUP BY b", groups),
    "count": ("SELECT COUNT(*) AS rows FROM c", lambda c, d: [(len(c),)]),
    "pairs": ("SELECT c.k, d.b, d.n FROM c JOIN d ON c.n = d.a", pairs),
    "left": (
        "SELECT c.k, d.n FROM c LEFT JOIN d ON c.n = d.a AND d.b = 'x'",
        lambda c, d: [(k, d.get((n, "x"))) for k, n in c.items()],
    ),
    "missing": (
        "SELECT c.k FROM c WHERE NOT EXISTS (SELECT * FROM d WHERE d.a = c.n)",
        lambda c, d: [(k,) for k, n in c.items() if n not in {a for a, _ in d}],
    ),
    "distinct": ("SELECT DISTINCT n FROM d", lambda c, d: [(n,) for n in set(d.values())]),
    "both": (
        "SELECT k FROM c INTERSECT SELECT a FROM d",
        lambda c, d: [(k,) for k in {*c} & {a for a, _ in d}],
    ),
    "entered": ("SELECT ISTREAM(c.k, d.b, d.n) FROM c JOIN d ON c.n = d.a", pairs),
    "gone": ("SELECT DSTREAM(c.k, d.b, d.n) FROM c JOIN d ON c.n = d.a", pairs),
}
STREAMS = ("entered", "gone")


class World:
    """The tables now, and the rows of each query after each change."""

    def __init__(self) -> None:
        self.c: Left = {}
        self.d: Right = {}
        self.states: list[dict[str, Counter[Row]]] = []

    def note(self) -> None:
        made = {name: Counter(rows(self.c, self.d)) for name, (_, rows) in QUERIES.items()}
        self.states.append(made)

    def change(self, rng: np.random.Generator) -> str:
        key, n = (int(each) for each in rng.integers(0, 6, 2))
        value, b = (None if n == 5 else n), str(rng.choice(["x", "y"]))
        literal = "NULL" if value is None else value
        match rng.choice(["c", "c", "d", "d", "delete c", "delete d", "update"]):
            case "c":
                self.c[key] = value
                return f"INSERT OR REPLACE INTO c VALUES ({key}, {literal})"
            case "d":
                self.d[key, b] = value
                return f"INSERT OR REPLACE INTO d VALUES ({key}, '{b}', {literal})"
            case "delete c":
                self.c = {at: row for at, row in self.c.items() if at != key}
                return f"DELETE FROM c WHERE k = {key}"
            case "delete d":
                self.d = {at: row for at, row in self.d.items() if at[0] <= key}
                return f"DELETE FROM d WHERE a > {key}"
            case _:
                self.d = {at: value if at[1] == b else row for at, row in self.d.items()}
                return f"UPDATE d SET n = {literal} WHERE b = '{b}'"

    def steps(self, name: str) -> list[Counter[Row]]:
        """What the rows of a query are after each change that made some, with signs."""
        found = []
        states = [each[name] for each in self.states]
        for then, now in pairwise(states):
            enter, leave = now - then, then - now
            step: Counter[Row] = Counter()
            if name != "gone":
                step.update({(*row, 1): count for row, count in enter.items()})
            if name != "entered":
                sign = 1 if name == "gone" else -1
                step.update({(*row, sign): count for row, count in leave.items()})
            found += [step] if step else []
        return found


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(1, 40)))
def test_rows_follow_the_changes_of_tables_also_over_kills(world, tmp_path):
    rng = np.random.default_rng(seed("tables alone", world))
    truth, lives = World(), KilledEngine(tmp_path, rng)
    for text in (*TABLES, *(truth.change(rng) for _ in range(4))):
        lives.db.execute(text)
    lives.register({name: text for name, (text, _) in QUERIES.items()})
    truth.note()
    for step in range(1, 80):
        match rng.choice(["table", "checkpoint", "kill"], p=[0.84, 0.09, 0.07]):
            case "table":
                lives.db.execute(truth.change(rng))
                truth.note()
            case what:
                lives.do(what)
        for name in rng.choice([name for name in QUERIES if name not in STREAMS], 3):
            shown = lives.db.query(name).answer().table.to_pylist()
            rows = Counter(tuple(row.values()) for row in shown)
            assert rows == truth.states[-1][name], (name, step)
    lives.read_all()
    for reader in lives.readers:
        times = [row[-2] for row in reader.got]
        assert times == sorted(times)
        got = [
            Counter((*row[:-2], row[-1]) for row in rows)
            for _, rows in groupby(reader.got, lambda row: row[-2])
        ]
        assert got == truth.steps(reader.name), reader.name
    lives.db.close()


@pytest.fixture
def db(tmp_path):
    with Engine.open(tmp_path / "data") as db:
        for text in TABLES:
            db.execute(text)
        yield db


def test_change_is_in_the_rows_when_the_statement_returns(db):
    query = db.register("q", QUERIES["count"][0])
    assert query.answer().rows() == [{"rows": 0}]
    db.execute("INSERT INTO c VALUES (1, 2), (2, 3)")
    answer = query.answer()
    assert (answer.rows(), answer.complete) == ([{"rows": 2}], True)
    assert answer.sources == ("dataflow", "table c")


def test_plan_and_granted_facts_name_the_table(db):
    query = db.register("q", QUERIES["groups"][0])
    assert (query.granted["streams"], query.granted["tables"]) == ("", "d")
    assert "  d: table d, reads b, n" in query.explain().splitlines()
    planned = db.execute(f"EXPLAIN CREATE QUERY p AS {QUERIES['groups'][0]}").rows()
    assert {"granted": "tables", "value": "d"} in planned
    assert db.register("q", QUERIES["groups"][0]).name == "q"


def test_table_of_such_a_query_is_dropped_after_it(db):
    db.register("q", QUERIES["some"][0])
    with pytest.raises(TableInUse, match="has standing row queries: q"):
        db.execute("DROP TABLE c")
    db.execute("DROP QUERY q")
    db.execute("DROP TABLE c")


def test_receipt_of_a_stream_is_refused_by_a_query_that_reads_none(db):
    db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
    query = db.register("q", QUERIES["some"][0])
    receipt = db.push("s", {"ts": [datetime(2026, 1, 5, tzinfo=UTC)], "k": [1]})
    with pytest.raises(BadSetting, match="is of stream 's', and query 'q' reads tables alone"):
        query.answer(after=receipt)


def test_query_of_a_table_is_its_tenants_alone(db):
    acme, bolt = Caller("acme"), Caller("bolt")
    db.execute(TABLES[0].replace(" c ", " t "), caller=acme)
    text = "SELECT k FROM t WHERE n > 1"
    with pytest.raises(UnknownStream):
        db.register("q", text, caller=bolt)
    db.register("q", text, caller=acme)
    assert db.query("q", caller=acme).answer().rows() == []
    with pytest.raises(UnknownQuery):
        db.query("q", caller=bolt)
    shown = [db.execute("SHOW QUERIES", caller=each).rows() for each in (acme, bolt)]
    assert [len(rows) for rows in shown] == [1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("items", ["ISTREAM(k, n)", "k, n"])
def test_view_has_each_row_that_enters(db, tmp_path, items):
    db.execute(f"CREATE VIEW v AS SELECT {items} FROM c")
    for n in (3, 3, 4):
        db.execute(f"INSERT OR REPLACE INTO c VALUES (1, {n})")
    rows = db.execute("SELECT k, n FROM v ORDER BY n").rows()
    assert rows == [{"k": 1, "n": 3}, {"k": 1, "n": 4}]
    copied = copy_killed(db, tmp_path / "copy")
    with Engine.open(copied) as again:
        again.execute("DELETE FROM c")
        again.execute("INSERT INTO c VALUES (1, 4)")
        assert again.execute("SELECT k, n FROM v ORDER BY n").rows() == [*rows, {"k": 1, "n": 4}]


def test_order_by_is_refused(db):
    with pytest.raises(BadQuery, match="ORDER BY"):
        db.register("q", "SELECT k FROM c ORDER BY k")


def test_older_versions_refuse_a_directory_with_a_query_of_tables_alone(db):
    assert format_of(db.core.store.directory) < FORMAT_TABLE_CHANGES
    db.register("q", QUERIES["some"][0])
    assert format_of(db.core.store.directory) == FORMAT_TABLE_CHANGES
