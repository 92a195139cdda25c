"""Runs with fewer tuples than blocks: every reduction gives enough to tell something."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.one_time_queries.progressive_scan import ENOUGH_ROWS
from tests.scale import scaled

RUNS, RUN_ROWS = 3, 40
AGGREGATES = "COUNT(*) AS n, COUNT(v) AS nv, SUM(v) AS s, AVG(v) AS a, MEDIAN(v) AS m"


@pytest.fixture(scope="module", params=[64, 8])
def engine(tmp_path_factory, request):
    rng = np.random.default_rng(3)
    with Engine.open(tmp_path_factory.mktemp("small"), sample_rows=100) as engine:
        engine.execute(
            "CREATE STREAM s (ts TIMESTAMP, g BIGINT, v DOUBLE) TIMESTAMP BY ts "
            f"ARCHIVE hybrid(blocks={request.param}, block_rows=1)"
        )
        for first in range(0, RUNS * RUN_ROWS, RUN_ROWS):
            times = pa.array((first + np.arange(RUN_ROWS)) * 1_000_000, pa.timestamp("us"))
            groups, values = rng.integers(0, 2, RUN_ROWS), rng.normal(50.0, 3.0, RUN_ROWS)
            engine.push("s", pa.table({"ts": times, "g": groups, "v": values}))
            engine.seal("s")
        yield engine


@pytest.mark.slow
@pytest.mark.parametrize("by", ["", "g"], ids=["one", "groups"])
@pytest.mark.parametrize("where", ["", "WHERE g = 1"])
@pytest.mark.parametrize(
    "reduction", ["uniform(0.5)", "uniform(0.99)", "by_age('1 minute', 0.5)", "by_age('1 second')"]
)
def test_every_aggregate_is_answered_and_holds_the_truth(engine, by, where, reduction):
    columns, group = (f"{by}, ", f"GROUP BY {by}") if by else ("", "")
    text = f"SELECT {columns}{AGGREGATES} FROM s {where} {group}"
    truths = {row.get("g"): row for row in engine.execute(text).rows()}
    for _ in range(scaled(6, 20)):  # Each repetition draws its own blocks.
        answer = engine.execute(f"{text} REDUCE BY {reduction} CONFIDENCE 99.9999 PERCENT")
        rows = answer.rows()
        assert len(rows) == len(truths)
        for row in rows:
            truth = truths[row.get("g")]
            for name in ("n", "nv", "s", "a", "m"):
                assert row[name] is not None, (name, row)
                if row[f"{name}_bound"] != "none":
                    low, high = row[f"{name}_low"], row[f"{name}_high"]
                    assert low - 1e-9 <= truth[name] <= high + 1e-9, (name, row, truth)


@pytest.mark.slow
def test_what_was_given_is_told(engine):
    part = engine.execute("SELECT AVG(v) AS a FROM s REDUCE BY uniform(0.99)").archive
    assert part is not None
    assert part.asked_max == 0.99
    assert part.given_max <= 1 - ENOUGH_ROWS / (RUNS * RUN_ROWS)
    assert part.blocks_read < part.blocks
