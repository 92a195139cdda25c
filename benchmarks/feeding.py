"""One pass for three windows of the same aggregates, beside three passes."""

from __future__ import annotations

import time

import pyarrow as pa

from benchmarks.eight import feed, stream_of
from benchmarks.measure import Report
from benchmarks.workloads.trades import BATCH_ROWS, batches
from shedder.engine.standing_queries.stream_state import Stream
from shedder.wire.malloc_tuning import keep_big_blocks
from synopses.precompile import compile_kernels

TUPLES = 256 * BATCH_ROWS
PASSES = 5
WINDOWS = {"minute": "1 MINUTE", "five": "5 MINUTES", "hour": "1 HOUR"}
SELECTS = {
    "sums, distinct values and a quantile": (
        "SELECT COUNT(*) AS n, SUM(value) AS total, AVG(value) AS mean, "
        "COUNT(DISTINCT key) AS keys, QUANTILE(value, 0.99) AS high FROM trades [RANGE {}]"
    ),
    "sums by 1,000 groups": (
        "SELECT key % 1000 AS g, COUNT(*) AS n, SUM(value) AS total, AVG(value) AS mean, "
        "MAX(value) AS high FROM trades [RANGE {}] GROUP BY key % 1000"
    ),
}


def run() -> Report:
    """Three queries that share, three that do not, and one."""
    compile_kernels()
    keep_big_blocks()
    return Report(
        claim="Claim: RANGE 1 MINUTE, 5 MINUTES and 1 HOUR of the same aggregates cost what one of "
        "them costs for each tuple, because one reads and the others take the panes it closes.",
        columns=["aggregates", "three share", "three apart", "one", "apart over shared"],
        rows=[_row(name, text) for name, text in SELECTS.items()],
        notes=[
            (
                f"ns of CPU per tuple, fastest of {PASSES} passes over {TUPLES:,} tuples in "
                f"batches of {BATCH_ROWS:,}, the sample's included; panes of 1, 5 and 60 seconds."
            ),
        ],
    )


def _row(name: str, text: str) -> list[str]:
    queries = {window: text.format(length) for window, length in WINDOWS.items()}
    given = list(batches(TUPLES))
    shared = apart = one = float("inf")
    for _ in range(PASSES):
        for sharing in (True, False):
            stream = stream_of(queries)
            if sharing:
                stream.share_panes()
            spent = _spent_ns(stream, given)
            shared, apart = (min(shared, spent), apart) if sharing else (shared, min(apart, spent))
        one = min(one, _spent_ns(stream_of({"minute": queries["minute"]}), given))
    return [name, *(f"{ns / TUPLES:.1f}" for ns in (shared, apart, one)), f"{apart / shared:.2f}×"]


def _spent_ns(stream: Stream, given: list[pa.RecordBatch]) -> int:
    began = time.thread_time_ns()
    feed(stream, given, answer=False)
    return time.thread_time_ns() - began
