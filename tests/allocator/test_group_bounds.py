"""Bounds of groups: none is exceeded, the others lose nothing, and small cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.allocate import allocate
from allocator.curves import table
from allocator.demands import Budget, Demands, Options
from allocator.errors import NothingFits
from allocator.group_bounds import Bounded, bounded
from tests.allocator.problems import readers_without_targets

FREE = 1 << 40


def demands_of(weights: list[float]) -> Demands:
    """Synopses of 1, 2, 4 … 64 bytes, whose error is 1 / bytes."""
    n, sizes = len(weights), 1 << np.arange(7)
    options = table(
        [f"s{at}" for at in range(n)], [sizes] * n, [np.zeros(1)] * n, [(1.0 / sizes)[:, None]] * n
    )
    return Demands.new(options, readers_without_targets(np.arange(n), np.array(weights)))


def shared(weights: list[float], group: list[int], budget: int, bounds: list[int]) -> Bounded:
    demands = demands_of(weights)
    return bounded(
        demands,
        Budget(budget),
        np.array(group, np.int64),
        np.array(bounds, np.int64),
        lambda rows, there_is: allocate(demands.only(rows), there_is),
    )


def test_by_hand():
    """Of 40 bytes the first, a thousand times as heavy, would take 32; its bound is 9."""
    found = shared([1000.0, 1.0, 1.0], [0, 1, 1], 40, [9, FREE])
    assert found.allocation.size_bytes.tolist() == [8, 16, 16]
    assert found.held.tolist() == [True, False]
    assert shared([1000.0, 1.0, 1.0], [0, 1, 1], 40, [32, FREE]).held.tolist() == [False, False]


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 1000), st.integers(0, 2)), min_size=1, max_size=8),
    st.integers(8, 300),
    st.lists(st.integers(-5, 300), min_size=3, max_size=3),
)
def test_nobody_is_over_his_bound_and_the_others_have_no_less(synopses, budget, bounds):
    weights, group = ([each[part] for each in synopses] for part in (0, 1))
    found = shared(weights, group, budget, bounds)
    free = shared(weights, group, budget, [FREE] * 3)
    assert not free.held.any()
    assert found.allocation.size_bytes.sum() <= budget
    assert found.allocation.loss >= free.allocation.bound * (1 - 1e-9)
    for one in range(3):
        mine = np.array(group) == one
        size = int(found.allocation.size_bytes[mine].sum())
        assert size <= max(bounds[one], int(mine.sum()))  # Its least is a byte for each.
        if not found.held[one]:
            worse = np.array(weights) @ (1.0 / found.allocation.size_bytes * mine)
            better = np.array(weights) @ (1.0 / free.allocation.size_bytes * mine)
            assert found.held.any() or worse == pytest.approx(better)


def test_who_cannot_be_as_small_as_his_bound_is_as_small_as_he_can():
    found = shared([5.0, 5.0, 5.0], [0, 0, 1], 100, [1, FREE])
    assert found.allocation.size_bytes.tolist() == [1, 1, 64]
    assert found.held.tolist() == [True, False]


def test_what_does_not_fit_at_all_is_refused():
    with pytest.raises(NothingFits):
        shared([1.0] * 5, [0] * 5, 4, [FREE])


def test_nobody_there_is_no_trouble():
    assert shared([], [], 10, [5, 5]).allocation.free_bytes == 10


def test_within_a_budget_of_cpu_all_together_take_no_more_of_it():
    """By hand: the first takes 20 of 30 ns, is over its 10 bytes, and gives up 15 ns to others."""
    size = np.array([[1, 5, 20]] * 3)
    options = Options(["a", "b", "c"], size, size.astype(float), np.array([[9.0, 1.0, 0.1]] * 3))
    demands = Demands.new(options, readers_without_targets(np.arange(3), np.array([1e3, 1, 1])))

    def within(cost_ns: float) -> Bounded:
        group, bounds = np.array([0, 1, 1]), np.array([10, 1000])
        return bounded(
            demands,
            Budget(100, cost_ns),
            group,
            bounds,
            lambda rows, there_is: allocate(demands.only(rows), there_is),
        )

    found = within(30.0).allocation
    assert found.cost_ns[0] == 5.0
    assert sorted(found.cost_ns[1:].tolist()) == [5.0, 20.0]
    assert found.free_ns == 0.0
    with pytest.raises(NothingFits):
        within(2.5)
