"""Run as a process: what standing queries say they hold, and what the process grew by."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import psutil
import pyarrow as pa

from shedder.engine.allocation.negotiation import negotiate
from shedder.engine.synopsis_plans.synopsis_plan import plan
from shedder.engine.window_state.merged_window import merged_window
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions
from synopses.precompile import compile_kernels
from tests.engine.allocation_world import MIB, bound

SECOND = 1_000_000
ROWS = 20_000  # Of each second.
LATENESS_S = 4  # Where keys are new: so many panes are open.
NEW_KEYS_WINDOW_S, NEW_KEYS_S = 40, 60
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
NEW_KEYS = {
    "counts of new texts": f"SELECT {TEXT} AS g, COUNT(*) AS n FROM s {WINDOW} GROUP BY g",
    "counts of new keys": f"SELECT k AS g, COUNT(*) AS n FROM s {WINDOW} GROUP BY g",
    "sums of new keys": f"SELECT k AS g, SUM(v) AS t FROM s {WINDOW} GROUP BY g",
    "ends of new keys": f"SELECT k AS g, MIN(v) AS a, LAST(v) AS b FROM s {WINDOW} GROUP BY g",
    "texts of new keys": f"SELECT k AS g, MAX({TEXT}) AS b FROM s {WINDOW} GROUP BY g",
    "medians of new keys": f"SELECT k AS g, MEDIAN(v) AS m FROM s {WINDOW} GROUP BY g",
    "distinct by new keys": f"SELECT k AS g, COUNT(DISTINCT v) AS d FROM s {WINDOW} GROUP BY g",
    "self joins by new keys": f"SELECT k AS g, SELF_JOIN_SIZE(k) AS f FROM s {WINDOW} GROUP BY g",
    "some new keys": (
        f"SELECT CASE WHEN v < 0.2 THEN k % 1000 ELSE k END AS g, SUM(v) AS t FROM s {WINDOW} "
        "GROUP BY g"
    ),
}
"""Of which nearly all are new in every pane: windows are asked for, and old panes go."""
ONE_WINDOW = {
    "one window of new texts": f"SELECT {TEXT} AS g, COUNT(*) AS n FROM s {WINDOW} GROUP BY g",
    "one window of sums": f"SELECT {TEXT} AS g, SUM(v) AS t FROM s {WINDOW} GROUP BY g",
}
"""The same, without a question: memory that is never read is not resident, yet it counts."""


def standing(name: str, seconds: int, *, cap_bytes: int | None = None) -> QueryState:
    """A query with all the memory that it wants; seconds: of its window."""
    text, cap_mib, lateness_us = QUERIES.get(name, ("", 0))[0], 512, 0
    if name not in QUERIES:
        text, cap_mib = (NEW_KEYS | ONE_WINDOW)[name], 4_096
        lateness_us = LATENESS_S * SECOND if name in NEW_KEYS else 0
    query = bound(text.format(seconds))
    query = replace(query, schema=replace(query.schema, lateness_us=lateness_us))
    granted = negotiate(query, 16_384 * MIB, group_bytes_max=cap_mib * MIB)
    cap = cap_bytes or granted.group_bytes or MIB
    return QueryState(name, query, plan(query, granted.sizes), part_bytes_max=cap)


def frames(seconds: int, rows: int) -> Iterator[Frame]:
    """A batch for each second."""
    rng = np.random.default_rng(7)
    for number in range(seconds):
        times = number * SECOND + np.sort(rng.integers(0, SECOND, rows))
        columns = {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": pa.array(rng.integers(0, 1 << 40, rows)),
            "v": pa.array(rng.random(rows)),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        yield Frame(batch, "ts", positions=Positions(1, number * rows))


def feed(queries: Sequence[QueryState], seconds: int, rows: int = ROWS) -> Iterator[int]:
    """Read a stream, closing panes as it goes; yields what all say they hold, second by second."""
    for number, frame in enumerate(frames(seconds, rows)):
        for query in queries:
            watermark = number * SECOND - query.query.schema.lateness_us
            query.apply(frame, watermark_us=watermark, limit_us=None)
            query.close(watermark)
            if query.name in NEW_KEYS and watermark >= 0:
                merged_window(query, query.grid.window(watermark))
                query.drop_before(query.grid.panes_in(query.grid.window(watermark)).start)
        yield sum(query.size_bytes for query in queries)


def resident_bytes() -> int:
    """Of this process, what is free given back."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def main(names: Sequence[str]) -> None:
    """Print as JSON the most that they said, and what the process had grown by then.

    What allocators keep free is most after some has been given back; there is least of it then.
    """
    compile_kernels()
    some = names or list(QUERIES)
    for _ in feed([standing(name, 2) for name in some], 3):  # What is made once.
        pass
    before = resident_bytes()
    lengths = {name: QUERIES[name][1] if name in QUERIES else NEW_KEYS_WINDOW_S for name in some}
    if not names:  # A quarter as long: all together, they still have 200 MB.
        lengths = {name: seconds // 4 for name, seconds in lengths.items()}
    windows = dict(lengths)
    lengths |= {name: NEW_KEYS_S for name in some if name in NEW_KEYS}
    queries = [standing(name, windows[name]) for name in some]
    most = grown = 0
    for said in feed(queries, max(lengths.values())):
        if said > most:
            most, grown = said, resident_bytes() - before
    json.dump({"said": most, "grown": grown}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
