"""A window that lacks tuples for several reasons: its intervals allow for all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import encode
from shedder.streams.dropped_counts import Dropped

SECOND = 1_000_000
CREATE = """CREATE STREAM s (ts TIMESTAMP NOT NULL, x DOUBLE, y DOUBLE, k BIGINT) TIMESTAMP BY ts
  LATENESS INTERVAL '0' SECOND"""
QUERY = """SELECT COUNT(*) AS n, VARIANCE(x) AS v, STDDEV(x) AS sd, AVG(x) AS a, MAX(x) AS most,
  QUANTILE(x, 0.5) AS m, COVAR_POP(x, y) AS c, CORR(x, y) AS r, SELF_JOIN_SIZE(k) AS sj,
  JOIN_SIZE(k, k + 1) AS j, FREQUENT(k, 0.3) AS f
  FROM s [RANGE INTERVAL '10' SECOND SLIDE INTERVAL '10' SECOND]"""
TRUTH = """SELECT COUNT(*) AS n, VAR_SAMP(x) AS v, STDDEV_SAMP(x) AS sd, AVG(x) AS a,
  MAX(x) AS most, QUANTILE_DISC(x, 0.5) AS m, COVAR_POP(x, y) AS c, CORR(x, y) AS r,
  (SELECT SUM(each.n * each.n) FROM (SELECT COUNT(*) AS n FROM w GROUP BY k) AS each) AS sj,
  (SELECT SUM(l.n * r.n) FROM (SELECT k, COUNT(*) AS n FROM w GROUP BY k) AS l
   JOIN (SELECT k + 1 AS k, COUNT(*) AS n FROM w GROUP BY k) AS r USING (k)) AS j
  FROM w"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path / "data") as engine:
        engine.execute(CREATE)
        engine.register("q", QUERY)
        yield engine


def batch_of(count: int, seed: int, *, x: float | None = None, y: float = 0.0) -> pa.RecordBatch:
    """Tuples of the first ten seconds; x None: as y, from 0 to 50."""
    rng = np.random.default_rng(seed)
    times = pa.array(rng.integers(0, 10 * SECOND, count)).cast(pa.timestamp("us"))
    drawn = rng.integers(0, 50, count).astype(np.float64)
    xs, ys = (drawn, drawn) if x is None else (np.full(count, x), np.full(count, y))
    return pa.RecordBatch.from_arrays(
        [times, pa.array(xs), pa.array(ys), pa.array(xs.astype(np.int64))], ["ts", "x", "y", "k"]
    )


def after_the_window(sequence: int) -> pa.RecordBatch:
    times = pa.array([15 * SECOND + sequence]).cast(pa.timestamp("us"))
    return pa.RecordBatch.from_arrays(
        [times, pa.array([1.0]), pa.array([1.0]), pa.array([1])], ["ts", "x", "y", "k"]
    )


def check(db: Engine, batches: list[pa.RecordBatch], after: Receipt) -> None:
    """The first window's answer holds what it would be with all of these, the last one read."""
    connection = duckdb.connect()
    connection.register("w", pa.Table.from_batches(batches))
    [true] = connection.sql(TRUTH).to_arrow_table().to_pylist()
    answer = db.query("q").answer(after)
    for name, exact in zip(true, map(float, true.values()), strict=True):
        found = answer.estimate(0, name)
        slack = 1e-9 * abs(exact)
        assert found.low - slack <= exact <= found.high + slack, (name, exact, found)
    [row] = answer.rows()
    counts = np.unique_counts(np.concatenate([batch["k"].to_numpy() for batch in batches]))
    common = counts.values[counts.counts >= 0.3 * counts.counts.sum()]
    assert row["f_bound"] == "none" or {item["value"] for item in row["f"]}.issuperset(common)


@pytest.mark.parametrize(("late", "gone"), [(300, 300), (0, 100), (100, 200)])
def test_tuples_that_came_late_and_those_left_out_move_an_answer_together(db, late, gone):
    sequence = 0

    def send(batch: pa.RecordBatch, dropped: Dropped | None = None) -> Receipt:
        nonlocal sequence
        body, number = encode(batch), sequence
        sequence += 1
        return db.append(
            "s", body, producer="p", epoch=0, sequence=number, left_out=dropped
        ).result()

    batches = [batch_of(1_000, 1), batch_of(late, 2, x=100.0), batch_of(gone, 3, x=100.0)]
    send(batches[0])
    send(after_the_window(0))
    if late:
        send(batches[1])
    check(db, batches, send(after_the_window(1), Dropped.of(batches[2], "ts")))


def test_of_late_tuples_that_only_came_as_summaries_no_range_is_known(db):
    batches = [batch_of(1_000, 1), batch_of(100, 2, x=1_000.0)]
    db.push("s", pa.Table.from_batches([batches[0], after_the_window(0)]))
    summariser = Summariser(Plans.from_json(db.plans("s")), 1 << 40)
    summariser.add(batches[1])
    check(db, batches, db.merge("s", summariser.summaries().to_bytes()))
