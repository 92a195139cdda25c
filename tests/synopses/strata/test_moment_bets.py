"""Bets on moments of strata, against every sample that can be drawn and against exact truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from synopses.strata.moment_bets import ratio_ends, total_ends
from synopses.strata.stratum import Stratum
from tests.truth import gate

DELTA = 0.05


def coins(size: int, heads: np.ndarray, read: int, ends: tuple[float, float]) -> Stratum:
    """A stratum without groups; each world is a group, and has read so many ones and else zeros."""
    share = heads / read
    squares = read * share * (1 - share)
    counts = np.full(len(heads), read)
    return Stratum(size, read, counts, share, squares, *ends, whole=True)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.0, 30.0), (-30.0, 1.0)])
@pytest.mark.parametrize(
    ("sizes", "reads"), [((60, 60), (6, 30)), ((200, 30), (10, 15)), ((40, 40), (20, 5))]
)
def test_no_population_of_two_strata_is_missed_more_often_than_delta_allows(
    sizes: tuple[int, int], reads: tuple[int, int], ends: tuple[float, float]
) -> None:
    """Exact probabilities over all samples, also where all ones are in one stratum."""
    found = np.array(np.meshgrid(*(np.arange(n + 1) for n in reads), indexing="ij"))
    strata = [
        coins(size, heads.ravel(), read, ends)
        for size, read, heads in zip(sizes, reads, found, strict=True)
    ]
    low, high = (end.reshape(found.shape[1:]) for end in total_ends(strata, delta=DELTA))
    rng = np.random.default_rng(1)
    splits = np.stack([rng.integers(0, size + 1, 150) for size in sizes], axis=1)
    splits[::3, 1] = 0
    splits[1::5, 0] = sizes[0]
    for split in splits:
        first, second = (
            hypergeom.pmf(np.arange(read + 1), size, ones, read)
            for size, read, ones in zip(sizes, reads, split, strict=True)
        )
        for missed in (split.sum() < low - 1e-9, split.sum() > high + 1e-9):
            assert first @ missed @ second <= DELTA / 2, split


def worlds(
    column: np.ndarray, ids: np.ndarray, shares: tuple[float, ...], seed: int, groups: int
) -> list[Stratum]:
    """The column in equal stretches, each read at its share."""
    rng, strata = np.random.default_rng(seed), []
    for rows, share in zip(
        np.array_split(np.arange(len(column)), len(shares)), shares, strict=True
    ):
        kept = rng.choice(rows, int(len(rows) * share), replace=False)
        counts = np.bincount(ids[kept], minlength=groups)
        means = np.bincount(ids[kept], column[kept], groups) / np.maximum(counts, 1)
        squares = np.bincount(ids[kept], (column[kept] - means[ids[kept]]) ** 2, groups)
        ends = float(column[rows].min()), float(column[rows].max())
        strata.append(Stratum(len(rows), len(kept), counts, means, squares, *ends, whole=False))
    return strata


@pytest.mark.parametrize("shares", [(1 / 16, 1 / 2, 1 / 8), (1.0, 1 / 8, 1 / 2), (1 / 8,)])
def test_totals_and_averages_of_groups_hold_and_are_few_times_as_wide_as_the_ideal(
    shares: tuple[float, ...],
) -> None:
    """Each stratum's Bernstein bound, at its share of delta, was 6 to 12 times as wide."""
    groups, size, confidence = 20, 16_000, 1 - DELTA
    rng = np.random.default_rng(7)
    column, ids = rng.exponential(1.0, size), rng.integers(0, groups, size)
    column += np.linspace(0.0, 1.0, size)  # The strata's means differ.
    truth = np.bincount(ids, column)
    mean = truth / np.bincount(ids)
    held, widths, trials = np.zeros(2, np.int64), [], 5
    for seed in range(trials):
        strata = worlds(column, ids, shares, seed, groups)
        for at, (ends, true) in enumerate(((total_ends, truth), (ratio_ends, mean))):
            low, high = ends(strata, delta=DELTA)
            held[at] += int(((low - 1e-9 <= true) & (true <= high + 1e-9)).sum())
            widths.append(np.median(high - low) / 2)
    assert held.min() >= gate(trials * groups, confidence), held
    parts, rows = np.array_split(np.arange(size), len(shares)), np.zeros(2)
    for part, share in zip(parts, shares, strict=True):
        for at, value in enumerate((column[part], column[part] - mean[ids[part]])):
            one = np.where(ids[part] == 3, value, 0.0)
            rows[at] += len(part) * one.var() * (1 - share) / share
    ideal = 1.96 * np.sqrt(rows) * np.array([1.0, 1.0 / np.bincount(ids)[3]])
    assert np.median(widths[0::2]) <= 3.2 * ideal[0]
    assert np.median(widths[1::2]) <= 4.2 * ideal[1]


def test_strata_read_in_full_are_exact_and_an_unread_one_may_be_anything() -> None:
    one = np.ones(1)
    full = Stratum(4, 4, np.array([4]), 2.0 * one, one, 1.0, 3.0, whole=False)
    unread = Stratum(10, 0, np.array([0]), 0.0 * one, 0.0 * one, -1.0, 5.0, whole=False)
    assert [end[0] for end in total_ends([full], delta=DELTA)] == [8.0, 8.0]
    assert [end[0] for end in ratio_ends([full], delta=DELTA)] == [2.0, 2.0]
    assert [end[0] for end in total_ends([full, unread], delta=DELTA)] == [-2.0, 58.0]
    assert [end[0] for end in ratio_ends([full, unread], delta=DELTA)] == [-1.0, 5.0]


@pytest.mark.parametrize("squares", [0.0, 1e300, np.inf, np.nan])
def test_squares_that_the_range_does_not_allow_count_as_the_largest_that_it_does(
    squares: float,
) -> None:
    def average(found: float) -> tuple[float, float]:
        part = Stratum(
            1_000, 100, np.array([100]), np.array([0.5]), np.array([found]), 0.0, 1.0, whole=False
        )
        low, high = ratio_ends([part], delta=DELTA)
        return float(low[0]), float(high[0])

    widest = average(25.0)
    low, high = average(squares)
    assert widest[0] <= low <= 0.5 <= high <= widest[1]
    assert (squares == 0.0) == (high < widest[1])


@pytest.mark.parametrize("scale", [1e-140, 1e-9, 1e150, 1e300])
def test_bounds_do_not_depend_on_the_unit(scale: float) -> None:
    def average(unit: float) -> tuple[float, float]:
        part = Stratum(
            1_000, 100, np.array([40]), np.array([unit / 2]), np.array([unit]) * unit, -unit, unit,
            whole=False,
        )  # fmt: skip
        return tuple(float(end[0]) for end in ratio_ends([part], delta=DELTA))

    with np.errstate(over="ignore"):
        low, high = average(scale)
    if scale < 1e155:
        assert (low / scale, high / scale) == pytest.approx(average(1.0), rel=1e-3)
    assert -scale <= low < scale / 2 < high <= scale
