"""The problem that is drawn in part is the problem drawn anew, whatever changed in between."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.demands import Options, Readers
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.problem import Problem, problem
from shedder.engine.synopsis_plans.allocation_request import (
    AllocationRequest,
    SynopsisSizes,
    steadied,
)
from shedder.engine.synopsis_plans.synopsis_plan import with_sizes
from tests.engine.allocation_world import CAP, KIB, MIB, standing

MINUTE = "[RANGE INTERVAL '60' SECOND]"
TEXTS = (
    f"SELECT COUNT(*) AS n, SUM(v) AS s, COUNT(DISTINCT k) AS d FROM s {MINUTE} WITHIN 1 PERCENT",
    f"SELECT QUANTILE(v, 0.5) AS m, COUNT(DISTINCT k) AS d FROM s {MINUTE} WITHIN 0.02 RANK",
    f"SELECT k, COUNT(DISTINCT v) AS d FROM s {MINUTE} GROUP BY k WITHIN 5 PERCENT ELSE OMIT",
    f"SELECT DISTINCT_BOTH(k, v > 0.5, v < 0.8) AS b FROM s {MINUTE} WITHIN 3 PERCENT ELSE FAIL",
    f"SELECT k, SUM(v) AS t FROM s {MINUTE} GROUP BY k",
)
STANDING = [standing("template", text) for text in TEXTS]
LEVELS = (None, range(3))
SETTINGS: Any = {"group_bytes_max": CAP}

whose = st.integers(0, 7)
statistics = st.sampled_from([0.0, 1e3, 1.01e3, 1e5, 3e6])
changes = st.one_of(
    st.tuples(st.just("register"), whose, st.integers(0, len(TEXTS) - 1)),
    st.tuples(st.just("drop"), whose, st.none()),
    st.tuples(st.just("reweight"), whose, st.sampled_from([0.5, 1.0, 20.0])),
    st.tuples(st.just("activate"), whose, st.booleans()),
    st.tuples(st.just("resize"), whose, st.integers(-2, 1)),
    st.tuples(st.just("thin"), whose, st.integers(0, 2)),
    st.tuples(st.just("pace"), whose, statistics),
    st.tuples(st.just("groups"), whose, st.integers(1, 64)),
    st.tuples(st.just("factor"), whose, st.sampled_from([0.5, 1.0, 3.0])),
    st.tuples(st.just("skipping"), whose, st.sampled_from([0.5, 1.0, 30.0])),
    st.tuples(st.just("limit"), whose, st.booleans()),
)


def changed(request: AllocationRequest, what: str, value: Any) -> AllocationRequest:
    """A standing query of which one thing is another one."""
    parts = len(request.plan.parts)
    match what:
        case "reweight":
            return replace(request, weight=value)
        case "activate":
            return replace(request, active=value)
        case "resize":
            [granted] = [one.sizes for one in STANDING if one.query is request.query]
            sizes = [size and size + value for size in granted]
            return replace(request, plan=with_sizes(request.plan, sizes))
        case "thin":
            return replace(request, levels=(0,) + (value,) * (parts - 1))
        case "pace":
            return replace(request, tuples=value, tuples_per_s=value / 60)
        case "groups" if request.query.groups:
            held = value * 64 * KIB
            return replace(
                request,
                held_bytes=min(held, request.group_bytes),
                needed_bytes=held,
                grown_bytes=2 * held,
                foreseen=(held,) * parts,
                halved=(1.0, *(0.6,) * (parts - 1)),
            )
        case "factor":
            return replace(request, factors=(1.0,) + (value,) * (parts - 1))
        case "skipping":
            return replace(request, skipping=(1.0,) + (value,) * (parts - 1))
        case "limit":
            return replace(request, limits=SynopsisSizes(request.sizes, MIB) if value else None)
    return request


def assert_same(found: Problem, anew: Problem) -> None:
    """Every number, bit by bit."""
    assert (found.rows, found.readers) == (anew.rows, anew.readers)
    assert found.beside_bytes.tolist() == anew.beside_bytes.tolist()
    assert found.demands.options.names == anew.demands.options.names
    for part, of in (("options", Options), ("readers", Readers)):
        one, other = getattr(found.demands, part), getattr(anew.demands, part)
        for field in fields(of):
            if field.name != "names":
                columns = getattr(one, field.name), getattr(other, field.name)
                assert columns[0].dtype == columns[1].dtype
                np.testing.assert_array_equal(*columns)
    np.testing.assert_array_equal(found.demands.present, anew.demands.present)
    np.testing.assert_array_equal(found.demands.moving, anew.demands.moving)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(changes, max_size=12), st.sampled_from(LEVELS))
def test_what_is_drawn_in_part_is_what_is_drawn_anew(
    steps: list[tuple[str, int, Any]], levels: range | None
) -> None:
    requests: dict[int, AllocationRequest] = {}
    drawings = DemandCache()
    for what, who, value in steps:
        if what == "register":
            requests[who] = replace(STANDING[value], name=f"q{who}")
        elif what == "drop":
            requests.pop(who, None)
        elif who in requests:
            requests[who] = changed(requests[who], what, value)
        every = list(requests.values())
        found = problem(every, levels=levels, drawings=drawings, **SETTINGS)
        assert_same(found, problem(every, levels=levels, **SETTINGS))


@pytest.mark.slow
def test_only_what_changed_is_drawn_again() -> None:
    requests = [replace(STANDING[at % 5], name=f"q{at}") for at in range(20)]
    drawings = DemandCache()

    def drawn() -> dict[str, Options]:
        found = drawings.of(requests, group_bytes_max=CAP, levels=None)
        return {one.name: each.options for one, each in zip(requests, found, strict=True)}

    before = drawn()
    requests[3] = changed(requests[3], "reweight", 9.0)
    requests[4] = changed(requests[4], "activate", False)
    requests[5] = changed(requests[5], "resize", -1)
    del requests[1]  # The queries after it have other numbers now.
    after = drawn()
    assert len(before) == len(after) + 1 == 20
    assert [name for name in after if after[name] is not before[name]] == ["q5"]


def test_statistics_that_hardly_change_are_those_of_before() -> None:
    before = changed(changed(STANDING[2], "groups", 40), "pace", 1e5)
    now = replace(
        before,
        tuples=1.05e5,
        tuples_per_s=1.7e3,
        needed_bytes=round(before.needed_bytes * 0.98),
        weight=7.0,
        measured=(0.1, 0.2),
    )
    kept_now = steadied(now, before)
    assert (kept_now.tuples, kept_now.needed_bytes) == (before.tuples, before.needed_bytes)
    assert (kept_now.weight, kept_now.measured) == (7.0, (0.1, 0.2))
    assert steadied(replace(now, tuples=1.2e5), before).tuples == 1.2e5
    assert steadied(now, replace(before, query=STANDING[0].query)) is now


def test_groups_are_never_taken_to_need_less_than_they_do() -> None:
    before = changed(STANDING[2], "groups", 40)
    for field in ("held_bytes", "needed_bytes", "grown_bytes"):
        now = replace(before, **{field: getattr(before, field) + 1})
        assert getattr(steadied(now, before), field) == getattr(now, field)
