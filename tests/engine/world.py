"""A small world for engine tests: a stream of requests, and the truth about any stretch of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

SECOND = 1_000_000
START_US = 1_700_000_000 * SECOND // (60 * SECOND) * (60 * SECOND)

CREATE = """CREATE STREAM requests (
  ts TIMESTAMP, client BIGINT, domain VARCHAR, bytes DOUBLE, ok BOOLEAN, day DATE, hits INTEGER
) TIMESTAMP BY ts LATENESS INTERVAL '2' SECOND"""


def requests(rows: int, seed: int, *, seconds: float = 600.0, disorder_s: float = 0.0) -> pa.Table:
    """Requests in event-time order, or up to disorder_s out of it; with nulls and NaN."""
    rng = np.random.default_rng(seed)
    times = START_US + np.sort(rng.uniform(0, seconds * SECOND, rows)).astype(np.int64)
    order = np.argsort(times + rng.uniform(0, disorder_s * SECOND, rows), kind="stable")
    values = rng.lognormal(3, 1.5, rows)
    values[rng.random(rows) < 0.02] = np.nan
    domains = np.array(["a.org", "b.com", "c.net", "d.io", ""], object)[rng.integers(0, 5, rows)]
    table = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "client": pa.array(rng.zipf(1.5, rows) % 5_000, pa.int64()),
            "domain": pa.array(domains, pa.string(), mask=rng.random(rows) < 0.03),
            "bytes": pa.array(values, pa.float64(), mask=rng.random(rows) < 0.03),
            "ok": pa.array(rng.random(rows) < 0.9),
            "day": pa.array((times // (86_400 * SECOND)).astype(np.int32), pa.date32()),
            "hits": pa.array(rng.integers(-5, 100, rows), pa.int32()),
        }
    )
    return table.take(pa.array(order))


@dataclass(frozen=True)
class Truth:
    """Exact values of a column's rows, by the plainest code there is."""

    values: list[Any]

    @classmethod
    def of(cls, column: Iterable[Any]) -> Truth:
        """NULL and NaN are no values."""
        return cls([v for v in column if v is not None and v == v])

    def quantile(self, q: float) -> Any:
        """The discrete quantile: the value of rank ceil(q n), at least 1."""
        ordered = sorted(self.values)
        return ordered[max(0, int(np.ceil(q * len(ordered))) - 1)]

    def counts(self) -> dict[Any, int]:
        """Occurrences by value."""
        found: dict[Any, int] = {}
        for value in self.values:
            found[value] = found.get(value, 0) + 1
        return found


def between(table: pa.Table, start_us: int, end_us: int) -> pa.Table:
    """The rows with start_us <= ts < end_us."""
    times = np.asarray(table["ts"].cast(pa.int64()))
    return table.filter(pa.array((times >= start_us) & (times < end_us)))
