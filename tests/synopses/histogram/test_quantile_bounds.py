"""Quantiles of histograms over strata that were read at different shares."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.histogram.quantile_bounds import BucketStratum, bucket_quantile
from synopses.kernels.hashing import position_keys
from tests.truth import draw, exact_quantile, gate

PROFILES = {
    "all at 1/8": ((1.0, 3),),
    "half at 1, half at 1/8": ((0.5, 0), (0.5, 3)),
    "1, 1/2, 1/16": ((0.3, 0), (0.3, 1), (0.4, 4)),
}
GROUPS = 3


def strata(
    values: NDArray[np.float64], ids: NDArray[np.int32], profile: str, seed: int, groups: int
) -> tuple[list[BucketStratum], GroupedLogBuckets]:
    keys = position_keys(seed, 0, len(values))
    cuts = np.cumsum([share for share, _ in PROFILES[profile]]) * len(values)
    edges = [0, *np.rint(cuts).astype(int).tolist()]
    found = []
    for (_, level), first, last in zip(PROFILES[profile], edges, edges[1:], strict=False):
        kept = keys[first:last] <= np.uint64((1 << (64 - level)) - 1)
        buckets = GroupedLogBuckets(groups)
        mine = values[first:last]
        buckets.update(ids[first:last][kept], mine[kept])
        low, high = (float(mine.min()), float(mine.max())) if len(mine) else (0.0, 0.0)
        found.append(
            BucketStratum(
                len(mine), int(kept.sum()), *buckets.buckets(), buckets.counts.copy(), low, high
            )
        )
    return found, buckets


@pytest.mark.slow
@pytest.mark.parametrize("profile", list(PROFILES))
@pytest.mark.parametrize("grouped", [False, True])
def test_intervals_hold_the_quantile(profile: str, grouped: bool) -> None:
    held = trials = 0
    for distribution in ("uniform", "normal", "lognormal-2", "constant", "zipf", "adversarial"):
        for trial, size in enumerate((60, 1_000, 3_000, 3_000)):
            rng = np.random.default_rng([trial, size])
            values = draw(distribution, trial, size)
            ids = rng.choice(GROUPS, size, p=(0.7, 0.25, 0.05)).astype(np.int32)
            groups = GROUPS if grouped else 1
            ids = ids if grouped else np.zeros(size, np.int32)
            parts, buckets = strata(values, ids, profile, trial + size, groups)
            for q in (0.0, 0.01, 0.5, 0.9, 0.999, 1.0):
                found = bucket_quantile(
                    parts, buckets.ends_of, rank_share=q, confidence=0.95, whole=not grouped
                )
                for group in range(groups):
                    mine = values[ids == group]
                    if len(mine):
                        truth = exact_quantile(mine, q)
                        trials += 1
                        held += bool(found.low[group] <= truth <= found.high[group])
    assert held >= gate(trials, 0.95)
    assert held / trials >= 0.94


def test_what_was_read_in_full_gives_the_bucket() -> None:
    values = draw("lognormal-1", 5, 2_000)
    buckets = GroupedLogBuckets(1)
    buckets.update(None, values)
    part = BucketStratum(
        2_000, 2_000, *buckets.buckets(), buckets.counts, float(values.min()), float(values.max())
    )
    for q in (0.0, 0.3, 0.77, 1.0):
        for whole in (True, False):
            found = bucket_quantile(
                [part], buckets.ends_of, rank_share=q, confidence=0.95, whole=whole
            )
            assert found.low[0] <= exact_quantile(values, q) <= found.high[0]
            assert found.high[0] <= found.low[0] * (1 + 2**-7)


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_the_interval_is_about_as_wide_as_order_statistics_make_it(q: float) -> None:
    """The ranks of a sample of n are off by about 1.96 sqrt(q (1 - q) / n)."""
    values = draw("uniform", 1, 80_000)
    parts, buckets = strata(values, np.zeros(80_000, np.int32), "all at 1/8", 3, 1)
    found = bucket_quantile(parts, buckets.ends_of, rank_share=q, confidence=0.95, whole=True)
    ideal = 2 * 1.96 * np.sqrt(q * (1 - q) / 10_000 * 7 / 8) + 2 * 2.0**-7 * q
    assert found.high[0] - found.low[0] <= 1.3 * ideal


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_read_leaves_the_range(whole: bool) -> None:
    buckets = GroupedLogBuckets(1)
    part = BucketStratum(50, 0, *buckets.buckets(), np.zeros(1, np.int64), -1.0, 4.0)
    found = bucket_quantile([part], buckets.ends_of, rank_share=0.5, confidence=0.95, whole=whole)
    assert (found.low[0], found.high[0]) == (-1.0, 4.0)
    assert np.isnan(found.value[0])
