"""Bets on moments over strata: means and variances hold, and strata share one delta."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.strata.stratified import stratified_mean
from synopses.strata.stratified_variance import stratified_variance
from synopses.strata.stratum import SquareMoments, Stratum
from synopses.strata.stratum_moments import mean_ends
from synopses.strata.variance_moment_bets import StrataMoments, largest_mean, least_mean
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
    strata, _, _ = samples(column, 300, 4, share=1.0)
    truth, ends = column.mean(), (float(column.min()), float(column.max()))
    for delta in (0.3, 0.05):
        least, most = mean_ends(strata, ends, tail=delta)
        assert (truth <= most + 1e-9).sum() >= gate(300, 1.0 - delta)
        assert (least - 1e-9 <= truth).sum() >= gate(300, 1.0 - delta)
        assert (least <= most).all()


def with_extremes_in_full(column: Column, trials: int, seed: int) -> list[Stratum]:
    """The 1 % of each end read in full, and 1/8 of the rest, which has a narrow range."""
    rng = np.random.default_rng(seed)
    ends = np.quantile(column, [0.01, 0.99])
    extreme = (column < ends[0]) | (column > ends[1])
    strata = []
    for rows, read in ((column[extreme], 1.0), (column[~extreme], 0.125)):
        count = round(read * len(rows))
        if len(rows):
            values = rows[np.argsort(rng.random((trials, len(rows))), axis=1)[:, :count]]
            means, middle = values.mean(axis=1), (values**2).mean(axis=1)
            away, squares = values - means[:, None], values**2 - middle[:, None]
            shape = SquareMoments((away * squares).sum(axis=1), (squares**2).sum(axis=1))
            spread, counts = (away**2).sum(axis=1), np.full(trials, count)
            strata.append(
                Stratum(
                    len(rows), count, counts, means, spread, rows.min(), rows.max(), False, shape
                )
            )
    return strata


@pytest.mark.parametrize("name", list(COLUMNS))
def test_means_and_variances_hold_beside_extreme_rows_read_in_full(name: str) -> None:
    column = COLUMNS[name](np.random.default_rng(5))
    strata = with_extremes_in_full(column, 200, len(name))
    for found, truth in (
        (stratified_variance(strata, confidence=0.8), column.var(ddof=1)),
        (stratified_mean(strata, confidence=0.8), column.mean()),
    ):
        held = (found.low - 1e-9 <= truth) & (truth <= found.high + 1e-9)
        assert held.sum() >= gate(200, 0.8)


def test_values_read_in_full_do_not_limit_the_bets_on_the_others() -> None:
    """4.6 and 2 times the ideal when the range of all values limited the bets."""
    column = np.random.default_rng(6).lognormal(0.0, 1.5, 600)
    strata = with_extremes_in_full(column, 50, 3)
    squares = (column - column.mean()) ** 2
    scale = 1.96 * math.sqrt(7.0 / len(column))
    variance, mean = (of(strata, confidence=0.95) for of in (stratified_variance, stratified_mean))
    assert np.median(variance.high - variance.low) / 2.0 <= 0.6 * scale * squares.std()
    assert np.median(mean.high - mean.low) / 2.0 <= 1.4 * scale * column.std()


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


def times(strata: Sequence[Stratum], unit: float) -> list[Stratum]:
    """The same values in another unit, without what is known of their squares."""
    with np.errstate(over="ignore", under="ignore"):
        return [
            replace(
                s,
                means=unit * s.means,
                squares=unit * (unit * s.squares),
                low=unit * s.low,
                high=unit * s.high,
                shape=None,
            )
            for s in strata
        ]


@pytest.mark.parametrize("lg_unit", [300, -300])  # Fourth powers are no doubles.
def test_bounds_of_variances_do_not_depend_on_the_unit(lg_unit: int) -> None:
    strata, _, _ = samples(np.random.default_rng(6).exponential(1.0, 2_000), 20, 3, shaped=False)
    found = stratified_variance(strata, confidence=0.95)
    with np.errstate(over="ignore", invalid="ignore"):  # As its callers have it.
        scaled = stratified_variance(times(strata, 2.0**lg_unit), confidence=0.95)
    assert 4.0**-lg_unit * scaled.low == pytest.approx(found.low, rel=1e-9)
    assert 4.0**-lg_unit * scaled.high == pytest.approx(found.high, rel=1e-9)


def test_bounds_of_means_hold_where_squares_are_no_doubles() -> None:
    column = np.random.default_rng(5).exponential(1.0, 2_000)
    strata, unit = times(with_extremes_in_full(column, 200, 7), 2.0**600), 2.0**600
    low, high = mean_ends(strata, (unit * column.min(), unit * column.max()), tail=0.05)
    held = (low <= unit * column.mean()) & (unit * column.mean() <= high)
    assert held.sum() >= gate(200, 0.9)


def test_values_without_a_spread_beside_others_read_in_full_are_bounded() -> None:
    """0 and 10 when a range without a width left all of its bets out."""
    whole = Stratum(500, 500, np.array([50]), np.array([5.0]), np.array([400.0]), 0.0, 10.0, False)
    alike = Stratum(8_000, 10, np.array([5]), np.array([2.0]), np.zeros(1), 2.0, 2.0, False)
    low, high = mean_ends([whole, alike], (0.0, 10.0), tail=0.025)
    assert 1.9 <= low[0] <= 2.0
    assert 2.0 <= high[0] <= 5.1


def test_sums_that_are_no_numbers_rule_nothing_out() -> None:
    bad, ones = np.array([[[np.nan, np.inf, 1.0]]]), np.ones((1, 1, 3))
    known = np.zeros((2, 1, 3))
    moments = StrataMoments(known, np.array([2.0]), ones[0], bad, ones, 0.0 * ones, 4.0 * ones)
    found = largest_mean(moments, 4.0, np.full(3, 4.0), tail=0.05)
    assert found[:2].tolist() == [4.0, 4.0]
    assert least_mean(moments, np.zeros(3), 0.05)[:2].tolist() == [0.0, 0.0]


def test_without_groups_there_are_no_bounds() -> None:
    none = np.zeros(0)
    strata = [Stratum(100, 10, none.astype(np.int64), none, none, 0.0, 9.0, False)] * 2
    low, high = mean_ends(strata, (0.0, 9.0), tail=0.05)
    found = stratified_variance(strata, confidence=0.95)
    assert low.shape == high.shape == found.low.shape == found.high.shape == (0,)
