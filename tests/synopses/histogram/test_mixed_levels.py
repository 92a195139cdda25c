"""Quantiles of groups from buckets of strata that were read at different shares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.histogram.quantile_bounds import BucketStratum, bucket_quantile
from tests.truth import exact_quantile, gate

COLUMNS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "exponential": lambda rng, size: rng.exponential(1.0, size),
    "rising": lambda rng, size: rng.normal(10.0, 1.0, size) + np.linspace(0.0, 2.0, size),
    "few values": lambda rng, size: rng.geometric(0.4, size) * 1.0,
}


@pytest.mark.parametrize("column", list(COLUMNS))
@pytest.mark.parametrize("shares", [(1 / 16, 1 / 2, 1 / 8), (1.0, 1 / 8, 1 / 2)])
def test_medians_of_groups_over_levels_hold_and_are_nearly_ideal(
    column: str, shares: tuple[float, ...]
) -> None:
    """The least and the greatest of the strata's own intervals were 4 times as far apart."""
    size, groups, confidence, trials = 16_000, 20, 0.95, 3
    rng = np.random.default_rng(11)
    values, ids = COLUMNS[column](rng, size), rng.integers(0, groups, size).astype(np.int32)
    truth = np.array([exact_quantile(values[ids == group], 0.5) for group in range(groups)])
    held, ranks = 0, []
    for _ in range(trials):
        strata, spread = [], 0.0
        for rows, share in zip(np.array_split(np.arange(size), len(shares)), shares, strict=True):
            kept = rng.choice(rows, int(len(rows) * share), replace=False)
            buckets = GroupedLogBuckets(groups)
            buckets.update(ids[kept], values[kept])
            strata.append(
                BucketStratum(
                    len(rows), len(kept), *buckets.buckets(), buckets.counts.copy(),
                    float(values[rows].min()), float(values[rows].max()),
                )
            )  # fmt: skip
            spread += len(kept) / groups * (1 / share - 1) / share / 4
        found = bucket_quantile(
            strata, buckets.ends_of, rank_share=0.5, confidence=confidence, whole=False
        )
        held += int(((found.low <= truth) & (truth <= found.high)).sum())
        for group in range(groups):
            mine = np.sort(values[ids == group])
            ends = np.searchsorted(mine, [found.low[group], found.high[group]])
            ranks.append((ends[1] - ends[0]) / 2 / (1.96 * np.sqrt(spread)))
    assert held >= gate(trials * groups, confidence), held
    if column != "few values":  # All ranks of one value are alike.
        assert np.median(ranks) <= 1.35
