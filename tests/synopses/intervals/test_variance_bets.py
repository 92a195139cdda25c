"""Bets on squared distances: variances hold, and are nearly as narrow as the range allows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.intervals.sample_values import SampledValues
from synopses.intervals.variance import sampled_variance
from synopses.intervals.variance_bets import variances_by_bets
from tests.truth import gate

Column = NDArray[np.float64]


def rare(rng: np.random.Generator, size: int) -> Column:
    """Two of a hundred values are far from the rest."""
    return np.where(rng.random(size) < 0.02, 50.0, rng.normal(0.0, 1.0, size))


def between(rng: np.random.Generator, size: int) -> Column:
    """Most values lie in the middle of the range, the others at its ends."""
    ends = rng.choice([-1.0, 1.0], size)
    return np.where(rng.random(size) < 0.05, ends, rng.normal(0.0, 0.01, size))


COLUMNS: dict[str, Callable[[np.random.Generator, int], Column]] = {
    "normal": lambda rng, size: rng.normal(10.0, 2.0, size),
    "exponential": lambda rng, size: rng.exponential(1.0, size),
    "lognormal": lambda rng, size: rng.lognormal(0.0, 2.0, size),
    "far from zero": lambda rng, size: 1e9 + rng.normal(0.0, 1.0, size),
    "rare": rare,
    "between": between,
    "two heights": lambda rng, size: rng.choice([-1.0, 1.0], size) * (1 + 1e-6 * rng.random(size)),
    "decades": lambda rng, size: 10.0 ** rng.uniform(-30.0, 30.0, size),
}


def groups_of(
    column: Column, *, read: int, trials: int, share: float, seed: int
) -> tuple[SampledValues, float]:
    """Samples of one column, each as a group of its own, and the variance of what matches."""
    rng, size = np.random.default_rng([seed, read]), len(column)
    match = rng.random(size) < share
    rows = np.argsort(rng.random((trials, size)), axis=1)[:, :read]
    starts = np.concatenate([[0], np.cumsum(match[rows].sum(axis=1))])
    ends = np.full(trials, column.min()), np.full(trials, column.max())
    sizes = np.full(trials, size), np.full(trials, read)
    sample = SampledValues(*sizes, starts, column[rows][match[rows]], *ends, False, False, seed)
    return sample, float(column[match].var(ddof=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COLUMNS))
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_bounds_hold_the_variance_as_often_as_they_say(name: str, share: float) -> None:
    column = COLUMNS[name](np.random.default_rng(7), 1_200)
    for read, trials in ((2, 60), (18, 300), (80, 300), (500, 60)):
        sample, truth = groups_of(column, read=read, trials=trials, share=share, seed=len(name))
        for confidence in (0.7, 0.95):
            found, slack = sampled_variance(sample, confidence=confidence), 1e-9 * truth
            held = (found.low - slack <= truth) & (truth <= found.high + slack)
            assert held.sum() >= gate(trials, confidence), (read, confidence)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "exponential", "two heights", "between"])
def test_bets_alone_hold_the_variance_whatever_the_mean(name: str) -> None:
    column = COLUMNS[name](np.random.default_rng(3), 2_000)
    sample, truth = groups_of(column, read=150, trials=300, share=0.6, seed=5)
    matching = round(float(np.median(sample.matched)) * 2_000 / 150)
    truth *= 1.0 - 1.0 / matching  # Of the squares' average; 1e-3 of it is left for the rounding.
    for delta in (0.05, 0.4):
        low, high = bounds_of(sample, delta=delta).T
        held = (low * 0.999 <= truth) & (truth <= high * 1.001)
        assert held.sum() >= gate(sample.groups, 1.0 - delta), delta


def bounds_of(sample: SampledValues, *, delta: float) -> Column:
    """Every mean in the range may be."""
    ranges = np.stack([sample.low, sample.high], axis=1)
    absent = sample.reads - sample.matched
    how = delta, np.uint64(sample.shuffle_seed)
    return variances_by_bets(
        sample.starts, sample.values, absent, ranges, ranges, sample.populations.copy(), how
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "read", "most"),
    # As three bounds at a third of delta each they were 3.35, 4.17, 2.80 and 1.86 times as wide.
    [("normal", 1_000, 1.5), ("normal", 80, 2.4), ("exponential", 1_000, 1.9), ("rare", 80, 1.5)],
)
def test_variances_are_narrow(name: str, read: int, most: float) -> None:
    column = COLUMNS[name](np.random.default_rng(9), 20_000)
    sample, _ = groups_of(column, read=read, trials=40, share=1.0, seed=2)
    found = sampled_variance(sample, confidence=0.95)
    squares = (column - column.mean()) ** 2
    ideal = 1.96 * squares.std() * math.sqrt((1 - read / len(column)) / read)
    assert np.median(found.high - found.low) / 2.0 <= most * ideal


def test_the_upper_end_of_equal_values_is_near_the_least_that_can_hold() -> None:
    """Of 80 zeros: the variance of ones that a sample misses with probability 5 %."""
    sample = SampledValues.by_group(
        np.zeros(80), ids=None, groups=1, population=10**6, read=80, low=0.0, high=1.0
    )
    found = sampled_variance(sample, confidence=0.95)
    missed = 1.0 - 0.05 ** (1 / 80)
    assert found.low[0] == 0.0
    assert missed * (1.0 - missed) <= found.high[0] <= 1.35 * missed * (1.0 - missed)


def test_bounds_are_those_of_the_values_in_any_unit() -> None:
    values = np.random.default_rng(4).exponential(1.0, 60)
    found = []
    for unit, origin in ((1.0, 0.0), (2.0**20, 0.0), (0.5, 64.0)):
        column = values * unit + origin
        sample = SampledValues.by_group(
            column,
            ids=None,
            groups=1,
            population=600,
            read=60,
            low=origin,
            high=9.0 * unit + origin,
        )
        found.append(bounds_of(sample, delta=0.05)[0] / unit**2)
    assert found[1] == pytest.approx(found[0])
    # Shifted values are rounded anew, so they are shuffled anew.
    assert found[2] == pytest.approx(found[0], rel=0.3)


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 4.0]])
def test_too_few_rows_leave_what_the_range_allows(values: list[float]) -> None:
    sample = SampledValues.by_group(
        np.array(values), ids=None, groups=1, population=100, read=20, low=1.0, high=5.0
    )
    low, high = bounds_of(sample, delta=0.05)[0]
    assert (low, high) == (0.0, 4.0)
