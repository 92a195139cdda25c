"""A stream that a standing query groups is sampled by group for one-time queries, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine

CREATE = "CREATE STREAM s (ts TIMESTAMP, g VARCHAR, h BIGINT, x DOUBLE) TIMESTAMP BY ts"
GROUPED = "SELECT g, AVG(x) AS a FROM s GROUP BY g"
ONCE = (
    "SELECT g, COUNT(*) AS n, AVG(x) AS a FROM s WHERE h < 5 GROUP BY g "
    "WITHIN 50 PERCENT CONFIDENCE 99.9999 PERCENT"
)
SMALL = 600  # Of 30,000: a uniform sample of 4,096 has some for certain, and too few for 50 %.


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with opened(tmp_path) as engine:
        engine.execute(CREATE)
        yield engine


def opened(path: Path) -> Engine:
    engine = shedder.open(path / "data", sample_rows=4096, run_rows=8_000)
    assert isinstance(engine, Engine)
    return engine


def rows(count: int, seed: int, first: int = 0) -> pa.Table:
    """Two groups of half each, and one of SMALL tuples in 30,000."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, count)
    group[rng.choice(count, SMALL * count // 30_000, replace=False)] = 2
    return pa.table(
        {
            "ts": pa.array(first + np.arange(count), pa.timestamp("us")),
            "g": np.array(["a", "b", "rare"])[group],
            "h": rng.integers(0, 10, count),
            "x": rng.normal(100 * (1 + group), 10),
        }
    )


def push(db: Engine, count: int, seed: int, first: int = 0) -> None:
    table = rows(count, seed, first)
    for start in range(0, count, 3_000):
        db.push("s", table.slice(start, 3_000))


@pytest.mark.slow
def test_who_groups_gives_others_a_sample_by_group(db: Engine) -> None:
    push(db, 30_000, 1)
    assert db.execute(ONCE).sources == ("archive",)  # The uniform sample has too few rare ones.
    db.register("standing", GROUPED)
    answer = db.execute(ONCE)
    assert answer.sources == ("stratified sample",)
    assert answer.met
    assert "strata:" in str(db.execute(f"EXPLAIN {ONCE}"))
    right = {row["g"]: row for row in db.execute(ONCE.partition("WITHIN")[0]).rows()}
    for row in answer.rows():
        assert row["a_low"] - 1e-9 <= right[row["g"]]["a"] <= row["a_high"] + 1e-9
        assert row["n_low"] <= right[row["g"]]["n"] <= row["n_high"]
    rare = next(row for row in answer.rows() if row["g"] == "rare")
    assert rare["n_bound"] == "exact"  # All its tuples are held.


@pytest.mark.slow
def test_it_goes_on_and_comes_back_after_a_restart(db: Engine, tmp_path: Path) -> None:
    db.register("standing", GROUPED)
    push(db, 20_000, 1)
    push(db, 20_000, 2, first=20_000)
    before = db.execute(ONCE)
    assert before.sources == ("stratified sample",)
    db.close()
    with opened(tmp_path) as again:
        assert again.execute(ONCE).rows() == before.rows()


def test_of_many_groupings_some_are_sampled(db: Engine) -> None:
    push(db, 3_000, 1)
    for number, columns in enumerate(["g", "h", "g, h", "x", "ts", "h, g"]):
        db.register(f"q{number}", f"SELECT {columns}, COUNT(*) AS n FROM s GROUP BY {columns}")
    sample = db.core.streams["s"].sample
    assert list(sample.strata) == [("g",), ("h",), ("g", "h"), ("x",)]
