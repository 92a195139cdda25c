"""Levels of row queries that hold too much together: weights say which query gives up keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shedder.engine.engine import Engine
from shedder.errors import BadSetting, RowQueryFailed
from tests.engine.dataflow.shed_rows.shed_world import QUERIES, TwoStreams, create, push, rows_of
from tests.seeds import seed

pytestmark = pytest.mark.slow


def described(db: Engine, name: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in db.execute(f"DESCRIBE {name}").rows()}


@pytest.mark.parametrize("heavy", ["one", "two"])
def test_the_lighter_query_gives_up_keys_first_and_a_query_without_the_clause_none(tmp_path, heavy):
    world = TwoStreams(seed("levels together", heavy), keys=20_000, rows=8_000)
    light = {"one": "two", "two": "one"}[heavy]
    with Engine.open(tmp_path / "d") as db:
        create(db)
        text = QUERIES["left"][0]
        for name in (light, heavy):
            db.register(name, f"{text} ON OVERLOAD SHED")
        db.register("plain", text.replace("SELECT", "SELECT b.v AS x,"))
        db.execute(f"ALTER QUERY {heavy} SET WEIGHT 10")
        push(db, world, 2)
        rows = db.core.rows
        assert {described(db, name)["level"] for name in (light, heavy)} == {"0"}
        freed = rows.queries[light].state_bytes // 2
        rows.limits = replace(rows.limits, all_bytes_max=rows.size_bytes - freed)
        push(db, world)
        assert rows.size_bytes <= rows.limits.all_bytes_max
        assert not any(each.failed for each in rows.queries.values())
        levels = {name: int(described(db, name)["level"]) for name in (light, heavy)}
        assert levels[heavy] < levels[light]
        of = {
            row["query"]: row
            for row in db.execute("EXPLAIN ALLOCATION").rows()
            if row["synopsis"] == "operators"
        }
        assert (of[heavy]["weight"], of[light]["weight"], of["plain"]["weight"]) == (10, 1, None)
        truth = world.rows("left")
        for name in (light, heavy):
            found = rows_of(db.query(name).answer().table)
            kept = {row[0] for row in found}
            assert found == {row: n for row, n in truth.items() if row[0] in kept}
    with Engine.open(tmp_path / "d") as db:
        assert [described(db, name)["weight"] for name in (light, heavy)] == ["1.0", "10.0"]


def test_a_weight_is_a_number_over_zero_and_the_control_table_sets_it(tmp_path):
    with Engine.open(tmp_path / "d") as db:
        create(db)
        db.register("q", f"{QUERIES['join'][0]} ON OVERLOAD SHED")
        db.set_control("query", "q", "weight", "2.5")
        assert described(db, "q")["weight"] == "2.5"
        with pytest.raises(BadSetting, match=r"weight is -1\.0; it must be a number over 0"):
            db.set_control("query", "q", "weight", "-1")


@pytest.mark.parametrize("change", ["WEIGHT 2", "THINNING 1/2"])
def test_a_change_of_a_failed_query_is_refused_with_the_reason(tmp_path, change):
    with Engine.open(tmp_path / "d") as db:
        create(db)
        db.register("q", f"{QUERIES['join'][0]} ON OVERLOAD SHED")
        db.core.rows.queries["q"].fail("query 'q' failed (a reason)")
        with pytest.raises(RowQueryFailed, match=r"query 'q' failed \(a reason\)"):
            db.execute(f"ALTER QUERY q SET {change}")
