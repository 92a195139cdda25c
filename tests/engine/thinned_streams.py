"""A stream whose queries read a part of the tuples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SECOND = 1_000_000
CREATE = """CREATE STREAM s (ts TIMESTAMP, k BIGINT, g VARCHAR, x DOUBLE)
TIMESTAMP BY ts LATENESS INTERVAL '1' SECOND"""


def rows(count: int, seed: int, begin_s: float = 0.0, seconds: float = 10.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(begin_s * SECOND, (begin_s + seconds) * SECOND, count))
    values = rng.lognormal(1, 1, count)
    return pa.table(
        {
            "ts": pa.array(times.astype(np.int64), pa.timestamp("us")),
            "k": rng.integers(-5, 30, count),
            "g": rng.choice(list("abcd"), count, p=[0.6, 0.3, 0.08, 0.02]),
            "x": pa.array(values, pa.float64(), mask=rng.random(count) < 0.05),
        }
    )
