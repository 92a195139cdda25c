"""The benchmarks' stream: 24-byte tuples of time, key and value, and eight standing aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

BATCH_ROWS = 65_536
TUPLE_BYTES = 24
START_US = 1_767_225_600_000_000  # 2026-01-01
KEYS = 1_000_000

CREATE = (
    "CREATE STREAM trades (ts TIMESTAMP, key BIGINT, value DOUBLE) TIMESTAMP BY ts "
    "LATENESS INTERVAL '100' MILLISECOND"
)

# Eight aggregates over two windows; event time runs at a million tuples a second.
QUERIES = {
    "totals": "SELECT COUNT(*) AS n, SUM(value) AS total, AVG(value) AS mean, MAX(value) AS top, "
    "COUNT(DISTINCT key) AS keys "
    "FROM trades [RANGE INTERVAL '10' SECOND SLIDE INTERVAL '1' SECOND]",
    "tail": "SELECT QUANTILE(value, 0.99) AS p99, TOP(key, 20) AS busiest "
    "FROM trades [RANGE INTERVAL '30' SECOND SLIDE INTERVAL '5' SECOND]",
    "groups": "SELECT key % 1000 AS shard, SUM(value) AS total "
    "FROM trades [RANGE INTERVAL '10' SECOND SLIDE INTERVAL '1' SECOND] GROUP BY key % 1000",
}

_TYPES: dict[str, Any] = {"ts": pa.timestamp("us"), "key": pa.int64(), "value": pa.float64()}
SCHEMA = pa.schema(_TYPES)


def batches(tuples: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """Zipf keys and lognormal values, a microsecond apart; the same for the same seed."""
    rng = np.random.default_rng(seed)
    pool = 1 << 20
    keys = (rng.zipf(1.2, pool) % KEYS).astype(np.int64)
    values = rng.lognormal(3, 1, pool)
    for first in range(0, tuples, BATCH_ROWS):
        rows = min(BATCH_ROWS, tuples - first)
        shift = int(rng.integers(0, pool - rows))
        times = START_US + np.arange(first, first + rows, dtype=np.int64)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(times).cast(pa.timestamp("us")),
                pa.array(keys[shift : shift + rows]),
                pa.array(values[shift : shift + rows]),
            ],
            schema=SCHEMA,
        )
