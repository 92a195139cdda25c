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
