"""The cost of synopses at their levels, as a controller is told it."""

from __future__ import annotations

import numpy as np
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.synopsis_plans.cpu_costs import costs_ns
from shedder.engine.synopsis_plans.synopsis_plan import ENDS_IN_TIME, SynopsisKind, SynopsisSpec
from synopses.model.errors import BadParameter
from synopses.model.profile import Cost
from synopses.moments.moments import GroupedMoments
from synopses.samples.profiles import UNIFORM
from synopses.theta.theta_sketch import GroupedTheta

X = Column("x", ColumnType.DOUBLE)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", list(SynopsisKind))
def test_every_kind_has_a_cost_that_falls_with_every_further_level(
    kind: SynopsisKind, grouped: bool
) -> None:
    costs = costs_ns(SynopsisSpec(kind, X), grouped=grouped)
    assert costs.shape == (LEVEL_MAX + 1,)
    assert (costs > 0).all()
    steps = np.diff(costs[1:])
    if kind in ENDS_IN_TIME and not grouped:
        assert (costs == costs[0]).all()
    else:
        assert (steps < 0).all()


def test_what_is_dear_gains_by_thinning_and_what_is_cheap_does_not() -> None:
    """As benchmarks/thinning.py found: heavy summaries save most at 1/8, a plain sum nothing."""
    for kind in (
        SynopsisKind.FREQUENT,
        SynopsisKind.KLL,
        SynopsisKind.REQ_HIGH,
        SynopsisKind.COUNTERS,
    ):
        costs = costs_ns(SynopsisSpec(kind, X), grouped=False)
        assert costs[3] < 0.6 * costs[0], kind
    for kind in (
        SynopsisKind.COUNT,
        SynopsisKind.CROSS,
        SynopsisKind.DISTINCT,
        SynopsisKind.BUCKETS,
    ):
        costs = costs_ns(SynopsisSpec(kind, X), grouped=False)
        assert costs[1] > costs[0], kind


def test_a_cost_is_what_is_kept_and_what_is_always() -> None:
    cost = Cost(read=5.0, read_grouped=7.0, kept=8.0, kept_grouped=16.0, always=1.0)
    assert [cost.ns_per_tuple(level, grouped=False) for level in (0, 1, 2, 3)] == [5.0, 5.0, 3, 2]
    assert [cost.ns_per_tuple(level, grouped=True) for level in (0, 1, 3)] == [7.0, 9.0, 3.0]


def test_profiles_refuse_levels_that_cannot_be() -> None:
    assert GroupedMoments.profile.cost_ns_per_tuple(0) == 2.0
    with pytest.raises(BadParameter):
        GroupedMoments.profile.cost_ns_per_tuple(-1)
    with pytest.raises(BadParameter):
        UNIFORM.cost_ns_per_tuple(0)
    assert GroupedTheta.profile.cost_ns_per_tuple(1, grouped=True) > 0
