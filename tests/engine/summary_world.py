"""A stream that receives tuples, or summaries that were built elsewhere from tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser, built_of
from shedder.engine.remote_summaries.wire_format import Summaries
from shedder.streams.batch_conversion import conform

SECOND = 1_000_000
CREATE = """CREATE STREAM s (ts TIMESTAMP, k BIGINT, g VARCHAR, x DOUBLE)
TIMESTAMP BY ts LATENESS INTERVAL '5' SECOND"""
QUERIES = {
    "sliding": "SELECT COUNT(*) AS n, SUM(k) AS s, MIN(x) AS l, MAX(x) AS h, "
    "COUNT(DISTINCT k) AS d, QUANTILE(x, 0.9) AS q, TOP(k, 3) AS t "
    "FROM s [RANGE 10 SECONDS SLIDE 1 SECOND]",
    "grouped": "SELECT g, COUNT(*) AS n, COUNT(DISTINCT k) AS d, MEDIAN(x) AS m, MAX(g) AS t, "
    "SELF_JOIN_SIZE(k) AS j FROM s WHERE x > 1 GROUP BY g",
    "keys": "SELECT k, SUM(k) AS s, COUNT(x) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY k",
    "letters": "SELECT g, SUM(k) AS s, COUNT(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY g",  # Whose panes all have the same groups.
    "sets": "SELECT DISTINCT_BOTH(k, g = 'a', g = 'b') AS b FROM s",
}


def rows(count: int, seed: int, begin_s: float = 0.0, seconds: float = 20.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(begin_s * SECOND, (begin_s + seconds) * SECOND, count))
    return pa.table(
        {
            "ts": pa.array(times.astype(np.int64), pa.timestamp("us")),
            "k": rng.zipf(1.6, count) % 500,
            "g": rng.choice(["a", "b", "ü", None], count),
            "x": pa.array(rng.lognormal(1, 2, count), mask=rng.random(count) < 0.05),
        }
    )


def opened(directory: Path, **settings: Any) -> Engine:
    return Engine.open(directory, clock_us=lambda: 10_000 * SECOND, **settings)


def created(directory: Path, queries: dict[str, str] = QUERIES, **settings: Any) -> Engine:
    engine = opened(directory, **settings)
    engine.execute(CREATE)
    for name, text in queries.items():
        engine.register(name, text)
    return engine


def built(plans: Plans, table: pa.Table, builders: int = 3) -> Summaries:
    """Of the table, by so many builders, each of which knows a part of it, put together."""
    made = []
    for number in range(builders):
        builder = Summariser(plans, number << 40)
        part = table.take(np.arange(number, len(table), builders))
        for batch in conform(part, plans.schema):
            builder.add(batch)
        made.append(Summaries.from_bytes(builder.summaries().to_bytes()))
    return built_of(made, plans)


def plans_of(engine: Engine) -> Plans:
    return Plans.from_json(engine.plans("s"))


def plans_of_new(directory: Path) -> Plans:
    with created(directory) as engine:
        return plans_of(engine)


def pushed(engine: Engine, table: pa.Table) -> None:
    """Tuples, and all of them applied."""
    engine.push("s", table)
    engine.ledger("s")


def answers(engine: Engine) -> dict[str, pa.Table]:
    tables = {name: engine.query(name).answer().table for name in QUERIES}
    return {
        n: t.sort_by(t.column_names[0]) if n in ("grouped", "keys", "letters") else t
        for n, t in tables.items()
    }


def same(left: Engine, right: Engine) -> None:
    theirs = answers(right)
    for name, table in answers(left).items():
        assert table.equals(theirs[name]), (name, table.to_pylist(), theirs[name].to_pylist())
