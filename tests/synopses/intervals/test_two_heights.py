"""Variances of columns with two heights: what the linearisation leaves out is all of the error."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.unknown_mean import over_means
from synopses.intervals.variance import sampled_variance
from synopses.strata.stratified_variance import stratified_variance
from synopses.strata.stratum import SquareMoments, Stratum
from tests.truth import gate

Column = NDArray[np.float64]
SIZE = 2_000


def heights(share: float) -> Column:
    return (np.arange(SIZE) < share * SIZE).astype(np.float64)


def columns() -> dict[str, Column]:
    rng = np.random.default_rng(11)
    alternating = np.where(np.arange(SIZE) % 2 == 0, -1.0, 1.0)
    rare_middle = alternating + 0.03 * rng.uniform(-1.0, 1.0, SIZE)
    rare_middle[rng.choice(SIZE, 8, replace=False)] = 0.0
    return {
        "half of ones": heights(0.5),
        "45 % of ones": heights(0.45),
        "1 % of ones": heights(0.01),
        "heights with noise": 1e6 * alternating * (1.0 + 1e-6 * rng.random(SIZE)),
        "heights with wide noise": alternating + 0.1 * rng.standard_normal(SIZE),
        "rare values between heights": rare_middle,
        "three heights": (np.arange(SIZE) % 3).astype(np.float64),
        "uniform": rng.random(SIZE),
        "lognormal": np.exp(rng.standard_normal(SIZE)),
    }


def samples(
    column: Column, *, read: int, trials: int, everything: bool, whole_numbers: bool
) -> SampledValues:
    """As many samples of one column, each the sample of a group."""
    rng = np.random.default_rng([read, everything])
    rows = np.argsort(rng.random((trials, SIZE)), axis=1)[:, :read]
    return SampledValues(
        np.full(trials, SIZE),
        np.full(trials, read),
        np.arange(trials + 1) * read,
        column[rows].ravel(),
        np.full(trials, column.min()),
        np.full(trials, column.max()),
        everything,
        whole_numbers,
    )


def held(found: Intervals, truth: float) -> int:
    slack = 1e-9 * truth
    return int(((found.low - slack <= truth) & (truth <= found.high + slack)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", list(columns()))
def test_the_interval_of_a_variance_holds_at_two_heights(name: str) -> None:
    column, confidence = columns()[name], 0.95
    is_whole = bool((column == np.rint(column)).all())
    for read, trials in ((2, 40), (10, 40), (60, 200), (600, 60)):
        for everything, whole_numbers in dict.fromkeys([(False, False), (True, is_whole)]):
            sample = samples(
                column,
                read=read,
                trials=trials,
                everything=everything,
                whole_numbers=whole_numbers,
            )
            found = sampled_variance(sample, confidence=confidence)
            hits = held(found, float(column.var(ddof=1)))
            assert hits >= gate(trials, confidence), (name, read, everything, whole_numbers, hits)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", ["half of ones", "45 % of ones", "heights with wide noise"])
def test_the_variance_over_two_levels_holds_at_two_heights(name: str, whole: bool) -> None:
    """The column in a random order: its first fifth is read at 1/2, the rest at 1/8."""
    rng, trials, confidence = np.random.default_rng(5), 100, 0.95
    column = rng.permutation(columns()[name])
    hits = 0
    for _ in range(trials):
        strata = []
        for part, share in ((column[:400], 2), (column[400:], 8)):
            read = len(part) // share
            values, population = rng.choice(part, read, replace=False), len(part)
            if not whole:  # Every third tuple of the stratum is of the group.
                matched = rng.hypergeometric(len(part), 2 * len(part), 3 * read)
                values = rng.choice(part, matched, replace=False)
                population, read = 3 * population, 3 * read
            away, squares = values - values.mean(), values**2 - (values**2).mean()
            strata.append(
                Stratum(
                    population,
                    read,
                    np.array([len(values)]),
                    np.array([values.mean()]),
                    np.array([(away**2).sum()]),
                    float(column.min()),
                    float(column.max()),
                    whole,
                    SquareMoments(
                        np.array([(away * squares).sum()]), np.array([(squares**2).sum()])
                    ),
                )
            )
        hits += held(stratified_variance(strata, confidence=confidence), float(column.var(ddof=1)))
    assert hits >= gate(trials, confidence), (name, whole, hits)


def test_a_sample_whose_mean_hits_the_middle_keeps_a_width() -> None:
    """All (y - mean)^2 are alike: their spread says that nothing is left to err."""
    values = np.tile([0.0, 1.0], 500)
    sample = SampledValues.by_group(
        values, ids=None, groups=1, population=20_000, read=1_000, low=0.0, high=1.0
    )
    truth = 0.2470985  # Of 44.6 % of ones.
    found = sampled_variance(sample, confidence=0.95)
    assert found.low[0] < truth < found.value[0] <= found.high[0]


def test_the_share_of_two_whole_numbers_makes_the_variance_narrow() -> None:
    """At 45 % of ones: 1.96 |1 - 2p| sqrt(p (1 - p) (1 - n/N)/n), by the delta method."""
    column = heights(0.45)
    sample = samples(column, read=600, trials=50, everything=True, whole_numbers=True)
    found = sampled_variance(sample, confidence=0.95)
    half = np.median(found.high - found.low) / 2.0
    assert half < 1.25 * 1.96 * 0.1 * np.sqrt(0.45 * 0.55 * 0.7 / 600)


def test_the_union_over_means_costs_a_certified_variance_few_per_cent() -> None:
    column = columns()["uniform"]
    found = sampled_variance(
        samples(column, read=600, trials=50, everything=True, whole_numbers=False), confidence=0.95
    )
    squares = (column - column.mean()) ** 2
    assert found.certified.all()
    half = np.median(found.high - found.low) / 2.0
    assert half < 1.08 * 1.96 * squares.std() * np.sqrt(0.7 / 600)


def test_the_union_holds_every_interval_of_its_means() -> None:
    """Against a fine grid of means, for values of which the squares have any third moment."""
    rng = np.random.default_rng(2)
    for values in (rng.random(40), np.tile([0.0, 1.0, 1.0], 9), np.exp(rng.standard_normal(50))):
        center, away, factor = values.mean(), 0.4 * values.std(), 0.3

        def half(u: float, values: Column = values, factor: float = factor) -> float:
            return factor * float(((values - u) ** 2).std())

        def middle(u: float, values: Column = values) -> float:
            return float(((values - u) ** 2).mean())

        low, high = over_means(
            np.array([middle(center)]),
            np.array([away]),
            np.array([half(center)]),
            (np.array([half(center - away)]), np.array([half(center + away)])),
        )
        grid = center + away * np.linspace(-1.0, 1.0, 401)
        lowest = min(middle(u) - half(u) for u in grid)
        highest = max(middle(u) + half(u) for u in grid)
        assert low[0] <= lowest + 1e-12
        assert high[0] == pytest.approx(highest)
        assert lowest - low[0] <= 0.5 * (highest - lowest)
