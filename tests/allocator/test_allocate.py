"""Allocations against all choices, dynamic programming, HiGHS, SLSQP and the convex bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from allocator.allocate import allocate
from allocator.demands import Budget, Demands, Options
from allocator.errors import NothingFits
from allocator.exact_dp import OPTIONS_MAX, optimum
from allocator.prices import find_prices
from tests.allocator.problems import (
    NO_TARGET,
    PROMISED,
    best_by_bytes,
    best_of_all,
    by_milp,
    demands_of,
    fits,
    goals,
    power_law_problem,
    readers_without_targets,
    small_problems,
    whole_need,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(small_problems())
def test_a_small_problem_gets_the_best_of_all_choices(problem):
    demands, budget = problem
    best = best_of_all(demands, budget)
    if best is None:
        with pytest.raises(NothingFits, match="nothing fits"):
            allocate(demands, budget)
        return
    allocation = allocate(demands, budget)
    assert fits(demands, allocation.choice, budget)
    assert goals(demands, allocation.choice) == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=40)
@given(small_problems())
def test_what_an_allocation_says_of_itself_is_so(problem):
    demands, budget = problem
    try:
        allocation = allocate(demands, budget)
    except NothingFits:
        return
    readers = demands.readers
    assert allocation.size_bytes.sum() + allocation.free_bytes == budget.size_bytes
    errors = allocation.error[readers.synopsis]
    forfeits = readers.forfeit * (allocation.reachable & ~allocation.met)
    assert allocation.loss == pytest.approx((readers.weight * (errors + forfeits)).sum())
    assert (allocation.met == (allocation.error[readers.synopsis] <= readers.target)).all()
    assert allocation.met[~allocation.reachable].sum() == 0


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=2, max_size=4),
        min_size=1,
        max_size=10,
    ),
    st.integers(0, 60),
)
def test_bytes_alone_are_shared_as_dynamic_programming_does(rows, budget):
    synopses = [[(0, 0, 30), *((size, 0, error) for size, error in its)] for its in rows]
    demands = demands_of(synopses, [(i, 1 + i % 3, NO_TARGET, 0) for i in range(len(rows))])
    allocation = allocate(demands, Budget(budget))
    assert allocation.loss == pytest.approx(best_by_bytes(demands, budget), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [(0.05, 0.3), (0.3, 0.1), (0.5, 0.5), (0.01, 0.9)])
def test_a_large_problem_is_within_a_percent_of_the_convex_bound(seed, share):
    demands = power_law_problem(300, seed=seed)
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * share[0]), cost_ns * share[1])
    allocation = allocate(demands, budget)
    assert fits(demands, allocation.choice, budget)
    assert allocation.bound <= allocation.loss * (1 + 1e-9)
    assert allocation.loss <= allocation.bound * 1.01


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_problem_too_large_for_branch_and_bound_is_within_a_percent_of_it(seed):
    demands = power_law_problem(30, seed=seed, sizes=8, levels=4, with_targets=0)
    assert demands.options.error.size > OPTIONS_MAX
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * 0.2), cost_ns * 0.4)
    loss = demands.loss()
    best = optimum(loss, demands.options, budget, find_prices(loss, demands.options, budget))
    assert allocate(demands, budget).loss <= 1.01 * best.bound


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whole_choices_come_close_to_those_of_milp(seed):
    n = 60
    demands = power_law_problem(n, seed=seed, sizes=10, levels=4, with_targets=0)
    options, loss = demands.options, demands.loss()
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * 0.1), cost_ns * 0.3)
    least, _ = by_milp(loss, options, budget, mip_rel_gap=1e-3, node_limit=200)
    allocation = allocate(demands, budget)
    assert fits(demands, allocation.choice, budget)
    assert allocation.bound <= least * (1 + 1e-9)
    assert allocation.loss <= 1.01 * least


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seed"), [(40, 0), (40, 1), (100, 2), (200, 3)])
def test_fine_sizes_come_close_to_what_slsqp_finds_for_continuous_ones(n, seed):
    rng = np.random.default_rng(seed)
    budget = 100_000 * n
    weight, scale, power = rng.lognormal(size=n), rng.lognormal(size=n), rng.choice([0.5, 1.0], n)

    def weighted(size):
        return float((weight * scale * (size / 1024) ** -power).sum())

    def slope(size):
        return -weight * scale * power * (size / 1024) ** -power / size

    found = minimize(
        weighted,
        np.full(n, budget / n),
        jac=slope,
        method="SLSQP",
        bounds=[(1024, budget)] * n,
        constraints=[
            {
                "type": "ineq",
                "fun": lambda size: (budget - size.sum()) / budget,
                "jac": lambda _: np.full(n, -1 / budget),
            }
        ],
        options={"maxiter": 500, "ftol": 1e-9},
    )
    assert found.success, found.message
    sizes = np.geomspace(1024, 2_000_000, 200).astype(np.int64)
    error = scale[:, None] * (sizes / 1024) ** -power[:, None]
    names = [f"s{i}" for i in range(n)]
    options = Options(names, np.tile(sizes, (n, 1)), np.zeros(error.shape), error)
    readers = readers_without_targets(np.arange(n), weight)
    allocation = allocate(Demands.new(options, readers), Budget(budget))
    assert allocation.loss <= 1.01 * found.fun


@pytest.mark.slow
def test_what_both_resources_hardly_allow_is_found():
    # All least sizes fit in bytes, and all in CPU, but hardly both at once.
    demands = power_law_problem(3_000, seed=1, with_targets=0.3)
    options = demands.options
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * 0.002), cost_ns * 0.02)
    assert options.size_bytes.min(1).sum() < budget.size_bytes
    assert options.cost_ns.min(1).sum() < budget.cost_ns
    assert fits(demands, allocate(demands, budget).choice, budget)


def test_in_shortage_promises_are_kept_first_then_what_forfeits_most():
    options = [(1, 0, 9.0), (10, 0, 1.0)]
    readers = [(0, 1, 2.0, 0.0), (1, 1, 2.0, 5.0), (2, 1, 2.0, 50.0), (3, 1, 2.0, PROMISED)]
    for budget, kept in ((40, 4), (31, 3), (22, 2), (13, 1), (4, 0)):
        allocation = allocate(demands_of([options] * 4, readers), Budget(budget))
        assert allocation.met.tolist() == [rank >= 4 - kept for rank in range(4)]


def test_a_target_that_is_out_of_reach_for_all_starves_nobody():
    # Together they need 20; with 11, one could keep its target and leave the other at 100.
    options = [(1, 0, 100.0), (5, 0, 3.0), (10, 0, 1.9)]
    readers = [(0, 1, 2.0, 2.0), (1, 1, 2.0, 2.0)]
    assert allocate(demands_of([options] * 2, readers), Budget(11)).choice.tolist() == [1, 1]


def test_all_targets_are_kept_before_any_error_is_lowered():
    cheap_but_missing = [(1, 0, 0.5), (5, 0, 0.4)]
    dear = [(1, 0, 1000.0), (2, 0, 10.0)]
    demands = demands_of([cheap_but_missing, dear], [(0, 0.01, 0.4, 0), (1, 100, NO_TARGET, 0)])
    assert allocate(demands, Budget(6)).choice.tolist() == [1, 0]


def test_a_target_that_nothing_meets_takes_nothing_from_others():
    hopeless = [(1, 0, 5.0), (9, 0, 4.0)]
    other = [(1, 0, 5.0), (9, 0, 1.0)]
    readers = [(0, 1, 1.0, PROMISED), (1, 1, 2.0, 0)]
    allocation = allocate(demands_of([hopeless, other], readers), Budget(10))
    assert allocation.choice.tolist() == [0, 1]
    assert allocation.reachable.tolist() == [False, True]


def test_a_synopsis_that_two_share_counts_for_both():
    shared, alone = [(1, 0, 4.0), (9, 0, 1.0)], [(1, 0, 5.0), (9, 0, 1.0)]
    two_share = [(0, 1, NO_TARGET, 0), (0, 1, NO_TARGET, 0), (1, 1, NO_TARGET, 0)]
    assert allocate(demands_of([shared, alone], two_share), Budget(10)).choice.tolist() == [1, 0]
    assert allocate(demands_of([shared, alone], two_share[1:]), Budget(10)).choice.tolist() == [
        0,
        1,
    ]


def test_a_synopsis_stays_as_it_is_where_moving_costs_more_than_it_gains():
    options, readers = [(1, 0, 2.0), (9, 0, 1.0)], [(0, 1, NO_TARGET, 0)]
    new = demands_of([options], readers)
    for moving, chosen in ((0.5, 1), (1.5, 0)):
        demands = Demands(new.options, new.readers, np.zeros(1, np.int64), np.full(1, moving))
        assert allocate(demands, Budget(9)).choice.tolist() == [chosen]


def test_nobody_gets_nothing_of_nothing():
    allocation = allocate(demands_of([], []), Budget(0))
    assert allocation.choice.tolist() == []
    assert (allocation.free_bytes, allocation.loss) == (0, 0.0)


@pytest.mark.slow
def test_in_shortage_of_many_promises_are_kept_before_wishes():
    demands = power_law_problem(2_000, seed=1)
    size_bytes, cost_ns = whole_need(demands)
    allocation = allocate(demands, Budget(int(size_bytes * 0.002), cost_ns * 0.05))
    promised, wished = demands.readers.promised, np.isfinite(demands.readers.target)
    kept, others = allocation.met[promised & wished], allocation.met[wished & ~promised]
    assert kept.mean() > 0.7 > others.mean()
    assert allocation.size_bytes.sum() + allocation.free_bytes == int(size_bytes * 0.002)
