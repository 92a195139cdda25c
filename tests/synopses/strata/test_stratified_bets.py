"""Bets on the rows of strata, against exact truth and against bets on moments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.intervals.sample_values import SampledValues
from synopses.strata.moment_bets import ratio_ends, total_ends
from synopses.strata.stratified_bets import READ_MIN, learned_ratio, learned_total
from synopses.strata.stratum import Stratum
from tests.truth import gate

Floats = NDArray[np.float64]
GROUPS = 4  # Of 60, 30, 8 and 2 % of the rows.
COLUMNS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "exponential": lambda rng, size: rng.exponential(1.0, size),
    "few ones": lambda rng, size: (rng.random(size) < 0.03) * 1.0,
    "ones in the first half": lambda rng, size: np.asarray(np.arange(size) < size // 2, np.float64),
    "rare ones in the second half": lambda rng, size: np.where(
        np.arange(size) >= size // 2, rng.random(size) < 0.05, 0.0
    ),
    "far below zero": lambda rng, size: -rng.lognormal(0.0, 1.5, size),
    "wide beside its rise": lambda rng, size: rng.normal(0.0, 1.0, size) + np.arange(size) / size,
}
SHARES = {"1/8, 1/2": (1 / 8, 1 / 2), "1, 1/8, 1/3": (1.0, 1 / 8, 1 / 3), "4/5, 1/2": (0.8, 0.5)}


def sampled(
    column: Floats, ids: NDArray[np.int64], shares: tuple[float, ...], seed: int
) -> tuple[list[Stratum], list[SampledValues]]:
    """The column in equal stretches, each read at its share: moments and rows."""
    rng = np.random.default_rng(seed)
    strata, samples = [], []
    for rows, share in zip(
        np.array_split(np.arange(len(column)), len(shares)), shares, strict=True
    ):
        kept = rng.choice(rows, int(len(rows) * share), replace=False)
        counts = np.bincount(ids[kept], minlength=GROUPS)
        means = np.bincount(ids[kept], column[kept], GROUPS) / np.maximum(counts, 1)
        away = column[kept] - means[ids[kept]]
        squares = np.bincount(ids[kept], away**2, GROUPS)
        low, high = float(column[rows].min()), float(column[rows].max())
        strata.append(Stratum(len(rows), len(kept), counts, means, squares, low, high, whole=False))
        if strata[-1].skipped:
            samples.append(
                SampledValues.by_group(
                    column[kept],
                    ids=ids[kept].astype(np.int32),
                    groups=GROUPS,
                    population=len(rows),
                    read=len(kept),
                    low=low,
                    high=high,
                    shuffle_seed=int(rng.integers(1 << 62)),
                )
            )
    return strata, samples


@pytest.mark.slow
@pytest.mark.parametrize("shares", list(SHARES))
@pytest.mark.parametrize("name", list(COLUMNS))
def test_totals_and_averages_hold_and_are_narrower_than_from_moments(
    name: str, shares: str
) -> None:
    size, trials = 1_600, 25
    rng = np.random.default_rng(len(name))
    column, ids = COLUMNS[name](rng, size), rng.choice(GROUPS, size, p=(0.6, 0.3, 0.08, 0.02))
    truth = np.bincount(ids, column)
    mean, wanted = truth / np.bincount(ids), np.ones(GROUPS, np.bool_)
    worlds = [sampled(column, ids, SHARES[shares], seed) for seed in range(trials)]
    for delta in (0.05, 0.4):
        held, ratios = np.zeros(2, np.int64), []
        for strata, samples in worlds:
            for at, (learned, known, true) in enumerate(
                ((learned_total, total_ends, truth), (learned_ratio, ratio_ends, mean))
            ):
                low, high = learned(strata, samples, wanted=wanted, delta=delta)
                slack = 1e-9 * (1 + abs(true))
                held[at] += int(((low - slack <= true) & (true <= high + slack)).sum())
                first, last = known(strata, delta=delta)
                ratios.append(((high - low) / np.maximum(last - first, 1e-9))[0])
        assert held.min() >= gate(trials * GROUPS, 1 - delta), (delta, held)
        assert np.median(ratios) <= 0.95 or "half" in name, (delta, np.median(ratios))


def test_too_few_rows_of_a_stratum_leave_it_to_the_moments() -> None:
    rng = np.random.default_rng(1)
    column, ids = rng.exponential(1.0, 800), rng.integers(0, GROUPS, 800)
    wanted = np.ones(GROUPS, np.bool_)
    strata, samples = sampled(column, ids, (0.5, (READ_MIN - 1) / 400), 3)
    for learned, known in ((learned_total, total_ends), (learned_ratio, ratio_ends)):
        for found, expected in zip(
            learned(strata, samples, wanted=wanted, delta=0.05),
            known(strata, delta=0.05),
            strict=True,
        ):
            assert found.tolist() == expected.tolist()
