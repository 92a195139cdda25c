"""One demand changes: the others move as little as the budget forces them to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allocator.allocate import allocate
from allocator.demands import Budget
from allocator.errors import NothingFits
from allocator.incremental import change
from allocator.kernels import cheapest_ways
from allocator.quotes import quote
from tests.allocator.problems import (
    NO_TARGET,
    PROMISED,
    demands_of,
    fits,
    power_law_problem,
    whole_need,
)


def standing(demands, allocation, new):
    """The demands with what an allocation gave them; these rows are new."""
    present = allocation.choice.copy()
    present[new] = -1
    return replace(demands, present=present)


def moved(after, before):
    return (after.choice[: len(before.choice)] != before.choice).sum()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_newcomer_fits_in_and_few_others_move(seed):
    demands = power_law_problem(300, seed=seed)
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * 0.1), cost_ns * 0.3)
    others = np.arange(299)
    before = allocate(demands.only(others), budget)
    grown = replace(demands, present=np.append(before.choice, -1))
    after = change(grown, np.array([299]), before, budget)
    assert fits(demands, after.choice, budget)
    anew = allocate(demands, budget)
    assert moved(after, before) <= 15
    assert moved(after, before) <= moved(anew, before)
    assert after.loss <= 1.05 * anew.loss
    assert before.met.all()
    assert after.met.all()


def test_nobody_moves_for_one_that_chooses_what_it_had():
    demands = power_law_problem(200, seed=1)
    size_bytes, cost_ns = whole_need(demands)
    budget = Budget(int(size_bytes * 0.1), cost_ns * 0.3)
    last = allocate(demands, budget)
    new = np.array([17])
    again = change(standing(demands, last, new), new, last, budget)
    assert (again.choice != last.choice).sum() <= 1


def test_the_one_that_loses_least_yields():
    precious, cheap = [(1, 0, 9.0), (5, 0, 1.0)], [(1, 0, 1.1), (5, 0, 1.0)]
    readers = [(row, 1, NO_TARGET, 0) for row in range(3)]
    demands = demands_of([precious, cheap, [(4, 0, 1.0)]], readers)
    first = allocate(demands.only(np.array([0, 1])), Budget(10))
    assert first.choice.tolist() == [1, 1]
    grown = replace(demands, present=np.array([1, 1, -1]))
    after = change(grown, np.array([2]), first, Budget(10))
    assert after.choice.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("light", "heavy"), [((1.5, PROMISED), NO_TARGET), ((1.5, 0), NO_TARGET), ((1.5, PROMISED), 5)]
)
def test_a_target_is_kept_however_heavy_others_are(light, heavy):
    """One of two has to give its bytes up: the heavy one only errs more, or misses a mere wish."""
    synopses = [[(1, 0, 2.0), (5, 0, 1.0)], [(1, 0, 9.0), (5, 0, 1.0)], [(4, 0, 1.0)]]
    readers = [(0, 1, *light), (1, 1e9, heavy, 0), (2, 1, NO_TARGET, 0)]
    demands = demands_of(synopses, readers)
    first = allocate(demands.only(np.array([0, 1])), Budget(10))
    assert first.choice.tolist() == [1, 1]
    grown = replace(demands, present=np.array([1, 1, -1]))
    after = change(grown, np.array([2]), first, Budget(10))
    assert after.choice.tolist() == allocate(grown, Budget(10)).choice.tolist() == [1, 0, 0]


def test_who_has_no_bound_loses_nothing_by_having_none():
    options = demands_of([[(1, 0, 3.0), (5, 0, 1.0)]] * 2, [(0, 1, NO_TARGET, 0)]).options
    objective = np.array([[np.inf, np.inf], [3.0, 1.0]])
    has = np.array([1, 1])
    option, loss = cheapest_ways(objective, options.size_bytes, options.cost_ns, has)
    assert option[:, 0].tolist() == [0, 0]
    assert loss[:, 0].tolist() == [0.0, 0.5]


@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_way_down_is_that_of_all_compared(seed):
    rng = np.random.default_rng(seed)
    size_bytes, cost_ns = rng.integers(0, 9, (2, 40, 7))
    objective = rng.choice([0.0, 1.0, 2.5, 4.0, np.inf], (40, 7))
    has = rng.integers(0, 7, 40)
    option, loss = cheapest_ways(objective, size_bytes, cost_ns.astype(np.float64), has)
    for row, now in enumerate(has.tolist()):
        freed = [column[row, now] - column[row] for column in (size_bytes, cost_ns)]
        lost = [
            max(to - objective[row, now], 0.0) if to > objective[row, now] else 0.0
            for to in objective[row]
        ]
        for resource in range(2):
            rates = {
                to: lost[to] / freed[resource][to]
                for to in range(7)
                if freed[resource][to] > 0 and freed[1 - resource][to] >= 0
            }
            assert loss[row, resource] == min(rates.values(), default=np.inf)
            if np.isfinite(loss[row, resource]):
                assert rates[option[row, resource]] == loss[row, resource]


def test_where_nobody_can_yield_it_says_so():
    demands = demands_of([[(5, 0, 1.0)], [(6, 0, 1.0)]], [(1, 1, NO_TARGET, 0)])
    last = allocate(demands.only(np.array([0])), Budget(10))
    grown = replace(demands, present=np.array([0, -1]))
    with pytest.raises(NothingFits, match="11 of 10"):
        change(grown, np.array([1]), last, Budget(10))


def test_quotes_say_what_a_target_needs_and_what_more_buys():
    # 1 KiB errs by 4, 2 KiB by 2, 8 KiB by 1.
    options = [(1024, 0, 4.0), (2048, 0, 2.0), (8192, 0, 1.0)]
    readers = [
        (0, 1, 1.5, 0),
        (0, 1, 3.0, 0),
        (0, 1, 0.5, 0),
        (0, 1, NO_TARGET, 0),
    ]
    demands = demands_of([options], readers)
    quotes = quote(demands, allocate(demands, Budget(1024)))
    assert quotes.error.tolist() == [4.0] * 4
    assert quotes.needed_bytes.tolist() == [8192, 2048, -1, -1]
    assert quotes.best_error.tolist() == [1.0] * 4
    assert quotes.saved_per_kib.tolist() == [2.0] * 4
    assert quotes.saved_per_ns.tolist() == [0.0] * 4


def test_where_many_little_steps_would_follow_each_other_all_choose_anew():
    """Of 100 bytes the first has all, in steps of one; the new one needs 99."""
    demands = demands_of(
        [[(size, 0, 100.0 / size) for size in range(1, 101)], [(99, 0, 1.0)]],
        [(0, 1, NO_TARGET, 0), (1, 1, NO_TARGET, 0)],
    )
    budget = Budget(100)
    before = allocate(demands.only(np.array([0])), budget)
    assert before.size_bytes.tolist() == [100]
    after = change(standing_with(demands, before), np.array([1]), before, budget)
    assert after.size_bytes.tolist() == [1, 99]
    with pytest.raises(NothingFits):
        change(standing_with(demands, before), np.array([1]), before, Budget(99))


def standing_with(demands, before):
    """Return the demands that were there before, and new ones."""
    new = np.full(len(demands.options) - len(before.choice), -1)
    return replace(demands, present=np.append(before.choice, new))
