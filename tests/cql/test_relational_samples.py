"""SAMPLE(p): the tuples that it keeps are those of small random keys, wherever they are read."""

from __future__ import annotations

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.plans.logical_plan import scans_of
from shedder.cql.sql.duckdb_random_keys import with_position_key
from shedder.cql.sql.plan_sql import RelationSql, needs_event_order, plan_sql
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.errors import BadQuery, ShedderError, Unimplemented
from synopses.kernels.hashing import position_keys
from tests.cql.relations import SEED, Relations, stream, table

L = ColumnType.BIGINT
ROWS = 2_000
WORLD = Relations(
    {
        "s": (stream("s", n=L), [(n, n // 3) for n in range(ROWS)]),
        "names": (table("names", n=L), [(1,)]),
    }
)


@pytest.mark.parametrize("seed", [0, 1, SEED, (1 << 64) - 1])
def test_random_keys_are_the_same_in_sql(seed: int) -> None:
    rows = with_position_key("SELECT range AS p FROM range(500)", "p", "k", seed)
    found = WORLD.sql(f"SELECT k FROM ({rows}) ORDER BY p")
    assert [key for (key,) in found] == position_keys(seed, 0, 500).tolist()


@pytest.mark.parametrize("first", [-(1 << 63), -4_294_967_295, -250, (1 << 63) - 501])
def test_random_keys_of_any_position_are_the_same_in_sql(first: int) -> None:
    rows = with_position_key(f"SELECT {first} + range AS p FROM range(500)", "p", "k", SEED)
    found = WORLD.sql(f"SELECT k FROM ({rows}) ORDER BY p")
    assert [key for (key,) in found] == position_keys(SEED, first, 500).tolist()


@pytest.mark.parametrize(("percent", "share"), [("10", 0.1), ("0.7", 0.007), ("100", 1.0)])
def test_a_tuple_is_kept_by_its_random_key(percent: str, share: float) -> None:
    keys = position_keys(SEED, 0, ROWS).tolist()
    kept = [(n,) for n, key in enumerate(keys) if key < share * 2**64]
    assert len(kept) > 0
    assert WORLD.rows(f"SELECT n FROM s SAMPLE({percent}) ORDER BY n") == kept


def test_a_sample_comes_before_the_window_and_before_where() -> None:
    sampled = [n for (n,) in WORLD.rows("SELECT n FROM s SAMPLE(20) ORDER BY n")]
    newest = WORLD.rows("SELECT n FROM s q SAMPLE(20) [ROWS 3] ORDER BY n")
    assert [n for (n,) in newest] == sampled[-3:]
    text = "SELECT FIRST(n), LAST(n), COUNT(*) FROM s SAMPLE(20) q WHERE n > 9"
    later = [n for n in sampled if n > 9]
    assert WORLD.rows(text) == [(later[0], later[-1], len(later))]


def test_a_sample_is_read_and_written_again() -> None:
    statement = parse("SELECT * FROM s SAMPLE(0.7) q [ROWS 5]")
    assert isinstance(statement, RelationalSelect)
    assert statement.text == "SELECT * FROM s q SAMPLE(0.7) [ROWS 5]"
    assert parse(statement.text) == statement
    plan = WORLD.bound("SELECT n FROM s SAMPLE(0.7)").plan
    assert [scan.sample for scan in scans_of(plan)] == [0.007]
    assert needs_event_order(plan)
    with pytest.raises(Unimplemented, match="SAMPLE"):
        plan_sql(plan, {"s": RelationSql("s")})


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT n FROM s SAMPLE(0)", BadQuery, "over 0, at most 100, not 0"),
        ("SELECT n FROM s SAMPLE(101)", BadQuery, "not 101"),
        ("SELECT n FROM s SAMPLE('many')", BadQuery, "SAMPLE takes a number"),
        ("SELECT n FROM names SAMPLE(5)", BadQuery, "names is a table, and SAMPLE is of a stream"),
        ("SELECT n FROM (SELECT n FROM s) t SAMPLE(5)", Unimplemented, "of its streams"),
        ("DELETE FROM s SAMPLE(5)", Unimplemented, "SAMPLE in this statement"),
        ("INSERT INTO s SELECT * FROM s SAMPLE(5)", Unimplemented, "SAMPLE in this statement"),
        ("CREATE ROLLUP r AS SELECT MAX(n) FROM s SAMPLE(5)", Unimplemented, "SAMPLE in this"),
    ],
)
def test_bad_samples_are_refused(text: str, error: type[ShedderError], message: str) -> None:
    with pytest.raises(error, match=message):
        WORLD.bound(text)
