"""Counts over strata by one test of their sum, against every sample that can be drawn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from synopses.strata.joint_counts import joint_count, total_count

# N and n of each stratum: few and many rows, shares from 1/100 to 19/20, one read in full, tiny.
DESIGNS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((40, 40), (1, 20)),
    ((30, 50), (2, 3)),
    ((320, 320), (20, 40)),
    ((400, 50), (100, 45)),
    ((43, 154), (33, 121)),
    ((300, 300), (30, 3)),
    ((160, 160), (150, 80)),
    ((87, 113), (8, 10)),
    ((200, 60), (20, 60)),
    ((52, 48, 2), (26, 24, 1)),
    ((126, 31, 126, 47, 47), (8, 2, 8, 3, 3)),
    ((96, 32, 128, 112, 32), (6, 2, 8, 7, 2)),
)
CONFIDENCES = (0.5, 0.68, 0.95, 0.99, 1 - 1e-6)


def _splits(sizes: tuple[int, ...], some: int) -> np.ndarray:
    """How many match in each stratum: any, equal shares, rare ones, all or none of the last."""
    rng = np.random.default_rng(sum(sizes))
    even = [rng.integers(0, size + 1, some) for size in sizes]
    alike = [np.rint(np.linspace(0.0, 1.0, some) * size).astype(np.int64) for size in sizes]
    rare = [np.minimum(rng.geometric(0.05, some) - 1, size) for size in sizes]
    one = [*even[:-1], np.where(rng.random(some) < 0.5, 0, sizes[-1])]
    return np.concatenate([np.stack(each, axis=1) for each in (even, alike, rare, one)])


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "reads"), DESIGNS)
def test_no_population_is_missed_more_often_than_the_confidence_allows(
    sizes: tuple[int, ...], reads: tuple[int, ...]
) -> None:
    """Exact probabilities: every sample of the strata has its interval."""
    found = np.array(np.meshgrid(*(np.arange(n + 1) for n in reads), indexing="ij"))
    matched = found.reshape(len(sizes), -1).astype(np.float64)
    splits = _splits(sizes, 120)
    chances = [
        hypergeom.pmf(np.arange(n + 1)[None, :], size, splits[:, [at]], n)
        for at, (size, n) in enumerate(zip(sizes, reads, strict=True))
    ]
    for confidence in CONFIDENCES:
        low, high = total_count(
            np.array(sizes, np.float64), np.array(reads, np.float64), matched, confidence=confidence
        )
        low, high = low.reshape(found.shape[1:]), high.reshape(found.shape[1:])
        for at, split in enumerate(splits):
            missed = ((split.sum() < low) | (split.sum() > high)).astype(np.float64)
            for stratum in chances:
                missed = np.tensordot(stratum[at], missed, axes=(0, 0))
            assert missed <= (1 - confidence) * 1.0001, (confidence, split)


@pytest.mark.parametrize("shares", [(1 / 16, 1 / 2), (1 / 16, 1 / 2, 1 / 8), (1 / 4, 1, 1 / 8)])
def test_counts_over_levels_are_nearly_as_narrow_as_if_the_variance_were_known(
    shares: tuple[float, ...],
) -> None:
    """One test per stratum was 1.5 to 2 times as wide as that."""
    rng, size, share, worlds = np.random.default_rng(3), 13_000, 0.02, 200
    population = np.full(len(shares), size, np.float64)
    read = np.floor(population * shares)
    matched = np.stack(
        [rng.hypergeometric(int(size * share), size - int(size * share), int(n), worlds)
         for n in read]
    ).astype(np.float64)  # fmt: skip
    low, high = total_count(population, read, matched, confidence=0.95)
    each = size**2 * share * (1 - share) * (1 - read / population) / read
    ideal = 1.96 * np.sqrt(each.sum())
    assert np.median(high - low) / 2 <= 1.1 * ideal
    truth = int(size * share) * len(shares)
    assert ((low <= truth) & (truth <= high)).mean() >= 0.9


def test_no_end_is_certified_where_one_tuple_can_move_the_sum_too_far() -> None:
    population, read = np.array([1_600.0, 1_600.0]), np.array([16.0, 800.0])
    low, high = joint_count(population, read, np.array([[0.0], [400.0]]), confidence=0.95)
    assert np.isnan([low, high]).any()
    low, high = total_count(population, read, np.array([[0.0], [400.0]]), confidence=0.95)
    assert low[0] <= 800 <= high[0]


def test_nothing_read_of_a_stratum_leaves_all_of_it_open() -> None:
    population, read = np.array([50.0, 100.0, 10.0]), np.array([0.0, 20.0, 10.0])
    low, high = total_count(population, read, np.array([[0.0], [20.0], [4.0]]), confidence=0.95)
    assert low[0] <= 24 + 80 <= 50 + 4 + 100 == high[0]


def test_counts_of_strata_read_in_full_add_up() -> None:
    population = np.array([50.0, 100.0])
    low, high = total_count(population, population, np.array([[5.0], [7.0]]), confidence=0.95)
    assert (low[0], high[0]) == (12, 12)
