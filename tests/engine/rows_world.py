"""A stream with runs, a tail, late tuples, deletions and a backfilled past, and its rows as lists.

The lists are the oracle of row queries: Python computes every expected row from them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine

LAYOUTS = (
    "plain",
    "lazy",
    "eager(0.5, 0.75)",
    "hybrid(blocks=8, block_rows=100)",
)
CREATE = """CREATE STREAM {} (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR, x DOUBLE, ok BOOLEAN,
    day DATE) TIMESTAMP BY ts LATENESS INTERVAL '5' SECOND ARCHIVE {}"""
EPOCH = datetime(1970, 1, 1)
Rows = list[dict[str, Any]]


def tuples(count: int, seed: int, *, start_s: int = 0) -> pa.Table:
    """Tuples of a second each, in disorder of three seconds, with NULLs in every column."""
    rng = np.random.default_rng(seed)
    seconds = start_s + np.arange(count) + rng.integers(0, 4, count)
    nulls = [rng.random(count) < 0.1 for _ in range(5)]
    return pa.table(
        {
            "ts": pa.array(seconds * 1_000_000, pa.timestamp("us")),
            "k": pa.array(rng.integers(-50, 50, count), mask=nulls[0]),
            "g": pa.array(rng.choice(["a", "b", "ü", "it's"], count), pa.string(), mask=nulls[1]),
            "x": pa.array(rng.normal(0, 10, count), mask=nulls[2]),
            "ok": pa.array(rng.random(count) < 0.5, mask=nulls[3]),
            "day": pa.array(rng.integers(0, 9, count).astype("datetime64[D]"), mask=nulls[4]),
        }
    )


def at(seconds: int) -> str:
    """A moment as CQL."""
    return f"CAST('{EPOCH + timedelta(seconds=seconds)}' AS TIMESTAMP)"


def moment(seconds: int) -> datetime:
    """A moment as an answer of rows has it."""
    return EPOCH + timedelta(seconds=seconds)


def rows_of(table: pa.Table) -> Rows:
    """The rows as an answer has them."""
    return table.to_pylist()


def filled(directory: Path, layout: str, count: int, *, runs: int = 3, **settings: Any) -> Engine:
    """An engine with the stream `s`; the last part of its tuples is in the tail."""
    engine = Engine.open(directory, allocation_seconds=1e6, purge_share=1.0, **settings)
    engine.execute(CREATE.format("s", layout))
    table = tuples(count, 7)
    part = -(-count // (runs + 1)) or 1
    for first in range(0, count, part):
        engine.push("s", table.slice(first, part))
        if first + part < count:
            engine.seal("s")
    return engine


def as_bag(rows: Rows) -> list[str]:
    """Rows without their order."""
    return sorted(map(repr, rows))
