"""Thinned standing queries with LIMIT and HAVING: published intervals hold for the shown groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from tests.truth import gate

CREATE = """CREATE STREAM s (ts TIMESTAMP NOT NULL, g BIGINT) TIMESTAMP BY ts
LATENESS INTERVAL '1' SECOND"""
QUERIES = {
    "largest": "SELECT g, COUNT(*) AS n FROM s GROUP BY g ORDER BY n DESC LIMIT 5",
    "large": "SELECT g, COUNT(*) AS n FROM s GROUP BY g HAVING COUNT(*) > 100",
}
GROUPS, SIZE = 500, 40


@pytest.mark.slow
@pytest.mark.parametrize("levels", [["1/16"], ["1/16", "1/2"]])
def test_published_intervals_of_the_largest_of_equal_groups_hold(tmp_path: Path, levels: list[str]):
    hits: dict[str, list[bool]] = {name: [] for name in QUERIES}
    certain = []
    for trial in range(3):
        groups = np.repeat(np.arange(GROUPS), SIZE)
        np.random.default_rng(trial).shuffle(groups)
        times = pa.array(np.arange(len(groups)), pa.timestamp("us"))
        batch = pa.table({"ts": times, "g": groups})
        with shedder.open(tmp_path / str(trial), clock_us=lambda: 10**10) as engine:
            engine.execute(CREATE)
            for name, text in QUERIES.items():
                engine.register(name, text)
            part = len(batch) // len(levels)
            for at, level in enumerate(levels):
                for name in QUERIES:
                    engine.execute(f"ALTER QUERY {name} SET THINNING {level}")
                engine.push("s", batch.slice(at * part, part))
            for name in QUERIES:
                rows = engine.query(name).answer().rows()
                hits[name] += [row["n_low"] <= SIZE <= row["n_high"] for row in rows]
                certain += [row["certain"] for row in rows]
    assert len(hits["largest"]) == 15
    for found in hits.values():
        assert sum(found) >= gate(len(found), 0.95)
    assert not any(certain)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [["1/64"], ["1/64", "1/8"]])
def test_intervals_of_groups_of_one_tuple_hold_if_the_tuple_was_read(
    tmp_path: Path, levels: list[str]
):
    texts = {
        "rows": "SELECT g, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY g",
        "different": "SELECT g, COUNT(DISTINCT v) AS n FROM s GROUP BY g",
        "sets": "SELECT g, DISTINCT_BOTH(v, v > 0, v > 0) AS n FROM s GROUP BY g",
        "joined": "SELECT g, SELF_JOIN_SIZE(v) AS n FROM s GROUP BY g",
    }
    count = 4_000
    batch = pa.table(
        {
            "ts": pa.array(np.arange(count), pa.timestamp("us")),
            "g": np.arange(count),
            "v": np.arange(count) % 97 + 1,
        }
    )
    with shedder.open(tmp_path, clock_us=lambda: 10**10) as engine:
        engine.execute(CREATE.replace("g BIGINT", "g BIGINT, v BIGINT"))
        for name, text in texts.items():
            engine.register(name, text)
        part = len(batch) // len(levels)
        for at, level in enumerate(levels):
            for name in texts:
                engine.execute(f"ALTER QUERY {name} SET THINNING {level}")
            engine.push("s", batch.slice(at * part, part))
        for name in texts:
            rows = engine.query(name).answer().rows()
            assert len(rows) >= 20
            held = [row["n_low"] <= 1 <= row["n_high"] for row in rows]
            assert sum(held) >= gate(len(held), 0.95), name
            if name == "rows":
                sums = [row["total_low"] <= row["g"] % 97 + 1 <= row["total_high"] for row in rows]
                assert sum(sums) >= gate(len(sums), 0.95)
