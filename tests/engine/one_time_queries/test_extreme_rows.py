"""One-time answers beside extreme rows: after restarts, crashes and deletions they stay true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from tests.engine.killed import copy_killed

CREATE = "CREATE STREAM s (ts TIMESTAMP, g VARCHAR, x DOUBLE) TIMESTAMP BY ts"
ONCE = (  # Streams have seeds of their own: no run may see a miss.
    "SELECT g, SUM(x) AS s, AVG(x) AS a FROM s GROUP BY g "
    "WITHIN 60 PERCENT CONFIDENCE 99.9999999 PERCENT"
)
TAIL = "SELECT COUNT(*) AS n, SUM(x) AS s FROM s WHERE x > 1000 WITHIN 1 PERCENT"
COUNT, GROUPS = 30_000, 6


def opened(path: Path, run_rows: int = 8_000) -> Engine:
    engine = shedder.open(path, sample_rows=4_096, run_rows=run_rows)
    assert isinstance(engine, Engine)
    return engine


def rows(seed: int, first: int = 0) -> pa.Table:
    """One value in a thousand is 10^5, the others are 10 +- 1."""
    rng = np.random.default_rng(seed)
    values = rng.normal(10.0, 1.0, COUNT)
    values[rng.random(COUNT) < 0.001] = 1e5
    return pa.table(
        {
            "ts": pa.array(first + np.arange(COUNT), pa.timestamp("us")),
            "g": np.array([f"g{at}" for at in range(GROUPS)])[rng.integers(0, GROUPS, COUNT)],
            "x": values,
        }
    )


def push(db: Engine, table: pa.Table) -> None:
    for first in range(0, COUNT, 3_000):
        db.push("s", table.slice(first, 3_000))


def check(db: Engine, tables: list[pa.Table]) -> list[dict]:
    """Check answers of the sample against exact ones, and return them."""
    table = pa.concat_tables(tables)
    groups = np.array(table["g"].to_pylist())
    values = table["x"].to_numpy()
    answer = db.execute(ONCE)
    assert answer.sources == ("sample",)
    for row in answer.rows():
        own = values[groups == row["g"]]
        assert row["s_low"] <= own.sum() * (1 + 1e-9)
        assert own.sum() * (1 - 1e-9) <= row["s_high"]
        assert row["a_low"] <= own.mean() <= row["a_high"]
        assert row["s_high"] - row["s_low"] < 1e5  # Not even one of the large values is in doubt.
    tail = db.execute(TAIL)
    assert tail.sources == ("sample",)
    [row] = tail.rows()
    assert (row["n"], row["s"]) == ((values > 1_000).sum(), values[values > 1_000].sum())
    assert (row["n_bound"], row["s_bound"]) == ("exact", "exact")
    return [*answer.rows(), row]


@pytest.mark.slow
def test_extreme_rows_survive_a_restart_and_a_crash(tmp_path: Path) -> None:
    first, second = rows(1), rows(2, COUNT)
    with opened(tmp_path / "data") as db:
        db.execute(CREATE)
        push(db, first)
        before = check(db, [first])
    with opened(tmp_path / "data", COUNT + 1) as db:  # From the checkpoint of the shutdown.
        assert check(db, [first]) == before
        push(db, second)
        after = check(db, [first, second])
        copy_killed(db, tmp_path / "copy")
    with opened(tmp_path / "copy") as db:  # From the checkpoint, and the log after it.
        assert check(db, [first, second]) == after


@pytest.mark.slow
def test_extreme_rows_are_drawn_again_with_a_sharper_sample(tmp_path: Path) -> None:
    table = rows(3)
    with opened(tmp_path / "data") as db:
        db.execute(CREATE)
        push(db, table)
        before = check(db, [table])
        db.register("counted", "SELECT COUNT(DISTINCT g) AS n FROM s")
        assert check(db, [table]) == before


@pytest.mark.slow
def test_extreme_rows_are_not_asked_after_a_deletion(tmp_path: Path) -> None:
    table = rows(4)
    with opened(tmp_path / "data") as db:
        db.execute(CREATE)
        push(db, table)
        check(db, [table])
        db.execute("DELETE FROM s WHERE x > 1000")
        [row] = db.execute(TAIL).rows()
        assert (row["n"], row["s"]) == (0, None)
