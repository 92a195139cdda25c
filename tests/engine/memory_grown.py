"""Run as a process: what standing queries say they hold, and what the process grew by."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import psutil
import pyarrow as pa

from shedder.engine.grant import negotiate
from shedder.engine.plan import plan
from shedder.engine.standing import Standing
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions
from synopses.warm import compile_kernels
from tests.engine.allocation_world import MIB, bound

SECOND = 1_000_000
ROWS = 20_000  # Of each second.
WINDOW = "[RANGE INTERVAL '{0}' SECOND SLIDE INTERVAL '1' SECOND]"
TEXT = "'u' || CAST(k AS VARCHAR)"
QUERIES = {
    "registers": (f"SELECT COUNT(DISTINCT k) AS d FROM s {WINDOW} WITHIN 0.5 PERCENT", 60),
    "counters": (f"SELECT SELF_JOIN_SIZE(k) AS f FROM s {WINDOW}", 60),
    "hashes": (f"SELECT JACCARD(k, v < 0.6, v > 0.4) AS j FROM s {WINDOW} WITHIN 2 PERCENT", 40),
    "items": (f"SELECT TOP(k, 10) AS t FROM s {WINDOW}", 60),
    "ranks": (f"SELECT QUANTILE(v, 0.5) AS m FROM s {WINDOW} WITHIN 0.002 RANK", 60),
    "buckets": (f"SELECT k % 3000 AS g, MEDIAN(v) AS m FROM s {WINDOW} GROUP BY g", 20),
    "sums": (f"SELECT k % 10000 AS g, SUM(v) AS t, COUNT(*) AS n FROM s {WINDOW} GROUP BY g", 20),
    "distinct by group": (
        f"SELECT k % 500 AS g, COUNT(DISTINCT v) AS d FROM s {WINDOW} GROUP BY g",
        20,
    ),
    "counters by group": (
        f"SELECT k % 300 AS g, SELF_JOIN_SIZE(k) AS f FROM s {WINDOW} GROUP BY g",
        20,
    ),
    "hashes by group": (
        f"SELECT k % 300 AS g, DISTINCT_BOTH(k, v < 0.6, v > 0.4) AS b FROM s {WINDOW} GROUP BY g",
        20,
    ),
    "extremes by group": (
        f"SELECT k % 15000 AS g, MIN(v) AS a, MAX(k) AS b FROM s {WINDOW} GROUP BY g",
        60,
    ),
    "extremes of texts by group": (
        f"SELECT k % 15000 AS g, MIN({TEXT}) AS a, MAX({TEXT}) AS b FROM s {WINDOW} GROUP BY g",
        60,
    ),
    "texts by group": (
        f"SELECT k % 60000 AS g, LAST({TEXT}) AS t FROM s {WINDOW} GROUP BY g",
        60,
    ),
    "items by group": (f"SELECT k % 200 AS g, TOP(k, 5) AS t FROM s {WINDOW} GROUP BY g", 30),
}


def standing(name: str, text: str) -> Standing:
    """A query with all the memory that it wants."""
    query = bound(text)
    granted = negotiate(query, 4_096 * MIB, group_bytes_max=512 * MIB)
    cap = granted.group_bytes or MIB
    return Standing(name, query, plan(query, granted.sizes), part_bytes_max=cap)


def frames(seconds: int) -> Iterator[Frame]:
    """A batch for each second."""
    rng = np.random.default_rng(7)
    for number in range(seconds):
        times = number * SECOND + np.sort(rng.integers(0, SECOND, ROWS))
        columns = {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": pa.array(rng.integers(0, 1 << 40, ROWS)),
            "v": pa.array(rng.random(ROWS)),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        yield Frame(batch, "ts", positions=Positions(1, number * ROWS))


def feed(queries: Sequence[Standing], seconds: int) -> None:
    """Read a stream, closing panes as it goes."""
    for number, frame in enumerate(frames(seconds)):
        for query in queries:
            query.apply(frame, watermark_us=number * SECOND, limit_us=None)
            query.close(number * SECOND)


def resident_bytes() -> int:
    """Of this process, what is free given back."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def main(names: Sequence[str]) -> None:
    """Print the two numbers as JSON."""
    compile_kernels()
    some = names or list(QUERIES)
    feed([standing(name, QUERIES[name][0].format(2)) for name in some], 3)  # What is made once.
    before = resident_bytes()
    seconds = max(QUERIES[name][1] for name in some)
    queries = [standing(name, QUERIES[name][0].format(QUERIES[name][1])) for name in some]
    feed(queries, seconds)
    grown = resident_bytes() - before
    json.dump({"said": sum(query.size_bytes for query in queries), "grown": grown}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
