"""One of many standing queries changes: others are solved anew only if they have to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allocator.allocate import Allocation, allocate
from allocator.demands import Budget
from allocator.incremental import change
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.problem import Problem, problem
from shedder.engine.allocation.solver import Solution, solved
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest
from shedder.engine.synopsis_plans.synopsis_plan import with_sizes
from tests.engine.allocation_world import CAP, standing

MINUTE = "[RANGE INTERVAL '60' SECOND]"
WIDER = standing("wider", f"SELECT COUNT(DISTINCT k) AS d FROM s {MINUTE} WITHIN 2 PERCENT")
PROMISE = standing(
    "promise", f"SELECT COUNT(DISTINCT k) AS d FROM s {MINUTE} WITHIN 2 PERCENT ELSE FAIL"
)
MANY = 520  # Of two synopses each.


class World:
    """Many queries, within a share of what all would take, and what they were given."""

    def __init__(self, share: float) -> None:
        self.drawings = DemandCache()
        self.requests = [
            replace(WIDER if at % 5 else PROMISE, name=f"q{at}", weight=1.0 + at % 7)
            for at in range(MANY)
        ]
        whole = self.problem()
        self.budget = Budget(int(whole.demands.options.size_bytes.max(1).sum() * share))
        self.last = allocate(whole.demands, self.budget)
        self.take(whole, self.last)

    def problem(self) -> Problem:
        return problem(self.requests, group_bytes_max=CAP, drawings=self.drawings)

    def take(self, found: Problem, allocation: Allocation) -> None:
        """What was allocated stands from now on."""
        given = found.given(allocation.choice)
        pairs = zip(self.requests, given, strict=True)
        self.requests = [replace(one, plan=with_sizes(one.plan, its.sizes)) for one, its in pairs]

    def changed(self, at: int, **facts: Any) -> Solution:
        """One of them is another one."""
        self.requests[at] = replace(self.requests[at], **facts)
        found = self.problem()
        return solved(found, self.budget, found.rows_of([at]), self.last, {})

    def is_solved_anew(self, at: int, solution: Solution) -> bool:
        """Return whether the change solved the whole problem again, not only a part of it."""
        found = self.problem()
        anew = allocate(found.demands, self.budget, self.last)
        least = change(found.demands, found.rows_of([at]), self.last, self.budget)
        if least is not None and same(solution.allocation, least):
            assert not same(anew, least), "they cannot be told apart"
            return False
        assert same(solution.allocation, anew)
        return True


def same(one: Allocation, other: Allocation) -> bool:
    """Return whether choices and bounds are equal; a change keeps the last solution's bound."""
    return one.bound == other.bound and bool((one.choice == other.choice).all())


def sizes(one: AllocationRequest) -> tuple[int, ...]:
    return one.sizes


@pytest.mark.slow
def test_in_shortage_one_that_weighs_more_takes_from_few_and_all_choose_later() -> None:
    world = World(0.4)
    assert not world.last.met.all()
    at = next(at for at, one in enumerate(world.requests) if at % 5 and max(sizes(one)) < 13)
    solution = world.changed(at, weight=1e3)
    assert not world.is_solved_anew(at, solution)
    assert solution.provisional
    after = solution.allocation
    assert after.size_bytes.sum() <= world.budget.size_bytes
    assert 0 < (after.choice != world.problem().demands.present).sum() <= MANY // 20
    own = world.problem().rows_of([at])
    assert after.met[np.isin(world.problem().demands.readers.synopsis, own)].all()
    assert after.met[world.problem().demands.readers.promised].all()


@pytest.mark.slow
def test_where_all_targets_are_kept_they_stay_so_without_solving_anew() -> None:
    world = World(1.0)
    solution = world.changed(3, weight=1e3)
    assert not world.is_solved_anew(3, solution)
    assert not solution.provisional
    assert (solution.allocation.met | ~solution.allocation.reachable).all()


@pytest.mark.slow
def test_a_promise_that_few_could_make_room_for_is_not_left_to_a_change() -> None:
    world = World(0.18)
    promised = world.problem().demands.readers.promised
    kept = world.last.met[promised]
    solution = world.changed(1, query=PROMISE.query, plan=world.requests[1].plan)
    found = world.problem()
    after = solution.allocation.met[found.demands.readers.promised]
    assert world.is_solved_anew(1, solution) or after.all()
    assert after.sum() >= kept.sum()
