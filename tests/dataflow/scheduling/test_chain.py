"""Scheduling in virtual time: the papers' example, and the peaks of random paths and bursts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shedder.dataflow.scheduling.operator_scheduler import SchedulingPolicy
from shedder.dataflow.scheduling.progress_chart import OperatorRate, chains, progress_chart
from tests.dataflow.scheduling.virtual_time import least_peak, totals

FIFO, GREEDY, ROUND_ROBIN, CHAIN = SchedulingPolicy
EVERY_SECOND = [(float(at), 1.0) for at in range(1, 8)]
TIMES = [float(at) for at in range(1, 16)]


def test_totals_of_the_example_of_motwani_et_al():
    path = {"p": [OperatorRate(1.0, 0.2), OperatorRate(5.0, 0.0)]}
    expected = {
        FIFO: [1, 1.2, 2, 2.2, 3, 3.2, 4, 3.2, 3, 2.2, 2, 1.2, 1, 0.2, 0],
        CHAIN: [1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 1.4, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2, 0],
    }
    for policy, rows in expected.items():
        found, _, _ = totals(policy, path, {"p": EVERY_SECOND}, times=TIMES)
        assert found == pytest.approx(rows, abs=1e-9)


def test_chain_takes_less_than_greedy_where_an_operator_hides_a_better_one():
    paths = {
        "a": [OperatorRate(1.0, 0.9), OperatorRate(1.0, 0.0)],
        "b": [OperatorRate(1.0, 0.7), OperatorRate(20.0, 0.0)],
    }
    assert [each.slope for each in chains(paths["a"])] == pytest.approx([1 / 1.9])
    assert [each.slope for each in chains(paths["b"])] == pytest.approx([0.3, 0.05])
    arrivals = dict.fromkeys(paths, EVERY_SECOND)
    peaks = {it: totals(it, paths, arrivals, times=TIMES)[1] for it in (CHAIN, GREEDY)}
    assert peaks == pytest.approx({CHAIN: 11.0, GREEDY: 12.2})


rates = st.builds(
    OperatorRate, st.integers(1, 4).map(float), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
)
random_paths = st.lists(rates, min_size=1, max_size=3)
bursts = st.lists(st.integers(0, 8).map(float), min_size=1, max_size=5)


@given(random_paths)
def test_chains_are_below_the_chart_and_fall_less_and_less_steeply(path):
    points, found = progress_chart(path), chains(path)
    assert [found[0].first, *(each.end for each in found)] == [
        *(each.first for each in found),
        len(path),
    ]
    assert all(first.slope > then.slope for first, then in pairwise(found))
    for each in found:
        start, left = points[each.first]
        for time, memory in points[each.first : each.end + 1]:
            assert memory >= left - each.slope * (time - start) - 1e-9


@settings(max_examples=60)
@given(random_paths, bursts)
def test_no_policy_has_a_peak_below_chain_by_more_than_a_batch_per_operator(path, times):
    arrivals = {"p": [(at, 1.0) for at in sorted(times)]}
    peak = totals(CHAIN, {"p": path}, arrivals, times=TIMES)[1]
    for other in (FIFO, GREEDY, ROUND_ROBIN):
        assert peak <= totals(other, {"p": path}, arrivals, times=TIMES)[1] + len(path) + 1e-9
    assert peak <= least_peak(path, sorted(times)) + len(path) + 1e-9


@settings(max_examples=30)
@given(random_paths, bursts)
def test_a_bound_that_every_tuple_has_passed_is_first_in_first_out(path, times):
    arrivals = {"p": [(at, 1.0) for at in sorted(times)]}
    bounded = totals(CHAIN, {"p": path}, arrivals, times=TIMES, latency_bound=-1.0)
    assert bounded == totals(FIFO, {"p": path}, arrivals, times=TIMES)


def test_a_latency_bound_ends_the_wait_behind_operators_of_a_better_path():
    paths = {"often": [OperatorRate(1.0, 0.0)], "slow": [OperatorRate(2.0, 0.0)]}
    arrivals = {"often": [(float(at), 1.0) for at in range(1, 31)], "slow": [(1.0, 1.0)]}
    stays = {
        bound: totals(CHAIN, paths, arrivals, times=TIMES, latency_bound=bound)[2]
        for bound in (5.0, float("inf"))
    }
    assert stays == {5.0: 8.0, float("inf"): 32.0}
