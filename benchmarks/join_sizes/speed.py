"""Sizes of joins in bounded bytes: widths and coverage, beside a plain sample of keys"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Report
from synopses.joins.closed_panes import NO_KEYS, ClosedPane
from synopses.joins.join_totals import JoinTotals
from synopses.joins.joined_windows import JoinedWindows
from synopses.joins.pane_counts import PaneCounts, PaneRoom, heavy_keys
from synopses.joins.pane_kernels import sampled

KEYS = 100_000
PANES = 4  # Of a window.
PANE_ROWS = 50_000  # Of a side.
TRIALS = 12  # Each with other tuples and another seed.
CONFIDENCE = 0.95
_NORMAL = 1.96  # Quantile of the normal distribution at that confidence.
_MIB = 1 << 20

NOTES = (
    f"{KEYS:,} keys; windows of {PANES} panes of {PANE_ROWS:,} tuples on each side.",
    "The truth is the product of exact counts of all keys. Each trial has another seed.",
    "Ideal: 1.96 times the true deviation of the same estimate, with the same keys counted.",
    "A plain sample counts as many keys, chosen by hash, and has a normal interval.",
    "`SUM` and `AVG` are of prices of 90 to 119 in the same bytes, of which sums take a part.",
    "Widths are medians. `exact`: all keys found room. CPU time is per tuple, without the answer.",
)


@dataclass(frozen=True, slots=True)
class JoinCase:
    """Kind of the tuples, and the bytes of both sides."""

    skew: float
    same: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class JoinTrial:
    """Half widths as shares of the truth; whether each interval holds it; ns for each tuple.

    total, average: half widths of SUM and AVG. values_hold: whether both hold the truth.
    """

    share: float
    half_width: float
    ideal: float
    holds: bool
    plain: float
    plain_holds: bool
    ns: float
    total: float
    average: float
    values_hold: bool


CASES = [
    JoinCase(skew, same, size)
    for skew, same, size in (
        (0.0, True, 4 * _MIB),
        (0.8, True, 4 * _MIB),
        (0.8, False, 4 * _MIB),
        (1.1, True, _MIB),
        (1.1, True, 4 * _MIB),
        (1.1, False, _MIB),
        (1.1, False, 4 * _MIB),
    )
]


def panes(case: JoinCase, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
    """The keys of both sides, pane by pane; the first is before the windows."""
    weights = np.cumsum(1.0 / np.arange(1, KEYS + 1) ** case.skew)
    names = [rng.permutation(KEYS) for _ in range(2)]
    for _ in range(PANES + 1):
        ranks = [np.searchsorted(weights, rng.random(PANE_ROWS) * weights[-1]) for _ in range(2)]
        yield [names[0 if case.same else side][each] for side, each in enumerate(ranks)]


def trial(case: JoinCase, seed: int) -> JoinTrial:
    """One window, counted in bounded bytes and by a plain sample."""
    rng = np.random.default_rng(seed)
    secrets = rng.integers(0, 1 << 64, 2, dtype=np.uint64)
    sizes = PaneRoom.within(case.size_bytes, 2 * (PANES + 1))
    counts = np.zeros((2, KEYS))
    sides: tuple[list[ClosedPane], list[ClosedPane]] = ([], [])
    heavy, spent_s = NO_KEYS, 0.0
    for number, keys in enumerate(panes(case, rng)):
        counted = []
        for each in keys:
            pane = PaneCounts(sizes, secrets, heavy)
            hashes = hashes_of(each)
            began_s = time.thread_time()
            pane.update(hashes)
            spent_s += time.thread_time() - began_s
            counted.append(pane)
        heavy = heavy_keys([pane.heaviest() for pane in counted], sizes.heavy)
        if number:
            for side in range(2):
                sides[side].append(counted[side].closed())
                counts[side] += np.bincount(keys[side], minlength=KEYS)
    found = JoinTotals(JoinedWindows(sides, secrets)).pairs(confidence=CONFIDENCE)
    pairs, truth = counts[0] * counts[1], float(counts[0] @ counts[1])
    level = max(pane.level for side in sides for pane in side)
    odds = 2.0**level - 1.0
    kept = pairs[sampled(hashes_of(np.arange(KEYS)), secrets[0], level)]
    plain = _NORMAL * np.sqrt(odds * 2.0**level * np.square(kept).sum())
    always = list(set.intersection(*(_heavy_sets(side) for side in sides)))
    is_light = ~np.isin(hashes_of(np.arange(KEYS)), np.array(always, np.uint64))
    return JoinTrial(
        share=2.0**-level,
        half_width=float(found.high[0] - found.low[0]) / 2 / truth,
        ideal=_NORMAL * float(np.sqrt(odds * np.square(pairs[is_light]).sum())) / truth,
        holds=bool(found.low[0] <= truth <= found.high[0]),
        plain=float(plain) / truth,
        plain_holds=bool(abs(kept.sum() * 2.0**level - truth) <= plain),
        ns=spent_s * 1e9 / (2 * (PANES + 1) * PANE_ROWS),
        **_of_values(case, seed),
    )


def _of_values(case: JoinCase, seed: int) -> dict[str, Any]:
    """Half widths of SUM and AVG of a price on the left side, and whether both hold the truth."""
    rng = np.random.default_rng(seed)
    secrets = rng.integers(0, 1 << 64, 2, dtype=np.uint64)
    sizes = PaneRoom.within(case.size_bytes, 2 * (PANES + 1), expressions=0.5)
    counts, sums = np.zeros((2, KEYS)), np.zeros(KEYS)
    sides: tuple[list[ClosedPane], list[ClosedPane]] = ([], [])
    heavy, centre = NO_KEYS, np.zeros(1)
    for number, keys in enumerate(panes(case, rng)):
        prices = np.floor(90.0 + 10.0 * rng.random(PANE_ROWS)) + (keys[0] % 20).astype(np.float64)
        counted = [
            PaneCounts(sizes, secrets, heavy, centre),
            PaneCounts(sizes, secrets, heavy),
        ]
        counted[0].update(hashes_of(keys[0]), prices[:, None])
        counted[1].update(hashes_of(keys[1]))
        heavy = heavy_keys([pane.heaviest() for pane in counted], sizes.heavy)
        centre = np.rint(counted[0].averages())
        if number:
            sums += np.bincount(keys[0], prices, minlength=KEYS)
            for side in range(2):
                sides[side].append(counted[side].closed())
                counts[side] += np.bincount(keys[side], minlength=KEYS)
    totals = JoinTotals(JoinedWindows(sides, secrets, ((True,), ())))
    truths = float(sums @ counts[1]), float(sums @ counts[1] / (counts[0] @ counts[1]))
    found = [of(0, 0, confidence=CONFIDENCE) for of in (totals.sum, totals.average)]
    widths = [
        float(each.high[0] - each.low[0]) / 2 / truth
        for each, truth in zip(found, truths, strict=True)
    ]
    held = [it.low[0] <= truth <= it.high[0] for it, truth in zip(found, truths, strict=True)]
    return {"total": widths[0], "average": widths[1], "values_hold": all(held)}


def hashes_of(keys: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hashes of keys: a bijection."""
    return (keys.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)


def _heavy_sets(side: list[ClosedPane]) -> set[int]:
    """The keys that are heavy in all panes of a side."""
    return set.intersection(*(set(pane.heavy.keys.tolist()) for pane in side))


def _row(case: JoinCase) -> list[str]:
    trials = [trial(case, seed) for seed in range(TRIALS)]
    middle = {
        name: float(np.median([getattr(each, name) for each in trials]))
        for name in ("share", "half_width", "ideal", "plain", "ns", "total", "average")
    }
    is_exact = middle["share"] == 1.0
    hot = "" if case.skew == 0 else (", same hot keys" if case.same else ", other hot keys")
    return [
        f"Zipf {case.skew:g}{hot}" if case.skew else "uniform",
        f"{case.size_bytes >> 20} MiB",
        "all" if is_exact else f"1/{round(1 / middle['share'])}",
        "exact" if is_exact else _percent(middle["half_width"]),
        "" if is_exact else _percent(middle["ideal"]),
        f"{sum(each.holds for each in trials)} of {TRIALS}",
        "" if is_exact else _percent(middle["plain"]),
        "" if is_exact else f"{sum(each.plain_holds for each in trials)} of {TRIALS}",
        *("exact" if middle[it] == 0 else _percent(middle[it]) for it in ("total", "average")),
        f"{sum(each.values_hold for each in trials)} of {TRIALS}",
        f"{middle['ns']:.0f} ns",
    ]


def _percent(share: float) -> str:
    percent = 100 * share
    return f"±{percent:.0f} %" if percent >= 10 else f"±{percent:.2g} %"


def run() -> Report:
    """Widths, coverage and cost."""
    rows = [_row(case) for case in CASES]
    return Report(
        "Intervals of a standing `COUNT(*)` over a join with `CONFIDENCE 95 PERCENT`, and of `SUM` "
        "and `AVG`, by the bytes that the panes of both sides may have.",
        (
            "keys",
            "bytes",
            "keys counted",
            "half width",
            "ideal",
            "held",
            "plain sample",
            "held",
            "`SUM`",
            "`AVG`",
            "both held",
            "a tuple",
        ),
        rows,
        NOTES,
    )
