"""Levels of single synopses: which outputs they belong to, and what the others go on to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shedder
from shedder.cql.expressions.expression import Aggregate
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.engine import Engine
from shedder.engine.synopsis_plans.thinning_levels import with_levels
from shedder.errors import InvalidRequest
from tests.engine.thinned_streams import CREATE, SECOND, rows

TEXT = """SELECT COUNT(*) AS n, SUM(x) AS sx, AVG(x) AS ax, AVG(k) AS ak, MEDIAN(x) AS mx,
  SUM(k) / COUNT(x) AS r FROM s"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path, clock_us=lambda: 10_000 * SECOND) as engine:
        assert isinstance(engine, Engine)
        engine.execute(CREATE)
        yield engine


def status(engine: Engine, sql: str) -> str:
    return str(engine.execute(sql).table.column(0)[0].as_py())


def levels(engine: Engine, name: str) -> dict[Aggregate, int]:
    query_state = engine.core.standing_query(name)[1].state
    return {
        aggregate: query_state.levels[part]
        for aggregate, part in zip(
            query_state.query.aggregates, query_state.plan.answers, strict=True
        )
    }


@pytest.mark.slow
def test_one_output_is_thinned_and_the_others_stay_exact(db: Engine) -> None:
    query = db.register("q", TEXT)
    assert status(db, "ALTER QUERY q SET THINNING 1/8 FOR mx") == (
        "mx of query q read 1/8 of the tuples"
    )
    db.push("s", rows(4_000, 1))
    [row] = query.answer().rows()
    assert {name for name in ("n", "sx", "ax", "ak", "r") if row[f"{name}_bound"] == "exact"} == {
        "n", "sx", "ax", "ak", "r",
    }  # fmt: skip
    assert row["mx_bound"] == "interval"
    assert row["mx_high"] - row["mx_low"] > 0
    assert "QUANTILE: pane synopses (log-buckets), reading 1/8 of the tuples" in query.explain()


def test_aggregates_that_share_a_synopsis_share_its_level_and_the_answer_says_so(
    db: Engine,
) -> None:
    db.register("q", TEXT)
    message = status(db, "ALTER QUERY q SET THINNING 1/4 FOR avg(x)")
    assert message == "sx, ax of query q read 1/4 of the tuples"
    message = status(db, "ALTER QUERY q SET THINNING 1/16 FOR r, MX")
    assert message == "ak, mx, r of query q read 1/16 of the tuples"
    by_text = {f"{a.function.value}({getattr(a.argument, 'name', '*')})": level
               for a, level in levels(db, "q").items()}  # fmt: skip
    assert by_text == {
        "COUNT(*)": 2,  # The smallest level of all: rows name the groups.
        "SUM(x)": 2, "AVG(x)": 2, "AVG(k)": 4, "QUANTILE(x)": 4, "SUM(k)": 4, "COUNT(x)": 4,
    }  # fmt: skip
    db.execute("ALTER QUERY q SET THINNING 1")
    assert set(levels(db, "q").values()) == {0}


@pytest.mark.slow
def test_single_levels_are_in_the_log(tmp_path: Path) -> None:
    def opened() -> Engine:
        engine = shedder.open(tmp_path / "d", clock_us=lambda: 10_000 * SECOND)
        assert isinstance(engine, Engine)
        return engine

    with opened() as engine:
        engine.execute(CREATE)
        engine.register("q", TEXT)
        engine.execute("ALTER QUERY q SET THINNING 1/8 FOR ak, mx")
        engine.push("s", rows(2_000, 1))
        before, levels_before = engine.query("q").answer().rows(), levels(engine, "q")
    with opened() as engine:
        assert engine.query("q").answer().rows() == before
        assert levels(engine, "q") == levels_before


@pytest.mark.slow
def test_the_control_table_sets_levels_too(db: Engine) -> None:
    db.register('odd "name"', TEXT)
    db.set_control("query", 'odd "name"', "thinning", "1/8 FOR ak")
    assert max(levels(db, 'odd "name"').values()) == 3
    db.set_control("query", 'odd "name"', "thinning", "1/2")
    assert set(levels(db, 'odd "name"').values()) == {1}
    with pytest.raises(InvalidRequest):
        db.set_control("query", 'odd "name"', "thinning", "1/3")


@pytest.mark.slow
@given(
    st.lists(st.integers(0, LEVEL_MAX), min_size=1, max_size=6),
    st.dictionaries(st.integers(0, 5), st.integers(0, LEVEL_MAX)),
)
def test_rows_are_counted_at_the_smallest_level_of_all(
    before: list[int], changes: dict[int, int]
) -> None:
    changes = {part: level for part, level in changes.items() if part < len(before)}
    after = with_levels(before, changes)
    assert after[0] == min(after)
    assert len(after) == len(before)
    for part in range(1, len(before)):
        assert after[part] == changes.get(part, before[part])
    assert with_levels(after, {}) == (min(after[1:], default=after[0]), *after[1:])
