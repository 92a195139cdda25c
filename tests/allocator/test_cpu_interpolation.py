"""The ladder of thinning: within its budget, as good as a new solution, and in the right order."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.allocate import allocate
from allocator.cpu_interpolation import Ladder
from allocator.demands import Budget, Demands
from tests.allocator.problems import (
    NO_TARGET,
    PROMISED,
    demands_of,
    power_law_problem,
    readers_of,
    whole_need,
)


@cache
def ladder_of(n, *, seed, share=0.2):
    demands = power_law_problem(n, seed=seed, with_targets=0)
    size_bytes, cost_ns = whole_need(demands)
    allocation = allocate(demands, Budget(int(size_bytes * share), cost_ns * share))
    return demands, allocation, Ladder.of(demands, allocation)


def cost_of(demands, choice):
    return demands.options.cost_ns[np.arange(len(choice)), choice].sum()


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(0.0, 1.2), st.integers(0, 3))
def test_a_tick_stays_within_its_budget_and_keeps_all_sizes(share, seed):
    demands, allocation, ladder = ladder_of(12, seed=seed)
    budget_ns = share * whole_need(demands)[1]
    choice = ladder.choice(budget_ns)
    cost = cost_of(demands, choice)
    assert cost <= max(budget_ns * (1 + 1e-9), ladder.cost_ns[0])
    rows = np.arange(len(choice))
    assert (demands.options.size_bytes[rows, choice] == allocation.size_bytes).all()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.7])
@pytest.mark.parametrize("seed", range(3))
def test_a_tick_is_as_good_as_solving_anew_with_these_sizes(seed, share):
    demands, allocation, ladder = ladder_of(300, seed=seed)
    budget_ns = share * whole_need(demands)[1]
    same = demands.options.size_bytes == allocation.size_bytes[:, None]
    fixed = replace(demands.options, error=np.where(same, demands.options.error, np.inf))
    anew = allocate(Demands.new(fixed, demands.readers), Budget(1 << 40, budget_ns))
    found = demands.loss_of(ladder.choice(budget_ns))
    # What is left of the budget is less than the next step costs; with that step it is too good.
    after = ladder.cost_ns[np.searchsorted(ladder.cost_ns, budget_ns, "right")]
    assert demands.loss_of(ladder.choice(after)) <= anew.loss * (1 + 1e-9)
    assert found <= 1.03 * anew.loss


@pytest.mark.parametrize("seed", range(3))
def test_what_is_looked_up_is_what_climbing_step_by_step_finds(seed):
    _, _, ladder = ladder_of(100, seed=seed)
    for budget_ns in np.linspace(0.9 * ladder.cost_ns[0], 1.1 * ladder.cost_ns[-1], 60):
        climbed = ladder.cheapest.tolist()
        costs = ladder.cost_ns[1:].tolist()
        steps = zip(ladder.synopsis.tolist(), ladder.option.tolist(), costs, strict=True)
        for synopsis, option, cost_ns in steps:
            if cost_ns > budget_ns:
                break
            climbed[synopsis] = option
        assert ladder.choice(budget_ns).tolist() == climbed


def test_more_cpu_never_makes_an_answer_worse():
    demands, _, ladder = ladder_of(100, seed=5)
    budgets = np.linspace(ladder.cost_ns[0], ladder.cost_ns[-1], 50)
    errors = [demands.loss_of(ladder.choice(budget)) for budget in budgets]
    assert (np.diff(errors) <= 1e-9).all()
    whole = demands.options.error[np.arange(100), ladder.choice(np.inf)]
    assert (whole <= demands.options.error[np.arange(100), ladder.cheapest]).all()


def test_the_steps_are_those_worked_out_by_hand():
    # Costs 1, 2, 4 with errors 9, 5, 4: the hull has slopes -4 and -1/2. A second synopsis at
    # 1, 2, 4 with 9, 8, 3: its middle is above the line from 9 to 3, so one step of -2.
    first = [(7, 4, 4.0), (7, 1, 9.0), (7, 2, 5.0), (99, 0, 1.0)]
    second = [(7, 4, 3.0), (7, 1, 9.0), (7, 2, 8.0), (99, 0, 1.0)]
    readers = readers_of((0, 1, NO_TARGET, 0), (1, 1, NO_TARGET, 0))
    demands = Demands.new(demands_of([first, second], []).options, readers)
    ladder = Ladder.of(demands, allocate(demands, Budget(14, 100)))
    assert ladder.cheapest.tolist() == [1, 1]
    assert list(zip(ladder.synopsis, ladder.option, strict=True)) == [(0, 2), (1, 0), (0, 0)]
    assert ladder.cost_ns.tolist() == [2, 3, 6, 8]
    assert ladder.choice(5.9).tolist() == [2, 1]


@pytest.mark.parametrize("weight", [1, 1e6, 1e9])
def test_promises_are_kept_longer_than_precision(weight):
    wants = [(7, 1, 2.0), (7, 3, 1.0)]
    heavier = [(7, 1, 900.0), (7, 3, 1.0)]
    readers = [(0, 0.01, 1.5, PROMISED), (1, weight, NO_TARGET, 0)]
    demands = demands_of([wants, heavier], readers)
    ladder = Ladder.of(demands, allocate(demands, Budget(14, 6)))
    assert ladder.choice(4.0).tolist() == [1, 0]


@pytest.mark.parametrize("seed", range(20))
def test_steps_that_save_the_same_are_taken_in_their_order_however_they_are_rounded(seed):
    """On a straight curve a later step may seem the better one, by the last bit."""
    rng = np.random.default_rng(seed)
    for _ in range(50):
        cost = np.cumsum(rng.integers(1, 4, 6)) * rng.choice([0.1, 0.4, 2.4, 8 / 3])
        loss = (cost[-1] - cost) * rng.choice([0.1, 0.7]) + 0.1
        ladder = Ladder.of_curves(cost[None], loss[None])
        assert ladder.choice(np.inf) == [5]
        for budget_ns in cost:
            (taken,) = cost[ladder.choice(budget_ns * (1 + 1e-9))]
            assert taken <= budget_ns * (1 + 1e-9)
