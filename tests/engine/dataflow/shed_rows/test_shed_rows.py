"""ON OVERLOAD SHED: rows of a sample of keys, levels, completeness, restarts and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from shedder.archive.files.data_directory import FORMAT_SHED_ROWS, format_of
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, BadSetting, RowQueryFailed, Unimplemented
from shedder.queries.answers.database_api import QueryHandle
from shedder.wire.answers import answer_from_wire, answer_to_wire
from synopses.model.estimate import Bound
from tests.engine.dataflow.shed_rows.shed_world import (
    QUERIES,
    TwoStreams,
    create,
    push,
    rows_of,
)
from tests.engine.killed import copy_killed
from tests.seeds import seed

pytestmark = pytest.mark.slow

LIMIT = 3 << 19
SETTINGS = {"row_query_bytes_max": LIMIT, "checkpoint_seconds": 0.1, "run_rows": 20_000}


def level_of(db: Engine, name: str) -> int:
    facts = {row["key"]: row["value"] for row in db.execute(f"DESCRIBE {name}").rows()}
    return int(facts["level"])


def sent_until(query: QueryHandle, resume: str) -> list[tuple[object, ...]]:
    """Return all rows that a query has sent up to a token, in order."""
    rows = list[tuple[object, ...]]()
    for batch in query.subscribe(after=f"{resume.partition('.')[0]}.0"):
        rows += zip(*(column.to_pylist() for column in batch.table.columns), strict=True)
        if batch.resume == resume:
            return rows
    raise AssertionError(resume)


@pytest.mark.parametrize("kind", QUERIES)
def test_the_rows_shown_are_all_rows_of_the_kept_keys_and_completeness_holds(tmp_path, kind):
    world = TwoStreams(seed("shed rows", kind), keys=20_000, rows=4_000)
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        query = db.register("q", f"{QUERIES[kind][0]} ON OVERLOAD SHED")
        for _ in range(4):
            push(db, world)
            answer, level = query.answer(), level_of(db, "q")
            found, truth = rows_of(answer.table), world.rows(kind)
            kept = {row[0] for row in found}
            assert found == {row: n for row, n in truth.items() if row[0] in kept}
            keys = {row[0] for row in truth}
            low, high = stats.binom.ppf([1e-9, 1 - 1e-9], len(keys), 2.0**-level)
            assert low <= len(kept) <= high
            said = answer.completeness
            assert (said.shown_rows, said.shown_keys) == (found.total(), len(kept))
            assert (said.columns[0], said.share) == ("k", 2.0**-level)
            assert (said.start_us, said.end_us) == (None, None)
            wide = 12 * np.sqrt(len(keys) * 2.0**level)  # At odds far below those of the interval.
            assert abs(said.keys.value - len(keys)) <= wide
            assert (said.rows.bound is Bound.EXACT, said.reason) == (level == 0, "")
            assert abs(said.rows.value - truth.total()) <= 12 * wide
            assert db.core.rows.queries["q"].state_bytes <= LIMIT
        assert level > 0
        assert answer_from_wire(answer_to_wire(answer)).completeness == said
        assert said.text in str(answer)
        assert f"1/{1 << level} of the keys (k" in str(db.execute("EXPLAIN q").table.to_pylist())
        assert format_of(db.core.store.directory) == FORMAT_SHED_ROWS


@pytest.mark.parametrize("kind", ["join", "partitions"])
def test_a_restart_and_a_kill_give_the_same_rows_and_levels(tmp_path, kind):
    world = TwoStreams(seed("shed restart", kind), keys=20_000, rows=4_000)
    text = f"{QUERIES[kind][0]} ON OVERLOAD SHED"
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        push(db, world, 2)  # A new query reads the past of its windows.
        query = db.register("q", text)
        push(db, world, 3)
        for name, table in list(world.slide())[:4]:
            db.push(name, table)
        before, level = query.answer(), level_of(db, "q")
        sent = sent_until(query, before.resume)
        copied = copy_killed(db, tmp_path / "killed")
    assert level > 0
    with Engine.open(tmp_path / "d", **SETTINGS) as db, Engine.open(copied, **SETTINGS) as other:
        for each in (db, other):
            answer = each.query("q").answer()
            assert rows_of(answer.table) == rows_of(before.table)
            assert answer.resume == before.resume
            assert answer.completeness == before.completeness
            assert level_of(each, "q") == level
            assert sent_until(each.query("q"), before.resume) == sent
        later = list(world.slide(2_000))
        for each in (db, other):
            for name, table in later:
                each.push(name, table)
            for name in "ab":
                each.heartbeat(name, world.end_us)
        both = [each.query("q").answer() for each in (db, other)]
        assert rows_of(both[0].table) == rows_of(both[1].table) != rows_of(before.table)
        assert both[0].resume == both[1].resume


def test_a_level_that_is_set_shrinks_and_grows_the_state_of_a_query_that_stands(tmp_path):
    world = TwoStreams(seed("shed levels"), keys=500, rows=300, batches=1)
    with Engine.open(tmp_path / "d", **(SETTINGS | {"row_query_bytes_max": 8 << 20})) as db:
        create(db)
        text = QUERIES["join"][0].replace("RANGE 40", "RANGE 10")
        query = db.register("q", f"{text} ON OVERLOAD SHED")
        push(db, world, 2)
        stands = db.core.rows.queries["q"]
        before = stands.state_bytes
        answer = query.answer().completeness
        assert (answer.share, answer.rows.bound, level_of(db, "q")) == (1.0, Bound.EXACT, 0)
        db.execute("ALTER QUERY q SET THINNING 1/4")
        assert level_of(db, "q") == 2
        assert stands.state_bytes < 0.8 * before
        levels = [2]
        for at in range(13):
            push(db, world)
            found, truth = rows_of(query.answer().table), world.rows("join", slides=1)
            kept = {row[0] for row in found}
            assert found == {row: n for row, n in truth.items() if row[0] in kept}
            levels.append(level_of(db, "q"))
            if at == 2:
                assert set(levels) == {2}
                db.execute("ALTER QUERY q SET THINNING AUTO")
        assert sorted(set(levels)) == [0, 1, 2]
        assert sorted(levels, reverse=True) == levels
        assert found == truth
        changes = stands.thinning
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        assert db.core.rows.queries["q"].thinning == changes
        assert rows_of(db.query("q").answer().table) == found


def test_a_smaller_limit_of_a_restart_shrinks_the_state(tmp_path):
    world = TwoStreams(seed("shed limits"), keys=20_000, rows=4_000)
    for limit in (LIMIT << 5, LIMIT):
        with Engine.open(tmp_path / "d", **(SETTINGS | {"row_query_bytes_max": limit})) as db:
            if limit > LIMIT:
                create(db)
                db.register("q", f"{QUERIES['left'][0]} ON OVERLOAD SHED")
            push(db, world, 3)
            assert (level_of(db, "q") > 0) == (limit == LIMIT)
            assert db.core.rows.queries["q"].state_bytes <= limit
            found, truth = rows_of(db.query("q").answer().table), world.rows("left")
            kept = {row[0] for row in found}
            assert found == {row: n for row, n in truth.items() if row[0] in kept}


@pytest.mark.nightly  # Its states have to exceed 32 MiB, the least for all: 10 s of CPU.
def test_queries_that_hold_too_much_together_keep_fewer_keys_and_none_fails(tmp_path):
    world = TwoStreams(seed("shed together"), keys=20_000, rows=8_000)
    settings = {"memory_bytes": 256 << 20, "row_query_bytes_max": 64 << 20}
    with Engine.open(tmp_path / "d", **settings) as db:
        create(db)
        for at in range(5):
            text = f"{QUERIES['left'][0]} WHERE a.v > {-1 - at}"
            db.register(f"q{at}", f"{text} ON OVERLOAD SHED")
        rows, levels = db.core.rows, set[int]()
        for _ in range(4):
            push(db, world)
            assert rows.size_bytes <= rows.limits.all_bytes_max == 32 << 20
            assert not any(each.failed for each in rows.queries.values())
            levels |= {level_of(db, name) for name in rows.queries}
        assert len(levels) > 1
        truth = world.rows("left")
        for name in rows.queries:
            found = rows_of(db.query(name).answer().table)
            kept = {row[0] for row in found}
            assert found == {row: n for row, n in truth.items() if row[0] in kept}


def test_without_the_clause_and_beyond_the_last_level_a_query_fails(tmp_path):
    world = TwoStreams(seed("shed fails"), keys=300, rows=3_000)
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        text = QUERIES["join"][0]
        db.register("fails", f"{text} ON OVERLOAD FAIL")
        db.register("last", f"{text} ON OVERLOAD SHED")
        assert [row["text"].rpartition(" ")[2] for row in db.execute("SHOW QUERIES").rows()] == [
            "b.k",
            "SHED",
        ]
        push(db, world, 5)
        for name in ("fails", "last"):
            with pytest.raises(RowQueryFailed, match=f"query '{name}' failed .*bytes"):
                db.query(name).answer()


def test_rows_of_a_stream_say_which_share_of_keys_they_have_without_a_bound(tmp_path):
    world = TwoStreams(seed("shed stream"), keys=20_000, rows=4_000)
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        query = db.register("q", f"{QUERIES['join'][0]} ON OVERLOAD SHED")
        rows = query.subscribe()
        push(db, world, 5)
        said = next(rows).completeness
        assert said.start_us <= said.end_us
        assert said.shown_rows > 0
        assert (said.rows.bound is Bound.NONE) == (said.share < 1.0)
        while said.share == 1.0:
            said = next(rows).completeness
        assert "depends on the sample" in said.reason
        assert said.rows.value >= said.shown_rows


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT a.v FROM a {w} JOIN b {w} ON a.k = b.k", "no column by which all inputs"),
        ("SELECT k, v FROM a [ROWS 100]", "no column by which all inputs"),
        ("SELECT k FROM a {w} WHERE k NOT IN (SELECT k FROM b {w})", "no column by which"),
        ("SELECT RSTREAM(k) FROM a {w}", "RSTREAM repeats all rows at each instant"),
        ("SELECT a.k, COUNT(*) AS n FROM a {w} JOIN b {w} ON a.k = b.k GROUP BY a.k", "ISTREAM"),
        ("SELECT a.k, t.w FROM a JOIN t ON a.k = t.k", "for a query of streams alone"),
    ],
)
def test_a_query_without_a_key_that_all_inputs_have_is_refused(tmp_path, text, error):
    with Engine.open(tmp_path / "d") as db:
        create(db)
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, w BIGINT)")
        with pytest.raises(BadQuery, match=error):
            db.register("q", text.format(w="[RANGE 40 SECONDS]") + " ON OVERLOAD SHED")


def test_where_the_clause_has_no_meaning_it_is_refused(tmp_path):
    text = f"{QUERIES['join'][0]} ON OVERLOAD SHED"
    with Engine.open(tmp_path / "d") as db:
        create(db)
        with pytest.raises(BadQuery, match="a query that is answered once has all rows"):
            db.execute(text)
        with pytest.raises(Unimplemented, match="ON OVERLOAD SHED in a query whose rows become"):
            db.execute(f"CREATE VIEW v AS {text}")
        with pytest.raises(
            BadQuery, match="ON OVERLOAD in a query is for one whose result is rows"
        ):
            db.execute("SELECT COUNT(*) FROM a ON OVERLOAD SHED")
        assert format_of(db.core.store.directory) < FORMAT_SHED_ROWS
        with pytest.raises(BadQuery, match="expected FAIL or SHED"):
            db.register("q", f"{QUERIES['join'][0]} ON OVERLOAD DROP")
        db.register("q", text)
        with pytest.raises(BadQuery, match="kept by key: leave FOR away"):
            db.execute("ALTER QUERY q SET THINNING 1/2 FOR k")
        with pytest.raises(BadSetting, match="keeps 1/64 of its keys or more"):
            db.execute("ALTER QUERY q SET THINNING 1/128")
        with pytest.raises(BadQuery, match="leave ON OVERLOAD away"):
            db.register("q", f"{QUERIES['join'][0]} CONFIDENCE 95 PERCENT ON OVERLOAD SHED")
