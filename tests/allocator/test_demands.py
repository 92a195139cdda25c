"""What the allocator refuses, and what it says then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allocator.allocate import allocate
from allocator.curves import CurveRepaired, bound_by_panes, falling, table, thinned
from allocator.demands import Budget, Demands
from allocator.errors import BadBudget, BadCurve, BadDemand, NothingFits
from allocator.quotes import quote
from tests.allocator.problems import NO_TARGET, demands_of, options_of, readers_of


@pytest.mark.parametrize("weight", [-1.0, 0.0, np.nan, np.inf])
def test_a_weight_is_positive_and_finite(weight):
    with pytest.raises(BadDemand, match=f"reader 0: weight must be > 0 and finite, got {weight}"):
        readers_of((0, weight, NO_TARGET, 0))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((-1, 0, 1.0), r"s0: size_bytes must be >= 0, got -1"),
        ((1, np.nan, 1.0), r"s0: cost_ns must be >= 0 and finite, got nan"),
        ((1, np.inf, 1.0), r"s0: cost_ns must be >= 0 and finite, got inf"),
        ((1, 0, np.nan), r"s0: error must be >= 0, or inf for no option, got nan"),
        ((1, 0, -0.1), r"s0: error must be >= 0, or inf for no option, got -0.1"),
        ((1, 0, np.inf), r"s0: error must be finite in an option, got inf"),
    ],
)
def test_an_option_has_numbers_that_mean_something(row, message):
    with pytest.raises(BadDemand, match=message):
        options_of([row])


def test_bytes_do_not_overflow():
    with pytest.raises(BadDemand, match=r"s1: size_bytes must be small enough .* got 4611686"):
        options_of([(1 << 61, 0, 1.0)], [(1 << 62, 0, 1.0)], [(1 << 62, 0, 1.0)])


def test_a_reader_reads_a_synopsis_that_there_is():
    with pytest.raises(BadDemand, match="synopsis must be < 1, got 1"):
        demands_of([[(1, 0, 1.0)]], [(1, 1, NO_TARGET, 0)])


@pytest.mark.parametrize("size", [1 << 63, (1 << 64) - 1])
def test_a_size_that_int64_cannot_hold_is_refused_with_its_own_value(size):
    sizes = [np.array([1], np.int64), np.array([size], np.uint64)]
    nothing = [np.zeros(1)] * 2
    with pytest.raises(BadDemand, match=rf"b: size_bytes must be below 2\^63, got {size}"):
        table(["a", "b"], sizes, nothing, [np.ones((1, 1))] * 2)


def test_what_is_weighed_stays_a_number():
    dear = [[(1, 0, 100.0)], [(1, 0, 1.0)]]
    with pytest.raises(BadDemand, match=r"reader 1: weight must be small enough .*, got 1e\+307"):
        demands_of(dear, [(1, 1, NO_TARGET, 0), (0, 1e307, NO_TARGET, 0)])
    with pytest.raises(BadDemand, match=r"s1: cost_ns must be small enough .*, got 1e\+308"):
        demands_of([[(1, 9e307, 1.0)], [(1, 1e308, 1.0)]], [])


@pytest.mark.parametrize("target", [0.0, -1.0, np.nan])
def test_a_target_is_an_error_that_can_be_met(target):
    with pytest.raises(BadDemand, match=f"target must be > 0, or inf for none, got {target}"):
        readers_of((0, 1, target, 0))


def test_a_target_that_no_size_reaches_is_said_to_be_out_of_reach():
    demands = demands_of([[(1, 0, 5.0), (9, 0, 4.0)]], [(0, 1, 3.0, 0)])
    allocation = allocate(demands, Budget(20))
    quotes = quote(demands, allocation)
    assert (allocation.reachable.tolist(), allocation.met.tolist()) == ([False], [False])
    assert (quotes.needed_bytes.tolist(), quotes.best_error.tolist()) == ([-1], [4.0])


def test_no_demands_are_no_problem():
    allocation = allocate(demands_of([], []), Budget(0))
    assert len(quote(demands_of([], []), allocation).error) == 0
    with pytest.raises(BadDemand, match="synopsis must be < 0, got 0"):
        demands_of([], [(0, 1, NO_TARGET, 0)])


@pytest.mark.parametrize("forfeit", [-1.0, np.nan, np.inf])
def test_a_forfeit_is_an_error_that_counts(forfeit):
    with pytest.raises(BadDemand, match=f"forfeit must be >= 0 and finite, got {forfeit}"):
        readers_of((0, 1, 1.0, forfeit))


@pytest.mark.parametrize(
    ("present", "moving", "message"),
    [
        (1, 0.0, r"s0: present must be in \[-1, 1\), got 1"),
        (0, np.nan, "s0: moving must be >= 0 and finite, got nan"),
    ],
)
def test_what_stands_is_an_option(present, moving, message):
    demands = demands_of([[(1, 0, 1.0)]], [])
    with pytest.raises(BadDemand, match=message):
        Demands(demands.options, demands.readers, np.array([present]), np.array([moving]))


@pytest.mark.parametrize("size_bytes", [-1, 1 << 63])
def test_a_budget_is_an_amount(size_bytes):
    with pytest.raises(BadBudget, match=f"size_bytes must be .* got {size_bytes}"):
        Budget(size_bytes)
    with pytest.raises(BadBudget, match="cost_ns must be >= 0, or inf, got nan"):
        Budget(1, np.nan)


@pytest.mark.parametrize("size_bytes", [1.5, 8.0, np.nan])
def test_a_budget_is_whole_bytes(size_bytes):
    with pytest.raises(BadBudget, match=f"size_bytes must be a whole number, got {size_bytes}"):
        Budget(size_bytes)
    assert Budget(np.int64(8)).size_bytes == 8


def test_a_table_refuses_what_is_no_size_and_what_rises():
    def made(sizes, *errors):
        columns = np.array(errors, float).T
        return table(["q: hll"], [np.array(sizes)], [np.zeros(len(errors))], [columns])

    with pytest.raises(
        BadDemand, match=r"q: hll: size_bytes must be whole numbers, got \[1.0, nan"
    ):
        made([1.0, np.nan], [2.0, 1.0])
    with pytest.raises(BadCurve, match="q: hll: its curve must be falling in bytes"):
        made([1, 2, 3], [3.0, 2.0, 1.0], [3.0, 1.0, 2.0])
    with pytest.raises(BadCurve, match="falling in bytes"):
        made([3, 2, 1], [3.0, 2.0, 1.0])  # In the order of the sizes it rises.
    assert made([3, 2, 1], [1.0, 2.0, 3.0]).error.tolist() == [[1.0, 2.0, 3.0]]
    with pytest.warns(CurveRepaired, match="q: hll: its error rises from 1 to 1.001"):
        repaired = made([1, 2, 3], [3.0, 1.0, 1.001])
    assert repaired.error.tolist() == [[3.0, 1.0, 1.0]]


def test_a_budget_below_the_minima_says_what_they_need():
    demands = demands_of([[(5, 2, 1.0)], [(6, 3, 1.0)]], [])
    with pytest.raises(NothingFits, match=r"least of bytes is 11 of 10, .* CPU 5 of 9 ns"):
        allocate(demands, Budget(10, 9.0))
    with pytest.raises(NothingFits, match=r"least of bytes is 11 of 10$"):  # CPU has no limit.
        allocate(demands, Budget(10))
    with pytest.raises(NothingFits, match="CPU 5 of 4 ns"):
        allocate(demands, Budget(100, 4.0))


def test_a_small_rise_of_a_curve_is_repaired_and_told():
    with pytest.warns(CurveRepaired, match="AVG: its error rises from 0.5 to 0.504"):
        error = falling("AVG", np.array([1.0, 0.5, 0.504, 0.2]))
    assert error.tolist() == [1.0, 0.5, 0.5, 0.2]


@pytest.mark.parametrize(
    ("error", "rule"),
    [([1.0, 2.0], "falling in bytes"), ([np.nan], ">= 0"), ([1.0, -1.0], ">= 0")],
)
def test_a_curve_that_cannot_be_is_refused(error, rule):
    with pytest.raises(BadCurve, match=f"AVG: its curve must be {rule}"):
        falling("AVG", np.array(error))


def test_a_table_has_every_size_at_every_level():
    sizes = [np.array([10, 20]), np.array([5])]
    costs = [np.array([4.0, 2.0]), np.array([1.0])]
    errors = [thinned(np.array([3.0, 0.0]), np.array([0.0, 4.0])), np.array([[7.0]])]
    options = table(["a", "b"], sizes, costs, errors)
    assert options.size_bytes.tolist() == [[10, 10, 20, 20], [5, 0, 0, 0]]
    assert options.cost_ns.tolist() == [[4, 2, 4, 2], [1, 0, 0, 0]]
    assert options.error.tolist() == [[3, 5, 0, 4], [7, np.inf, np.inf, np.inf]]


def test_a_window_errs_as_its_coarsest_pane():
    assert bound_by_panes(np.array([3.0, 1.0, 0.5]), 1.5).tolist() == [3.0, 1.5, 1.5]


def test_a_synopsis_that_nobody_reads_takes_what_is_least():
    demands = demands_of([[(5, 0, 1.0), (1, 0, 2.0)]], [])
    both = replace(demands)
    assert allocate(both, Budget(1)).choice.tolist() == [1]
