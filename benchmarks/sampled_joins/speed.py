"""Thinned aggregates of joins: CPU per tuple with a sample of keys, beside all keys"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.measure import Report
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Call, Column, Op
from shedder.cql.plans.logical_plan import (
    Aggregated,
    BoundRelational,
    Join,
    JoinKind,
    KeySampling,
    RelationKind,
    Scan,
    WindowOf,
)
from shedder.cql.statements.statement import ColumnDefinition, RangeWindow
from shedder.dataflow.dataflow import Dataflow

KEYS = 200_000
SLIDE_US = 100_000  # Each stream has a tuple each microsecond.
PANES = 4  # Of a window.
SLIDES = 12  # The windows are full in the last SLIDES - PANES, which are timed.
BATCH_ROWS = 10_000
PASSES = 3  # Of which the fastest counts.
LEVELS = (4, 6)
SKEWS = (0.0, 1.1)
_OPEN = 6  # Panes that `PaneRoom.within` leaves room for beside those of the windows.
_KEY_BYTES = 40  # Of a pane, for each sampled key that it aims at, by the shares of `PaneRoom`.
_BIGINT = ColumnType.BIGINT

NOTES = (
    (
        f"`SELECT COUNT(*) FROM a JOIN b ON a.k = b.k`, windows of {PANES} slides of "
        f"{SLIDE_US:,} tuples of each stream, {KEYS:,} keys, batches of {BATCH_ROWS:,} rows."
    ),
    f"CPU time per tuple with full windows, one thread, the fastest of {PASSES} passes.",
    "The aggregate is the operator alone; the query reads the tuples, too.",
    "Exact: the query without `CONFIDENCE`, which has the counts of all keys.",
    (
        "Whatever the level, each tuple is hashed, looked up among the heavy keys, and added to "
        "the sum of its bucket: sums of every tuple certify the interval. So a sample cannot cost "
        "much less than exact counts."
    ),
    (
        "When each slide sorted the keys of all panes (commit 2e688e65), all keys took 1,479 ns "
        "(uniform) and 323 ns (Zipf 1.1), a sample of 1/16 took 210 and 95 ns. Now panes have "
        "their keys in order, and a slide merges them."
    ),
)


@dataclass(frozen=True, slots=True)
class JoinCost:
    """CPU ns for each tuple, of the query and of its aggregate; level and bytes at the end."""

    query_ns: float
    aggregate_ns: float
    level: int
    size_bytes: int


def query(sampling: KeySampling | None) -> BoundRelational:
    """The number of pairs of two windows. sampling: None: exactly."""
    sides = []
    for alias in "ab":
        columns = (ColumnDefinition(f"{alias}.k", _BIGINT, False),)
        scan = Scan(alias, alias, RelationKind.STREAM, columns, f"{alias}.ts")
        sides.append(WindowOf(scan, RangeWindow(PANES * SLIDE_US, SLIDE_US)))
    keys = (Column("a.k", _BIGINT), Column("b.k", _BIGINT))
    join = Join(JoinKind.INNER, sides[0], sides[1], Call(Op.EQ, keys, ColumnType.BOOLEAN))
    count = Aggregate(AggregateFunction.COUNT, None, type=_BIGINT)
    return BoundRelational("", Aggregated(join, (), (count,), sampling=sampling), ())


def batches(skew: float) -> list[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Tuples of both streams; hot keys are the same."""
    random = np.random.default_rng(1)
    weights = np.cumsum(1.0 / np.arange(1, KEYS + 1) ** skew)
    names = random.permutation(KEYS)
    made = []
    for first in range(0, SLIDES * SLIDE_US, BATCH_ROWS):
        times = pa.array(np.arange(first, first + BATCH_ROWS)).cast(pa.timestamp("us"))
        sides = []
        for _ in range(2):
            ranks = np.searchsorted(weights, random.random(BATCH_ROWS) * weights[-1])
            sides.append(pa.record_batch({"k": pa.array(names[ranks]), "ts": times}))
        made.append((sides[0], sides[1]))
    return made


def measured(
    given: Sequence[tuple[pa.RecordBatch, pa.RecordBatch]], sampling: KeySampling | None
) -> JoinCost:
    """Push all tuples, and time those that come when the windows are full."""
    flow = Dataflow(query(sampling), state_bytes_max=1 << 34)
    relation = flow.current_relation(1 << 34)
    spent_s, before_ns, ends_us = 0.0, 0, 0
    for step, sides in enumerate(given):
        first, ends_us = step * BATCH_ROWS, (step + 1) * BATCH_ROWS
        if first == PANES * SLIDE_US:
            spent_s, before_ns = 0.0, flow.operators()[-1].ns
        began_s = time.thread_time()
        for alias, batch in zip("ab", sides, strict=True):
            flow.push(alias, batch, first)
        changes = flow.advance({"a": ends_us, "b": ends_us})
        spent_s += time.thread_time() - began_s
        relation.add(ends_us, changes)
    tuples = 2 * (SLIDES - PANES) * SLIDE_US
    aggregate_ns = (flow.operators()[-1].ns - before_ns) / tuples
    join = flow.sampled_join
    level = 0 if join is None else join.level
    return JoinCost(spent_s / tuples * 1e9, aggregate_ns, level, flow.size_bytes)


def fastest(
    given: Sequence[tuple[pa.RecordBatch, pa.RecordBatch]], sampling: KeySampling | None
) -> JoinCost:
    """The pass with the least time of the aggregate."""
    return min((measured(given, sampling) for _ in range(PASSES)), key=lambda it: it.aggregate_ns)


def bytes_of(level: int, keys: int) -> int:
    """Bytes with which panes of so many different keys sample at a level."""
    return int(_KEY_BYTES * 0.7 * keys * 2.0 ** (1 - level)) * (2 * (PANES + 1) + _OPEN)


def run() -> Report:
    """Measure exact counts, and all keys and samples in bounded bytes."""
    rows, beside_all, beside_exact = [], list[str](), list[str]()
    for skew in SKEWS:
        given = batches(skew)
        pane = given[: SLIDE_US // BATCH_ROWS]
        keys = len(np.unique(np.concatenate([sides[0].column(0).to_numpy() for sides in pane])))
        exact = fastest(given, None)
        every = fastest(given, KeySampling(0.95, 7, bytes_of(0, keys)))
        samples = [fastest(given, KeySampling(0.95, 7, bytes_of(it, keys))) for it in LEVELS]
        beside_all.append(f"{samples[0].aggregate_ns / every.aggregate_ns:.2f}")
        beside_exact.append(f"{samples[0].aggregate_ns / exact.aggregate_ns:.1f}")
        for name, found in (("exact", exact), ("", every), *(("", each) for each in samples)):
            rows.append(
                (
                    f"Zipf {skew:g}" if skew else "uniform",
                    name or ("all" if found.level == 0 else f"1/{1 << found.level}"),
                    f"{found.size_bytes / (1 << 20):.1f} MiB",
                    f"{found.query_ns:.0f} ns",
                    f"{found.aggregate_ns:.0f} ns",
                    f"{found.aggregate_ns / every.aggregate_ns:.2f}",
                )
            )
    return Report(
        "Wanted: with `CONFIDENCE`, a sample of 1/16 of the keys costs at most a quarter of what "
        f"all keys cost. Found: {' and '.join(beside_all)}, for uniform and for skewed keys. It "
        f"costs {' and '.join(beside_exact)} times as much as exact aggregates: it saves bytes, "
        "hardly CPU.",
        ("keys", "keys counted", "bytes", "the query", "the aggregate", "all keys = 1"),
        rows,
        NOTES,
    )
