"""The exact choice against all choices and HiGHS; its budget to the byte; its bound."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.allocate import allocate
from allocator.demands import Budget, Demands, Options
from allocator.dp_states import States
from allocator.exact_dp import OPTIONS_MAX, optimum
from allocator.prices import Prices, find_prices, least, that_fit
from tests.allocator.problems import (
    NO_TARGET,
    by_milp,
    demands_of,
    options_of,
    power_law_problem,
    readers_without_targets,
    whole_need,
)

OPTION = st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(0, 20))
SYNOPSES = st.lists(st.lists(OPTION, min_size=1, max_size=5), min_size=1, max_size=5)
BUDGETS = st.builds(Budget, st.integers(0, 90), st.sampled_from([0.0, 4.0, 20.0, np.inf]))
NO_PRICES = Prices(0.0, 0.0, 0.0, None)


def least_of_all(options, budget):
    """By trying every choice; inf where none fits."""
    best = np.inf
    for choice in product(*(np.flatnonzero(np.isfinite(error)) for error in options.error)):
        at = np.arange(len(options)), np.array(choice)
        spent = options.size_bytes[at].sum(), options.cost_ns[at].sum()
        if spent[0] <= budget.size_bytes and spent[1] <= budget.cost_ns:
            best = min(best, options.error[at].sum())
    return best


@pytest.mark.slow
@settings(max_examples=150)
@given(SYNOPSES, BUDGETS, st.booleans())
def test_it_is_the_best_of_all_choices_whatever_the_prices(synopses, budget, priced):
    options = options_of(*synopses)
    prices = find_prices(options.error, options, budget) if priced else NO_PRICES
    found, best = optimum(options.error, options, budget, prices), least_of_all(options, budget)
    assert found.bound == best
    if np.isinf(best):
        assert found.choice is None
        return
    at = np.arange(len(options)), found.choice
    assert options.error[at].sum() == best
    assert options.size_bytes[at].sum() <= budget.size_bytes
    assert options.cost_ns[at].sum() <= budget.cost_ns


@pytest.mark.slow
@settings(max_examples=60)
@given(SYNOPSES, BUDGETS, st.integers(1, 4))
def test_with_too_few_states_a_choice_still_fits_and_the_bound_still_holds(
    synopses, budget, states_max
):
    options = options_of(*synopses)
    prices = find_prices(options.error, options, budget)
    found = optimum(options.error, options, budget, prices, states_max=states_max)
    best = least_of_all(options, budget)
    assert found.bound <= best
    if found.choice is not None:
        at = np.arange(len(options)), found.choice
        assert options.error[at].sum() >= best
        assert options.size_bytes[at].sum() <= budget.size_bytes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n", "sizes", "levels"), [(10, 6, 5), (20, 14, 1), (100, 3, 1)])
def test_it_is_no_worse_than_what_milp_finds(n, sizes, levels, seed):
    demands = power_law_problem(n, seed=seed, sizes=sizes, levels=levels, with_targets=0)
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * 0.3), cost_ns * (0.3 if levels > 1 else 1))
    loss, options = demands.loss(), demands.options
    assert np.isfinite(loss).sum() <= OPTIONS_MAX
    found = optimum(loss, options, budget, find_prices(loss, options, budget))
    assert found.bound == loss[np.arange(n), found.choice].sum()  # No state was given up.
    least, _ = by_milp(loss, options, budget, mip_rel_gap=0)
    assert found.bound == pytest.approx(least, rel=1e-6)


def test_a_choice_that_is_over_the_budget_by_a_millionth_is_none():
    budget = 1 << 29
    half = budget // 2
    options = options_of(*[[(half, 0, 1.0), (half + 100, 0, 0.5)]] * 2)
    for more, both in ((0, 2.0), (99, 2.0), (100, 1.5), (199, 1.5), (200, 1.0)):
        room = Budget(budget + more)
        prices = find_prices(options.error, options, room)
        assert optimum(options.error, options, room, prices).bound == both


def test_bytes_are_counted_where_floats_cannot_tell_them_apart():
    huge = 1 << 60
    sizes = np.array([[huge, huge + 1], [huge, huge + 1]])
    options = Options(["a", "b"], sizes, np.zeros((2, 2)), np.array([[1.0, 0.5], [1.0, 0.5]]))
    assert float(huge) == float(huge + 1)
    for more, both in ((0, 2.0), (1, 1.5), (2, 1.0)):
        room = Budget(2 * huge + more)
        assert optimum(options.error, options, room, NO_PRICES).bound == both
        found = allocate(
            Demands.new(options, readers_without_targets(np.arange(2), np.ones(2))), room
        )
        assert found.loss == both
        assert found.free_bytes == 0
    many = Options(
        [str(at) for at in range(400)],
        np.full((400, 2), 1 << 53) + np.array([0, 1]),
        np.zeros((400, 2)),
        np.array([[1.0, 0.5]] * 400),
    )
    demands = Demands.new(many, readers_without_targets(np.arange(400), np.ones(400)))
    assert allocate(demands, Budget(400 << 53)).free_bytes == 0  # So many are not solved exactly.


@pytest.mark.parametrize("both", [False, True])
def test_synopses_that_are_all_alike_do_not_multiply_what_is_looked_at(both):
    """Branch and bound would try every permutation of options; the solver merges equal states.

    With 240 states kept in each of 40 steps, the solver visits at most 96,000 states. Dropping a
    state that may lead to the best choice would lower the bound.
    """
    n, sizes = 40, np.array([10, 31, 72, 150, 330])
    alike = [(int(size), float(at * both), 100 / size) for at, size in enumerate(sizes)]
    options = options_of(*[alike] * n)
    budget = Budget(int(sizes[2]) * n, 1.5 * n)
    prices = find_prices(options.error, options, budget)
    found = optimum(options.error, options, budget, prices, states_max=240)
    assert found.bound == pytest.approx(options.error[np.arange(n), found.choice].sum())


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 60), st.integers(0, 9)), min_size=1, max_size=80
    )
)
def test_what_another_state_is_as_good_as_in_all_three_is_dominated(rows):
    size_bytes, cost_ns, objective = np.array(rows, np.int64).T
    none = np.full(len(rows), -1)
    states = States(size_bytes, cost_ns.astype(float), objective.astype(float), none, none)
    kept = [rows[at] for at in states.undominated()]

    def is_covered(row, others):
        return any(all(a <= b for a, b in zip(other, row, strict=True)) for other in others)

    assert all(is_covered(row, kept) for row in rows)
    assert len(set(kept)) == len(kept)
    if len(set(cost_ns.tolist())) <= 32:  # Not in steps.
        assert not any(is_covered(row, [other for other in kept if other != row]) for row in kept)


def test_an_option_that_leaves_others_too_little_is_none():
    """With it, prices alone would hope for it, and the bound would be far away."""
    options = options_of([(10, 0, 5), (75, 0, 1)], [(20, 1, 4), (70, 0, 2)], [(5, 3, 9), (6, 1, 1)])
    none, needed = np.inf, least(options.error, options)
    left = that_fit(options.error, options, Budget(100, 4.0), needed)
    assert left.tolist() == [[5, 1], [4, 2], [9, 1]]
    left = that_fit(options.error, options, Budget(99, 2.0), needed)
    assert left.tolist() == [[5, none], [4, 2], [none, 1]]


def test_what_does_not_fit_yet_is_still_what_bytes_are_worth():
    """Beside what fits, the price would be none: every synopsis has the best that fits."""
    options = [(1, 0, 8.0), (2, 0, 7.75), (20, 0, 0.0)]
    allocation = allocate(demands_of([options], [(0, 1, NO_TARGET, 0)]), Budget(10))
    assert allocation.choice.tolist() == [1]
    assert allocation.per_byte == pytest.approx(8 / 19)


@pytest.mark.slow
def test_an_allocation_prints_nothing(capfd):
    """HiGHS printed now and then; the stdout of a command belongs to its answers."""
    for seed in range(30):
        demands = power_law_problem(12, seed=seed, sizes=12, levels=2)
        size_bytes, cost_ns = whole_need(demands)
        allocate(demands, Budget(int(size_bytes * 0.02), cost_ns * 0.9))
    assert capfd.readouterr() == ("", "")
