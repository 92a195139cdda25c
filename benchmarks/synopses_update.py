"""Updating summaries: our kernels beside the library's own loop and other engines.

Rates are millions of tuples per CPU second, the best of some passes; everything runs on one
thread. `python -m benchmarks synopses_update` prints the table.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Report
from benchmarks.workloads.bare_loops import floors
from benchmarks.workloads.engines import chdb_rates, duckdb_rates
from benchmarks.workloads.summaries import (
    GROUPS,
    ROWS,
    SummaryCase,
    cases,
    columns,
    libraries,
    rate,
)
from shedder.wire.malloc_tuning import keep_big_blocks
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64
from synopses.moments.counts import GroupedCount
from synopses.moments.moments import GroupedMoments
from synopses.precompile import compile_kernels
from synopses.theta.theta_sketch import GroupedTheta

Measured = tuple[SummaryCase, float, float]

BATCH = 65_536
PANES = 60
ROUNDS = 4  # Through all cases: others may take the machine for a while.
PASSES = 3  # Of a case in each round.


def all_fed(measured: Sequence[SummaryCase]) -> list[tuple[float, float]]:
    """The best rates of each case."""
    best = np.max([[fed(case) for case in measured] for _ in range(ROUNDS)], axis=0)
    return [(empty, after) for empty, after in best.tolist()]


def fed(case: SummaryCase, passes: int = PASSES) -> tuple[float, float]:
    """Rates of the first half of the rows, into an empty summary, and of the other half after it.

    Nothing is fed twice: a summary that has seen all values has little to do.
    """
    best = [float("inf"), float("inf")]
    for _ in range(passes):
        summary = case.make()
        for half in (0, 1):
            start = time.process_time()
            for first in range(half * ROWS, (half + 1) * ROWS, BATCH):
                case.feed(summary, slice(first, first + BATCH))
            best[half] = min(best[half], time.process_time() - start)
    return ROWS / best[0] / 1e6, ROWS / best[1] / 1e6


def bare_rates(given: dict[str, Any], measured: list[Measured]) -> Report:
    """The least that there is to do, on this machine and in this run, and what ours reach of it."""
    reached = {case.name: after for case, _, after in measured}
    rows, bare = [], floors(given)
    for floor, (_, after) in zip(bare, all_fed([floor.case for floor in bare]), strict=True):
        ours = reached.get(floor.beside)
        shown = ("", "") if ours is None else (f"{ours:,.0f}", f"{ours / after:.2f}")
        rows.append((floor.case.name, f"{after:,.0f}", floor.beside, *shown))
    return Report(
        claim="What this machine can do: loops over the same columns that do the least there is to "
        "do, without extremes, infinities and NaN, into tables that are as large as they will be.",
        columns=("loop", "M tuples/s", "beside it", "M tuples/s, and then", "share of the loop"),
        rows=rows,
    )


def update_rates(given: dict[str, Any], measured: list[Measured]) -> list[tuple[str, ...]]:
    """Every case beside the others' functions over the same columns."""
    table = pa.table({name: pa.array(column) for name, column in given.items()})
    duck, click = duckdb_rates(table), chdb_rates(table)
    rows = []
    for case, empty, after in measured:
        engines = [f"{found[case.engines]:,.0f}" if case.engines else "" for found in (duck, click)]
        rival, theirs = case.library
        ours = (f"{empty:,.0f}", f"{after:,.0f}")
        rows.append((case.name, *ours, rival, f"{theirs:,.0f}", f"{empty / theirs:.1f}", *engines))
    return rows


def small_calls() -> str:
    """What one call with 4 rows costs."""
    ids, values = np.zeros(4, np.int32), np.ones(4)
    h1, h2 = murmur_int64(np.arange(4))
    costs = []
    for summary, given in (
        (GroupedCount(1), (4,)),
        (GroupedMoments(1, False, True), (values,)),
        (GroupedLogBuckets(1), (values,)),
        (GroupedDistinct(1), (h1, h2)),
        (GroupedTheta(1), (h1,)),
        (GroupedFrequent(1, 1024), (h1, np.arange(4))),
    ):
        calls = 5000

        def run(summary: Any = summary, given: Any = given, calls: int = calls) -> None:
            for _ in range(calls):
                summary.update(ids, *given)

        costs.append(f"{type(summary).__name__} {1 / rate(run, calls):.1f} us")
    return f"One call with 4 rows: {', '.join(costs)}."


def window_merges() -> str:
    """A window of 60 panes by 1000 groups: merge all, ask once."""
    rng = np.random.default_rng(2)
    rows = 20_000
    ids = rng.integers(0, GROUPS, rows).astype(np.int32)
    values = rng.normal(50.0, 15.0, rows)
    keys = rng.integers(0, 5000, rows)
    h1, h2 = murmur_int64(keys)
    costs = []
    for made, given, ask in (
        (lambda: GroupedCount(GROUPS), (rows,), lambda s: s.count()),
        (lambda: GroupedMoments(GROUPS, False, True), (values,), lambda s: s.variance()),
        (lambda: GroupedLogBuckets(GROUPS), (values,), lambda s: s.quantile(0.99)),
        (lambda: GroupedDistinct(GROUPS, 12), (h1, h2), lambda s: s.distinct(0.95)),
        (lambda: GroupedTheta(GROUPS, 12), (h1,), lambda s: s.distinct(0.95)),
        (lambda: GroupedFrequent(GROUPS, 64), (h1, keys), lambda s: s.top(5)),
    ):
        pane = made()
        pane.update(ids, *given)

        def merge_all(made: Any = made, pane: Any = pane) -> Any:
            window = made()
            for _ in range(PANES):
                window.merge(pane)
            return window

        window = merge_all()
        merged = 1e-3 / rate(merge_all, 1)
        ask_ms = 1e-3 / rate(partial(ask, window), 1)
        size = pane.size_bytes / 1024
        costs.append(
            f"{type(pane).__name__} {merged:.1f} + {ask_ms:.1f} ms ({size:,.0f} KiB a pane)"
        )
    return (
        f"A window of {PANES} panes of {rows:,} rows by {GROUPS:,} groups, merge all + ask: "
        f"{', '.join(costs)}."
    )


def run() -> Report:
    """Measure everything."""
    compile_kernels()
    keep_big_blocks()
    given = columns()
    found = cases(given, libraries(given))
    measured = [(case, *rates) for case, rates in zip(found, all_fed(found), strict=True)]
    return Report(
        claim="Aims, M tuples/s on one core: distinct values and theta from integers 250, distinct "
        "values from texts 50, by 1,000 groups 200; log buckets 1,000, by 1,000 groups 200; "
        "moments by 1,000 groups 600, by a million 60; KLL and frequent items 60; CountSketch 150; "
        "which rows enter a sample 400. They are for summaries that have taken some values in: "
        "those that begin empty grow while they are measured.",
        columns=(
            "update",
            "M tuples/s into an empty summary",
            "and then",
            "library",
            "M tuples/s",
            "ratio",
            "DuckDB",
            "chDB",
        ),
        rows=update_rates(given, measured),
        notes=(
            (
                f"{2 * ROWS:,} rows in batches of {BATCH:,}, {GROUPS:,} groups: the first half "
                "goes into an empty summary, then the other half. Nothing is fed twice, because a "
                "summary that has seen all values has little to do. CPU time, the best of "
                f"{ROUNDS} rounds of {PASSES} passes."
            ),
            (
                "Keys are Zipf 1.1 of a million values, values lognormal(0, 1); distinct values "
                "are uniform out of a billion. The ratio is that of the empty summary."
            ),
            "The C heap keeps what is freed, as the server sets it up; for the rivals, too.",
            "The library's loops have one group only. numpy's sum over a column is the limit.",
            (
                "DuckDB and chDB run their functions (approx_count_distinct, approx_top_k, "
                "approx_quantile; uniqHLL12, topK, quantileDD; exact ones for moments and counts) "
                "over the same rows in their memory, on one thread, hashing and grouping included."
            ),
            small_calls(),
            window_merges(),
        ),
        more=(bare_rates(given, measured),),
    )


if __name__ == "__main__":
    print(run().markdown())
