"""Kernels that compute keys on the way find the rows that the keys themselves tell."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.hashing import (
    chosen_keys,
    combine,
    murmur_int64,
    position_keys,
    position_start,
    uniforms,
)
from synopses.inputs import as_input
from synopses.key_kernels import (
    below,
    chosen_joined,
    heaviest,
    joined_below,
    positions_at_least,
    positions_below,
)

ROWS = 3000


@pytest.mark.parametrize("rows", [0, 1, ROWS])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_found_rows_are_the_rows_below(share: float, rows: int) -> None:
    threshold = np.uint64(min(int(share * 2**64), 2**64 - 1))
    keys, start = position_keys(7, 1000, rows), position_start(7, 1000)
    expected = np.flatnonzero(keys < threshold)
    np.testing.assert_array_equal(below(as_input(keys, np.uint64), threshold), expected)
    found = positions_below(start, rows, threshold)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(chosen_keys(start, found), keys[expected])
    hashes = as_input(murmur_int64(np.arange(rows))[0], np.uint64)
    joined = combine(hashes, np.full(rows, 9, np.uint64))
    low = joined_below(hashes, np.uint64(9), threshold)
    np.testing.assert_array_equal(low, np.flatnonzero(joined < threshold))
    chosen = chosen_joined(hashes, np.uint64(9), as_input(low, np.int64))
    np.testing.assert_array_equal(chosen, joined[low])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("bar", [0.0, 0.7, 1e300])
def test_found_rows_are_heavy_enough(bar: float, sign: float) -> None:
    weights = np.random.default_rng(3).normal(size=ROWS)
    weights[5] = np.nan
    numbers = uniforms(position_keys(7, 1000, ROWS))
    found = positions_at_least(as_input(weights, np.float64), sign, position_start(7, 1000), bar)
    np.testing.assert_array_equal(found, np.flatnonzero(sign * weights >= bar * numbers))


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
