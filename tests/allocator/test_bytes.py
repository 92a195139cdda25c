"""The grant's promises, checked as properties over drawn demands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.bytes import Demands, error_at, grant
from allocator.errors import BadDemand, BudgetTooSmall


def demands_of(*rows: tuple[float, float, float, float, float, float]) -> Demands:
    """Rows of (minimum, target, maximum, weight, scale, power)."""
    minimum, target, maximum, weight, scale, power = np.array(rows, np.float64).reshape(-1, 6).T
    return Demands(minimum.astype(np.int64), target, maximum, weight, scale, power)


@st.composite
def rows(draw):
    minimum = draw(st.integers(1, 10_000))
    target = draw(st.one_of(st.just(0.0), st.floats(1, 100_000), st.just(np.inf)))
    maximum = draw(st.one_of(st.just(np.inf), st.integers(minimum, 200_000).map(float)))
    weight = draw(st.sampled_from([0.5, 1.0, 2.0, 10.0]))
    scale = draw(st.sampled_from([0.0, 0.01, 1.0, 100.0]))
    power = draw(st.sampled_from([0.5, 1.0, 2.0]))
    return minimum, target, maximum, weight, scale, power


cases = st.tuples(st.lists(rows(), max_size=8), st.integers(0, 300_000)).map(
    lambda case: (demands_of(*case[0]), sum(int(row[0]) for row in case[0]) + case[1])
)


@given(cases)
def test_a_grant_stays_within_budget_minimum_and_maximum(case):
    demands, budget = case
    granted = grant(demands, budget)
    assert granted.bytes.sum() + granted.free_bytes == budget
    assert granted.free_bytes >= 0
    assert (granted.bytes >= demands.minimum_bytes).all()
    assert (granted.bytes <= demands.maximum_bytes).all()


@given(cases)
def test_met_says_whether_the_target_is_reached(case):
    demands, budget = case
    granted = grant(demands, budget)
    assert (granted.met == (granted.bytes >= demands.target_bytes)).all()


@given(cases)
def test_all_targets_are_met_when_they_fit(case):
    demands, budget = case
    reachable = demands.target_bytes <= demands.maximum_bytes
    wanted = np.ceil(np.where(reachable, demands.target_bytes, 0))
    if np.maximum(wanted, demands.minimum_bytes).sum() <= budget:
        assert grant(demands, budget).met[reachable].all()


@given(cases)
def test_no_unmet_target_fits_in_what_is_left(case):
    demands, budget = case
    granted = grant(demands, budget)
    unmet = ~granted.met & (demands.target_bytes <= demands.maximum_bytes)
    lacking = demands.target_bytes[unmet] - granted.bytes[unmet]
    assert (lacking > granted.free_bytes).all()


@settings(max_examples=50)
@given(cases, st.integers(0, 7), st.integers(0, 7), st.floats(0.01, 0.9))
def test_no_move_of_free_bytes_lowers_the_weighted_error(case, giver, taker, share):
    demands, budget = case
    if max(giver, taker) >= len(demands) or giver == taker:
        return
    without_targets = Demands(
        demands.minimum_bytes,
        np.zeros(len(demands)),
        demands.maximum_bytes,
        demands.weight,
        demands.scale,
        demands.power,
    )
    size = grant(without_targets, budget).bytes.astype(np.float64)
    before = (demands.weight * error_at(demands, size)).sum()
    spare = size[giver] - demands.minimum_bytes[giver]
    moved = min(share * spare, demands.maximum_bytes[taker] - size[taker])
    size[giver] -= moved
    size[taker] += moved
    after = (demands.weight * error_at(demands, size)).sum()
    # Rounding to whole bytes leaves at most one byte's gain per synopsis.
    assert after >= before - len(demands) * grant(without_targets, budget).price - 1e-9 * before


@given(cases, st.randoms(use_true_random=False))
def test_the_order_of_synopses_with_distinct_demands_does_not_matter(case, random):
    demands, budget = case
    order = list(range(len(demands)))
    random.shuffle(order)
    shuffled = Demands(*(getattr(demands, name)[order] for name in Demands.__slots__))
    here, there = grant(demands, budget), grant(shuffled, budget)
    assert sorted(here.error) == pytest.approx(sorted(there.error), rel=1e-2, abs=1e-12)


def test_equal_synopses_share_equally():
    granted = grant(demands_of(*[(10, 0, np.inf, 1, 1, 0.5)] * 4), 4_000)
    assert granted.bytes.tolist() == [1000] * 4
    assert granted.free_bytes == 0


def test_the_cheapest_targets_per_weight_come_first_when_memory_is_short():
    # Extra bytes per weight: 900, 225, 400. After the second and third 175 bytes are left.
    demands = demands_of(
        (100, 1000, np.inf, 1, 0, 1), (100, 1000, np.inf, 4, 0, 1), (100, 500, np.inf, 1, 0, 1)
    )
    granted = grant(demands, 300 + 900 + 400 + 175)
    assert granted.met.tolist() == [False, True, True]
    assert granted.free_bytes == 175  # scale 0: more bytes buy nothing


def test_water_filling_follows_the_square_root_law():
    # Errors w / x: least sum at x proportional to sqrt(w), here 1 : 2.
    granted = grant(demands_of((1, 0, np.inf, 1, 1, 1), (1, 0, np.inf, 4, 1, 1)), 3_000)
    assert granted.bytes.tolist() == [1000, 2000]
    assert granted.price == pytest.approx(1 / 1000**2)


def test_prices_say_what_one_more_kibibyte_buys():
    demands = demands_of((1024, 0, np.inf, 1, 1, 1), (1024, 0, 1024, 1, 1, 1))
    granted = grant(demands, 2048)
    assert granted.error.tolist() == [1 / 1024, 1 / 1024]
    assert granted.saved_per_kib.tolist() == [1 / 2048, 0.0]


def test_nobody_to_grant_to_leaves_all_free():
    assert grant(demands_of(), 7).free_bytes == 7


def test_a_budget_below_the_minima_is_refused_with_both_numbers():
    with pytest.raises(BudgetTooSmall, match="need 1,500 bytes, the budget is 1,499"):
        grant(demands_of(*[(500, 0, np.inf, 1, 1, 1)] * 3), 1_499)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((0, 0, 9, 1, 1, 1), "minimum_bytes must be >= 1, got 0"),
        ((5, np.nan, 9, 1, 1, 1), "target_bytes must be a number, got nan"),
        ((5, 0, 4, 1, 1, 1), "maximum_bytes must be >= minimum_bytes, got 4.0"),
        ((5, 0, 9, 0, 1, 1), "weight must be > 0 and finite, got 0.0"),
        ((5, 0, 9, 1, -1, 1), "scale must be >= 0 and finite, got -1.0"),
        ((5, 0, 9, 1, 1, np.inf), "power must be > 0 and finite, got inf"),
    ],
)
def test_an_impossible_demand_is_refused_with_its_value(row, message):
    with pytest.raises(BadDemand, match=message):
        demands_of(row)
