"""Counts, sums, averages and variances over strata that were read at different shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import hypergeom

from synopses.intervals.from_moments import chernoff
from synopses.intervals.interval import Intervals
from synopses.intervals.means import sampled_mean
from synopses.intervals.sample_values import SampledValues
from synopses.intervals.sums import sampled_sum
from synopses.kernels.hashing import position_keys
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.moments import GroupedMoments
from synopses.strata.stratified import stratified_count, stratified_mean, stratified_sum
from synopses.strata.stratified_variance import stratified_deviation, stratified_variance
from synopses.strata.stratum import SquareMoments, Stratum
from tests.truth import draw, gate

# Levels within one window: the share of the rows, and the level at which they are read.
PROFILES = {
    "all at 1/8": ((1.0, 3),),
    "half at 1, half at 1/8": ((0.5, 0), (0.5, 3)),
    "1, 1/2, 1/16": ((0.3, 0), (0.3, 1), (0.4, 4)),
    "1/64 and 1/2": ((0.5, 6), (0.5, 1)),
}
GROUP_SHARES = (0.6, 0.3, 0.08, 0.02)
TRIALS = 5
Ask = Callable[..., Intervals]
QUESTIONS: dict[str, tuple[Ask, Callable[[NDArray[np.float64]], float]]] = {
    "count": (stratified_count, len),
    "sum": (stratified_sum, lambda v: float(v.sum())),
    "mean": (stratified_mean, lambda v: float(v.mean())),
    "variance": (stratified_variance, lambda v: float(v.var(ddof=1))),
    "deviation": (stratified_deviation, lambda v: float(v.std(ddof=1))),
}


def stratum(
    values: NDArray[np.float64], ids: NDArray[np.int64], kept: NDArray[np.bool_], groups: int
) -> Stratum:
    """As panes keep it: moments of what was kept, basics of everything."""
    counts, means, squares = np.zeros(groups, np.int64), np.zeros(groups), np.zeros(groups)
    for group in range(groups):
        mine = values[kept & (ids == group)]
        counts[group] = len(mine)
        if len(mine):
            means[group] = mine.mean()
            squares[group] = ((mine - mine.mean()) ** 2).sum()
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    return Stratum(
        len(values), int(kept.sum()), counts, means, squares, low, high, whole=groups == 1
    )


def strata(
    values: NDArray[np.float64], ids: NDArray[np.int64], profile: str, seed: int, groups: int
) -> list[Stratum]:
    """The population, read by the profile."""
    keys = position_keys(seed, 0, len(values))
    cuts = np.cumsum([share for share, _ in PROFILES[profile]]) * len(values)
    edges = [0, *np.rint(cuts).astype(int).tolist()]
    found = []
    for (_, level), first, last in zip(PROFILES[profile], edges, edges[1:], strict=False):
        kept = keys[first:last] <= np.uint64((1 << (64 - level)) - 1)
        found.append(stratum(values[first:last], ids[first:last], kept, groups))
    return found


@cache
def worlds(profile: str, groups: int) -> list[tuple[list[Stratum], list[NDArray[np.float64]]]]:
    """Strata of each population and the values of its groups, the same for all that is asked."""
    found = []
    for distribution, size, trial in product(
        ("uniform", "normal", "lognormal-2", "pareto", "constant"), (200, 3000), range(TRIALS)
    ):
        rng = np.random.default_rng([trial, size])
        values = draw(distribution, trial, size)
        ids = np.zeros(size, np.int64)
        if groups > 1:
            ids = rng.choice(groups, size, p=GROUP_SHARES)
        read = strata(values, ids, profile, 7 * trial + size, groups)
        found.append((read, [values[ids == group] for group in range(groups)]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUESTIONS))
@pytest.mark.parametrize("profile", list(PROFILES))
def test_intervals_over_mixed_levels_hold_the_truth(name: str, profile: str) -> None:
    """Pooled over distributions; the gate is that of tests/truth.py for each group's share."""
    ask, truth_of = QUESTIONS[name]
    confidence = 0.95
    for groups in (1, len(GROUP_SHARES)):
        held = trials = 0
        for read, values in worlds(profile, groups):
            found = ask(read, confidence=confidence)
            for group, mine in enumerate(values):
                if len(mine) < 2 or np.isnan(found.value[group]):
                    continue
                truth, slack = truth_of(mine), 1e-9 * (abs(truth_of(mine)) + 1)
                trials += 1
                held += bool(found.low[group] - slack <= truth <= found.high[group] + slack)
        assert held >= gate(trials, confidence), (name, profile, groups, held, trials)
        assert held / trials >= confidence - 0.01


@pytest.mark.parametrize("confidence", [0.6, 0.95, 0.999])
@pytest.mark.parametrize(
    ("sizes", "reads"),
    [
        ((5_000, 100), (50, 50)),
        ((1_000, 1_000), (62, 500)),
        ((1_024, 1_024), (512, 2)),
        ((400, 40), (50, 40)),
        ((40_000, 1_000, 20), (2_500, 500, 2)),
    ],
)
def test_counts_of_groups_hold_if_the_group_is_shown(
    sizes: tuple[int, ...], reads: tuple[int, ...], confidence: float
) -> None:
    """Exact probabilities: of up to twelve values of a group in each stratum, all samples."""
    seen = [np.arange(min(n, 12) + 1) for n in reads]
    counts = np.array(np.meshgrid(*seen, indexing="ij"))
    groups = counts[0].size
    found = stratified_count(
        [
            Stratum(size, n, own.ravel(), np.zeros(groups), np.zeros(groups), 0.0, 1.0, False)
            for size, n, own in zip(sizes, reads, counts, strict=True)
        ],
        confidence=confidence,
        shown_if_read=True,
    )
    low, high = found.low.reshape(counts[0].shape), found.high.reshape(counts[0].shape)
    is_shown = (counts.sum(axis=0) > 0).astype(np.float64)
    there_are = np.array([0, 1, 2, 3, 5, 12])
    chances = [
        hypergeom.pmf(rows, size, there_are[:, None], n)
        for size, n, rows in zip(sizes, reads, seen, strict=True)
    ]
    for at in product(range(len(there_are)), repeat=len(sizes)):
        there = there_are[list(at)]
        missed = is_shown * ((there.sum() < low) | (there.sum() > high))
        shown = is_shown
        for own, law in zip(at, chances, strict=True):
            missed, shown = (np.tensordot(law[own], part, axes=(0, 0)) for part in (missed, shown))
        assert missed <= (1 - confidence) * shown * (1 + 1e-9), there


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_certified_sums_are_as_narrow_as_neyman_would_have_them(distribution: str) -> None:
    values = draw(distribution, 3, 40_000)
    ids = np.zeros(len(values), np.int64)
    parts = strata(values, ids, "1, 1/2, 1/16", 5, 1)
    found = stratified_sum(parts, confidence=0.95)
    ideal = 1.96 * np.sqrt(
        sum(
            s.population**2 * s.unread_share * s.squares[0] / max(s.read - 1, 1) / s.read
            for s in parts
        )
    )
    assert (found.high - found.low)[0] / 2 <= 1.05 * ideal


def test_what_was_read_in_full_is_exact() -> None:
    values = draw("normal", 1, 500)
    ids = np.arange(500) % 3
    part = stratum(values, ids, np.ones(500, np.bool_), 3)
    for ask, truth in QUESTIONS.values():
        found = ask([part], confidence=0.95)
        assert (found.bound == 0).all()
        assert np.allclose(found.value, [truth(values[ids == g]) for g in range(3)])


@pytest.mark.parametrize("read", [0, 1])
def test_nothing_or_one_value_read_promises_no_more_than_the_range(read: int) -> None:
    values = draw("uniform", 1, 50)
    kept = np.arange(50) < read
    part = stratum(values, np.zeros(50, np.int64), kept, 1)
    for name, (ask, truth) in QUESTIONS.items():
        found = ask([part], confidence=0.95)
        assert found.low[0] <= truth(values) <= found.high[0], name


@pytest.mark.parametrize("scale", [1.0, 2.7e-162, 1.5e-162, 1e-300, 1e300])
def test_intervals_hold_where_squares_of_values_are_no_doubles(scale: float) -> None:
    rng, trials = np.random.default_rng(5), 60  # Lost digits make no width or no number at all.
    values = rng.choice([-1.0, 1.0], 20_000) * scale
    held = np.zeros(4, np.int64)
    for _ in range(trials):
        read = rng.choice(values, 4_000, replace=False)
        sample = SampledValues.by_group(
            read, ids=None, groups=1, population=20_000, read=4_000, low=-scale, high=scale,
            everything=True,
        )  # fmt: skip
        moments = GroupedMoments(1, integer=False, variance=True)
        moments.update(None, read)
        means, squares = moments.mean().value, moments.squares()
        whole = Stratum(20_000, 4_000, moments.counts(), means, squares, -scale, scale, True)
        sums = [
            sampled_sum(sample, confidence=0.95),
            sampled_mean(sample, confidence=0.95).scaled(20_000.0),
            stratified_sum([whole], confidence=0.95),
            stratified_sum([replace(whole, whole=False)], confidence=0.95),
        ]
        held += [bool(found.low[0] <= values.sum() <= found.high[0]) for found in sums]
    assert held.min() >= gate(trials, 0.95), held


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("ask", [stratified_sum, stratified_mean])
def test_a_range_wider_than_doubles_is_no_range(ask: Callable[..., Intervals], whole: bool) -> None:
    end, one = 1.7e308, np.ones(1)
    found = ask([Stratum(100, 50, one.astype(np.int64) * 50, one, one, -end, end, whole)],
                confidence=0.95)  # fmt: skip
    assert found.low[0] <= -end <= end <= found.high[0]
    assert found.low[0] <= found.value[0] <= found.high[0]


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_degrees_of_freedom_do_not_depend_on_the_unit(scale: float) -> None:
    values = np.resize([-1.0, 1.0], 20)
    halves = []
    for unit in (1.0, scale):
        squares = np.array([20 * unit * unit])
        part = Stratum(1_000, 20, np.array([20]), np.array([values.mean() * unit]), squares,
                       -unit, unit, True)  # fmt: skip
        found = stratified_sum([part], confidence=0.95)
        assert found.certified[0]
        halves.append(float(found.high[0] - found.low[0]) / unit)
    assert halves[1] == pytest.approx(halves[0])


@pytest.mark.slow
def test_chernoff_bounds_miss_no_more_often_than_they_may() -> None:
    """Against the hypergeometric itself, by simulation: 1/0 values of a small population."""
    rng = np.random.default_rng(17)
    missed, trials, tail = 0, 4_000, 0.05
    population = np.concatenate([np.ones(30), np.zeros(270)])
    for _ in range(trials):
        share = rng.choice(population, 60, replace=False).mean()
        low, high = chernoff(np.array([share]), np.array([60.0]), tail=tail)
        missed += not low[0] <= 0.1 <= high[0]
    assert missed <= trials - gate(trials, 1 - 2 * tail)


def test_chernoff_at_nothing_and_at_everything() -> None:
    """With no success in n, (1 - p)^n = tail gives p = 1 - tail^(1/n)."""
    low, high = chernoff(np.array([0.0, 1.0]), np.array([10.0, 10.0]), tail=0.05)
    assert low.tolist()[0] == pytest.approx(0.0, abs=1e-12)
    assert high[0] == pytest.approx(1 - 0.05 ** (1 / 10))
    assert low[1] == pytest.approx(0.05 ** (1 / 10))
    assert high[1] == pytest.approx(1.0)


def test_chernoff_ends_where_the_entropy_is_what_is_allowed() -> None:
    """By the definition: n KL(share, p) = log(1/tail) at both ends."""
    rng = np.random.default_rng(3)
    share, n = rng.uniform(0.01, 0.99, 200), 10 ** rng.uniform(1, 6, 200)
    for end in chernoff(share, n, tail=0.05):
        entropy = share * np.log(share / end) + (1 - share) * np.log((1 - share) / (1 - end))
        assert n * entropy == pytest.approx(np.full(200, np.log(20)), rel=1e-6)


@pytest.mark.parametrize("distribution", ["uniform", "normal", "zipf"])
def test_certified_variances_are_as_narrow_as_if_all_were_known(distribution: str) -> None:
    values = draw(distribution, 3, 40_000)
    kept = position_keys(5, 0, len(values)) < np.uint64(1 << 62)
    part = stratum(values, np.zeros(len(values), np.int64), kept, 1)
    seen = values[kept]
    moments = GroupedCrossMoments(1)
    moments.update(None, seen, seen * seen)
    sums = moments.sums()
    shaped = replace(part, shape=SquareMoments(sums.cross, sums.squares_y))
    found = stratified_variance([shaped], confidence=0.95)
    without = stratified_variance([part], confidence=0.95)
    spread = float(np.var((values - values.mean()) ** 2))
    ideal = 1.96 * np.sqrt(spread * (1 - kept.mean()) / kept.sum())
    assert found.certified.all()
    assert not without.certified.any()
    assert (found.high - found.low)[0] / 2 <= 1.1 * ideal
    assert (without.high - without.low)[0] / 2 > 2 * ideal


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e9])
def test_the_spread_of_squares_about_a_number_follows_or_is_lost(shift: float) -> None:
    values = draw("normal", 1, 2_000) + shift
    moments = GroupedCrossMoments(1)
    moments.update(None, values, values * values)
    sums = moments.sums()
    shape = SquareMoments(sums.cross, sums.squares_y)
    center = values.mean() + 1.0
    found = shape.spread_about(center, sums.squares_x)[0]
    squares = (values - center) ** 2
    truth = float(((squares - squares.mean()) ** 2).sum())
    assert np.isnan(found) or found == pytest.approx(truth, rel=1e-4)
    assert np.isnan(found) == (shift == 1e9)
