"""A small stream whose archive is rewritten in another layout."""

from __future__ import annotations

import pyarrow as pa

CREATE = "CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts ARCHIVE plain"


def rows(first: int, end: int) -> pa.Table:
    numbers = list(range(first, end))
    return pa.table({"ts": pa.array([n * 1000 for n in numbers], pa.timestamp("us")), "v": numbers})
