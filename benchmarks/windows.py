"""A window over 1,000 panes: few merges for each slide, beside merging all panes.

Times are CPU time of one thread, per slide: the new pane is taken in, the old one let go, and the
window is there as one summary. `python -m benchmarks windows` prints the table.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import Report
from shedder.engine.panes.synopsis_resizing import settle, size_of
from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
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
from synopses.windows.sliding_merge import WindowMerges

PANES = 1_000
MERGES_OF_ALL = 3
GROWING = 64  # Windows before the first that is full; not counted.


@dataclass(frozen=True, slots=True)
class Setting:
    """How many groups, rows in each pane, and slides; more slides than panes make every merge."""

    groups: int
    rows: int
    slides: int


ONE = Setting(groups=1, rows=1_000, slides=1_200)
MANY = Setting(groups=1_000, rows=2_000, slides=72)
KINDS: dict[str, tuple[Callable[[int], Any], Callable[[Any, Any, np.random.Generator, int], None]]]
KINDS = {
    "count": (GroupedCount, lambda s, ids, _, rows: s.update(ids, rows)),
    "moments, variance": (
        lambda groups: GroupedMoments(groups, integer=False, variance=True),
        lambda s, ids, rng, rows: s.update(ids, rng.lognormal(3, 1, rows)),
    ),
    "distinct, 4,096 registers": (
        lambda groups: GroupedDistinct(groups, 12),
        lambda s, ids, rng, rows: s.update(ids, *murmur_int64(rng.integers(0, 1_000_000, rows))),
    ),
    "log buckets": (
        GroupedLogBuckets,
        lambda s, ids, rng, rows: s.update(ids, rng.lognormal(3, 1, rows)),
    ),
    "Count-Min, 5 × 1,024": (
        lambda groups: GroupedCountMin(groups, 10),
        lambda s, ids, rng, rows: s.update(ids, murmur_int64(rng.zipf(1.2, rows) % 100_000)[0]),
    ),
    "KLL, k = 400": (
        lambda groups: GroupedKll(groups, 400),
        lambda s, ids, rng, rows: s.update(ids, rng.lognormal(3, 1, rows)),
    ),
    "REQ, k = 50": (
        lambda groups: GroupedReq(groups, 50),
        lambda s, ids, rng, rows: s.update(ids, rng.lognormal(3, 1, rows)),
    ),
    "theta, 4,096 hashes": (
        lambda groups: GroupedTheta(groups, 12),
        lambda s, ids, rng, rows: s.update(ids, murmur_int64(rng.integers(0, 1_000_000, rows))[0]),
    ),
    "CountSketch, 5 × 1,024": (
        lambda groups: GroupedCountSketch(groups, 10),
        lambda s, ids, rng, rows: s.update(ids, murmur_int64(rng.zipf(1.2, rows) % 100_000)[0]),
    ),
    "cross moments": (
        GroupedCrossMoments,
        lambda s, ids, rng, rows: s.update(ids, rng.normal(0, 1, rows), rng.normal(0, 1, rows)),
    ),
    "first and last": (
        lambda groups: GroupedFirstLast(groups, integer=False),
        lambda s, ids, rng, rows: s.update(
            ids, np.arange(rows), np.arange(rows), rng.lognormal(3, 1, rows)
        ),
    ),
    "frequent, 1,024 entries": (
        lambda groups: GroupedFrequent(groups, 1_024),
        lambda s, ids, rng, rows: _update_items(s, ids, rng.zipf(1.2, rows) % 100_000),
    ),
}

# By groups they merge as KLL and Count-Min do, or as moments, and take minutes to merge all.
OF_ONE = (
    "REQ, k = 50", "theta, 4,096 hashes", "CountSketch, 5 × 1,024", "cross moments",
    "first and last",
)  # fmt: skip


def run() -> Report:
    """Every summary, of one group and of 1,000."""
    compile_kernels()
    rows = [_row(name, ONE) for name in KINDS]
    rows += [_row(name, MANY) for name in KINDS if name not in OF_ONE]
    return Report(
        claim="Claim: a slide of a window over 1,000 panes costs, on average, about 100 µs or less "
        "for counts, moments and distinct and under 1 ms for the others (of one group), and no "
        "slide more than a few times that, because the window is merged from what former windows "
        "left and made ahead. The rival merges all panes, as each window did before.",
        columns=[
            "summary",
            "mean",
            "median",
            "worst",
            "running",
            "worst",
            "merging all",
            "ratio",
            "panes",
            "merges",
        ],
        rows=rows,
        notes=[
            (
                f"{PANES:,} panes of {ONE.rows:,} rows of one group over {ONE.slides:,} slides, of "
                f"{MANY.rows:,} rows of {MANY.groups:,} groups over {MANY.slides} slides. Ratio: "
                "merging all over the mean. Panes, merges: what they hold in memory; the merges "
                "are the price of the speed; a query by groups keeps them within its cap. Panes "
                "are closed before, as the engine closes them: what waits for a rank sketch is in "
                "it then."
            ),
            (
                "Running: what a window that takes the new pane in and the old one off again would "
                "cost, of linear summaries. Its state is not that of merging all: log buckets keep "
                "the range of what they had, Count-Min its tables; and the window must be copied "
                "before a query reads it while it slides."
            ),
            (
                "7 merges a slide on average, 12 at most, however many panes there are. The two "
                "stacks need fewer on average and 1,000 at worst, DABA a constant number; both "
                "hold a merge for every pane, here it is one for ten (of many groups a merge "
                "weighs more than a pane)."
            ),
        ],
    )


def _update_items(summary: GroupedFrequent, ids: Any, items: Any) -> None:
    summary.update(ids, murmur_int64(items)[0], items)


def _row(name: str, setting: Setting) -> tuple[str, ...]:
    make, feed = KINDS[name]
    rng = np.random.default_rng(1)
    merges: WindowMerges[Any] = WindowMerges(
        lambda: make(setting.groups), lambda summary: np.array([summary.size_bytes]), PANES
    )
    panes: deque[Any] = deque(maxlen=PANES)
    times = []
    for number in range(PANES + setting.slides):
        ids = None
        if setting.groups > 1:
            ids = rng.integers(0, setting.groups, setting.rows).astype(np.int32)
        pane = make(setting.groups)
        feed(pane, ids, rng, setting.rows)
        settle(pane, size_of(pane))  # As the engine does when a pane closes.
        panes.append(pane)
        began = time.process_time()
        merges.add(number, pane)
        merges.drop_before(number - PANES + 1)
        if number >= PANES - GROWING:  # While it grows, a window makes what full ones need.
            merges.merged(max(0, number - PANES + 1), number + 1)
        if number >= PANES:
            times.append(time.process_time() - began)
    slides = times
    rival = min(_merging_all(make(setting.groups), panes) for _ in range(MERGES_OF_ALL))
    mean = float(np.mean(slides))
    return (
        name + ("" if setting.groups == 1 else f", {setting.groups:,} groups"),
        *map(_time, (mean, float(np.median(slides)), max(slides))),
        *_running(make(setting.groups), list(panes)),
        _time(rival),
        f"{rival / mean:,.0f}×",
        f"{sum(pane.size_bytes for pane in panes) / 1e6:,.2f} MB",
        f"{merges.size.sum() / 1e6:,.2f} MB",
    )


def _merging_all(whole: Any, panes: deque[Any]) -> float:
    began = time.process_time()
    for pane in panes:
        whole.merge(pane)
    return time.process_time() - began


def _running(whole: Any, panes: list[Any]) -> tuple[str, str]:
    """Mean and worst of adding the new pane and taking the old one off, where that can be done."""
    if not hasattr(whole, "subtract"):
        return "", ""
    window = len(panes) // 2
    for pane in panes[:window]:
        whole.merge(pane)
    times = []
    for new, old in zip(panes[window:], panes, strict=False):
        began = time.process_time()
        whole.merge(new)
        whole.subtract(old)
        times.append(time.process_time() - began)
    return _time(float(np.mean(times))), _time(max(times))


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:,.1f} ms"
