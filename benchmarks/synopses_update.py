"""Updating summaries: our kernels beside the library's own loop.

Rates are millions of tuples per CPU second, the best of five passes; everything runs on one
thread. `python -m benchmarks synopses_update` prints the table.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measure import Report
from synopses.count_min import GroupedCountMin
from synopses.count_sketch import GroupedCountSketch
from synopses.counts import GroupedCount
from synopses.distinct import GroupedDistinct
from synopses.frequent import GroupedFrequent
from synopses.group_table import GroupTable
from synopses.hashing import murmur_int64, murmur_utf8
from synopses.kll import GroupedKll
from synopses.log_buckets import GroupedLogBuckets
from synopses.moments import GroupedMoments
from synopses.theta import GroupedTheta
from synopses.warm import compile_kernels

ROWS = 1 << 20
BATCH = 65_536
GROUPS = 1000
PANES = 60


def rate(run: Callable[[], Any], rows: int, passes: int = 5) -> float:
    """Millions of rows per CPU second, the best of some passes."""
    best = float("inf")
    for _ in range(passes):
        start = time.process_time()
        run()
        best = min(best, max(time.process_time() - start, 1e-9))
    return rows / best / 1e6


def batches(update: Callable[[slice], None], rows: int) -> Callable[[], None]:
    def run() -> None:
        for start in range(0, rows, BATCH):
            update(slice(start, start + BATCH))

    return run


def library_loop(make: Callable[[], Any], values: list[Any]) -> Callable[[], None]:
    return lambda: deque(map(make().update, values), 0) and None


def update_rates(rows: int) -> list[tuple[str, ...]]:
    rng = np.random.default_rng(1)
    keys = np.minimum(rng.zipf(1.3, rows), 10**9)
    values = rng.lognormal(0.0, 1.0, rows)
    ids = rng.integers(0, GROUPS, rows).astype(np.int32)
    texts = pa.array([f"client-{key:08d}" for key in (keys % 10**8).tolist()])
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    h1, h2 = murmur_int64(keys)
    hll = lambda: datasketches.hll_sketch(12, datasketches.HLL_8, True)  # noqa: E731
    frequent = lambda: datasketches.frequent_items_sketch(10)  # noqa: E731
    count_min = lambda: datasketches.count_min_sketch(5, 4096)  # noqa: E731
    kll = datasketches.kll_doubles_sketch(200)
    theta = datasketches.update_theta_sketch
    one, many = GroupedDistinct(1), GroupedDistinct(GROUPS)
    theta_one, theta_many = GroupedTheta(1), GroupedTheta(GROUPS)
    fresh = rng.integers(0, 10**9, rows)
    top_one, top_many = GroupedFrequent(1, 1024), GroupedFrequent(GROUPS, 64)
    min_one, min_many = GroupedCountMin(1, 12), GroupedCountMin(GROUPS, 12)
    signed = GroupedCountSketch(1, 11)
    log_one, log_many = GroupedLogBuckets(1), GroupedLogBuckets(GROUPS)
    sums, spread = GroupedMoments(GROUPS, False), GroupedMoments(GROUPS, False, True)
    whole = GroupedMoments(GROUPS, True)
    plain, counts = GroupedMoments(1, False), GroupedCount(GROUPS)
    ranks, groups = GroupedKll(1, 200), GroupTable(GROUPS)
    group_hashes = murmur_int64(ids.astype(np.int64))[0]
    mapped, pair = pa.array(ids), pa.table({"g": ids, "v": values})

    def arrow_sums() -> None:
        pair.group_by("g", use_threads=False).aggregate(
            [("v", "sum"), ("v", "count"), ("v", "min"), ("v", "max")]
        )

    def distinct_of_integers(rows: slice) -> None:
        one.update(None, *murmur_int64(keys[rows]))

    def distinct_of_texts(rows: slice) -> None:
        one.update(None, *murmur_utf8(offsets[rows.start : rows.stop + 1], data))

    def theta_of_integers(rows: slice) -> None:
        theta_one.update(None, murmur_int64(fresh[rows])[0])

    def best(run: Callable[[slice], None]) -> float:
        batches(run, rows)()
        return rate(batches(run, rows), rows)

    hll_ints = ("hll_sketch loop", rate(library_loop(hll, keys.tolist()), rows, 2))
    hll_texts = ("hll_sketch loop", rate(library_loop(hll, texts.to_pylist()), rows, 2))
    thetas = ("update_theta_sketch loop", rate(library_loop(theta, fresh.tolist()), rows, 2))
    items = ("frequent_items loop", rate(library_loop(frequent, keys.tolist()), rows, 2))
    cells = ("count_min_sketch loop", rate(library_loop(count_min, keys.tolist()), rows, 2))
    array = ("kll_doubles array", rate(lambda: kll.update(values), rows, 2))
    arrow = ("pyarrow group_by (exact)", rate(arrow_sums, rows, 3))
    counted = ("pyarrow value_counts", rate(lambda: pc.value_counts(mapped), rows, 3))
    encoded = ("pyarrow dictionary_encode", rate(lambda: pc.dictionary_encode(mapped), rows, 3))
    runs: list[tuple[str, Callable[[slice], None], tuple[str, float]]] = [
        ("distinct, integers, hash and registers", distinct_of_integers, hll_ints),
        ("distinct, texts of 15 bytes", distinct_of_texts, hll_texts),
        ("distinct by group, hashed", lambda r: many.update(ids[r], h1[r], h2[r]), hll_ints),
        ("theta, integers, hash and all", theta_of_integers, thetas),
        ("theta by group, hashed", lambda r: theta_many.update(ids[r], h1[r]), thetas),
        ("frequent items", lambda r: top_one.update(None, h1[r], keys[r]), items),
        ("frequent items by group", lambda r: top_many.update(ids[r], h1[r], keys[r]), items),
        ("Count-Min 5 x 4096, hashed", lambda r: min_one.update(None, h1[r]), cells),
        ("Count-Min by group, exact groups", lambda r: min_many.update(ids[r], h1[r]), cells),
        ("CountSketch 5 x 2048, hashed", lambda r: signed.update(None, h1[r]), cells),
        ("log buckets", lambda r: log_one.update(None, values[r]), array),
        ("log buckets by group", lambda r: log_many.update(ids[r], values[r]), array),
        ("KLL", lambda r: ranks.update(None, values[r]), array),
        ("count, sum, min, max", lambda r: plain.update(None, values[r]), arrow),
        ("count, sum, min, max by group", lambda r: sums.update(ids[r], values[r]), arrow),
        ("the same with variance", lambda r: spread.update(ids[r], values[r]), arrow),
        ("the same of integers", lambda r: whole.update(ids[r], keys[r]), arrow),
        ("count by group", lambda r: counts.update(ids[r], len(ids[r])), counted),
        ("group ids", lambda r: groups.assign(group_hashes[r]), encoded),
    ]
    measured = []
    for name, run, (rival, theirs) in runs:
        ours = best(run)
        measured.append((name, f"{ours:,.0f}", rival, f"{theirs:,.0f}", f"{ours / theirs:.1f}"))
    return measured


def small_calls() -> str:
    """What one call with 4 rows costs."""
    ids, values = np.zeros(4, np.int32), np.ones(4)
    h1, h2 = murmur_int64(np.arange(4))
    costs = []
    for summary, columns in (
        (GroupedCount(1), (4,)),
        (GroupedMoments(1, False, True), (values,)),
        (GroupedLogBuckets(1), (values,)),
        (GroupedDistinct(1), (h1, h2)),
        (GroupedTheta(1), (h1,)),
        (GroupedFrequent(1, 1024), (h1, np.arange(4))),
    ):
        calls = 5000

        def run(summary: Any = summary, columns: Any = columns, calls: int = calls) -> None:
            for _ in range(calls):
                summary.update(ids, *columns)

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
    for made, columns, ask in (
        (lambda: GroupedCount(GROUPS), (rows,), lambda s: s.count()),
        (lambda: GroupedMoments(GROUPS, False, True), (values,), lambda s: s.variance()),
        (lambda: GroupedLogBuckets(GROUPS), (values,), lambda s: s.quantile(0.99)),
        (lambda: GroupedDistinct(GROUPS, 12), (h1, h2), lambda s: s.distinct(0.95)),
        (lambda: GroupedTheta(GROUPS, 12), (h1,), lambda s: s.distinct(0.95)),
        (lambda: GroupedFrequent(GROUPS, 64), (h1, keys), lambda s: s.top(5)),
    ):
        pane = made()
        pane.update(ids, *columns)

        def merge_all(made: Any = made, pane: Any = pane) -> Any:
            window = made()
            for _ in range(PANES):
                window.merge(pane)
            return window

        window = merge_all()
        merged = 1e-3 / rate(merge_all, 1)
        asked = 1e-3 / rate(lambda ask=ask, window=window: ask(window), 1)
        size = pane.size_bytes / 1024
        costs.append(
            f"{type(pane).__name__} {merged:.1f} + {asked:.1f} ms ({size:,.0f} KiB a pane)"
        )
    return (
        f"A window of {PANES} panes of {rows:,} rows by {GROUPS:,} groups, merge all + ask: "
        f"{', '.join(costs)}."
    )


def run() -> Report:
    """Measure everything."""
    compile_kernels()
    return Report(
        claim="Batches go into the kernels faster than into the library one item at a time, with "
        "the same registers and formats.",
        columns=("update", "M tuples/s", "rival", "M tuples/s", "ratio"),
        rows=update_rates(ROWS),
        notes=(
            f"{ROWS:,} rows in batches of {BATCH:,}, {GROUPS:,} groups.",
            "Keys are zipf(1.3), values lognormal(0, 1).",
            "The library's loops have one group only.",
            small_calls(),
            window_merges(),
        ),
    )


if __name__ == "__main__":
    print(run().markdown())
