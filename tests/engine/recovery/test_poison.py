"""Values and texts at the edge of what is allowed are read, now and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine

SECOND = 1_000_000
NOW_US = 1_700_000_000 * SECOND


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "data") as engine:
        engine.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        yield engine


def rows(values: list[int], start_us: int = NOW_US) -> pa.Table:
    times = pa.array([start_us + i for i in range(len(values))], pa.timestamp("us"))
    return pa.table({"ts": times, "k": pa.array(values, pa.int64())})


def test_integers_that_doubles_do_not_have_are_summed(db: Engine) -> None:
    query = db.register("q", "SELECT SUM(k) AS s, COUNT(DISTINCT k) AS d FROM s")
    values = [2**53 + 1, 2**63 - 1, -(2**63), 5]
    row = query.answer(after=db.push("s", rows(values))).rows()[0]
    assert (row["s"], row["s_bound"]) == (sum(values), "exact")
    again = db.register("again", "SELECT SUM(k) AS s FROM s WHERE k > 0")
    assert again.answer().rows()[0]["s"] is None  # Over int64.


def test_the_first_and_last_moments_there_are_can_be_shown(db: Engine) -> None:
    query = db.register("q", "SELECT MEDIAN(ts) AS m, MIN(ts) AS l FROM s")
    for start_us in (-62_135_596_800_000_000, 253_402_300_799_999_999):
        row = query.answer(after=db.push("s", rows([1], start_us))).rows()[0]
        assert row["m_low"] <= row["l"] <= row["m_high"]


def test_a_median_of_rounded_integers_is_not_called_exact(db: Engine) -> None:
    query = db.register("q", "SELECT MEDIAN(k) AS m FROM s")
    for value in (2**53 + 1, 2**63 - 1):
        row = query.answer(after=db.push("s", rows([value] * 3))).rows()[0]
        assert row["m_bound"] == "interval"
        assert row["m_low"] <= value <= row["m_high"]
        db.execute("DROP QUERY q")
        query = db.register("q", f"SELECT MEDIAN(k) AS m FROM s WHERE k > {value}")


def test_a_query_that_larger_limits_allowed_is_recovered(tmp_path: Path) -> None:
    nested = "k"
    for _ in range(30):
        nested = f"({nested} + 1) * 2"
    text = f"SELECT COUNT(*) AS n FROM s [RANGE INTERVAL '20001' SECOND SLIDE INTERVAL '1' SECOND] WHERE {nested} > 3"  # noqa: E501
    with Engine.open(tmp_path / "data", panes_max=50_000, query_depth_max=50) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        db.register("deep", text)
    with Engine.open(tmp_path / "data") as db:
        assert db.query("deep").answer().rows()[0]["n"] == 0
