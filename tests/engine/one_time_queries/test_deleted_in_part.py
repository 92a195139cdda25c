"""Streams with deleted rows that are not purged yet are read in part, and intervals hold."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from shedder.cql.statements.archive_layout import Eager, Hybrid
from shedder.engine.engine import Engine
from synopses.model.estimate import Bound
from tests.scale import scaled

ROWS = 12_000
CREATE = "CREATE STREAM s (ts TIMESTAMP, v DOUBLE, k BIGINT, w BIGINT) TIMESTAMP BY ts"
LAYOUTS = ["hybrid(blocks=16, block_rows=100)", "eager(0.5, 0.75)"]
REPETITIONS = scaled(30, 60)
CONFIDENCES = {Hybrid: 95, Eager: 99.9999}  # A copy is one sample, which misses or does not.
ROUNDING = 1e-12  # Of sums that are added in another order.


def tuples() -> pa.Table:
    rng = np.random.default_rng(11)
    return pa.table(
        {
            "ts": pa.array(np.arange(ROWS) * 1_000_000, pa.timestamp("us")),
            "v": rng.lognormal(0.0, 1.0, ROWS),
            "k": rng.integers(0, 4, ROWS),
            "w": pa.array(rng.integers(0, 1_000, ROWS), mask=rng.random(ROWS) < 0.2),
        }
    )


@pytest.fixture(scope="module", params=LAYOUTS)
def engine(tmp_path_factory, request):
    """Three runs and a tail; the largest values, one group and a part of each run are deleted."""
    table = tuples()
    directory = tmp_path_factory.mktemp("part")
    with Engine.open(directory, purge_share=1.0, sample_rows=100) as engine:
        engine.execute(f"{CREATE} ARCHIVE {request.param}")
        for first in range(0, ROWS, 3_500):
            engine.push("s", table.slice(first, 3_500))
            if first < 10_000:
                engine.seal("s")
        engine.execute("DELETE FROM s WHERE v > 2 OR k = 3")
        engine.push("s", table.slice(0, 400))  # Late, and in the tail.
        yield engine


AGGREGATES = """COUNT(*) AS n, COUNT(w) AS nw, SUM(v) AS s, AVG(v) AS a, STDDEV(v) AS d,
    MIN(v) AS lo, MAX(v) AS hi, QUANTILE(v, 0.5) AS q"""
NAMES = ["n", "nw", "s", "a", "d", "lo", "hi", "q"]
WINDOW = "[FROM CAST(2000000000 AS TIMESTAMP) TO CAST(9000000000 AS TIMESTAMP)]"


WINDOWS, KEYS = {"all": "", "window": WINDOW}, {"one": "", "groups": "k"}
REDUCTIONS = {"share": "uniform(0.7)", "age": "by_age('30 minutes', 0.6)"}
PAIRS = [  # Every pair of values of two parameters occurs together in one case.
    ("all", "one", "share"),
    ("all", "groups", "age"),
    ("window", "one", "age"),
    ("window", "groups", "share"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "by", "reduction"),
    [
        pytest.param(
            WINDOWS[window], KEYS[by], REDUCTIONS[reduction], id=f"{window}-{by}-{reduction}"
        )
        for window, by, reduction in scaled(PAIRS, list(product(WINDOWS, KEYS, REDUCTIONS)))
    ],
)
def test_intervals_hold_the_truth_without_what_was_deleted(engine, window, by, reduction):
    columns, group = (f"{by}, ", f"GROUP BY {by}") if by else ("", "")
    confidence = CONFIDENCES[type(engine.core.stream("s").schema.layout)]
    text = f"SELECT {columns}{AGGREGATES} FROM s {window} {group}"
    whole = engine.execute(text)
    truths = {row.get("k"): row for row in whole.rows()}
    misses, trials = dict.fromkeys(NAMES, 0), 0
    for _ in range(REPETITIONS):
        answer = engine.execute(f"{text} REDUCE BY {reduction} CONFIDENCE {confidence} PERCENT")
        assert answer.archive is not None
        assert answer.archive.bytes_read < answer.archive.bytes_stored
        for at, row in enumerate(answer.rows()):
            trials += 1
            truth = truths[row.get("k")]
            for name in NAMES:
                found = answer.estimate(at, name)
                if found.bound is Bound.EXACT:
                    assert found.value == pytest.approx(truth[name])
                elif found.bound is not Bound.NONE:
                    slack = ROUNDING * abs(truth[name])
                    inside = found.low - slack <= truth[name] <= found.high + slack
                    misses[name] += not inside
    most = binom.ppf(0.9999, trials, 1 - confidence / 100)
    assert max(misses.values()) <= most, misses


@pytest.mark.slow
def test_a_target_is_met_by_reading_on(engine):
    text = "SELECT COUNT(*) AS n FROM s"
    (truth,) = engine.execute(text).rows()
    answer = engine.execute(f"{text} WITHIN 10 PERCENT CONFIDENCE 99.9 PERCENT")
    (row,) = answer.rows()
    assert answer.archive is not None
    assert row["n_met"]
    assert row["n_bound"] == "interval"  # The catalog counts those that are deleted, too.
    assert row["n_low"] <= truth["n"] <= row["n_high"]
    assert not answer.notes
