"""Kernels that compute keys on the way find the rows that the keys themselves tell."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.kernels.array_inputs import as_input
from synopses.kernels.hashing import combine, murmur_int64, position_keys, salted, uniforms
from synopses.samples.admission_kernels import (
    below,
    few_at_least,
    few_below,
    heaviest,
    parted,
    united_rows,
)
from synopses.samples.diagonal_kernels import pairs_beyond

ROWS = 3000


@pytest.mark.parametrize("rows", [0, 1, ROWS])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_found_rows_are_the_rows_below(share: float, rows: int) -> None:
    threshold = np.uint64(min(int(share * 2**64), 2**64 - 1))
    keys = as_input(position_keys(7, 1000, rows), np.uint64)
    expected = np.flatnonzero(keys < threshold)
    np.testing.assert_array_equal(below(keys, threshold), expected)
    np.testing.assert_array_equal(few_below(keys, threshold), expected)


def test_one_salt_for_all_hashes_is_a_column_of_it() -> None:
    hashes = murmur_int64(np.arange(ROWS))[0]
    column = np.full(ROWS, 9, np.uint64)
    np.testing.assert_array_equal(salted(hashes, np.uint64(9)), combine(hashes, column))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("bar", [0.0, 0.7, 1e300])
def test_found_rows_are_heavy_enough(bar: float, sign: float) -> None:
    weights = np.random.default_rng(3).normal(size=ROWS)
    weights[5] = np.nan
    keys = as_input(position_keys(7, 1000, ROWS), np.uint64)
    found = few_at_least(as_input(weights, np.float64), sign, keys, bar)
    np.testing.assert_array_equal(found, np.flatnonzero(sign * weights >= bar * uniforms(keys)))


@pytest.mark.parametrize("tau", [0.0, 1.5, 1e300])
def test_the_heaviest_have_a_priority_above_tau(tau: float) -> None:
    weights = np.random.default_rng(4).normal(size=ROWS)
    weights[:4] = np.nan, np.inf, 1e308, 0.0
    numbers = uniforms(position_keys(7, 1000, ROWS))
    numbers[2] = 1e-9
    with np.errstate(over="ignore"):
        priorities = np.minimum(weights / numbers, np.finfo(np.float64).max)
    expected = np.flatnonzero((weights > 0) & np.isfinite(weights) & (priorities > tau))
    found = heaviest(
        as_input(weights, np.float64), as_input(numbers, np.float64), tau * (1 - 1e-15), tau
    )
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], weights[expected])
    np.testing.assert_array_equal(found[2], priorities[expected])


@pytest.mark.parametrize("first", [0, 1, 700])
@pytest.mark.parametrize("second", [0, 1, 90, ROWS])
def test_parted_rows_are_those_that_are_not_among_the_others(first: int, second: int) -> None:
    rng = np.random.default_rng(first + second)
    rows, others = (np.sort(rng.choice(ROWS, size, replace=False)) for size in (first, second))
    both, size = parted(rows, others)
    np.testing.assert_array_equal(both[:size], np.setdiff1d(rows, others))
    np.testing.assert_array_equal(both[size:], others)


@pytest.mark.parametrize("first", [0, 1, 700])
@pytest.mark.parametrize("second", [0, 1, 90, ROWS])
def test_united_rows_are_those_of_both_columns_once(first: int, second: int) -> None:
    rng = np.random.default_rng(first + second)
    rows, others = (np.sort(rng.choice(ROWS, size, replace=False)) for size in (first, second))
    np.testing.assert_array_equal(united_rows(rows, others), np.union1d(rows, others))


@pytest.mark.parametrize("rows", [0, 1, 64, ROWS])
def test_pairs_beyond_are_those_whose_sum_or_difference_is(rows: int) -> None:
    x, y = np.random.default_rng(rows).normal(size=(2, rows))
    x[5:6], y[7:8] = np.nan, np.inf
    units, ends = np.array([0.5, -1.0, 2.0, 0.25]), np.array([-3.0, 2.5, -4.0, 1.5])
    u, v = (x - units[0]) * units[2], (y - units[1]) * units[3]
    with np.errstate(invalid="ignore"):
        sums = ~((u + v >= ends[0]) & (u + v <= ends[1]))
        differences = ~((u - v >= ends[2]) & (u - v <= ends[3]))
    x, y = as_input(x, np.float64), as_input(y, np.float64)
    found, far, far_apart = pairs_beyond(x, y, units, ends)
    np.testing.assert_array_equal(found, np.flatnonzero(sums | differences))
    assert (far, far_apart) == (sums.sum(), differences.sum())
