"""A stream with a backfilled past, and a stream into which the same tuples are pushed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from tests.engine.catalogs import reachable

SECOND = 1_000_000
CREATE = """CREATE STREAM {} (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR, x DOUBLE)
TIMESTAMP BY ts LATENESS INTERVAL '5' SECOND ARCHIVE {}"""
LAYOUTS = ("hybrid(blocks=8, block_rows=500)", "plain", "lazy", "eager(0.5)")
QUERIES = {
    "ever": "SELECT COUNT(*) AS n, SUM(k) AS s, MIN(x) AS l, MAX(x) AS h, COUNT(DISTINCT k) AS d, "
    "QUANTILE(x, 0.9) AS q FROM {}",
    "wide": "SELECT g, COUNT(*) AS n, SUM(k) AS s, MEDIAN(x) AS m "
    "FROM {} [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY g",
    "coarse": "SELECT COUNT(*) AS n, MAX(k) AS h FROM {} "
    "[RANGE 80 SECONDS SLIDE 1 SECOND COLLAPSE BY 2 AFTER 8]",
    "short": "SELECT COUNT(*) AS n FROM {} [RANGE 3 SECONDS SLIDE 1 SECOND]",
}
QUESTION = "SELECT COUNT(*) AS n, SUM(k) AS s, MIN(x) AS l, MAX(ts) AS t FROM {}"


def rows(count: int, seed: int, begin_s: float, seconds: float) -> pa.Table:
    """Return tuples spread over a time range."""
    rng = np.random.default_rng(seed)
    times = rng.uniform(begin_s * SECOND, (begin_s + seconds) * SECOND, count)
    return pa.table(
        {
            "ts": pa.array(np.sort(times).astype(np.int64), pa.timestamp("us")),
            "k": rng.integers(0, 500, count),
            "g": rng.choice(["a", "b", "ü", None], count),
            "x": pa.array(rng.lognormal(1, 2, count), mask=rng.random(count) < 0.05),
        }
    )


PAST = [rows(4_000, 1, 0, 30), rows(3_000, 2, 30, 30)]


def now_us() -> int:
    """Return the time of day, later than all tuples."""
    return 10_000 * SECOND


def opened(directory: Path, machine: Environment | None = None) -> Engine:
    """Open an engine with an accessible catalog and without periodic allocation.

    machine: its clock is `now_us`.
    """
    with reachable():
        return Engine.open(
            directory, machine=machine or Environment(now_us), allocation_seconds=1e6
        )


def created(
    directory: Path,
    layout: str = LAYOUTS[0],
    queries: dict[str, str] = QUERIES,
    machine: Environment | None = None,
) -> Engine:
    """Open an engine and create both streams, each with these queries."""
    engine = opened(directory, machine)
    for stream in ("s", "pushed"):
        engine.execute(CREATE.format(stream, layout))
        for name, text in queries.items():
            engine.register(f"{name}_{stream}", text.format(stream))
    return engine


def truth(*tables: pa.Table) -> tuple[Any, ...]:
    """Return DuckDB's answer to QUESTION over these tables."""
    sql = "SELECT count(*), sum(k)::BIGINT, min(x), max(ts) FROM everything"
    with duckdb.connect() as connection:
        connection.register("everything", pa.concat_tables(tables))
        (row,) = connection.execute(sql).fetchall()
    return row


def answers_of(db: Engine, more: str = "") -> tuple[Any, ...]:
    """Return the engine's answer to QUESTION; more: text to append."""
    (row,) = db.execute(QUESTION.format("s") + more).rows()
    return row["n"], row["s"], row["l"], row["t"].replace(tzinfo=None)
