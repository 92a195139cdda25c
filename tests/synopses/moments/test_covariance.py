"""Covariances, correlations and slopes against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from synopses.model.errors import CorruptSynopsis
from synopses.model.estimate import Bound, Estimates
from synopses.moments.covariance import GroupedCrossMoments
from tests import truth


def of_pairs(
    x: NDArray[np.float64], y: NDArray[np.float64], batch: int = 97
) -> GroupedCrossMoments:
    """The pairs in batches, every other batch by way of a merge."""
    moments = GroupedCrossMoments(1)
    for number, start in enumerate(range(0, len(x), batch)):
        part = GroupedCrossMoments(1) if number % 2 else moments
        part.update(None, x[start : start + batch], y[start : start + batch])
        if part is not moments:
            moments.merge(part)
    return moments


def estimates_of(moments: GroupedCrossMoments) -> list[Estimates]:
    return [
        moments.covariance(sample=False),
        moments.covariance(sample=True),
        moments.correlation(),
        moments.slope(),
        moments.intercept(),
    ]


def exact(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[tuple[float | None, float]]:
    """The five answers from fractions, and what rounding in each is a share of."""
    first, second = ([Fraction(value) for value in column.tolist()] for column in (x, y))
    n = len(first)
    if not n:
        return [(None, 0.0)] * 5
    mean_x, mean_y = sum(first) / n, sum(second) / n
    cross = sum((a - mean_x) * (b - mean_y) for a, b in zip(first, second, strict=True))
    squares_x = sum((a - mean_x) ** 2 for a in first)
    squares_y = sum((b - mean_y) ** 2 for b in second)
    correlation = None
    if squares_x and squares_y:
        share = math.sqrt(cross * cross / (squares_x * squares_y))
        correlation = math.copysign(share, cross)
    product = math.sqrt(squares_x) * math.sqrt(squares_y)
    steep = math.sqrt(squares_x / squares_y) if squares_y else 0.0
    return [
        (float(cross / n), product / n),
        (float(cross / (n - 1)) if n > 1 else None, product / max(n - 1, 1)),
        (correlation, 1.0),
        (float(cross / squares_y) if squares_y else None, steep),
        (
            float(mean_x - cross / squares_y * mean_y) if squares_y else None,
            float(abs(mean_x)) + steep * float(abs(mean_y)),
        ),
    ]


def assert_right(
    x: NDArray[np.float64], y: NDArray[np.float64], moments: GroupedCrossMoments
) -> None:
    for found, (right, scale) in zip(estimates_of(moments), exact(x, y), strict=True):
        assert found.bound[0] == Bound.EXACT
        assert bool(found.null[0]) == (right is None)
        if right is not None:
            assert abs(found.value[0] - right) <= 1e-12 * scale


@pytest.mark.parametrize("distribution", truth.distributions())
@pytest.mark.parametrize("size", [0, 1, 2, 3, 700])
@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_pairs_have_the_answers_of_fractions(distribution: str, size: int, shift: float) -> None:
    x = truth.draw(distribution, 1, size)
    y = np.random.default_rng(size).normal(0.0, 3.0, size) - 0.3 * x + shift
    assert_right(x + shift, y, of_pairs(x + shift, y))


@pytest.mark.parametrize("offset", [2.0**52, -(2.0**52), 1e15, -3e12])
def test_a_mean_far_above_the_spread_costs_no_digits(offset: float) -> None:
    rng = np.random.default_rng(5)
    x = offset + rng.integers(0, 9, 600).astype(np.float64)
    y = -offset + np.floor(x - offset) * 2 + rng.integers(0, 3, 600)
    assert_right(x, y, of_pairs(x, y))
    assert estimates_of(of_pairs(x, y))[2].value[0] > 0.9


def test_pairs_by_group_are_those_of_each_group_alone() -> None:
    rng = np.random.default_rng(8)
    ids = rng.integers(0, 6, 2000).astype(np.int32)
    x, y = rng.normal(size=2000), rng.normal(size=2000)
    moments = GroupedCrossMoments(6)
    for start in range(0, 2000, 333):
        rows = slice(start, start + 333)
        moments.update(ids[rows], x[rows], y[rows])
    for group in range(6):
        mine = ids == group
        assert_right(x[mine], y[mine], moments.select(np.array([group])))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_pairs_and_squares_taken_at_once_are_those_taken_apart(grouped: bool, whole: bool) -> None:
    """Also of infinite pairs, of pairs whose squares are, and of wide whole numbers."""
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(2, 700))
    if whole:
        x, y = (2**55 + np.rint(1000 * each).astype(np.int64) for each in (x, y))
    else:
        x[3], y[4], x[5], x[6] = math.inf, -math.inf, math.nan, 1e200
    ids = rng.integers(0, 4, 700).astype(np.int32) if grouped else None
    units = np.array([x[0], y[0], 0.5, 2.0], np.float64)
    u, v = (x.astype(float) - units[0]) * units[2], (y.astype(float) - units[1]) * units[3]
    together, apart = ([GroupedCrossMoments(4) for _ in range(2)] for _ in range(2))
    with np.errstate(invalid="ignore", over="ignore"):
        squares = (u + v) ** 2, (u - v) ** 2
    for rows in (slice(0, 1), slice(1, 333), slice(333, None)):
        some = None if ids is None else ids[rows]
        together[0].update_with_squares(together[1], units, some, x[rows], y[rows])
        apart[0].update(some, x[rows], y[rows])
        apart[1].update(some, *(each[rows] for each in squares))
    assert [each.to_bytes() for each in together] == [each.to_bytes() for each in apart]


@pytest.mark.slow
@given(
    pairs=st.lists(
        st.tuples(st.integers(-(2**53), 2**53), st.integers(-(2**53), 2**53)), max_size=12
    )
)
def test_integers_up_to_2_to_the_53_are_told_apart(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array([pair[at] for pair in pairs], np.float64) for at in (0, 1))
    assert_right(x, y, of_pairs(x, y, batch=3))


def test_a_column_of_one_value_has_no_correlation_however_it_is_merged() -> None:
    for value in (0.1, 1e300, -3.0, 2.0**53):
        x, y = np.full(500, value), np.arange(500.0)
        _, _, correlation, slope, intercept = estimates_of(of_pairs(x, y, batch=7))
        assert correlation.null[0]
        assert not slope.null[0]
        assert slope.value[0] == 0.0
        assert intercept.value[0] == value
        assert estimates_of(of_pairs(y, x, batch=7))[3].null[0]


def test_infinities_make_everything_null_and_nan_makes_its_pair_absent() -> None:
    x = np.array([1.0, 2.0, math.nan, 4.0, math.nan])
    y = np.array([5.0, 3.0, math.inf, 1.0, 0.0])
    assert_right(x[[0, 1, 3]], y[[0, 1, 3]], of_pairs(x, y))
    infinite = of_pairs(np.array([1.0, 2.0, 3.0]), np.array([1.0, -math.inf, 2.0]))
    assert all(found.null[0] and found.bound[0] == Bound.EXACT for found in estimates_of(infinite))


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_squares_beyond_the_range_of_doubles_are_not_taken_for_an_answer(unit: float) -> None:
    moments = of_pairs(np.array([1.0, 2.0, 3.0]) * unit, np.array([1.0, 2.0, 4.0]))
    correlation = moments.correlation()
    assert correlation.null[0]
    assert correlation.bound[0] == Bound.NONE
    assert "range of DOUBLE" in correlation.reason


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), factor=st.floats(-1e3, 1e3))
def test_a_correlation_is_never_outside_of_its_range(values: list[float], factor: float) -> None:
    x = np.array(values)
    found = of_pairs(x, x * factor, batch=4).correlation()
    assert -1.0 <= found.value[0] <= 1.0


def test_damaged_bytes_are_refused() -> None:
    data = of_pairs(np.arange(9.0), np.arange(9.0)).to_bytes()
    rng = np.random.default_rng(11)
    for _ in range(500):
        damaged = bytearray(data)
        damaged[rng.integers(len(data))] ^= int(rng.integers(1, 256))
        with pytest.raises(CorruptSynopsis):
            GroupedCrossMoments.from_bytes(bytes(damaged))
    for end in range(len(data)):
        with pytest.raises(CorruptSynopsis):
            GroupedCrossMoments.from_bytes(data[:end])


def test_a_slope_beyond_the_range_of_doubles_has_no_bound() -> None:
    moments = GroupedCrossMoments(1)
    moments.update(None, np.array([0.0, 1e170]), np.array([0.0, 1e-140]))
    slope, intercept = moments.slope(), moments.intercept()
    assert slope.bound.tolist() == intercept.bound.tolist() == [Bound.NONE]
    assert slope.null.tolist() == [True]


@pytest.mark.parametrize("base", [2**62, 2**53, -(2**61)])
def test_whole_numbers_beyond_doubles_keep_their_last_digits(base: int) -> None:
    """Two panes of numbers within 1,000 of a base: shifted by it they are small."""
    rng = np.random.default_rng(9)
    x, y = rng.integers(0, 1000, (2, 400))
    moments = [GroupedCrossMoments(1), GroupedCrossMoments(1)]
    for part, half in zip(moments, (slice(0, 150), slice(150, None)), strict=True):
        part.update(None, base + x[half], base + y[half])
    found = moments[0].merge(moments[1])
    assert found.covariance(sample=True).value[0] == pytest.approx(np.cov(x, y)[0, 1], rel=1e-12)
    assert found.correlation().value[0] == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-12)
    assert found.slope().value[0] == pytest.approx(np.cov(x, y)[0, 1] / y.var(ddof=1), rel=1e-12)
