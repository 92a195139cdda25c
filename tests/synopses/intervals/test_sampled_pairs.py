"""Covariance, correlation and slope of sampled pairs: coverage, widths and the parts they use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.intervals.covariance import (
    population_covariance,
    sampled_correlation,
    sampled_covariance,
    sampled_slope,
)
from synopses.intervals.interval import Intervals
from synopses.intervals.linearised_pairs import (
    certified_correlation,
    reach_of_correlation,
    reach_of_slope,
)
from synopses.intervals.range_arithmetic import quotient, squared
from synopses.intervals.sampled_pairs import SampledPairs
from tests.scale import scaled
from tests.truth import gate

Column = NDArray[np.float64]
SIZE = 4_000
TRIALS = scaled(40, 200)


def columns() -> dict[str, tuple[Column, Column]]:
    rng = np.random.default_rng(17)
    z, w = rng.standard_normal((2, SIZE))
    u, v = rng.random((2, SIZE))
    ones = (u < 0.5).astype(np.float64)
    spikes = np.where(rng.random(SIZE) < 1e-3, 1e3, w)
    return {
        "normal, r = 0": (z, w),
        "normal, r = 0.5": (z, 0.5 * z + np.sqrt(0.75) * w),
        "normal, r = 0.95": (z, 0.95 * z + np.sqrt(1 - 0.95**2) * w),
        "normal, r = -0.99": (z, -0.99 * z + np.sqrt(1 - 0.99**2) * w),
        "uniform": (u, v),
        "line": (u, 2.0 * u + 1.0),
        "lognormal": (np.exp(z), np.exp(0.7 * (z + w))),
        "spikes": (z, spikes),
        "ones": (ones, (v < 0.5).astype(np.float64)),
        "ones, r = 0.6": (ones, np.where(v < 0.8, ones, 1.0 - ones)),
        "ones, alike": (ones, ones),
        "ones, nearly alike": (ones, np.where(v < 0.99, ones, 1.0 - ones)),
        "heights": (np.where(u < 0.5, -1.0, 1.0) * (1.0 + 1e-6 * v), np.where(v < 0.5, -1.0, 1.0)),
        "parabola": (u - 0.5, (u - 0.5) ** 2),
        "steps": (np.floor(3 * u), np.floor(3 * v) ** 2 + np.floor(3 * u)),
        "triangle": (u, -u - v),
        "one of many differs": (z, (np.arange(SIZE) == 0).astype(np.float64)),
    }


def samples(x: Column, y: Column, read: int, trials: int = TRIALS) -> SampledPairs:
    """As many samples of the same pairs, each the sample of a group."""
    rng = np.random.default_rng([read, trials])
    rows = np.argsort(rng.random((trials, len(x))), axis=1)[:, :read]
    return SampledPairs.by_group(
        x[rows].ravel(),
        y[rows].ravel(),
        ids=np.repeat(np.arange(trials, dtype=np.int32), read),
        groups=trials,
        population=np.full(trials, len(x)),
        read=np.full(trials, read),
        ranges=((x.min(), x.max()), (y.min(), y.max())),
        shuffle_seed=read,
    )


def products(x: Column, y: Column) -> float:
    return float(((x - x.mean()) * (y - y.mean())).sum())


TRUTHS: dict[Callable[..., Intervals], Callable[[Column, Column], float]] = {
    population_covariance: lambda x, y: products(x, y) / len(x),
    sampled_covariance: lambda x, y: products(x, y) / (len(x) - 1),
    sampled_correlation: lambda x, y: products(x, y) / np.sqrt(products(x, x) * products(y, y)),
    sampled_slope: lambda x, y: products(x, y) / products(y, y),
}


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("confidence", scaled([0.95], [0.6, 0.95]))
@pytest.mark.parametrize("read", scaled([1, 40, 250], [0, 1, 6, 40, 120, 500]))
def test_intervals_of_pairs_hold_the_truth_as_often_as_they_say(read, confidence):
    for name, (x, y) in columns().items():
        pairs = samples(x, y, read)
        for function, true in TRUTHS.items():
            found, right = function(pairs, confidence=confidence), true(x, y)
            slack = 1e-9 * max(1.0, abs(right))
            held = (found.low - slack <= right) & (right <= found.high + slack)
            assert held.sum() >= gate(TRIALS, confidence), (name, function.__name__, held.mean())


# Median half width of a correlation at 95 %, of 1,000 pairs. By betting around a pilot sample the
# first four were 0.17, 0.15, 0.094 and 0.077.
WIDTHS = {
    "normal, r = 0": 0.1,
    "normal, r = 0.5": 0.09,
    "normal, r = 0.95": 0.06,
    "normal, r = -0.99": 0.06,
    "uniform": 0.066,
    "line": 0.013,
    "ones": 0.066,
    "ones, r = 0.6": 0.053,
    "ones, alike": 0.006,
    "ones, nearly alike": 0.03,
    "parabola": 0.085,
}


@pytest.mark.slow
def test_correlations_of_a_thousand_pairs_are_narrow():
    for name, most in WIDTHS.items():
        found = sampled_correlation(samples(*columns()[name], 1_000, trials=20), confidence=0.95)
        assert np.median(found.high - found.low) / 2.0 <= most, name


def test_a_certified_correlation_near_one_is_skew_towards_zero():
    x, y = columns()["ones, r = 0.6"]
    found = certified_correlation(samples(x, y, 400, trials=50), confidence=0.95)
    value = samples(x, y, 400, trials=50).moments.correlation
    assert found.holds.all()
    assert (value - found.low > found.high - value).mean() > 0.9
    assert (found.high <= 1.0).all()


def test_one_end_of_a_correlation_is_certified_without_the_other():
    """No pair adds much to the influence function; a pair at a corner would take off much."""
    x, y = columns()["triangle"]
    for column, close in ((-y, "high"), (y, "low")):
        pairs = samples(x, column, 400, trials=30)
        found = sampled_correlation(pairs, confidence=0.95)
        normal = certified_correlation(pairs, confidence=0.95)
        alone = np.isnan(normal.low) if close == "high" else np.isnan(normal.high)
        assert alone.mean() > 0.9
        assert (getattr(found, close) == getattr(normal, close))[alone].all()
        away = np.abs(getattr(found, close) - found.value) / normal.error
        assert np.median(away[alone]) <= 1.2 * 1.96
        assert np.isnan(found.variance[alone]).all()


def test_two_equal_columns_are_not_certified():
    """The influence function of r is 0 in every pair then: its spread says nothing."""
    ones, _ = columns()["ones"]
    pairs = samples(ones, ones, 400, trials=20)
    assert not certified_correlation(pairs, confidence=0.95).holds.any()
    found = sampled_correlation(pairs, confidence=0.95)
    assert (found.low < 1.0).all()
    assert (found.low > 0.9).all()


def test_a_sample_of_everything_is_exact():
    x, y = (column[:90] for column in columns()["normal, r = 0.5"])
    pairs = samples(x, y, 90, trials=2)
    for function, true in TRUTHS.items():
        found = function(pairs, confidence=0.95)
        assert (found.low == found.high).all()
        assert found.value == pytest.approx(true(x, y), rel=1e-12)


def test_groups_of_different_strata_are_bounded_each_by_its_own_share():
    x, y = (column[:600] for column in columns()["uniform"])
    pairs = SampledPairs.by_group(
        x,
        y,
        ids=np.repeat(np.arange(2, dtype=np.int32), 300),
        groups=2,
        population=np.array([300, 3_000]),
        read=np.array([300, 300]),
        ranges=((0.0, 1.0), (0.0, 1.0)),
    )
    found = sampled_correlation(pairs, confidence=0.95)
    assert found.low[0] == found.high[0] == found.value[0]
    assert found.low[1] < found.value[1] < found.high[1]


def test_a_correlation_of_constant_columns_is_anything():
    found = sampled_correlation(samples(np.ones(400), np.arange(400.0), 50, 3), confidence=0.95)
    assert np.isnan(found.value).all()
    assert (found.low == -1.0).all()
    assert (found.high == 1.0).all()
    slope = sampled_slope(samples(np.arange(400.0), np.ones(400), 50, 3), confidence=0.95)
    assert np.isinf(slope.low).all()
    assert np.isinf(slope.high).all()


@pytest.mark.parametrize("t", [-1.0, -0.7, 0.0, 0.2, 1.0])
@pytest.mark.parametrize("ends", [((-1.0, 2.0), (-3.0, 0.5)), ((0.5, 2.0), (1.0, 4.0))])
def test_the_reach_of_influence_functions_is_that_of_a_fine_grid(t, ends):
    a, b = np.meshgrid(*(np.linspace(low, high, 701) for low, high in ends))
    x, y = ((np.array([low]), np.array([high])) for low, high in ends)
    for reach, values in (
        (reach_of_correlation, a * b - t / 2.0 * (a**2 + b**2)),
        (reach_of_slope, (a - t * b) * b),
    ):
        below, above = reach(x, y, np.array([t]))
        assert -below[0] == pytest.approx(values.min(), abs=1e-4)
        assert above[0] == pytest.approx(values.max(), abs=1e-4)


def test_ranges_of_squares_and_quotients():
    low, high = squared((np.array([-2.0, 1.0, -3.0]), np.array([1.0, 2.0, -1.0])))
    assert low.tolist() == [0.0, 1.0, 1.0]
    assert high.tolist() == [4.0, 4.0, 9.0]
    below = np.array([1.0, 0.0, -1.0, 2.0]), np.array([2.0, 2.0, 4.0, 4.0])
    above = np.array([-1.0, 1.0, -2.0, 4.0]), np.array([2.0, 2.0, -1.0, 8.0])
    low, high = quotient(above, below)
    assert low.tolist() == [-1.0, 0.5, -np.inf, 1.0]
    assert high.tolist() == [2.0, np.inf, -0.25, 4.0]
