"""Bets on moments over strata: means and variances hold, and strata share one delta."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.strata.stratified_variance import stratified_variance
from synopses.strata.stratum import SquareMoments, Stratum
from synopses.strata.variance_moment_bets import WeightedMoments, largest_mean, least_mean
from tests.truth import gate

Column = NDArray[np.float64]
PARTS = ((0.5, 8), (0.4, 2), (0.1, 1))  # Of each stratum its share of the column, and N/n.

COLUMNS: dict[str, Callable[[np.random.Generator], Column]] = {
    "uniform": lambda rng: rng.random(2_000),
    "exponential": lambda rng: rng.exponential(1.0, 2_000),
    "sorted": lambda rng: np.sort(rng.lognormal(0.0, 1.0, 2_000)),
    "1 % of ones": lambda rng: (rng.random(2_000) < 0.01).astype(np.float64),
    "two heights": lambda rng: rng.choice([-1.0, 1.0], 2_000),
}


def samples(
    column: Column, trials: int, seed: int, *, shaped: bool = True, share: float = 0.7
) -> tuple[list[Stratum], list[tuple[Column, NDArray[np.bool_], float]], float]:
    """Strata of which each group is a sample of its own, their rows, and the variance."""
    rng = np.random.default_rng([seed, len(column)])
    match = rng.random(len(column)) < share
    strata, rows_of, first = [], [], 0
    for part, one_in in PARTS:
        last = first + round(part * len(column))
        rows = np.argsort(rng.random((trials, last - first)), axis=1)[:, : (last - first) // one_in]
        values, matched = column[first + rows], match[first + rows]
        counts = matched.sum(axis=1)
        means = (values * matched).sum(axis=1) / np.maximum(counts, 1)
        middle = (values**2 * matched).sum(axis=1) / np.maximum(counts, 1)
        away = np.where(matched, values - means[:, None], 0.0)
        squares = np.where(matched, values**2 - middle[:, None], 0.0)
        shape = SquareMoments((away * squares).sum(axis=1), (squares**2).sum(axis=1))
        ends = float(column[first:last].min()), float(column[first:last].max())
        read, spread = rows.shape[1], (away**2).sum(axis=1)
        strata.append(
            Stratum(
                last - first, read, counts, means, spread, *ends, False, shape if shaped else None
            )
        )
        rows_of.append((values, matched, float(one_in)))
        first = last
    return strata, rows_of, float(column[match].var(ddof=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COLUMNS))
@pytest.mark.parametrize("shaped", [True, False])
def test_variances_over_three_levels_hold(name: str, shaped: bool) -> None:
    column = COLUMNS[name](np.random.default_rng(8))
    strata, _, truth = samples(column, 300, len(name), shaped=shaped)
    for confidence in (0.6, 0.95):
        found, slack = stratified_variance(strata, confidence=confidence), 1e-9 * truth
        # Normal intervals are certified at 95 %; here only the others are asked.
        free = np.isnan(found.variance)
        held = (found.low - slack <= truth) & (truth <= found.high + slack)
        assert held[free].sum() >= gate(int(free.sum()), confidence)
        assert np.isfinite(found.high).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COLUMNS))
def test_each_end_holds_the_mean_over_strata_at_its_own_delta(name: str) -> None:
    column = COLUMNS[name](np.random.default_rng(2))
    low, width, trials = column.min(), np.ptp(column), 300
    strata, rows_of, _ = samples(column, trials, 4, share=1.0)
    counts, sums, squares = np.zeros((1, trials)), np.zeros((1, trials)), np.zeros((3, 1, trials))
    for _, (values, matched, weight) in zip(strata, rows_of, strict=True):
        above = np.where(matched, values - low, 0.0)
        counts[0] += weight * matched.sum(axis=1)
        sums[0] += weight * above.sum(axis=1)
        if weight > 1:
            powers = matched, above, above**2
            squares[:, 0] += weight**2 * np.stack([power.sum(axis=1) for power in powers])
    moments, truth = WeightedMoments(counts, sums, squares, 8.0), column.mean() - low
    reach = np.full(trials, width)
    for delta in (0.3, 0.05):
        most = largest_mean(moments, reach, reach, bets_alike=1, tail=delta)
        least = least_mean(moments, np.zeros(trials), delta)
        assert (truth <= most + 1e-9).sum() >= gate(trials, 1.0 - delta)
        assert (least - 1e-9 <= truth).sum() >= gate(trials, 1.0 - delta)
        assert (least <= sums[0] / counts[0]).all()
        assert (sums[0] / counts[0] <= most + 1e-9).all()


def test_strata_at_mixed_levels_cost_no_part_of_delta_each() -> None:
    """A normal column: 9.5 times the ideal when each level had a part of delta of its own."""
    column = np.random.default_rng(6).normal(0.0, 1.0, 2_000)
    strata, _, _ = samples(column, 50, 3)
    found = stratified_variance(strata, confidence=0.95)
    squares = (column - column.mean()) ** 2
    unread = sum(part * (one_in - 1) for part, one_in in PARTS)
    ideal = 1.96 * squares.std() * math.sqrt(unread / (0.7 * len(column)))
    assert np.median(found.high - found.low) / 2.0 <= 4.0 * ideal


def test_a_stratum_of_which_nothing_was_read_leaves_the_range() -> None:
    column = np.random.default_rng(6).normal(0.0, 1.0, 2_000)
    strata, _, _ = samples(column, 4, 3)
    none = Stratum(9, 0, np.zeros(4, np.int64), np.zeros(4), np.zeros(4), -9.0, 11.0, False)
    found = stratified_variance([*strata, none], confidence=0.95)
    assert (found.low == 0.0).all()
    assert (found.high >= 100.0).all()


def test_sums_that_are_no_numbers_rule_nothing_out() -> None:
    bad = np.array([[np.nan, np.inf, 1.0]])
    ones = np.ones((1, 3))
    moments = WeightedMoments(ones, bad, np.stack([ones, bad, ones]), 2.0)
    reach, none = np.full(3, 4.0), np.zeros(3)
    found = largest_mean(moments, reach, reach, bets_alike=1, tail=0.05)
    assert found[:2].tolist() == [4.0, 4.0]
    assert least_mean(moments, none, 0.05)[:2].tolist() == [0.0, 0.0]
