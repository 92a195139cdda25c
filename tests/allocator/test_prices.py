"""Prices and mixtures against packaged solvers, and how much work finding them takes."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from allocator.allocate import allocate
from allocator.candidates import Candidates
from allocator.demands import Budget
from allocator.mixture_lp import Mixture
from allocator.prices import GAP, best_response, find_prices
from tests.allocator.problems import fits, power_law_problem, small_problems, whole_need

amounts = st.just(0.0) | st.floats(1e-6, 4)  # HiGHS leaves out coefficients below 1e-9.


def test_a_share_that_a_packaged_solver_leaves_out_has_its_price():
    mixture = Mixture((0.0, 0.0), 1e3)
    mixture.between((0.0, 0.0), (1e3, 1e3))
    mixture.add(0.0, 0.0, 1.3577513019032094e-10)
    assert mixture.best()[1] == pytest.approx(1.3577513019032094e-7, rel=1e-12)


@pytest.mark.parametrize("bytes_share", [0.1, 1.0, 3.5, 7.0])
def test_rounding_is_not_exchanged_for_a_column(bytes_share):
    """Of (0, 1e-6, 0) and (0, bytes_share, 0), a third part that is 0 was 1e-10 by rounding."""
    mixture = Mixture((0.0, 0.0), 1e3)
    mixture.between((0.0, 0.0), (1e3, 1e3))
    for column in [(0.0, 0.0, 1 / 3), (0.0, bytes_share, 0.0), (1.0, 1e-6, 0.0), (0.0, 0.0, 0.0)]:
        mixture.add(*column)
        found = mixture.best()
    assert found == ((0.0, 0.0), 0.0)


@pytest.mark.slow
@settings(max_examples=150)
@example([(0.0, 0.0, 1 / 3), (0.0, 3.5, 0.0), (1.0, 1e-6, 0.0), (0.0, 0.0, 0.0)], (0, 0), (0, 1e3))
@given(
    st.lists(st.tuples(st.floats(0, 100), amounts, amounts), min_size=1, max_size=25),
    st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])),
    st.sampled_from([(0.0, 1e3), (0.0, 5.0), (0.5, 2.0)]),
)
def test_a_mixture_is_the_optimum_of_the_linear_program(columns, budget, ends):
    low, high = ends
    mixture = Mixture(budget, high)
    mixture.between((low, low), (high, high))
    for value, *shares in columns:
        mixture.add(value, *shares)
        mixture.best()
    (of_bytes, of_ns), found = mixture.best()
    values, shares = np.array([c[0] for c in columns]), np.array([c[1:] for c in columns])
    best = linprog(
        np.concatenate([values, [-low, -low, high, high]]),
        A_eq=np.vstack(
            [
                np.concatenate([np.ones(len(columns)), np.zeros(4)]),
                np.hstack([shares.T, np.eye(2), -np.eye(2)]),
            ]
        ),
        b_eq=[1.0, *budget],
        method="highs",
    )
    assert found == pytest.approx(best.fun, rel=1e-7, abs=1e-7)
    assert low - 1e-9 <= min(of_bytes, of_ns)
    assert max(of_bytes, of_ns) <= high + 1e-9
    planes = values + shares @ [of_bytes, of_ns] - of_bytes * budget[0] - of_ns * budget[1]
    assert planes.min() == pytest.approx(found, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("share", [(0.05, 0.3), (0.3, 0.2), (0.01, 0.9), (1.0, 1.0)])
def test_prices_from_a_guess_are_as_good_as_those_from_nothing(share):
    demands = power_law_problem(2_500, seed=3, sizes=8, levels=4)
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * share[0]), cost_ns * share[1])
    loss = demands.loss()
    found = find_prices(loss, demands.options, budget)
    assert fits(demands, found.choice, budget)
    _, paid = best_response(loss, demands.options, found.per_byte, found.per_ns)
    bound = paid.sum() - found.per_byte * budget.size_bytes - found.per_ns * budget.cost_ns
    assert found.bound == pytest.approx(bound, rel=1e-9)
    plain = find_prices(loss, demands.options, budget, guessed_from=1 << 30)
    assert found.bound == pytest.approx(plain.bound, rel=3 * GAP)


@pytest.mark.slow
def test_the_best_of_many_is_near_the_bound_in_every_kind_of_shortage():
    demands = power_law_problem(3_000, seed=5, sizes=8, levels=4)
    size_bytes, cost_ns = whole_need(demands)
    for by_bytes, by_ns in ((0.05, 0.3), (0.3, 0.2), (0.01, 0.9), (0.02, 0.2)):
        budget = Budget(int(size_bytes * by_bytes), cost_ns * by_ns)
        allocation = allocate(demands, budget)
        assert fits(demands, allocation.choice, budget)
        assert allocation.loss <= 1.01 * allocation.bound


prices = st.floats(0, 8, allow_subnormal=False)


@pytest.mark.slow
@settings(max_examples=80)
@given(small_problems(), st.tuples(prices, prices), st.tuples(prices, prices), st.data())
def test_who_is_best_between_two_prices_is_a_candidate(problem, some, others, data):
    demands, _ = problem
    lowest = min(some[0], others[0]), min(some[1], others[1])
    highest = max(some[0], others[0]), max(some[1], others[1])
    loss = demands.loss()
    near = Candidates.near(loss, demands.options, lowest, highest)
    assert near.rows.tolist() == list(range(len(loss)))
    shares = data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1)))
    between = [
        low + share * (high - low) for low, high, share in zip(lowest, highest, shares, strict=True)
    ]
    _, paid = best_response(loss, demands.options, *between)
    at, least = near.best(*between)
    assert least == pytest.approx(paid, rel=1e-9, abs=1e-9)
    assert near.row[at].tolist() == list(range(len(loss)))


def test_few_of_many_options_are_candidates_and_all_of_them_stay_reachable():
    demands = power_law_problem(2_000, seed=4)
    size_bytes, cost_ns = whole_need(demands)
    found = allocate(demands, Budget(int(size_bytes * 0.05), cost_ns * 0.3))
    loss, prices = demands.loss(), (found.per_byte, found.per_ns)
    lowest, highest = (tuple(price * by for price in prices) for by in (1 / 1.5, 1.5))
    near = Candidates.near(loss, demands.options, lowest, highest)
    assert len(near.row) < demands.options.error.size / 10
    every = Candidates.all_of(loss, demands.options, np.arange(2_000))
    assert len(every.row) == demands.options.error.size
    assert every.best(*prices)[1] == pytest.approx(near.best(*prices)[1], rel=1e-12)


@pytest.mark.slow
@settings(max_examples=60)
@given(small_problems(), st.tuples(prices, prices))
def test_kernels_find_what_comparing_all_payments_does(problem, price):
    demands, _ = problem
    loss, options = demands.loss(), demands.options
    payment = options.size_bytes * price[0] + loss + options.cost_ns * price[1]
    choice, paid = best_response(loss, options, *price)
    assert choice.tolist() == payment.argmin(1).tolist()
    assert paid.tolist() == payment.min(1).tolist()
    every = Candidates.all_of(loss, options, np.arange(len(loss)))
    at, least = every.best(*price)
    assert every.option[at].tolist() == choice.tolist()
    assert least.tolist() == paid.tolist()
    for place in range(len(loss)):
        others, anew = every.without(place), every.only(np.flatnonzero(every.place != place))
        for column in fields(Candidates):
            assert (getattr(others, column.name) == getattr(anew, column.name)).all()
