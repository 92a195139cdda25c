"""Row queries over RETROACTIVE tables, over kills, against loops over instants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from shedder.archive.files.data_directory import FORMAT_TABLE_CHANGES, format_of
from shedder.engine.engine import Engine
from shedder.errors import BadQuery
from tests.engine.dataflow.table_world import (
    RANGE_US,
    TABLE,
    WINDOW,
    ChangedTable,
    KilledEngine,
    PushedStream,
    Tuple,
    Version,
)
from tests.engine.dataflow.worlds import CREATE, START_US, applied, batch
from tests.scale import scaled
from tests.seeds import seed

RETROACTIVE = f"{TABLE} RETROACTIVE"
Made = Callable[[list[Tuple], Version], list[tuple[object, ...]]]


def pairs(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    return [(id_, rows[kind][0]) for _, id_, kind in held if kind in rows]


def left(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    large = {key: n for key, (n, _) in rows.items() if n is not None and n > 4}
    return [(id_, large.get(kind)) for _, id_, kind in held]


def inside(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    return [(id_,) for _, id_, kind in held if (rows.get(kind, (None,))[0] or 0) > 4]


def absent(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    values = [n for n, _ in rows.values()]
    return [
        (id_,)
        for _, id_, kind in held
        if not values or (kind is not None and None not in values and kind not in values)
    ]


def missing(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    return [(id_,) for _, id_, kind in held if kind not in rows]


def exists(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    small = {key for key, (n, _) in rows.items() if n is not None}
    return [(id_,) for _, id_, kind in held if kind in small and rows[kind][0] < id_ % 8]


def silent(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    return [(key,) for key in rows if key not in {kind for _, _, kind in held}]


def kept(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    found = [(key, id_) for _, id_, kind in held for key in rows if key == kind]
    return found + [(key, None) for (key,) in silent(held, rows)]


def tiers(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    found = Counter(rows[kind][1] for _, _, kind in held if kind in rows)
    return list(found.items())


def distinct(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    return [(tier,) for tier, _ in tiers(held, rows)]


def keys(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    found = Counter(kind for _, _, kind in held if kind in rows)
    sums = {kind: None if rows[kind][0] is None else rows[kind][0] * n for kind, n in found.items()}
    return [(kind, n, sums[kind]) for kind, n in found.items()]


def above(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    most = max((n for n, _ in rows.values() if n is not None), default=None)
    return [(id_,) for _, id_, kind in held if None not in (kind, most) and kind > most]


def full(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    alone = [(None, key) for (key,) in silent(held, rows)]
    return alone + [(id_, kind if kind in rows else None) for _, id_, kind in held]


def unknown(held: list[Tuple], rows: Version) -> list[tuple[object, ...]]:
    return [(kind,) for kind in {kind for _, _, kind in held} - {*rows}]


SMALLER = "SELECT * FROM c WHERE c.k = s.kind AND c.n < s.id % 8"
ON = "JOIN c ON s.kind = c.k"
QUERIES: dict[str, tuple[str, Made]] = {
    "pairs": (f"SELECT s.id, c.n FROM {WINDOW} {ON}", pairs),
    "left": (f"SELECT s.id, c.n FROM {WINDOW} LEFT {ON} AND c.n > 4", left),
    "inside": (f"SELECT s.id FROM {WINDOW} WHERE s.kind IN (SELECT k FROM c WHERE n > 4)", inside),
    "absent": (f"SELECT s.id FROM {WINDOW} WHERE s.kind NOT IN (SELECT n FROM c)", absent),
    "missing": (
        f"SELECT s.id FROM {WINDOW} WHERE NOT EXISTS (SELECT * FROM c WHERE c.k = s.kind)",
        missing,
    ),
    "exists": (
        f"SELECT s.id FROM {WINDOW} WHERE EXISTS ({SMALLER})",
        exists,
    ),
    "silent": (
        f"SELECT c.k FROM c WHERE NOT EXISTS (SELECT * FROM {WINDOW} WHERE s.kind = c.k)",
        silent,
    ),
    "kept": (f"SELECT c.k, s.id FROM c LEFT JOIN {WINDOW} ON s.kind = c.k", kept),
    "tiers": (f"SELECT c.tier, COUNT(*) AS n FROM {WINDOW} {ON} GROUP BY c.tier", tiers),
    "distinct": (f"SELECT DISTINCT c.tier FROM {WINDOW} {ON}", distinct),
    "keys": (
        f"SELECT c.k, COUNT(*) AS rows, SUM(c.n) AS n FROM {WINDOW} {ON} GROUP BY c.k",
        keys,
    ),
    "above": (f"SELECT s.id FROM {WINDOW} WHERE s.kind > (SELECT MAX(n) FROM c)", above),
    "full": (f"SELECT s.id, c.k FROM {WINDOW} FULL JOIN c ON s.kind = c.k", full),
    "unknown": (f"SELECT kind FROM {WINDOW} EXCEPT SELECT k FROM c", unknown),
    "gone": (f"SELECT DSTREAM(s.id, c.n) FROM {WINDOW} {ON}", pairs),
    "rows": (f"SELECT s.id, c.n FROM s [ROWS 5] {ON}", pairs),
    "parts": (f"SELECT s.id, c.n FROM s [PARTITION BY kind ROWS 1] {ON}", pairs),
}


@dataclass
class World:
    """The tuples that were in time, and the table as of each instant. Times are after START_US."""

    stream: PushedStream = field(default_factory=PushedStream)
    table: ChangedTable = field(default_factory=ChangedTable)
    tuples: list[Tuple] = field(default_factory=list)
    versions: list[tuple[int, Version]] = field(default_factory=lambda: [(-(1 << 60), {})])

    def push(self, rows: list[Tuple]) -> None:
        self.tuples += self.stream.in_time(rows)

    def change(self, rng: np.random.Generator) -> str:
        """Put a change in force at the first instant that no answer has had."""
        mark, statement = self.stream.watermark, self.table.change(rng)
        self.versions.append((-(1 << 60) if mark is None else mark + 1, self.table.rows))
        return statement

    def relation(self, name: str, e: int) -> Counter[tuple[object, ...]]:
        """The rows of a query as of an instant."""
        before = sorted((row for row in self.tuples if row[0] < e), key=lambda row: row[0])
        if name == "rows":
            held = before[-5:]
        elif name == "parts":
            held = list({kind: (time, id_, kind) for time, id_, kind in before}.values())
        else:
            held = [row for row in before if row[0] >= e - RANGE_US]
        table = [rows for at, rows in self.versions if at <= e][-1]
        return Counter(QUERIES[name][1](held, table))

    def changes(self, name: str, first: int, last: int) -> Counter[tuple[object, ...]]:
        """The rows that enter and leave in (first, last]: (*row, event time, sign)."""
        found: Counter[tuple[object, ...]] = Counter()
        then = self.relation(name, first)
        for e in range(first + 1, last + 1):
            now = self.relation(name, e)
            enter, leave = now - then, then - now
            if name != "gone":
                found.update({(*row, e - 1, 1): count for row, count in enter.items()})
            if name in ("gone", "tiers", "keys"):
                sign = 1 if name == "gone" else -1
                found.update({(*row, e - 1, sign): count for row, count in leave.items()})
            then = now
        return found


ODDS = [0.38, 0.36, 0.06, 0.1, 0.1]


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(1, 60)))
def test_changes_of_the_table_correct_rows_of_the_window_also_over_kills(world, tmp_path):
    rng = np.random.default_rng(seed("retroactive", world))
    truth, lives = World(), KilledEngine(tmp_path, rng, run_rows=64)
    for text in (CREATE, RETROACTIVE, truth.change(rng), truth.change(rng)):
        lives.db.execute(text)
    before: list[Tuple] = [(int(time), 3007, 3) for time in rng.integers(0, 60, 9)]
    lives.db.push("s", batch(before))  # Before registration: in the windows.
    truth.push(before)
    began = truth.stream.watermark
    lives.register({name: text for name, (text, _) in QUERIES.items()})
    truth.stream.clock = 30
    for step in range(1, scaled(50, 70)):
        truth.stream.clock += int(rng.integers(0, 8))
        match rng.choice(["push", "table", "seal", "checkpoint", "kill"], p=ODDS):
            case "push":
                rows = truth.stream.draw(rng, lambda: [*range(7), None][rng.integers(0, 8)])
                truth.push(rows)
                lives.db.push("s", batch(rows))
            case "table":
                lives.db.execute(truth.change(rng))
            case what:
                lives.do(what)
        for name in rng.choice([name for name in QUERIES if name != "gone"], 4):
            shown = lives.db.query(name).answer().table.to_pylist()
            got = Counter(tuple(row.values()) for row in shown)
            assert got == truth.relation(name, truth.stream.watermark), (name, step)
    lives.read_all()
    for reader in lives.readers:
        expected = truth.changes(reader.name, began, truth.stream.watermark)
        assert Counter(reader.got) == expected, reader.name
        times = [row[-2] for row in reader.got]
        assert times == sorted(times), reader.name
    lives.db.close()


@pytest.fixture
def db(tmp_path):
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.execute(RETROACTIVE)
        yield db


def test_change_takes_effect_at_the_first_instant_that_no_answer_has_had(db):
    db.execute("INSERT INTO c VALUES (1, 10, 'a')")
    db.push("s", batch([(0, 100, 1), (1, 101, 2)]))
    db.heartbeat("s", START_US + 2)
    entered = db.register("entered", QUERIES["pairs"][0])
    left = db.register("left", QUERIES["gone"][0])
    streams = [entered.subscribe(), left.subscribe()]
    assert entered.answer().rows() == [{"id": 100, "n": 10}]
    db.execute("UPDATE c SET n = 11")
    db.execute("INSERT INTO c VALUES (2, 20, 'a')")
    assert entered.answer().rows() == [{"id": 100, "n": 10}]
    db.heartbeat("s", START_US + 3)
    shown = sorted((row["id"], row["n"]) for row in entered.answer().rows())
    assert shown == [(100, 11), (101, 20)]
    got = [[(row["id"], row["n"]) for row in next(rows).rows()] for rows in streams]
    assert got == [[(100, 11), (101, 20)], [(100, 10)]]


def test_table_corrects_one_alias_and_its_versions_join_no_tuple_of_the_past(db):
    """Tuples join versions of t by their places, and c as it is at each instant."""
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT)")
    for table in ("t", "c (k, n)"):
        db.execute(f"INSERT INTO {table} VALUES (1, 10)")
    query = db.register("q", f"SELECT s.id, c.n, t.n AS m FROM {WINDOW} {ON} JOIN t ON t.k = c.k")
    db.push("s", batch([(0, 100, 1)]))
    for table in "ct":
        db.execute(f"UPDATE {table} SET n = 11")
    db.push("s", batch([(1, 101, 1)]))
    db.heartbeat("s", START_US + 2)
    rows = sorted((row["id"], row["n"], row["m"]) for row in query.answer().rows())
    assert rows == [(100, 11, 10), (101, 11, 11)]


def test_versions_that_no_restart_needs_are_dropped(tmp_path):
    """A table of 100 rows changes 30 times; the newest 8 pushes are kept."""
    with Engine.open(tmp_path / "d", row_output_bytes_max=1 << 16) as db:
        db.execute(CREATE)
        db.execute(RETROACTIVE)
        db.execute(f"INSERT INTO c (k) VALUES {', '.join(f'({key})' for key in range(100))}")
        db.register("q", QUERIES["pairs"][0])
        sizes = []
        for at in range(30):
            db.execute(f"UPDATE c SET n = {at}")
            db.push("s", batch([(at * 50, at, 1)]))
            applied(db)
            stored = db.core.rows.state("q", {}).tables
            sizes.append(stored.tables["c"][1].num_rows)
        [table] = db.core.rows.queries["q"].tables.by_alias.values()
        assert len(table.versions) < 2_000
    assert 500 < max(sizes) < 1_000


def test_query_without_a_window_over_the_stream_is_refused(db):
    with pytest.raises(BadQuery, match=r"would have to keep every tuple of s .* give it a window"):
        db.register("q", f"SELECT s.id, c.n FROM s {ON}")


def test_older_versions_refuse_a_directory_with_a_query_that_a_table_corrects(db):
    assert format_of(db.core.store.directory) < FORMAT_TABLE_CHANGES
    db.register("q", QUERIES["pairs"][0])
    assert format_of(db.core.store.directory) == FORMAT_TABLE_CHANGES
