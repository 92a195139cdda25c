"""A month by the hour from a rollup, beside DuckDB over the same runs, and what keeping it costs.

Ratios in one run: `.venv/bin/python -m benchmarks.studies.rollup`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine

DAYS = 30
DAY_ROWS = 300_000
REPEATED = 7
WRITTEN = 6
CREATE = "CREATE STREAM {} (ts TIMESTAMP, region VARCHAR, x DOUBLE, n BIGINT) TIMESTAMP BY ts"
ROLLUP = (
    "CREATE ROLLUP {0}_hourly AS SELECT region, COUNT(*), SUM(x), MIN(x), MAX(x), SUM(n) "
    "FROM {0} [RANGE 1 HOUR] GROUP BY region"
)
QUERY = (
    "SELECT DATE_TRUNC('hour', ts) AS hour, COUNT(*) AS n, SUM(x) AS s, MAX(x) AS m FROM {} "
    "GROUP BY hour"
)


def rows(day: int) -> pa.Table:
    """A day's tuples of 20 regions, in order of time."""
    random = np.random.default_rng(day)
    regions = np.array([f"region-{number}" for number in range(20)], object)
    times = np.sort(random.integers(day * 86_400_000_000, (day + 1) * 86_400_000_000, DAY_ROWS))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "region": pa.array(regions[random.integers(0, 20, DAY_ROWS)]),
            "x": pa.array(random.lognormal(size=DAY_ROWS)),
            "n": pa.array(random.integers(0, 1_000, DAY_ROWS)),
        }
    )


def best(work: Callable[[], Any]) -> float:
    """Seconds of the quickest of a few."""
    took = []
    for _ in range(REPEATED):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def writing(engine: Engine, name: str, *, rolled: bool) -> float:
    """Seconds per run, at best, to write a day's tuples."""
    engine.execute(CREATE.format(name))
    if rolled:
        engine.execute(ROLLUP.format(name))
    took = []
    for day in range(WRITTEN):
        engine.push(name, rows(day))
        began = time.perf_counter()
        engine.seal(name)
        took.append(time.perf_counter() - began)
    return min(took)


def main() -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as directory, Engine.open(directory) as engine:
        plain, rolled = (writing(engine, f"w{r}", rolled=bool(r)) for r in (0, 1))
        print(f"writing a run of {DAY_ROWS:,}: {plain * 1e3:.0f} ms")
        print(f"  with a rollup: {rolled / plain:.2f} x")
        engine.execute(CREATE.format("s"))
        engine.execute(ROLLUP.format("s"))
        for day in range(DAYS):
            engine.push("s", rows(day))
            engine.seal("s")
        stream = engine.core.stream("s").id
        runs = engine.core.store.runs(stream)
        files = [str(Path(directory) / "runs" / run.file) for run in runs]
        stored = sum(run.size_bytes for run in runs)
        kept = sum(each.size_bytes for run in runs for each in run.rolled)
        print(f"rollup: {kept:,} bytes, {kept / stored:.4f} of the runs'")
        with duckdb.connect(config={"threads": 2}) as database:
            database.execute("SET enable_progress_bar = false")
            sql = QUERY.format(f"read_parquet({files})").replace("GROUP BY hour", "GROUP BY 1")
            direct = best(lambda: database.sql(sql).fetchall())
        question = QUERY.format("s")
        answer = engine.execute(question)
        assert answer.sources == ("rollup s_hourly",), answer.sources
        ours = best(lambda: engine.execute(question))
        print(f"{DAYS} days by the hour, {DAYS * DAY_ROWS:,} tuples:")
        print(
            f"  DuckDB over the runs: {direct * 1e3:.0f} ms; from the rollup: {ours * 1e3:.0f} ms"
        )
        print(f"  ratio: {direct / ours:.1f} x")


if __name__ == "__main__":
    main()
