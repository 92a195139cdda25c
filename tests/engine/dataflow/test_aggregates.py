"""Aggregates of standing row queries beside those of one-time queries over the same tuples."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import START_US

pytestmark = pytest.mark.slow

CREATE = "CREATE STREAM {} (ts TIMESTAMP, k BIGINT, n BIGINT, d DOUBLE, w VARCHAR) TIMESTAMP BY ts"
LISTED = (
    "COUNT(*), SUM({0}n), AVG({0}d), VAR({0}n), STDDEV({0}d), COVAR_POP({0}n, {0}d), "
    "COVAR_SAMP({0}n, {0}d), CORR({0}n, {0}d), REGR_SLOPE({0}n, {0}d), REGR_INTERCEPT({0}n, {0}d), "
    "MIN({0}n), MAX({0}d), MIN({0}ts), QUANTILE({0}n, 0.9), MEDIAN({0}d), COUNT(DISTINCT {0}w), "
    "DISTINCT_BOTH({0}w, {0}n > 3, {0}n < 6), DISTINCT_ONLY({0}w, {0}n > 3, {0}n < 6), "
    "JACCARD({0}w, {0}n > 3, {0}n < 6), SELF_JOIN_SIZE({0}w), CDF({0}d, 0.5), "
    "MAX({0}n) FILTER (WHERE {0}d < 0.5)"
)
HOUR = "[RANGE INTERVAL '1' HOUR]"
QUERIES = {
    "join": f"SELECT {LISTED.format('a.')} FROM a {HOUR}, b {HOUR} WHERE a.k = b.k",
    "groups": f"SELECT a.k, {LISTED.format('a.')} FROM a {HOUR}, b {HOUR} WHERE a.k = b.k "
    "GROUP BY a.k HAVING MAX(a.n) > 3 ORDER BY a.k",
    "union": f"SELECT {LISTED.format('')} FROM "
    f"(SELECT * FROM a {HOUR} UNION ALL SELECT * FROM b {HOUR}) u",
}


def table(rng: np.random.Generator, size: int) -> pa.Table:
    def some(values, kind):
        return pa.array(values, kind, mask=rng.random(size) < 0.1)

    return pa.table(
        {
            "ts": pa.array(START_US + np.arange(size), pa.timestamp("us")),
            "k": some(rng.integers(0, 5, size), pa.int64()),
            "n": some(rng.integers(-9, 9, size), pa.int64()),
            "d": some(rng.integers(0, 99, size) / 64, pa.float64()),
            "w": some(rng.choice(["a", "b", "c"], size), pa.string()),
        }
    )


def same(found, wanted) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return found == wanted


def test_aggregates_of_standing_queries_are_those_of_one_time_queries(tmp_path):
    rng = np.random.default_rng(401)
    with Engine.open(tmp_path / "d") as db:
        for name in "ab":
            db.execute(CREATE.format(name))
        standing = {
            name: db.register(name, text.partition(" ORDER")[0]) for name, text in QUERIES.items()
        }
        for name in "ab":
            db.push(name, table(rng, 60))
            db.heartbeat(name, START_US + 60)
        for name, text in QUERIES.items():
            wanted = [list(row.values()) for row in db.execute(text).table.to_pylist()]
            found = [list(row.values()) for row in standing[name].answer().table.to_pylist()]
            if name == "groups":  # The standing query has no ORDER BY.
                found.sort(key=lambda row: row[0])
            assert len(found) == len(wanted)
            for ours, theirs in zip(found, wanted, strict=True):
                assert all(map(same, ours, theirs)), (name, ours, theirs)
                variance = 3 + (name == "groups")  # Of whole numbers both are the nearest double.
                assert ours[variance] == theirs[variance]
