"""Row queries that share streams beside tables: the rows of queries that stand alone, and DuckDB's.

Versions of a table are numbered for each query, and the positions of tuples for all. So queries
that join versions share the stream side of their plans with each other, and with queries of no
table.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from tests.engine.dataflow.table_world import RANGE_US, TABLE, WINDOW, ChangedTable, PushedStream
from tests.engine.dataflow.worlds import CREATE, START_US, applied, batch, memory, outcome, sharers
from tests.engine.killed import copy_killed
from tests.scale import scaled
from tests.seeds import seed

LONG = WINDOW.replace("4'", "9'")
PAIRS = f"{WINDOW} a JOIN {WINDOW} b ON a.kind = b.kind"
QUERIES = {
    "pairs": f"SELECT a.id AS x, b.id AS y FROM {PAIRS}",
    "pairs with c": f"SELECT a.id AS x, b.id AS y, c.n FROM {PAIRS} JOIN c ON c.k = a.kind",
    "aliases": f"SELECT d.id AS x, c.n FROM {PAIRS} JOIN c ON c.k = a.kind "
    "WHERE a.id < b.id".replace(" a ", " d ").replace("a.", "d."),
    "long": f"SELECT a.id AS x, b.id AS y, c.n FROM {LONG} a JOIN {WINDOW} b ON a.kind = b.kind "
    "LEFT JOIN c ON c.k = b.id % 8",
    "rows": "SELECT s.id, c.n FROM s [ROWS 5] JOIN c ON s.kind = c.k",
    "rows again": "SELECT t.id, t.kind, c.n FROM s [ROWS 5] t LEFT JOIN c ON c.k = t.kind",
    "parts": "SELECT s.id, c.n FROM s [PARTITION BY kind ROWS 2] LEFT JOIN c ON s.kind = c.k",
    "parts alone": "SELECT s.id, s.kind FROM s [PARTITION BY kind ROWS 2]",
    "window": f"SELECT s.id, c.n FROM {WINDOW} JOIN c ON s.kind = c.k",
    "filtered": f"SELECT a.id, c.n FROM {PAIRS} JOIN c ON c.k = a.kind WHERE a.id > 9 AND b.id > 9",
    "filtered pairs": f"SELECT a.id FROM {PAIRS} WHERE a.id > 9 AND b.id > 9",
    "absent": f"SELECT s.id FROM {WINDOW} WHERE s.kind NOT IN (SELECT n FROM c)",
    "stream": "SELECT s.id, c.n FROM s JOIN c ON s.kind = c.k",
}
FILTERS = {
    "all": "SELECT a.id, a.kind FROM s a",
    "large": "SELECT b.id, b.kind FROM s b WHERE b.kind > 1",
    "large again": "SELECT d.id FROM s d WHERE d.kind > 1",
    "large with c": "SELECT x.id, c.n FROM s x JOIN c ON x.kind = c.k WHERE x.kind > 1",
    "large or c": "SELECT a.id, c.n FROM s a LEFT JOIN c ON a.kind = c.k WHERE a.kind > 1",
    "large in window": f"SELECT e.id FROM {LONG} e WHERE e.kind > 1",
    "window of large": f"SELECT b.id, c.n FROM {WINDOW} b JOIN c ON b.kind = c.k WHERE b.kind > 1",
    "large rows": "SELECT y.id, c.n FROM (SELECT id, kind FROM s z WHERE z.kind > 1) y "
    "JOIN c ON y.kind = c.k",
}
ORDERS = [
    ["all", "large", "large with c", "large or c", "large again", "window of large"],
    ["all", "large in window", "window of large", "large or c", "large with c", "large"],
    ["large again", "all", "large rows", "large in window", "large", "window of large"],
    ["large with c", "all", "large", "window of large", "large rows"],
]
ODDS = {"push": 0.42, "table": 0.3, "seal": 0.06, "checkpoint": 0.09, "kill": 0.06, "promise": 0.07}
COUNT = len(QUERIES)


class World:
    """Engines that get one script: one has all queries, and each of the others has one of them."""

    def __init__(self, directory: Path, rng: np.random.Generator, names: list[str]) -> None:
        self.directory = directory
        self.rng = rng
        self.stream, self.table = PushedStream(), ChangedTable()
        self.together = Engine.open(directory / "together", run_rows=64)
        self.alone = {name: Engine.open(directory / f"alone {name}") for name in names}
        self.tuples: list[tuple[int, int, int | None, int]] = []  # In time, with their numbers.
        self.changes: list[tuple[int, int, int | None, bool]] = []  # Number, key, n, whether live.
        self._kills = 0
        for text in (CREATE, TABLE):
            self.execute(text)

    @property
    def all(self) -> list[Engine]:
        return [self.together, *self.alone.values()]

    @property
    def number(self) -> int:
        return len(self.tuples) + len(self.changes)

    def execute(self, text: str) -> None:
        for db in self.all:
            db.execute(text)

    def register(self, name: str) -> None:
        for db in (self.together, self.alone[name]):
            db.register(name, (QUERIES | FILTERS)[name])

    def step(self) -> None:
        """Do one thing in all engines; kills, checkpoints and seals are in one engine."""
        self.stream.clock += int(self.rng.integers(0, 8))
        match self.rng.choice(list(ODDS), p=list(ODDS.values())):
            case "push":
                rows = self.stream.draw(self.rng, lambda: int(self.rng.integers(0, 8)))
                for row in self.stream.in_time(rows):
                    self.tuples.append((*row, self.number))
                for db in self.all:
                    db.push("s", batch(rows))
            case "table":
                before = self.table.rows
                self.execute(self.table.change(self.rng))
                for key in range(8):
                    n, _ = self.table.rows.get(key, (None, ""))
                    if self.table.rows.get(key) != before.get(key):
                        self.changes.append((self.number, key, n, key in self.table.rows))
            case "promise":
                newest = self.stream.watermark or 0
                for db in self.all:
                    db.heartbeat("s", START_US + newest)
            case "seal":
                self.together.seal("s")
            case "checkpoint":
                self.together.core.executor.call(self.together.checkpoints.now).result()
            case _:
                self.kill()

    def kill(self) -> None:
        """Kill the engine that has all queries, and open it again."""
        self._kills += 1
        copied = copy_killed(self.together, self.directory / f"kill {self._kills}")
        self.together.close()
        self.together = Engine.open(copied, run_rows=64)

    def check(self, names: list[str]) -> None:
        """Compare the rows of queries together with those of queries alone."""
        for db in self.all:
            applied(db)
        for name in names:
            expected = outcome(self.alone[name].query(name))
            found = outcome(self.together.query(name))
            assert sorted(map(str, found[0])) == sorted(map(str, expected[0])), name
            assert found[1:] == expected[1:], name

    def close(self) -> None:
        for db in self.all:
            db.close()


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(1, 25)))
def test_queries_beside_tables_have_the_rows_of_queries_alone_and_of_duckdb(world, tmp_path):
    """Queries come at any time; there are late tuples, deleted keys, kills and restarts."""
    rng = np.random.default_rng(seed("sharing beside tables", world))
    names = [str(it) for it in rng.permutation(sorted(QUERIES))[: scaled(7, COUNT)]]
    if "pairs with c" not in names:
        names[-1] = "pairs with c"
    lives, known = World(tmp_path, rng, names), list[str]()
    for name in names:
        for _ in range(int(rng.integers(2, 12))):
            lives.step()
        lives.register(name)
        known.append(name)
        lives.check(known)
    for _ in range(40):
        lives.step()
    while lives.stream.watermark is None:
        lives.step()
    lives.check(names)
    assert any(sharers(lives.together, name) for name in names)
    shown = shown_rows(lives, "pairs with c")
    pairs = "SELECT a.id, b.id, a.n FROM versioned a JOIN live b ON a.kind = b.kind WHERE a.live"
    assert shown == by_duckdb(lives, pairs)
    lives.close()


@pytest.mark.parametrize("order", range(scaled(2, len(ORDERS))))
def test_filters_below_joins_with_versions_are_shared_under_any_aliases(order, tmp_path):
    """The filter of one query reads the source of another one, and gets positions for a third."""
    names = ORDERS[order]
    lives = World(tmp_path, np.random.default_rng(seed("filters beside tables", order)), names)
    for name in names:
        lives.register(name)
    for name in names:
        assert sharers(lives.together, name) == set(names) - {name}
    for _ in range(15):
        lives.step()
    lives.check(names)
    lives.kill()
    for _ in range(15):
        lives.step()
    lives.check(names)
    large = "SELECT id, n FROM versioned WHERE live AND kind > 1"
    assert shown_rows(lives, "window of large") == by_duckdb(lives, large)
    lives.close()


def shown_rows(lives: World, name: str) -> list[tuple[int | None, ...]]:
    """The relation of a query, in an order that depends on its values alone."""
    table = lives.together.query(name).answer().table
    return sorted(zip(*(it.to_pylist() for it in table.columns), strict=True), key=str)


def by_duckdb(lives: World, select: str) -> list[tuple[int | None, ...]]:
    """Rows that DuckDB selects from `live`, the tuples in the window, and from `versioned`.

    The latter has the version of the table at the place of each tuple, too.
    """
    arrays = list(zip(*lives.tuples, strict=True))
    s = pa.table(dict(zip(("ts", "id", "kind", "number"), map(pa.array, arrays), strict=True)))
    changes = list(zip(*lives.changes, strict=True)) or [[], [], [], []]
    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.bool_())
    columns = (pa.array(it, kind) for it, kind in zip(changes, kinds, strict=True))
    c = pa.table(dict(zip(("number", "k", "n", "live"), columns, strict=True)))
    mark = lives.stream.watermark
    with duckdb.connect() as db:
        db.register("s", s)
        db.register("c", c)
        found = db.execute(
            f"""WITH live AS (SELECT * FROM s WHERE ts < {mark} AND ts >= {mark - RANGE_US}),
            versioned AS (SELECT live.*, c.n, c.live FROM live ASOF JOIN c
                          ON live.kind = c.k AND live.number >= c.number)
            {select}"""
        ).fetchall()
    return sorted(found, key=str)


def test_queries_that_join_one_table_hold_the_tuples_of_a_stream_once(tmp_path):
    """A query of no table shares the store, whether it came before or behind them."""
    longer = {name: QUERIES[name].replace("0.00004", "1") for name in ("pairs", "pairs with c")}
    with Engine.open(tmp_path / "data") as db:
        for text in (CREATE, TABLE, "INSERT INTO c VALUES (1, 10, 'a')"):
            db.execute(text)
        db.push("s", batch([(at, at, at) for at in range(20_000)]))
        db.register("plain", longer["pairs"])
        sizes = []
        for at in range(4):
            db.register(f"q{at}", longer["pairs with c"])
            applied(db)
            sizes.append(memory(db))
        db.register("behind", longer["pairs"])
        others = {f"q{at}" for at in range(4)} | {"plain", "behind"}
        for name in others:
            assert sharers(db, name) == others - {name}
        assert "#position" not in db.query("plain").explain()
        state = db.core.rows.queries["q0"].state_bytes
        assert sizes[3] - sizes[0] < 0.2 * 3 * state
        for name in sorted(others - {"q3"}):
            db.execute(f'DROP QUERY "{name}"')
        db.push("s", batch([(20_000, 20_000, 1), (20_000, 20_001, 20_000)]))
        db.heartbeat("s", START_US + 20_001)
        shown = db.query("q3").answer().table.select(["x", "y"]).to_pylist()
        pairs = {(1, 1), (1, 20_000), (20_000, 1), (20_000, 20_000)}
        assert {(row["x"], row["y"]) for row in shown} == pairs


def test_shared_rows_windows_keep_the_versions_that_their_tuples_join(tmp_path):
    """The newest 8 pushes are kept; a state is noted for each 5 pushes, and 5 tuples are held."""
    names, sizes = ("rows", "rows again"), list[int]()
    with Engine.open(tmp_path / "d", row_output_bytes_max=1 << 16) as db:
        for text in (CREATE, TABLE):
            db.execute(text)
        for name in names:
            db.register(name, QUERIES[name])
        assert sharers(db, "rows") == {"rows again"}
        for at in range(60):
            db.execute(f"INSERT OR REPLACE INTO c VALUES (1, {at}, 'a')")
            db.push("s", batch([(at * 50, at, 1)]))
            if at % 5 == 0:
                applied(db)
                found = [db.core.rows.state(name, {}).tables.places for name in names]
                sizes += map(len, found)
            for name in names:
                rows = db.query(name).answer().table.select(["id", "n"]).to_pylist()
                newest = range(max(0, at - 5), at)
                assert sorted((it["id"], it["n"]) for it in rows) == [(it, it) for it in newest]
    assert max(sizes) <= 8 + 5 + 5 + 2
