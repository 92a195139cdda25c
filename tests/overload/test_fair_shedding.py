"""Thinning by tenant: shares by weight between least and full, and quotas before everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.overload.fair_shedding import LOOKS, Caps, FairSteps, fair_shares
from shedder.overload.shedding_steps import Unit

NEED = st.tuples(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0.01, 100))


@pytest.mark.slow
@given(st.lists(NEED, min_size=1, max_size=8), st.floats(0, 1e5))
def test_shares_are_fair_between_least_and_full(needs, budget):
    least, more, weight = (np.array(column) for column in zip(*needs, strict=True))
    full = least + more
    share = fair_shares(least, full, weight, budget)
    assert (share >= least).all()
    assert (share <= full).all()
    wanted = min(max(budget, least.sum()), full.sum())
    assert share.sum() == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    between = (share > least * (1 + 1e-9)) & (share < full * (1 - 1e-9))
    if between.any():
        level = (share / weight)[between]
        assert level.max() == pytest.approx(level.min(), rel=1e-6)


def test_shares_by_hand():
    """Of 100: 60 at the foot of the first; the others have 40 to split as 3 to 1."""
    share = fair_shares(
        np.array([60.0, 0, 0]), np.array([80.0, 90, 90]), np.array([1.0, 3, 1]), 100.0
    )
    assert share.tolist() == [60, 30, 10]


def unit(query, cost_ns=100.0):
    costs = cost_ns * 2.0 ** -np.arange(11)
    return Unit(query, (1,), 1.0, costs, tuples=1e4, spread=1.0)


def fair(caps=None, weights=None, costs=(100.0, 100.0)):
    units = [unit("p", costs[0]), unit("q", costs[1])]
    return FairSteps.of(units, {"p": "acme", "q": "bolt"}, caps or {}, weights or {})


def test_who_is_over_his_quota_is_thinned_without_any_overload_and_nobody_else():
    steps = fair(caps={"acme": 30.0})
    assert steps.levels(float("inf")).tolist() == [2, 0]
    assert steps.ends.full_ns == 130.0
    assert fair(caps={"acme": 100.0}).levels(float("inf")).tolist() == [0, 0]


def test_in_shortage_tenants_share_by_weight_whatever_their_queries_cost():
    """Of 120 each has 60, though one asks for sixteen times as much; its foot is 50."""
    assert fair(costs=(1600.0, 100.0)).levels(120.0).tolist() == [5, 1]
    heavy = fair(costs=(1600.0, 100.0), weights={"bolt": 10.0})
    assert heavy.levels(160.0)[1] == 0


def test_a_quota_is_lower_at_once_and_higher_when_that_has_lasted():
    caps = Caps()
    assert caps.look({"acme": 1e6}, 1e4) == {"acme": 100.0}
    assert caps.look({"acme": 1e6}, 1e5) == {"acme": 10.0}
    found = [caps.look({"acme": 1e6}, 1e4)["acme"] for _ in range(LOOKS)]
    assert found == [10.0] * (LOOKS - 1) + [100.0]
    assert caps.look({}, 1e4) == {}
    assert caps.look({"acme": 1e6}, 0.0) == {"acme": float("inf")}


def test_nobody_there_is_no_trouble():
    steps = FairSteps.of([], {}, {"acme": 1.0}, {})
    assert len(steps.levels(10.0)) == 0
    assert steps.ends.full_ns == steps.ends.least_ns == 0.0
