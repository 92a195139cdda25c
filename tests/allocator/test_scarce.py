"""Where next to nothing is left beyond the least: choices that fit, near the bound all the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings

from allocator.allocate import allocate
from allocator.demands import Budget
from allocator.prices import find_prices, is_over, least
from allocator.scarce import fitted
from tests.allocator.problems import (
    best_of_all,
    fits,
    goals,
    power_law_problem,
    small_problems,
    whole_need,
)


@settings(max_examples=150)
@given(small_problems())
def test_what_is_found_fits_and_is_no_better_than_the_best(problem):
    demands, budget = problem
    loss, options = demands.loss(), demands.options
    needed = least(loss, options)
    assume(not is_over(needed, budget))
    choice = fitted(loss, options, budget, needed, find_prices(loss, options, budget))
    if choice is not None:
        assert fits(demands, choice, budget)
        assert np.isfinite(loss[np.arange(len(choice)), choice]).all()
        assert goals(demands, choice) >= best_of_all(demands, budget)


@pytest.mark.parametrize(
    ("synopses", "seed", "share", "above"),
    [
        (600, 1, (0.01, 0.02), 0.08),  # without it 495 %
        (2_000, 0, (0.002, 0.02), 0.12),  # 36 %
        (2_000, 1, (0.001, 0.018), 0.16),  # 28 %
        (600, 3, (0.001, 0.018), 0.07),  # 12 %
    ],
)
def test_a_shortage_in_which_single_steps_are_percents_is_near_the_bound(
    synopses, seed, share, above
):
    demands = power_law_problem(synopses, seed=seed)
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * share[0]), cost_ns * share[1])
    allocation = allocate(demands, budget)
    assert fits(demands, allocation.choice, budget)
    assert allocation.loss <= allocation.bound * (1 + above)
