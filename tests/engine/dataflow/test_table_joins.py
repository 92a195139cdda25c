"""Row queries that join streams with tables, over kills, against loops over tuples and versions."""

from __future__ import annotations

import re
import threading
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import (
    FORMAT_TABLE_CHANGES,
    FORMAT_TABLE_JOINS,
    format_of,
)
from shedder.archive.log.table_changes import ChangeKind, TableChange
from shedder.cql.text.durations import timestamp_text
from shedder.dataflow.tables.table_places import Reached
from shedder.engine.dataflow.followed_changes import FollowedChanges
from shedder.engine.dataflow.query_tables import QueryTables
from shedder.engine.engine import Engine
from shedder.engine.runtime.caller import Caller
from shedder.errors import BudgetExceeded, TableInUse, Unimplemented, UnknownStream
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
from tests.engine.dataflow.worlds import CREATE, START_US, Subscriber, applied, batch
from tests.engine.killed import copy_killed
from tests.scale import scaled
from tests.seeds import seed

QUERIES = {
    "stream": "SELECT s.id, c.n FROM s JOIN c ON s.kind = c.k",
    "named": "SELECT s.id, c.tier FROM s, c WHERE c.k = s.kind AND c.tier = 'a'",
    "window": f"SELECT s.id, c.n FROM {WINDOW} JOIN c ON s.kind = c.k",
    "exists": f"SELECT x.id, c.n FROM (SELECT a.id, a.kind FROM {WINDOW} a WHERE EXISTS "
    f"(SELECT * FROM {WINDOW} b WHERE b.kind = a.kind)) x JOIN c ON x.kind = c.k",
    "padded": f"SELECT a.id, c.n FROM {WINDOW} a LEFT JOIN {WINDOW} b ON b.kind = a.kind AND "
    "b.id < -1 JOIN c ON c.k = COALESCE(b.kind, 1)",
    "left": f"SELECT s.id, c.n FROM {WINDOW} LEFT JOIN c ON s.kind = c.k AND c.n > 4",
    "inside": f"SELECT s.id FROM {WINDOW} WHERE s.kind IN (SELECT k FROM c WHERE n > 4)",
    "absent": f"SELECT s.id FROM {WINDOW} WHERE s.kind NOT IN (SELECT n FROM c)",
    "missing": "SELECT s.id FROM s WHERE NOT EXISTS (SELECT * FROM c WHERE c.k = s.kind)",
    "below": "SELECT s.id, c.k FROM s JOIN c ON s.kind < c.k",
    "groups": f"SELECT c.tier, COUNT(*) AS n FROM {WINDOW} JOIN c ON s.kind = c.k GROUP BY c.tier",
    "pairs": f"SELECT a.id AS x, b.id AS y, c.n FROM {WINDOW} a JOIN {WINDOW} b ON a.kind = b.kind "
    "JOIN c ON c.k = a.kind",
}
ROWS = {
    "rows": "SELECT s.id, c.n FROM s [ROWS 5] JOIN c ON s.kind = c.k",
    "parts": "SELECT s.id, c.n FROM s [PARTITION BY kind ROWS 2] LEFT JOIN c ON s.kind = c.k "
    "AND c.n > 4",
}
PAST_US = {"range": 500, "wide": 4000}
PAST = {
    "range": "SELECT s.id, c.n FROM s [RANGE INTERVAL '0.0005' SECOND] JOIN c ON s.kind = c.k",
    "wide": "SELECT s.id, c.n FROM s [RANGE INTERVAL '0.004' SECOND] LEFT JOIN c ON s.kind = c.k",
}
STREAMS = ("stream", "named", "missing", "below")
ROUNDS = scaled(4, 12)  # Of registrations beside changes; more queries make each change slower.
Pushed = tuple[int, int, int | None, Version]


def made(name: str, tuples: list[Pushed]) -> Counter[tuple[object, ...]]:
    """The rows of tuples with the versions of the table at their places, by loops."""
    rows: list[tuple[object, ...]] = []
    if name == "pairs":
        both = ((a, b) for a in tuples for b in tuples if a[2] == b[2] and a[2] in a[3])
        return Counter((a[1], b[1], a[3][a[2]][0]) for a, b in both)
    for _, id_, kind, rows_of in tuples:
        n, tier = rows_of.get(kind, (None, None))
        values = [each for each, _ in rows_of.values()]
        match name:
            case "stream" | "window" | "exists" | "rows" | "range":
                rows += [(id_, n)] if kind in rows_of else []
            case "padded":
                n, _ = rows_of.get(1, (None, None))
                rows += [(id_, n)] if 1 in rows_of else []
            case "named":
                rows += [(id_, tier)] if tier == "a" else []
            case "wide":
                rows.append((id_, n))
            case "left" | "parts":
                rows.append((id_, n if n is not None and n > 4 else None))
            case "inside":
                rows += [(id_,)] if n is not None and n > 4 else []
            case "absent":
                rows += [] if None in values or kind in values else [(id_,)]
            case "missing":
                rows += [] if kind in rows_of else [(id_,)]
            case "below":
                rows += [(id_, key) for key in rows_of if kind < key]
            case _:
                rows += [(tier,)] if kind in rows_of else []
    if name == "groups":
        return Counter((tier, n) for (tier,), n in Counter(rows).items())
    return Counter(rows)


def newest(name: str, tuples: list[Pushed]) -> list[Pushed]:
    """The tuples in a ROWS window, by loops."""
    in_order = sorted(tuples, key=lambda each: each[0])
    if name == "rows":
        return in_order[-5:]
    kinds = {each[2] for each in tuples}
    return [each for kind in kinds for each in [it for it in in_order if it[2] == kind][-2:]]


def entered(name: str, tuples: list[Pushed]) -> Counter[tuple[object, ...]]:
    """The rows that enter the relation of a query with a ROWS window, by loops over instants."""
    found, then = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
    for time in sorted({each[0] for each in tuples}):
        now = made(name, newest(name, [each for each in tuples if each[0] <= time]))
        found += now - then
        then = now
    return found


class World:
    """The tuples that were in time, each with the table as it was at its place."""

    def __init__(self) -> None:
        self.stream = PushedStream()
        self.table = ChangedTable()
        self.tuples: list[Pushed] = []

    def push(self, rows: list[Tuple]) -> None:
        self.tuples += [(*row, self.table.rows) for row in self.stream.in_time(rows)]

    @property
    def done(self) -> list[Pushed]:
        """The tuples behind the watermark."""
        return [each for each in self.tuples if each[0] < self.stream.watermark]


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(1, 60)))
def test_tuples_join_the_versions_at_their_places_also_over_kills(world, tmp_path):
    rng = np.random.default_rng(seed("table joins", world))
    truth, lives = World(), KilledEngine(tmp_path, rng, run_rows=64)
    for text in (CREATE, TABLE, truth.table.change(rng), truth.table.change(rng)):
        lives.db.execute(text)
    before: list[Tuple] = [(int(time), -1, 3) for time in rng.integers(0, 8, 5)]
    lives.db.push("s", batch(before))  # Before registration: in windows alone.
    truth.push(before)
    past, truth.tuples = truth.tuples, []
    lives.register({**QUERIES, **ROWS})
    for _ in range(1, 70):
        truth.stream.clock += int(rng.integers(0, 8))
        match rng.choice(["push", "table", "seal", "checkpoint", "kill"], p=ODDS):
            case "push":
                rows = truth.stream.draw(rng, lambda: int(rng.integers(0, 8)))
                truth.push(rows)
                lives.db.push("s", batch(rows))
            case "table":
                lives.db.execute(truth.table.change(rng))
            case what:
                lives.do(what)
    lives.read_all()
    _check(lives, past + truth.done, truth.done, truth.stream.watermark - RANGE_US)
    lives.db.close()


def _check(lives: KilledEngine, done: list[Pushed], later: list[Pushed], from_us: int) -> None:
    """Compare the rows of each query with those of all tuples, and of those in the window.

    later: the tuples that came after the queries; without a window, no others are read.
    """
    held = [each for each in done if each[0] >= from_us]
    for reader in lives.readers:
        answer = lives.db.query(reader.name).answer()
        got = Counter(row[:-2] for row in reader.got if row[-1] > 0)
        if reader.name in STREAMS:
            assert got == made(reader.name, later), reader.name
            assert all(a[-2] <= b[-2] for a, b in pairwise(reader.got)), reader.name
            continue
        shown = Counter(tuple(row.values()) for row in answer.table.to_pylist())
        if reader.name in ROWS:
            assert shown == made(reader.name, newest(reader.name, done)), reader.name
            assert got == entered(reader.name, done), reader.name
            continue
        assert shown == made(reader.name, held), reader.name
        if reader.name == "groups":
            left = Counter(row[:-2] for row in reader.got if row[-1] < 0)
            assert shown == got - left
        elif reader.name != "pairs":
            assert got == made(reader.name, done), reader.name


ODDS = [0.4, 0.32, 0.06, 0.12, 0.1]


@pytest.fixture
def db(tmp_path):
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.execute(TABLE)
        yield db


def test_later_changes_of_the_table_neither_add_nor_take_back_rows(db):
    db.execute("INSERT INTO c VALUES (1, 10, 'a')")
    query = db.register("q", QUERIES["window"])
    changes = query.subscribe()
    db.push("s", batch([(0, 100, 1), (1, 101, 2)]))
    db.execute("UPDATE c SET n = 11")
    db.execute("INSERT INTO c VALUES (2, 20, 'a')")
    db.push("s", batch([(2, 102, 1), (2, 103, 2)]))
    db.heartbeat("s", START_US + 3)
    expected = [(100, 10), (102, 11), (103, 20)]
    assert [(row["id"], row["n"]) for row in next(changes).rows()] == expected
    db.execute("DELETE FROM c")
    rows = query.answer().table.to_pylist()
    assert sorted((row["id"], row["n"]) for row in rows) == expected


def test_answers_say_how_long_windows_lack_tuples_from_before_registration(tmp_path):
    """Of 3 us, and windows of 40 us that are read to the next microsecond: until 44 us.

    The history of the table has 64 KiB, some 15 changes.
    """
    db = Engine.open(tmp_path / "data", table_bytes=1 << 20)
    db.execute(CREATE)
    db.execute(TABLE)
    db.execute("INSERT INTO c VALUES (1, 10, 'a')")
    new = db.register("new", QUERIES["window"])
    db.push("s", batch([(0, 100, 1), (3, 101, 1)]))
    for _ in range(20):
        db.execute("INSERT OR REPLACE INTO c VALUES (1, 10, 'a')")
    for name in ("window", "stream", "pairs"):
        db.register(name, QUERIES[name])
    changes = db.query("window").subscribe()
    db.execute(f"CREATE VIEW v AS SELECT ISTREAM(x.id) FROM ({QUERIES['window']}) x")
    db.push("s", batch([(10, 102, 1)]))
    db.heartbeat("s", START_US + 44)
    warning = (
        "tuples of s that came before the query was registered are not in the rows: windows of s "
        "begin at position 2; versions of the tables from before it are not kept; windows may "
        f"reach back to earlier tuples until {timestamp_text(START_US + 44)}"
    )
    early = db.query("window").answer()
    assert (early.complete, early.notes, early.rows()) == (
        False,
        (warning,),
        [{"id": 102, "n": 10}],
    )
    assert early.sources == ("dataflow", "table c")
    batch_of_rows = next(changes)
    assert (batch_of_rows.complete, batch_of_rows.notes) == (False, (warning,))
    assert len(db.query("pairs").answer().notes) == 2
    for whole in (new, db.query("stream")):
        assert (whole.answer().complete, whole.answer().notes) == (True, ())
    [note] = db.execute("SELECT * FROM v").notes
    assert note == f"view v: {warning}"
    copy_killed(db, tmp_path / "copy")
    db.close()
    for path in (tmp_path / "copy", tmp_path / "data"):
        with Engine.open(path) as again:
            assert again.query("window").answer().notes == (warning,)
            again.push("s", batch([(45, 103, 1)]))
            again.heartbeat("s", START_US + 45)
            assert again.query("window").answer().notes == ()
            again.heartbeat("s", START_US + 46)
            assert next(again.query("window").subscribe(after=batch_of_rows.resume)).complete
            assert again.query("new").answer().complete


def test_granted_facts_and_the_plan_name_the_tables(db):
    query = db.register("q", QUERIES["named"])
    assert (query.granted["streams"], query.granted["tables"]) == ("s", "c")
    planned = db.execute(f"EXPLAIN CREATE QUERY p AS {QUERIES['named']}").rows()
    assert {"granted": "tables", "value": "c"} in planned
    assert "  c: table c, reads k, tier" in query.explain().splitlines()
    assert "tables" not in db.register("alone", "SELECT id FROM s").granted


def test_table_in_use_is_not_dropped_also_when_its_query_has_failed(db):
    db.register("q", QUERIES["stream"])
    with pytest.raises(TableInUse, match="table 'c' has standing row queries: q; drop them first"):
        db.execute("DROP TABLE c")
    db.core.rows.queries["q"].guard(lambda: 1 // 0)
    with pytest.raises(TableInUse):
        db.execute("DROP TABLE c")
    db.execute("DROP QUERY q")
    db.execute("DROP TABLE c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT c.k FROM c JOIN c d ON c.k = d.n JOIN s ON s.kind = d.k", "JOIN over the table"),
        ("SELECT c.k, s.id FROM c LEFT JOIN s ON s.kind = c.k", "rows of a table without a match"),
        (f"SELECT kind FROM {WINDOW} EXCEPT SELECT k FROM c", "the table c, which is not RETRO"),
        (
            f"SELECT s.id FROM c JOIN r ON c.k = r.k JOIN {WINDOW} ON s.kind = c.k",
            "JOIN over the tables c, r alone",
        ),
        (
            f"SELECT id FROM {WINDOW} JOIN (SELECT k FROM c EXCEPT SELECT k FROM r) x ON kind = k",
            "^EXCEPT over the tables c, r alone",
        ),
        (
            f"SELECT id FROM {WINDOW} JOIN (SELECT DISTINCT k FROM c) x ON kind = k",
            "^DISTINCT over the table c alone",
        ),
        (
            f"SELECT id FROM {WINDOW} JOIN (SELECT k FROM c GROUP BY k) x ON kind = k",
            "^GROUP BY over the table c alone",
        ),
    ],
)
def test_what_tables_cannot_do_yet_is_refused_and_leaves_nothing(db, text, message):
    db.execute(TABLE.replace(" c ", " r ") + " RETROACTIVE")
    with pytest.raises(Unimplemented, match=message):
        db.register("q", text)
    for name in "cr":
        db.execute(f"DROP TABLE {name}")


def test_tables_of_other_tenants_do_not_exist(db):
    acme, bolt = Caller("acme"), Caller("bolt")
    db.execute(CREATE.replace(" s ", " a "), caller=acme)
    db.execute(TABLE.replace(" c ", " t "), caller=bolt)
    with pytest.raises(UnknownStream):
        db.register("q", "SELECT a.id FROM a JOIN t ON a.kind = t.k", caller=acme)


def test_older_versions_refuse_a_directory_with_a_table_join(db):
    assert format_of(db.core.store.directory) < FORMAT_TABLE_JOINS
    db.register("q", QUERIES["stream"])
    assert format_of(db.core.store.directory) == FORMAT_TABLE_JOINS


def test_versions_that_no_tuple_needs_are_dropped(tmp_path):
    """The table of one row changes 200 times; each version is joined, and few are kept."""
    got = Subscriber("q")
    with Engine.open(tmp_path / "d", row_output_bytes_max=1 << 16) as db:  # 8 pushes are kept.
        db.execute(CREATE)
        db.execute(TABLE)
        db.register("q", QUERIES["stream"])
        got.begin(db)
        for at in range(200):
            db.execute(f"INSERT OR REPLACE INTO c VALUES (1, {at}, 'a')")
            db.push("s", batch([(at * 50, at, 1)]))
            if at % 40 == 0:
                applied(db)
                got.read(db)
                stored = db.core.rows.state("q", {}).tables
                assert len(stored.places) <= 12
                assert stored.tables["c"][1].num_rows <= 12
            elif at % 5 == 0:
                got.read(db)
        applied(db)
        got.read(db)
    assert [row[1] for row in got.got] == list(range(199))


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(1, 20)))
def test_rows_windows_join_old_versions_while_others_are_dropped(world, tmp_path):
    """The newest 8 pushes are kept, and a partition may have no tuple for a long time."""
    rng = np.random.default_rng(seed("rows windows", world))
    truth = World()
    lives = KilledEngine(tmp_path, rng, row_output_bytes_max=1 << 16, run_rows=64)
    for text in (CREATE, TABLE):
        lives.db.execute(text)
    for name, text in ROWS.items():
        lives.db.register(name, text)
    for at in range(120):
        lives.db.execute(truth.table.change(rng))
        kind = at % 5 if at % 40 == 0 else int(rng.integers(5, 7))
        truth.push([(at * 50, at, kind)])
        lives.db.push("s", batch([(at * 50, at, kind)]))
        for what, odds in (("checkpoint", 0.2), ("kill", 0.05)):
            if rng.random() < odds:
                lives.do(what)
        for name in ROWS:
            shown = lives.db.query(name).answer().table.to_pylist()
            rows = Counter(tuple(row.values()) for row in shown)
            assert rows == made(name, newest(name, truth.done)), (name, at)
    lives.db.close()


@pytest.mark.slow
def test_versions_that_no_rows_window_needs_are_dropped(tmp_path):
    """The newest 8 pushes are kept; a state is noted for each 5 pushes, and 5 tuples are held."""
    with Engine.open(tmp_path / "d", row_output_bytes_max=1 << 16) as db:
        db.execute(CREATE)
        db.execute(TABLE)
        query = db.register("q", ROWS["rows"])
        sizes = []
        for at in range(100):
            db.execute(f"INSERT OR REPLACE INTO c VALUES (1, {at}, 'a')")
            db.push("s", batch([(at * 50, at, 1)]))
            if at % 5 == 0:
                applied(db)
                sizes.append(len(db.core.rows.state("q", {}).tables.places))
        rows = sorted((row["id"], row["n"]) for row in query.answer().rows())
    assert rows == [(at, at) for at in range(94, 99)]
    assert max(sizes) <= 8 + 5 + 5 + 2


@pytest.mark.slow
@pytest.mark.parametrize("table_bytes", [1 << 30, 1 << 20])
def test_new_windows_have_the_past_and_the_versions_of_its_places(table_bytes, tmp_path):
    """The small history has 64 KiB, some 15 changes: answers say where it begins."""
    rng = np.random.default_rng(seed("past of rows windows", table_bytes))
    settings = {"table_bytes": table_bytes, "run_rows": 16}
    truth, db = World(), Engine.open(tmp_path / "0", **settings)
    complete = set[tuple[str, bool]]()
    for text in (CREATE, TABLE):
        db.execute(text)
    for at in range(60):
        if rng.random() < (0.4 if at < 15 else 0.9):
            db.execute(truth.table.change(rng))
        rows = [(at * 50, at, int(rng.integers(0, 8)))]
        truth.push(rows)
        db.push("s", batch(rows))
        match rng.choice(["", "checkpoint", "kill", "restart"], p=[0.8, 0.1, 0.05, 0.05]):
            case "checkpoint":
                db.core.executor.call(db.checkpoints.now).result()
            case "kill":
                copied = copy_killed(db, tmp_path / str(at + 1))
                db.close()
                db = Engine.open(copied, **settings)
            case "restart":
                path = db.core.store.directory
                db.close()
                db = Engine.open(path, **settings)
        if at % 15 == 14:
            for name, text in {**ROWS, **PAST}.items():
                db.register(f"{name}{at}", text)
        done = truth.done
        for query in db.core.rows.queries if at % 5 == 4 else ():
            answer, name = db.query(query).answer(), query.rstrip("0123456789")
            first = first_position(answer)
            complete.add((name, not first))
            shown = Counter(tuple(row.values()) for row in answer.table.to_pylist())
            assert answer.complete == (not first)
            if name in PAST:
                from_us = truth.stream.watermark - PAST_US[name]
                held = [it for it in done[first:] if it[0] >= from_us]
                assert shown == made(name, held), (query, at)
                # Instants are read up to one microsecond apart.
                assert answer.complete == all(it[0] < from_us - 2 for it in done[:first])
                continue
            assert shown == made(name, newest(name, done[first:])), (query, at)
    # Of the changes, those behind the oldest of 10 tuples are kept.
    assert len(db.core.rows.state("range59", {}).tables.places) <= 10
    db.close()
    known = {(name, True) for name in (*ROWS, *PAST)}
    lost = {(name, False) for name in (*ROWS, "wide")}
    assert complete == known | (lost if table_bytes == 1 << 20 else set())


@pytest.mark.slow
def test_windows_are_filled_while_their_table_changes_faster_than_its_history_keeps(tmp_path):
    """The history has 64 KiB, some 15 changes; more come while the past of a query is read."""
    rng = np.random.default_rng(seed("past beside changes"))
    truth, ended, names = World(), threading.Event(), list[str]()

    def step(at: int) -> None:
        db.execute(truth.table.change(rng))
        rows = [(at * 5, at, int(rng.integers(0, 8)))]
        truth.push(rows)
        db.push("s", batch(rows))

    def go_on() -> None:
        at = 60
        while not ended.is_set():
            step(at)
            at += 1

    with Engine.open(tmp_path / "d", table_bytes=1 << 20, run_rows=16) as db:
        for text in (CREATE, TABLE):
            db.execute(text)
        for at in range(60):
            step(at)
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            for number in range(ROUNDS):
                for name, text in {**ROWS, **PAST}.items():
                    names.append(f"{name}{number}")
                    db.register(names[-1], text)
        finally:
            ended.set()
            thread.join()
        for name in names:
            answer, kind = db.query(name).answer(), name.rstrip("0123456789")
            done = truth.done[first_position(answer) :]
            shown = Counter(tuple(row.values()) for row in answer.table.to_pylist())
            if kind in PAST:
                from_us = truth.stream.watermark - PAST_US[kind]
                assert shown == made(kind, [it for it in done if it[0] >= from_us]), name
            else:
                assert shown == made(kind, newest(kind, done)), name
        assert len(truth.tuples) > 60 + 5 * ROUNDS


def test_query_whose_table_changes_more_than_its_memory_allows_is_refused():
    """Eight changes of some 2 KiB wait, and there is room for five."""
    schema = pa.schema([("k", pa.int64())])
    changes = FollowedChanges([7], lambda: {"s": Reached(0, None)}, bytes_max=11_000)
    tables = QueryTables({})
    keys = pa.record_batch([pa.array([1], pa.int64())], schema=schema)
    for version in range(1, 9):
        changes.add(TableChange(7, ChangeKind.DELETE, version, 0), keys)
        changes.add(TableChange(8, ChangeKind.DELETE, version, 0), keys)
        if version == 2:
            changes.read(tables)
    with pytest.raises(BudgetExceeded, match=r"more than 11,000 bytes wait, row_query_bytes_max"):
        changes.read(tables)


def first_position(answer) -> int:
    """The position from which a window has tuples, as an answer says it."""
    found = [re.search(r"begin at position ([\d,]+); versions of", it) for it in answer.notes]
    return max((int(it[1].replace(",", "")) for it in found if it), default=0)


def test_older_versions_refuse_a_directory_with_a_rows_window_beside_a_table(db):
    db.register("q", ROWS["rows"])
    assert format_of(db.core.store.directory) == FORMAT_TABLE_CHANGES
