"""Row queries that share operators: the rows of queries that stand alone, and less memory."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.settings import Settings
from tests.engine.dataflow.worlds import (
    CREATE,
    START_US,
    applied,
    batch,
    memory,
    outcome,
    sharers,
)
from tests.scale import scaled

PAIRS = "SELECT a.id, b.kind FROM s [RANGE 1 MINUTE] a JOIN s [ROWS 30] b ON a.id = b.id"
QUERIES = {
    "pairs": PAIRS,
    "aliases": PAIRS.replace("a.", "x.")
    .replace("b.", "y.")
    .replace(" a ", " x ")
    .replace("] b", "] y"),
    "fewer columns": "SELECT b.kind FROM s [RANGE 1 MINUTE] a JOIN s [ROWS 30] b ON a.id = b.id",
    "filtered": f"{PAIRS} WHERE a.id + b.kind > 3",
    "counted": "SELECT b.kind, COUNT(*) AS n, MAX(a.id) AS m FROM s [RANGE 1 MINUTE] a "
    "JOIN s [ROWS 30] b ON a.id = b.id GROUP BY b.kind",
    "distinct": "SELECT DISTINCT kind FROM s [ROWS 30]",
    "without window": "SELECT id, kind FROM s WHERE kind > 1",
    "the same again": "SELECT id, kind FROM s WHERE kind > 1",
}


def rows(random: Random, count: int, begin: int) -> pa.Table:
    """Rows with equal event times, out of order within the lateness; some are too late."""
    times = (
        begin + at // 2 + random.randrange(8) - 25 * (random.random() < 0.02) for at in range(count)
    )
    return batch([(max(0, ts), random.randrange(6), random.randrange(4)) for ts in times])


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(1, 8)))
def test_queries_beside_each_other_have_the_rows_of_queries_alone(tmp_path, world):
    """Some come before the tuples and some later; one is dropped, and the server restarts."""
    names = sorted(QUERIES)
    together = Engine.open(tmp_path / "together")
    alone = {name: Engine.open(tmp_path / name.replace(" ", "_")) for name in names}
    every = [together, *alone.values()]

    def push(seed: int, begin: int) -> None:
        for db in every:
            db.push("s", rows(Random(seed), 60, begin))

    for db in every:
        db.execute(CREATE)
    Random(world).shuffle(names)
    for step, name in enumerate(names):
        for db in (together, alone[name]):
            db.register(name, QUERIES[name])
        push(100 * world + step, 30 * step)
    shared = {name: sharers(together, name) for name in names}
    for dropped in (None, names[0]):
        if dropped is not None:
            together.execute(f'DROP QUERY "{dropped}"')
            names.remove(dropped)
        push(100 * world + 50, 300)
        for name in names:
            assert outcome(together.query(name)) == outcome(alone[name].query(name)), name
    every.remove(together)
    together.close()
    together = Engine.open(tmp_path / "together")
    every.append(together)
    push(100 * world + 51, 400)
    for name in names:
        assert outcome(together.query(name)) == outcome(alone[name].query(name)), name
    assert any(shared.values())
    assert any(sharers(together, name) for name in names)
    for db in every:
        db.close()


def test_equal_queries_hold_their_rows_once(tmp_path):
    """Kept rows are each query's own; all other bytes are there once."""
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.push("s", batch([(at, at % 15_000, at % 7) for at in range(20_000)]))
        wider = PAIRS.replace("b.kind", "b.kind, a.kind AS k")
        db.register("wider", wider)
        db.register("q0", PAIRS)
        first = db.core.rows.queries["q0"]
        applied(db)
        one, state = memory(db), first.state_bytes
        for at in range(1, 6):
            db.register(f"q{at}", PAIRS)
        assert memory(db) - one <= 5 * 4096 < state
        assert db.core.rows.queries["q5"].state_bytes == state  # Each counts in its own limit.
        assert sharers(db, "q3") == {"wider", "q0", "q1", "q2", "q4", "q5"}
        assert "s AS b [also in wider, q0, q2, 3 more]" in db.query("q1").explain()
        shown = {row["value"] for row in db.control("operator").to_pylist()}
        assert "wider, q0, q1, q2, q3, q4" in shown
        for name in ("wider", *(f"q{at}" for at in range(5))):
            db.execute(f"DROP QUERY {name}")
        db.push("s", batch([(20_000, 15_000 - 1, 1)]))
        db.heartbeat("s", START_US + 30_000)
        assert db.core.rows.queries["q5"].answer().table.num_rows
        assert sharers(db, "q5") == set()


def test_a_window_that_lacks_late_tuples_is_not_shared_with_one_that_has_them(tmp_path):
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.register("before", "SELECT COUNT(*) AS n FROM s [ROWS 1000]")
        db.push("s", batch([(100, 1, 1)]))
        db.push("s", batch([(1, 1, 1), (200, 2, 2)]))
        db.register("after", "SELECT COUNT(*) AS n FROM s [ROWS 1000]")
        db.heartbeat("s", START_US + 300)
        counts = [db.query(name).answer().table["n"].to_pylist() for name in ("before", "after")]
        assert counts == [[2], [3]]
        lines = db.query("after").explain().splitlines()
        assert [line.split()[0] for line in lines if "also in before" in line] == ["s"]


LONG = "s [RANGE INTERVAL '0.015' SECOND]"
SHORT = "s [RANGE INTERVAL '0.003' SECOND]"


COUNTED = (
    f"SELECT x.kind, x.n FROM (SELECT kind, COUNT(id) AS n FROM {LONG} GROUP BY kind) x "
    "WHERE x.n > -1"
)


def joined(column: str, window: str) -> str:
    """Pairs of a window with the short one, of which one column is read."""
    return (
        f"SELECT a.{column} AS k, b.{column} AS l FROM {window} a JOIN {SHORT} b "
        "ON a.kind = b.kind WHERE a.id > -1 AND b.id > -1"
    )


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ([joined("id", SHORT).partition(" WHERE")[0]], COUNTED),
        ([joined("kind", LONG), joined("id", SHORT)], joined("id", LONG)),
    ],
)
def test_store_of_a_query_that_read_less_of_the_past_does_not_replace_that_of_a_new_one(
    tmp_path, before, text
):
    """The older queries read the last 3 of 20 ms, or fewer columns of the rows before these."""
    shown = []
    for others in ([], before):
        with Engine.open(tmp_path / str(len(others))) as db:
            db.execute(CREATE)
            db.push("s", batch([(1_000 * at, at, at % 7) for at in range(20)]))
            db.heartbeat("s", START_US + 19_000)
            for at, other in enumerate(others):
                db.register(f"q{at}", other)
            db.register("new", text)
            db.push("s", batch([(20_000, 25, 1)]))
            db.heartbeat("s", START_US + 20_500)
            table = db.query("new").answer().table
            shown.append(sorted(zip(*(it.to_pylist() for it in table.columns), strict=True)))
            assert len(sharers(db, "new")) == len(others)
    assert shown[0] == shown[1]


def test_store_without_late_tuples_is_not_read_by_a_query_that_has_them(tmp_path):
    """The tuple of 10 ms comes 10 ms too late for the older query, and before the new one."""
    texts = {"old": joined("id", LONG), "new": joined("id", LONG), "same": joined("kind", LONG)}
    shown = list[dict[str, list[tuple[int, ...]]]]()
    for together in (False, True):
        shown.append({})
        for names in [list(texts)] if together else [[name] for name in texts]:
            with Engine.open(tmp_path / "".join(names) / str(together)) as db:
                db.execute(CREATE)
                for name in names:
                    if name == "old":
                        db.register(name, texts[name])
                db.push("s", batch([(1_000 * at, at, at % 3) for at in range(20)]))
                db.heartbeat("s", START_US + 20_000)
                db.push("s", batch([(10_000, 100, 1)]))
                for name in names:
                    if name != "old":
                        db.register(name, texts[name])
                db.push("s", batch([(20_000, 25, 1)]))
                db.heartbeat("s", START_US + 20_500)
                for name in names:
                    table = db.query(name).answer().table
                    rows = zip(*(it.to_pylist() for it in table.columns), strict=True)
                    shown[-1][name] = sorted(rows)
                if together:
                    assert [sharers(db, name) for name in texts] == [set(), {"same"}, {"new"}]
    assert shown[0] == shown[1]


def test_a_query_that_fails_alone_leaves_the_operators_to_the_others(tmp_path):
    """The aggregate of the first query exceeds its limit; the shared window goes on."""
    settings = Settings(row_query_bytes_max=1 << 20)
    with Engine.open(tmp_path / "data", settings=settings) as db:
        db.execute(CREATE)
        db.register("large", "SELECT DISTINCT id, kind FROM s [ROWS 100000]")
        db.register("small", "SELECT COUNT(id) AS n FROM s [ROWS 100000]")
        db.register("other", "SELECT MAX(kind) AS n FROM s [ROWS 100000]")
        for begin in range(0, 8_000, 2_000):
            db.push("s", batch([(at, at, at % 7) for at in range(begin, begin + 2_000)]))
        db.heartbeat("s", START_US + 30_000)
        applied(db)
        assert sharers(db, "small") == {"other"}
        assert db.core.rows.queries["large"].failed
        assert db.query("small").answer().table["n"].to_pylist() == [8_000]
        assert db.query("other").answer().table["n"].to_pylist() == [6]


def test_windows_that_prev_reads_are_shared_under_any_aliases(tmp_path):
    """One window serves both aliases of a query, and the queries share the join above it."""
    window = "s [PARTITION BY kind ROWS 2]"
    texts = {
        name: f"SELECT {b}.id, {a}.id AS before FROM {window} {a} JOIN {window} {b} "
        f"ON {a}.kind = {b}.kind AND {a} = PREV({b})"
        for name, a, b in (("one", "a", "b"), ("two", "x", "y"))
    }
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE)
        for name, text in texts.items():
            db.register(name, text)
        db.push("s", batch([(at, at, at % 3) for at in range(50)]))
        db.heartbeat("s", START_US + 100)
        first, second = (outcome(db.query(name)) for name in texts)
        assert first == second
        assert len(first[0]) == 50 - 3
        rows = db.core.rows
        facts = db.core.executor.call(lambda: rows.operators(rows.queries["two"])).result()
        assert {each.others for each in facts[:-1]} == {("one",)}  # All but the kept rows.


def test_a_query_with_a_table_shares_what_does_not_depend_on_it(tmp_path):
    """Pairs of a stream are held once; each query joins them with the rows of its own table."""
    pairs = (
        "SELECT a.id, a.kind FROM s [RANGE 1 MINUTE] a "
        "JOIN (SELECT DISTINCT id FROM s [ROWS 20]) b ON a.id = b.id"
    )
    joined = f"SELECT q.id, c.n FROM ({pairs}) q JOIN c ON q.kind = c.k"
    with Engine.open(tmp_path / "data") as db, Engine.open(tmp_path / "alone") as alone:
        for each in (db, alone):
            each.execute(CREATE)
            each.execute("CREATE TABLE c (k BIGINT PRIMARY KEY, n BIGINT) RETROACTIVE")
            each.execute("INSERT INTO c VALUES (0, 10), (1, 11)")
        db.register("pairs", pairs)
        for each in (db, alone):
            each.register("joined", joined)
        for step in range(3):
            for each in (db, alone):
                each.push("s", batch([(100 * step + at, at, at % 3) for at in range(50)]))
                each.execute(f"UPDATE c SET n = {step}")
        for each in (db, alone):
            each.heartbeat("s", START_US + 400)
        assert sharers(db, "joined") == {"pairs"}
        assert "Join a.id = b.id [also in joined]" in db.query("pairs").explain()
        assert outcome(db.query("joined")) == outcome(alone.query("joined"))
