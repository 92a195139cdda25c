"""The summaries that are measured, what they are fed, and what the library has beside them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.group_table import GroupTable
from synopses.kernels.hashing import murmur_int64, murmur_utf8, position_keys, position_start
from synopses.moments.counts import GroupedCount
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.samples.bottom_k import BottomK
from synopses.samples.stratified_sample import StratifiedBottomK
from synopses.theta.theta_sketch import GroupedTheta

ROWS = 1 << 20
GROUPS = 1000
MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class SummaryCase:
    """A summary to feed, beside what others have for the same columns.

    engines: the measurement's name in engines.py; "" for none.
    """

    name: str
    make: Callable[[], Any]
    feed: Callable[[Any, slice], object]
    library: tuple[str, float]
    engines: str = ""


def rate(run: Callable[[], Any], rows: int, passes: int = 5) -> float:
    """Millions of rows per CPU second, the best of some passes."""
    best = float("inf")
    for _ in range(passes):
        start = time.process_time()
        run()
        best = min(best, max(time.process_time() - start, 1e-9))
    return rows / best / 1e6


def library_loop(make: Callable[[], Any], values: list[Any]) -> Callable[[], object]:
    return lambda: deque(map(make().update, values), 0)


def columns() -> dict[str, Any]:
    """The columns that are fed: twice ROWS of each."""
    rng = np.random.default_rng(1)
    rows = 2 * ROWS
    weights = 1.0 / np.arange(1, ROWS + 1) ** 1.1
    fresh = rng.integers(0, 10**9, rows)
    return {
        "key": rng.choice(ROWS, rows, p=weights / weights.sum()),  # Zipf 1.1 of a million values
        "fresh": fresh,
        "value": rng.lognormal(0.0, 1.0, rows),
        "g": rng.integers(0, GROUPS, rows).astype(np.int32),
        "m": rng.integers(0, MANY, rows).astype(np.int32),
        "text": pa.array([f"client-{number % 10**8:08d}" for number in fresh.tolist()]),
    }


def libraries(given: dict[str, Any]) -> dict[str, tuple[str, float]]:
    """What the library and Arrow make of the same columns; loops over the first half of them."""
    keys, values, fresh = given["key"][:ROWS], given["value"], given["fresh"][:ROWS].tolist()
    hll = lambda: datasketches.hll_sketch(12, datasketches.HLL_8, True)  # noqa: E731
    frequent = lambda: datasketches.frequent_items_sketch(10)  # noqa: E731
    count_min = lambda: datasketches.count_min_sketch(5, 4096)  # noqa: E731
    kll = datasketches.kll_doubles_sketch(200)
    req, floats = datasketches.req_floats_sketch(50, True), values.astype(np.float32)
    mapped, pair = pa.array(given["g"]), pa.table({"g": given["g"], "v": values})

    def arrow_sums() -> None:
        pair.group_by("g", use_threads=False).aggregate(
            [("v", "sum"), ("v", "count"), ("v", "min"), ("v", "max")]
        )

    def loop(make: Callable[[], Any], column: list[Any]) -> float:
        return rate(library_loop(make, column), ROWS, 2)

    theta, both = datasketches.update_theta_sketch, 2 * ROWS
    return {
        "hll": ("hll_sketch loop", loop(hll, fresh)),
        "texts": ("hll_sketch loop", loop(hll, given["text"][:ROWS].to_pylist())),
        "theta": ("update_theta_sketch loop", loop(theta, fresh)),
        "items": ("frequent_items loop", loop(frequent, keys.tolist())),
        "cells": ("count_min_sketch loop", loop(count_min, keys.tolist())),
        "kll": ("kll_doubles array", rate(lambda: kll.update(values), both, 2)),
        "req": ("req_floats array", rate(lambda: req.update(floats), both, 2)),
        "sums": ("pyarrow group_by (exact)", rate(arrow_sums, both, 3)),
        "counts": ("pyarrow value_counts", rate(lambda: pc.value_counts(mapped), both, 3)),
        "ids": ("pyarrow dictionary_encode", rate(lambda: pc.dictionary_encode(mapped), both, 3)),
        "numpy": ("numpy sum", rate(values.sum, both, 20)),
    }


def cases(given: dict[str, Any], library: dict[str, tuple[str, float]]) -> list[SummaryCase]:
    """Every summary of the page."""
    keys, fresh, values, g, m = (given[name] for name in ("key", "fresh", "value", "g", "m"))
    offsets = np.frombuffer(given["text"].buffers()[1], np.int32)
    data = np.frombuffer(given["text"].buffers()[2], np.uint8)
    (k1, _), (f1, f2) = murmur_int64(keys), murmur_int64(fresh)
    group_hashes, many_hashes = (murmur_int64(ids.astype(np.int64))[0] for ids in (g, m))

    def texts(summary: GroupedDistinct, rows: slice) -> None:
        summary.update(None, *murmur_utf8(offsets[rows.start : rows.stop + 1], data))

    def grouped(groups: int, *, integer: bool = False, variance: bool = False) -> Any:
        return lambda: GroupedMoments(groups, integer, variance)

    def sampled(summary: BottomK, rows: slice) -> None:
        summary.update(position_keys(1, rows.start, rows.stop - rows.start))

    def by_stratum(summary: StratifiedBottomK, rows: slice) -> None:
        summary.update(g[rows], position_start(1, rows.start))
        if summary.is_full:
            summary.cut(even)

    even, few = np.ones(GROUPS), fresh % 5 + 1.0
    hll, theta, items, cells = (library[name] for name in ("hll", "theta", "items", "cells"))
    kll, sums, ids = library["kll"], library["sums"], library["ids"]
    one, many = GroupedDistinct, GroupedFrequent
    return [
        SummaryCase(
            "distinct, integers, hash and registers",
            lambda: one(1),
            lambda s, r: s.update(None, *murmur_int64(fresh[r])),
            hll,
            "distinct",
        ),
        SummaryCase(
            "distinct, texts of 15 bytes", lambda: one(1), texts, library["texts"], "distinct texts"
        ),
        SummaryCase(
            "distinct by group, hashed",
            lambda: one(GROUPS),
            lambda s, r: s.update(g[r], f1[r], f2[r]),
            hll,
            "distinct by group",
        ),
        SummaryCase(
            "theta, integers, hash and all",
            lambda: GroupedTheta(1),
            lambda s, r: s.update(None, murmur_int64(fresh[r])[0]),
            theta,
        ),
        SummaryCase(
            "theta by group, hashed",
            lambda: GroupedTheta(GROUPS),
            lambda s, r: s.update(g[r], f1[r]),
            theta,
        ),
        SummaryCase(
            "frequent items",
            lambda: many(1, 1024),
            lambda s, r: s.update(None, k1[r], keys[r]),
            items,
            "frequent",
        ),
        SummaryCase(
            "frequent items by group",
            lambda: many(GROUPS, 64),
            lambda s, r: s.update(g[r], k1[r], keys[r]),
            items,
            "frequent by group",
        ),
        SummaryCase(
            "Count-Min 5 x 4096, hashed",
            lambda: GroupedCountMin(1, 12),
            lambda s, r: s.update(None, k1[r]),
            cells,
        ),
        SummaryCase(
            "Count-Min by group, exact groups",
            lambda: GroupedCountMin(GROUPS, 12),
            lambda s, r: s.update(g[r], k1[r]),
            cells,
        ),
        SummaryCase(
            "CountSketch 5 x 2048, hashed",
            lambda: GroupedCountSketch(1, 11),
            lambda s, r: s.update(None, k1[r]),
            cells,
        ),
        SummaryCase(
            "log buckets",
            lambda: GroupedLogBuckets(1),
            lambda s, r: s.update(None, values[r]),
            kll,
            "quantile",
        ),
        SummaryCase(
            "log buckets, five different values",
            lambda: GroupedLogBuckets(1),
            lambda s, r: s.update(None, few[r]),
            kll,
        ),
        SummaryCase(
            "log buckets by group",
            lambda: GroupedLogBuckets(GROUPS),
            lambda s, r: s.update(g[r], values[r]),
            kll,
            "quantile by group",
        ),
        SummaryCase(
            "KLL",
            lambda: GroupedKll(1, 200),
            lambda s, r: s.update(None, values[r]),
            kll,
            "quantile",
        ),
        SummaryCase(
            "KLL by group",
            lambda: GroupedKll(GROUPS, 200),
            lambda s, r: s.update(g[r], values[r]),
            kll,
            "quantile by group",
        ),
        SummaryCase(
            "REQ",
            lambda: GroupedReq(1, 50),
            lambda s, r: s.update(None, values[r]),
            library["req"],
            "quantile",
        ),
        SummaryCase(
            "REQ by group",
            lambda: GroupedReq(GROUPS, 50),
            lambda s, r: s.update(g[r], values[r]),
            library["req"],
            "quantile by group",
        ),
        SummaryCase(
            "count, sum, min, max",
            grouped(1),
            lambda s, r: s.update(None, values[r]),
            library["numpy"],
            "moments",
        ),
        SummaryCase(
            "count, sum, min, max by group",
            grouped(GROUPS),
            lambda s, r: s.update(g[r], values[r]),
            sums,
            "moments by group",
        ),
        SummaryCase(
            f"count, sum, min, max by {MANY:,} groups",
            grouped(MANY),
            lambda s, r: s.update(m[r], values[r]),
            sums,
            "moments by many",
        ),
        SummaryCase(
            "count, sum, min, max and variance by group",
            grouped(GROUPS, variance=True),
            lambda s, r: s.update(g[r], values[r]),
            sums,
            "variance by group",
        ),
        SummaryCase(
            "count, sum, min, max of integers by group",
            grouped(GROUPS, integer=True),
            lambda s, r: s.update(g[r], keys[r]),
            sums,
            "moments by group",
        ),
        SummaryCase(
            "count by group",
            lambda: GroupedCount(GROUPS),
            lambda s, r: s.update(g[r], r.stop - r.start),
            library["counts"],
            "counts",
        ),
        SummaryCase(
            "group ids", lambda: GroupTable(MANY), lambda s, r: s.assign(group_hashes[r]), ids
        ),
        SummaryCase(
            f"group ids, {MANY:,} groups",
            lambda: GroupTable(MANY),
            lambda s, r: s.assign(many_hashes[r]),
            ids,
        ),
        SummaryCase(
            "bottom-k sample of 65,536 rows, which ones",
            lambda: BottomK(65_536),
            sampled,
            library["numpy"],
            "sample",
        ),
        SummaryCase(
            "stratified sample of 65,536 rows by group, which ones",
            lambda: StratifiedBottomK(GROUPS, 65_536),
            by_stratum,
            library["counts"],
        ),
    ]
