"""From a solution to the next one: its prices are where the search begins, and cost no quality."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from allocator import prices
from allocator.allocate import allocate
from allocator.demands import Budget, Options
from tests.allocator.problems import fits, power_law_problem, whole_need

COUNTS = (300, 2_500)  # Below and above where prices are guessed from a part.


@pytest.mark.slow
@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("times", [0.25, 0.5, 0.9, 1.1, 2.0, 4.0])
@pytest.mark.parametrize("share", [(0.05, 0.3), (0.3, 0.2)])
def test_another_budget_is_shared_out_as_well_from_the_present_prices(n, times, share):
    demands = power_law_problem(n, seed=n, sizes=8, levels=4)
    size_bytes, cost_ns = whole_need(demands)
    last = allocate(demands, Budget(int(size_bytes * share[0]), cost_ns * share[1]))
    budget = Budget(int(size_bytes * share[0] * times), cost_ns * share[1])
    standing = replace(demands, present=last.choice)
    found, anew = allocate(standing, budget, last), allocate(standing, budget)
    assert fits(demands, found.choice, budget)
    assert found.loss <= 1.01 * found.bound
    assert found.bound == pytest.approx(anew.bound, rel=3 * prices.GAP)
    assert found.met[demands.readers.promised].sum() == anew.met[demands.readers.promised].sum()


@pytest.mark.slow
@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("off", [(1e6, 1.0), (1e-6, 1.0), (1e6, 1e-6), (0.0, 1e3), (0.0, 0.0)])
def test_prices_that_are_far_off_cost_time_and_nothing_else(n, off):
    demands = power_law_problem(n, seed=7, sizes=8, levels=4)
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * 0.05), cost_ns * 0.3)
    anew = allocate(demands, budget)
    wrong = replace(anew, per_byte=anew.per_byte * off[0], per_ns=anew.per_ns * off[1])
    found = allocate(demands, budget, wrong)
    assert fits(demands, found.choice, budget)
    assert found.loss <= 1.01 * found.bound
    assert found.bound == pytest.approx(anew.bound, rel=3 * prices.GAP)


class WatchedOptions(Options):
    """Options that record the number of synopses in each selection of rows."""

    parts: ClassVar[list[int]] = []

    def only(self, rows):
        self.parts.append(len(rows))
        return super().only(rows)


def test_near_a_known_solution_prices_are_not_guessed_from_a_part():
    demands = power_law_problem(2_500, seed=3, sizes=8, levels=4)
    of = demands.options
    watched = WatchedOptions(of.names, of.size_bytes, of.cost_ns, of.error)
    demands = replace(demands, options=watched)
    size_bytes, cost_ns = whole_need(demands)
    last = allocate(demands, Budget(int(size_bytes * 0.05), cost_ns * 0.3))
    watched.parts.clear()
    allocate(demands, Budget(int(size_bytes * 0.045), cost_ns * 0.3), last)
    assert not watched.parts
    allocate(demands, Budget(int(size_bytes * 0.02), cost_ns * 0.3), last)  # It is another one.
    assert watched.parts


def test_a_solution_within_no_limit_of_cpu_says_where_prices_are_within_one_of_bytes():
    demands = power_law_problem(300, seed=1, sizes=8, levels=4)
    size_bytes, _ = whole_need(demands)
    last = allocate(demands, Budget(int(size_bytes * 0.1)))
    found = allocate(demands, Budget(int(size_bytes * 0.09)), last)
    assert np.isfinite(found.loss)
    assert found.loss <= 1.01 * found.bound
    near = last.prices_near(Budget(int(size_bytes * 0.09)))
    dearer = (0.1 / 0.09) ** 1.5
    assert (near.per_byte, near.per_ns) == (pytest.approx(last.per_byte * dearer, rel=1e-3), 0.0)
