"""Totals over sampled keys: coverage against exact totals, and the bounds they are made of."""

from __future__ import annotations

import math

import numpy as np
import pytest

from synopses.intervals.key_totals.sampled_keys import (
    CertainParts,
    SampledParts,
    deviation_max,
    sampled_key_total,
)
from tests.seeds import seed
from tests.sequential import holds

POPULATIONS = {
    "equal": lambda rng: np.full(400, 3.0),
    "one large": lambda rng: np.append(np.full(300, 1.0), 500.0),
    "skewed": lambda rng: np.sort(rng.pareto(0.8, 500) + 1.0),
    "rare": lambda rng: (rng.random(2_000) < 0.01) * 10.0,
}


def _certain(parts, looseness: float) -> CertainParts:
    """Bounds of groups of three keys."""
    grouped = np.pad(parts, ((0, 0), (0, -parts.shape[1] % 3)))
    grouped = grouped.reshape(len(parts), -1, 3) * looseness
    return CertainParts(np.maximum(grouped, 0.0).sum(axis=2), np.maximum(-grouped, 0.0).sum(axis=2))


def _total(parts, levels, depth, looseness: float, confidence: float):
    """The interval; depth: of each key, the highest level at which it is drawn."""
    levels = np.array(levels)
    known = (levels[:, None] <= depth).sum(axis=0)
    sample = SampledParts(parts[:, known > 0], known[known > 0], levels)
    return sampled_key_total(sample, _certain(parts, looseness), confidence=confidence)


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize(
    ("levels", "looseness", "signed"),
    [((1,), 1.0, False), ((4,), 3.0, False), ((4,), 1.0, True), ((0, 1, 5), 1.5, False),
     ((1, 3, 4), 1.0, True)],
)  # fmt: skip
def test_intervals_hold_the_total(name, levels, looseness, signed):
    def is_held(trial: int) -> bool:
        rng = np.random.default_rng(seed("sampled keys", name, *levels, trial))
        values = POPULATIONS[name](rng)
        parts = values * rng.dirichlet(np.ones(len(levels)), len(values)).T
        if signed:
            parts *= rng.choice([-1.0, 1.0], parts.shape, p=[0.4, 0.6])
        depth = rng.geometric(0.5, len(values)) - 1
        total = _total(parts, levels, depth, looseness, 0.95)
        return bool(total.low[0] <= parts.sum() + 1e-9 and parts.sum() - 1e-9 <= total.high[0])

    assert holds(is_held, 0.95, trials=200)


def test_a_total_of_all_keys_is_exact():
    values = np.array([[1.0, 2.0, 4.0]])
    total = _total(values, [0], np.zeros(3), 2.0, 0.95)
    assert (total.low[0], total.value[0], total.high[0], total.bound[0]) == (7.0, 7.0, 7.0, 0)


def test_what_is_certain_limits_both_ends():
    certain = CertainParts(np.full((1, 10), 5.0), np.zeros((1, 10)))
    sample = SampledParts(np.array([[5.0]]), np.ones(1, np.int64), np.array([2]))
    total = sampled_key_total(sample, certain, confidence=0.99)
    assert total.low[0] == 5.0
    assert total.high[0] <= 50.0


def test_squares_beyond_doubles_make_no_infinite_ends():
    parts = np.full((1, 40), 1e200)
    total = _total(parts, [1], np.arange(40) % 2, 1.0, 0.95)
    assert 0.0 < total.low[0] <= 4e201
    assert 4e201 <= total.high[0] * (1 + 1e-12) < 1e203


@pytest.mark.parametrize(("levels", "parts"), [((1, 3), (2.0, 5.0)), ((0, 2, 5), (1.0, 3.0, -2.0))])
def test_the_variance_of_mixed_levels_is_that_of_the_estimate(levels, parts):
    """Expected by hand, over all depths of one key: relational sampling at two or three levels."""
    shares = 2.0 ** -np.array(levels, float)
    chances = np.append(-np.diff(shares), shares[-1])
    values = np.cumsum(np.array(parts) / shares)
    values, chances = np.append(values, 0.0), np.append(chances, 1.0 - shares[0])
    mean = float(values @ chances)
    assert mean == pytest.approx(sum(parts))
    variance = float(np.square(values - mean) @ chances)
    odds = 1.0 / shares - 1.0
    tails = np.cumsum(np.array(parts)[::-1])[::-1]
    assert np.diff(odds, prepend=0.0) @ np.square(tails) == pytest.approx(variance)


@pytest.mark.parametrize("variance", [1e-6, 1.0, 40.0, 1e9])
@pytest.mark.parametrize("weight", [0.1, 4.0, 30.0])
def test_the_deviation_solves_the_inequality_of_bennett(variance, weight):
    range_max = 3.0
    deviation = deviation_max(variance, range_max, weight)
    x = range_max * deviation / variance
    exponent = variance / range_max**2 * ((1 + x) * math.log1p(x) - x)
    assert exponent == pytest.approx(weight, rel=1e-6)
    third = range_max * weight / 3
    assert deviation <= (third + math.sqrt(third**2 + 2 * variance * weight)) * (1 + 1e-9)
