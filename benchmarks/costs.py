"""What each summary costs: CPU per tuple, bytes, a merge, a question.

`python -m benchmarks costs` prints the table. docs/synopses.md says which summary to take when.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Report, cpu_seconds
from shedder.wire.malloc_tuning import keep_big_blocks
from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.join_size import self_join_size
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.precompile import compile_kernels
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.theta.theta_sketch import GroupedTheta

ROWS, BATCH, GROUPS = 1 << 19, 65_536, 1000
PASSES = 5
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class MeasuredSummary:
    """A summary at a usual size, the columns that it takes, and a question to it."""

    name: str
    make: Callable[[int], Any]
    columns: tuple[str, ...]
    ask: Callable[[Any], object]


KINDS = (
    MeasuredSummary("counts", GroupedCount, (), lambda s: s.count()),
    MeasuredSummary(
        "moments, variance",
        lambda groups: GroupedMoments(groups, integer=False, variance=True),
        ("value",),
        lambda s: s.variance(),
    ),
    MeasuredSummary(
        "cross moments", GroupedCrossMoments, ("value", "other"), lambda s: s.correlation()
    ),
    MeasuredSummary(
        "first and last",
        lambda groups: GroupedFirstLast(groups, integer=False),
        ("order", "order", "value"),
        lambda s: s.last(),
    ),
    MeasuredSummary(
        "distinct",
        lambda groups: GroupedDistinct(groups, 14 if groups == 1 else 12),
        ("h1", "h2"),
        lambda s: s.distinct(CONFIDENCE),
    ),
    MeasuredSummary(
        "theta", lambda groups: GroupedTheta(groups, 12), ("h1",), lambda s: s.distinct(CONFIDENCE)
    ),
    MeasuredSummary("log buckets", GroupedLogBuckets, ("value",), lambda s: s.quantile(0.99)),
    MeasuredSummary(
        "KLL",
        lambda groups: GroupedKll(groups, 400),
        ("value",),
        lambda s: s.quantile(0.99, CONFIDENCE),
    ),
    MeasuredSummary(
        "REQ",
        lambda groups: GroupedReq(groups, 50),
        ("value",),
        lambda s: s.quantile(0.99, CONFIDENCE),
    ),
    MeasuredSummary(
        "frequent items",
        lambda groups: GroupedFrequent(groups, 1024 if groups == 1 else 64),
        ("k1", "key"),
        lambda s: s.top(10),
    ),
    MeasuredSummary(
        "Count-Min",
        lambda groups: GroupedCountMin(groups, 10),
        ("k1",),
        lambda s: self_join_size(s, CONFIDENCE),
    ),
    MeasuredSummary(
        "CountSketch",
        lambda groups: GroupedCountSketch(groups, 10),
        ("k1",),
        lambda s: s.second_moment(CONFIDENCE),
    ),
)


def run() -> Report:
    """Measure every kind, of one group and of a thousand."""
    compile_kernels()
    keep_big_blocks()
    given = _columns()
    return Report(
        claim="What a summary costs at a usual size; docs/synopses.md says what it promises.",
        columns=(
            "summary",
            "ns per tuple",
            "KiB",
            "a merge, us",
            "a question, us",
            f"ns per tuple, {GROUPS:,} groups",
            "KiB a group",
            "a merge, us",
            "a question, us",
        ),
        rows=[(kind.name, *_costs(kind, 1, given), *_costs(kind, GROUPS, given)) for kind in KINDS],
        notes=(
            (
                f"CPU time of one thread, the least of some passes: {ROWS:,} tuples in batches of "
                f"{BATCH:,} into a summary that has had as many; hashes of keys (1.6 ns of an "
                "integer) and ids of groups (4 ns) come on top, once for all that need them."
            ),
            (
                "Distinct values are uniform out of a billion, other keys Zipf 1.1 of a million, "
                "values lognormal(0, 1). By groups, sizes are smaller where they would not be "
                "used in full: 2^12 registers instead of 2^14, 64 entries instead of 1,024."
            ),
            "A merge is that of two such summaries, as a window makes it; bytes are those held.",
        ),
    )


def _columns() -> Mapping[str, Any]:
    rng = np.random.default_rng(1)
    weights = 1.0 / np.arange(1, 1_000_001) ** 1.1
    keys = rng.choice(1_000_000, 2 * ROWS, p=weights / weights.sum())
    fresh = murmur_int64(rng.integers(0, 10**9, 2 * ROWS))
    return {
        "value": rng.lognormal(0.0, 1.0, 2 * ROWS),
        "other": rng.normal(0.0, 1.0, 2 * ROWS),
        "order": np.arange(2 * ROWS),
        "key": keys,
        "k1": murmur_int64(keys)[0],
        "h1": fresh[0],
        "h2": fresh[1],
        "g": rng.integers(0, GROUPS, 2 * ROWS).astype(np.int32),
    }


def _costs(kind: MeasuredSummary, groups: int, given: Mapping[str, Any]) -> tuple[str, ...]:
    summary, other = kind.make(groups), kind.make(groups)
    _feed(kind, summary, given, 0)
    _feed(kind, other, given, 1)
    image = summary.to_bytes()
    times = 20 if groups == 1 else 3
    updates, merges = [], []
    for _ in range(PASSES):
        again = type(summary).from_bytes(image)
        updates.append(_seconds(partial(_feed, kind, again, given, 1)))
        some = [type(summary).from_bytes(image) for _ in range(times)]
        merges.append(_seconds(partial(_merge, some, other)) / times)
    ask = cpu_seconds(lambda: [kind.ask(summary) for _ in range(times)]) / times
    return (
        f"{min(updates) / ROWS * 1e9:.1f}",
        f"{summary.size_bytes / groups / 1024:,.1f}",
        f"{min(merges) * 1e6:,.0f}",
        f"{ask * 1e6:,.0f}",
    )


def _merge(summaries: list[Any], other: Any) -> None:
    for summary in summaries:
        summary.merge(other)


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _feed(kind: MeasuredSummary, summary: Any, given: Mapping[str, Any], half: int) -> None:
    for first in range(half * ROWS, (half + 1) * ROWS, BATCH):
        rows = slice(first, first + BATCH)
        ids = given["g"][rows] if summary.groups > 1 else None
        columns = [given[name][rows] for name in kind.columns] or [BATCH]
        summary.update(ids, *columns)


if __name__ == "__main__":
    print(run().markdown())
