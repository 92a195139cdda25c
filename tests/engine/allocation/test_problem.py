"""The present problem: what standing queries ask for, and the way back from options to sizes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from allocator.allocate import allocate
from allocator.demands import Budget
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.allocation.cpu_prices import cpu_prices
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.negotiation import negotiate
from shedder.engine.allocation.problem import problem
from shedder.engine.allocation.query_weights import NEGLIGIBLE, present_weights
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest, SynopsisSizes
from shedder.engine.synopsis_plans.memory_footprint import window_bytes
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, plan, with_sizes
from shedder.engine.synopsis_plans.thinning_error import skipping_error
from shedder.errors import BudgetExceeded, PrecisionUnavailable
from tests.engine.allocation_world import CAP, KIB, MIB, bound, standing

MINUTE = "[RANGE INTERVAL '60' SECOND]"
DISTINCT = f"SELECT COUNT(DISTINCT k) AS d FROM s {MINUTE} WITHIN 1 PERCENT"
MIXED = f"SELECT COUNT(*) AS n, SUM(v) AS s, MEDIAN(v) AS m, COUNT(DISTINCT k) AS d FROM s {MINUTE}"


def test_every_synopsis_is_a_row_and_every_aggregate_reads_one() -> None:
    request = standing("q", MIXED)
    found = problem([request], group_bytes_max=CAP)
    assert [row.parts for row in found.rows] == [(0,), (1,), (2,), (3,)]
    kinds = [request.plan.parts[row.parts[0]].kind for row in found.rows]
    assert kinds == [
        SynopsisKind.COUNT,
        SynopsisKind.MOMENTS,
        SynopsisKind.BUCKETS,
        SynopsisKind.DISTINCT,
    ]
    assert [aggregate for _, aggregate in found.readers if aggregate] == list(
        request.query.aggregates
    )
    assert found.given(found.demands.present) == [SynopsisSizes(request.sizes, 0)]
    assert found.levels(found.demands.present) == [request.levels]


def test_what_stands_takes_what_its_panes_take() -> None:
    request = standing("q", MIXED)
    found = problem([request], group_bytes_max=CAP)
    synopses = sum(window_bytes(request.query, part, part.size) for part in request.plan.parts)
    assert found.present_bytes == synopses + int(found.beside_bytes.sum())


def test_synopses_that_are_compared_have_one_size() -> None:
    request = standing("q", "SELECT JOIN_SIZE(k, v) AS j FROM s")
    [count, joined] = problem([request], group_bytes_max=CAP).rows
    assert count.parts == (0,)
    assert joined.parts == (1, 2)
    found = problem([request], group_bytes_max=CAP)
    [given] = found.given(np.array([0, 0]))
    assert given.sizes[1] == given.sizes[2] == joined.sizes[0]


def test_thinning_is_a_part_of_the_options_when_it_is_asked_for() -> None:
    request = standing("q", MIXED, tuples_per_s=1e6, tuples=1e6)
    found = problem([request], group_bytes_max=CAP, levels=range(LEVEL_MAX + 1))
    roomy = allocate(found.demands, Budget(64 * MIB, np.inf))
    assert found.levels(roomy.choice) == [(0, 0, 0, 0)]
    tight = allocate(found.demands, Budget(64 * MIB, 0.7 * float(roomy.cost_ns.sum())))
    [levels] = found.levels(tight.choice)
    assert max(levels) > 0
    assert levels[0] == min(levels)
    assert tight.cost_ns.sum() <= 0.7 * roomy.cost_ns.sum()


def test_an_option_keeps_the_present_level_when_none_is_asked_for() -> None:
    request = replace(standing("q", MIXED, tuples=1e6), levels=(1, 3, 1, 2))
    found = problem([request], group_bytes_max=CAP)
    assert found.levels(found.demands.present) == [(1, 3, 1, 2)]
    rows = np.arange(len(found.rows))
    error = found.demands.options.error[rows, found.demands.present]
    assert error[1] == pytest.approx(
        skipping_error(SynopsisKind.MOMENTS, 1e6, 0.95, grouped=False)[3]
    )


def test_an_inactive_query_weighs_next_to_nothing_and_is_promised_nothing() -> None:
    request = standing("q", DISTINCT + " ELSE FAIL")
    found = problem([request, replace(request, name="r", active=False)], group_bytes_max=CAP)
    active, idle = found.demands.readers.weight.tolist()
    assert idle == active * NEGLIGIBLE
    assert found.demands.readers.promised.tolist() == [True, False]
    assert np.isinf(found.demands.readers.target[1])


def test_heavy_idle_queries_are_negligible_beside_the_lightest_active_one() -> None:
    weights = present_weights([(1e9, False), (0.5, True), (1e6, True), (3e9, False)])
    assert weights[1:3] == [0.5, 1e6]
    assert weights[0] + weights[3] == pytest.approx(0.5 * NEGLIGIBLE)
    assert weights[3] == pytest.approx(3 * weights[0])
    assert sum(present_weights([(1e9, False)])) == pytest.approx(NEGLIGIBLE)
    heavy = replace(standing("idle", DISTINCT), weight=1e9, active=False)
    light = standing("light", DISTINCT)
    found = problem([heavy, light], group_bytes_max=CAP)
    budget = Budget(int(found.demands.options.size_bytes[3].max() * 1.3))
    given = found.given(allocate(found.demands, budget).choice)
    assert max(given[1].sizes) == max(light.sizes)
    assert max(given[0].sizes) < max(heavy.sizes)


def test_a_measured_factor_scales_the_curve_and_what_the_target_needs() -> None:
    request = standing("q", DISTINCT)
    worse = replace(request, factors=(1.0,) + (2.0,) * (len(request.plan.parts) - 1))
    before, after = (problem([one], group_bytes_max=CAP) for one in (request, worse))
    assert max(after.rows[1].sizes) == max(before.rows[1].sizes) + 2  # HLL: a half takes 4 times.
    errors = [found.demands.options.error[1, found.demands.present[1]] for found in (before, after)]
    assert errors[1] == pytest.approx(2 * errors[0])


def test_groups_get_room_for_what_they_need_and_then_what_is_to_spare() -> None:
    text = "SELECT k, SUM(v) AS s FROM s GROUP BY k"
    small = standing("small", text, held_bytes=100 * KIB, needed_bytes=200 * KIB)
    large = standing("large", text, held_bytes=100 * KIB, needed_bytes=10 * MIB)
    found = problem([small, large], group_bytes_max=CAP)
    allocation = allocate(found.demands, Budget(2 * 8 * MIB))
    caps = [given.group_bytes for given in found.given(allocation.choice)]
    assert caps[0] >= 200 * KIB
    assert caps[1] >= 4 * MIB
    assert allocation.size_bytes.sum() + allocation.free_bytes == 16 * MIB


def test_room_for_growth_is_worth_less_than_a_target() -> None:
    """What groups need comes first, then targets, then what groups might come to need."""
    groups = standing(
        "groups",
        "SELECT k, SUM(v) AS s FROM s GROUP BY k",
        held_bytes=MIB,
        needed_bytes=MIB,
        grown_bytes=4 * MIB,
    )
    target = standing("target", DISTINCT)
    found = problem([groups, target], group_bytes_max=CAP)
    own = int(found.demands.options.size_bytes[found.rows_of([1])].max(1).sum())
    for more, met, cap in ((0, True, MIB), (3 * MIB, True, 2 * MIB), (-MIB, False, MIB)):
        allocation = allocate(found.demands, Budget(2 * MIB + MIB // 8 + own + more))
        assert bool(allocation.met.all()) == met
        assert found.given(allocation.choice)[0].group_bytes >= cap


def test_thinned_synopses_are_offered_the_sizes_that_make_up_for_it() -> None:
    request = standing("q", "SELECT QUANTILE(v, 0.5) AS m FROM s WITHIN 0.02 RANK", tuples=1e5)
    rows = []
    for level in (0, 3):
        found = problem([replace(request, levels=(0, level))], group_bytes_max=CAP)
        rows.append((max(found.rows[1].sizes), float(found.demands.options.error[1].min())))
    assert rows[1][0] > rows[0][0]
    assert max(error for _, error in rows) <= 0.02


def test_a_new_query_takes_from_those_who_lose_least_and_never_what_was_promised() -> None:
    first = negotiate(bound(DISTINCT), 64 * MIB, group_bytes_max=CAP)
    text = DISTINCT.replace("WITHIN 1 PERCENT", "")
    stands = [
        standing("promised", DISTINCT + " ELSE FAIL"),
        standing("modest", f"SELECT COUNT(DISTINCT v) AS d FROM s {MINUTE} WITHIN 1 PERCENT"),
    ]
    budget = 2 * first.size_bytes + 100 * KIB
    given = negotiate(bound(text + " WEIGHT 9"), budget, stands, group_bytes_max=CAP)
    assert "promised" not in given.others
    assert "modest" in given.others
    with pytest.raises(
        PrecisionUnavailable, match=r"needs .* KiB are free.* for each KiB more, .* for each ns"
    ):
        negotiate(
            bound(DISTINCT + " ELSE FAIL"),
            budget - first.size_bytes,
            stands[:1],
            group_bytes_max=CAP,
        )


def test_a_heavier_promise_does_not_break_one_that_was_given() -> None:
    stands = [standing("promised", DISTINCT + " ELSE FAIL")]
    found = problem(stands, group_bytes_max=CAP)
    with pytest.raises(PrecisionUnavailable, match="only if promised lost what was promised"):
        negotiate(
            bound(DISTINCT + " ELSE FAIL WEIGHT 100"),
            found.present_bytes + 200 * KIB,
            stands,
            group_bytes_max=CAP,
        )


def test_without_room_for_the_least_a_query_is_refused_with_what_is_free() -> None:
    needs = (
        r"100 KiB of the synopsis budget are free; its smallest synopses take 16 KiB and its panes "
        r"as such 148 KiB; with these, the query needs 4,925 KiB for its targets, "
        r"100 KiB are free; count distinct: 1.000% takes 4,777 KiB of that, you would get "
        r"21.949%, and 0.0064 less for each KiB more, .* for each ns"
    )
    with pytest.raises(BudgetExceeded, match=needs):
        negotiate(bound(DISTINCT), 100 * KIB, group_bytes_max=CAP)


def test_who_would_break_a_promise_is_told_what_else_there_is() -> None:
    stands = [standing("kept", DISTINCT + " ELSE FAIL")]
    free = problem(stands, group_bytes_max=CAP).present_bytes + 400 * KIB
    message = r"kept lost what was promised; with what is free, the query needs 4,925 KiB for its "
    had = r"targets, 400 KiB are free; count .* would get \d+.\d+%, and .* for each KiB"
    with pytest.raises(PrecisionUnavailable, match=message + had):
        negotiate(bound(DISTINCT + " ELSE FAIL WEIGHT 100"), free, stands, group_bytes_max=CAP)
    plain = bound(f"SELECT COUNT(DISTINCT k) AS d FROM s {MINUTE} WEIGHT 100")
    message = (
        r"promised; its smallest synopses .* predicted error .* falls by .* per KiB and .* per ns"
    )
    with pytest.raises(BudgetExceeded, match=message):
        negotiate(plain, free - 300 * KIB, stands, group_bytes_max=CAP)


@pytest.mark.parametrize(
    "aggregate",
    ["TOP(k, 3) AS t", "COUNT(DISTINCT k) AS t", "FREQUENT(k, 0.01) AS t", "QUANTILE(v, 0.5) AS t"],
)
def test_a_promise_that_nobody_can_plan_is_granted_only_with_that_said(aggregate: str) -> None:
    target = "5 PERCENT" if aggregate.startswith(("TOP", "FREQUENT")) else "100 ABSOLUTE"
    text = f"SELECT {aggregate} FROM s {MINUTE} WITHIN {target} ELSE"
    facts = negotiate(bound(f"{text} FAIL"), 64 * MIB, group_bytes_max=CAP).facts
    assert "nothing is set aside for it; an answer that misses it fails" in facts["not_planned"]
    widened = negotiate(bound(f"{text} WIDEN"), 64 * MIB, group_bytes_max=CAP).facts
    assert "not_planned" not in widened
    exact = f"SELECT SUM(v) AS t FROM s {MINUTE} WITHIN {target} ELSE FAIL"
    assert "not_planned" not in negotiate(bound(exact), 64 * MIB, group_bytes_max=CAP).facts


def test_small_targets_are_told_with_their_digits() -> None:
    tiny = f"SELECT COUNT(DISTINCT k) AS d FROM s {MINUTE} WITHIN 0.0001 PERCENT ELSE FAIL"
    with pytest.raises(PrecisionUnavailable, match=r"no size reaches 0.0001%; .* gives 0.399%"):
        negotiate(bound(tiny), 64 * MIB, group_bytes_max=CAP)


def test_what_is_granted_names_needs_and_prices() -> None:
    query = bound(f"SELECT COUNT(DISTINCT k) AS d FROM s {MINUTE} WITHIN 1 PERCENT")
    whole = negotiate(query, 64 * MIB, group_bytes_max=CAP)
    least = negotiate(query, whole.size_bytes // 2, group_bytes_max=CAP)
    assert "missed" not in whole.facts
    assert "you would get" in least.facts["missed"]
    assert least.facts["count distinct needs"] == whole.facts["count distinct needs"]
    assert "per KiB" in least.facts["count distinct price"]
    assert int(least.facts["bytes"]) == least.size_bytes <= whole.size_bytes // 2


def test_what_has_no_size_is_named_as_what_it_is() -> None:
    facts = negotiate(bound("SELECT MAX(v) AS m FROM s"), 64 * MIB, group_bytes_max=CAP).facts
    assert facts["synopses"] == "moments"
    grouped = bound(f"SELECT k, COUNT(DISTINCT v) AS d FROM s {MINUTE} GROUP BY k WITHIN 5 PERCENT")
    facts = negotiate(grouped, 256 * MIB, group_bytes_max=CAP).facts
    assert facts["count distinct needs"] == "nothing beyond the cap on its groups for its target"


def test_buckets_of_values_are_predicted_to_err_by_half_a_bucket() -> None:
    wide = f"SELECT QUANTILE(v, 0.9) AS q FROM s {MINUTE} WITHIN 1 PERCENT ELSE FAIL"
    facts = negotiate(bound(wide), 64 * MIB, group_bytes_max=CAP).facts
    assert facts["quantile 0.9"] == "log-buckets, predicted error 0.391%"
    assert "missed" not in facts
    narrow = wide.replace("1 PERCENT", "0.3 PERCENT")
    with pytest.raises(PrecisionUnavailable, match=r"no size reaches 0.300%; log-buckets give 0.3"):
        negotiate(bound(narrow), 64 * MIB, group_bytes_max=CAP)
    widened = negotiate(bound(narrow.replace("FAIL", "WIDEN")), 64 * MIB, group_bytes_max=CAP)
    assert widened.facts["missed"].startswith("quantile 0.9: no size reaches 0.300%")


def test_the_price_of_cpu_is_what_the_next_level_buys() -> None:
    query = bound("SELECT QUANTILE(v, 0.5) AS m FROM s WITHIN 0.01 RANK")
    request = standing("q", query.text, tuples=1e5)
    found = problem([request], group_bytes_max=CAP, levels=(0, 1))
    [given] = found.given(found.demands.present)
    [price] = cpu_prices([request], [given], group_bytes_max=CAP)
    per_tuple = replace(request, tuples_per_s=1.0)
    options = problem([per_tuple], group_bytes_max=CAP, levels=(0, 1)).demands.options
    at = int(found.demands.present[1])
    saved = options.error[1, at + 1] - options.error[1, at]
    cost = options.cost_ns[1, at] - options.cost_ns[1, at + 1]
    assert price == pytest.approx(saved / cost)


def test_prices_of_cpu_are_the_same_whatever_was_drawn_before() -> None:
    texts = [
        "SELECT QUANTILE(v, 0.5) AS m FROM s WITHIN 0.01 RANK",
        f"SELECT k, COUNT(DISTINCT v) AS d FROM s {MINUTE} GROUP BY k WITHIN 5 PERCENT",
        "SELECT TOP(k, 3) AS t, AVG(v) AS a FROM s",
    ]
    first = [standing(f"q{at}", text, tuples=1e5) for at, text in enumerate(texts)]
    smaller = replace(first[0], plan=with_sizes(first[0].plan, [0, 64]))
    thinned = replace(first[2], levels=tuple(2 for _ in first[2].levels), tuples=3e6)
    drawings = DemandCache()
    for requests in (first, first, [smaller, *first[1:]], [*first[:2], thinned], first[1:]):
        found = problem(requests, group_bytes_max=CAP)
        given = found.given(found.demands.present)
        anew = cpu_prices(requests, given, group_bytes_max=CAP)
        again = cpu_prices(requests, given, group_bytes_max=CAP, drawings=drawings)
        assert again.tolist() == anew.tolist()
        assert len(anew) == len(found.readers)
    assert anew.any()


def test_sizes_of_a_plan_are_replaced_and_nothing_else() -> None:
    query = bound(MIXED)
    first = plan(query, {query.aggregates[3]: 12})
    other = with_sizes(first, [0, 0, 0, 9])
    assert [part.size for part in other.parts] == [0, 0, 0, 9]
    assert (other.answers, other.partners) == (first.answers, first.partners)
    assert with_sizes(other, [part.size for part in first.parts]) == first


def test_an_unknown_rate_costs_nothing_yet() -> None:
    request = AllocationRequest.new("q", bound(MIXED), standing("q", MIXED).plan)
    found = problem([request], group_bytes_max=CAP)
    assert (found.demands.options.cost_ns == 0).all()
    assert (found.demands.present == -1).all()


def test_without_a_target_weight_earns_what_is_to_spare_and_groups_get_more_room_instead() -> None:
    text = f"SELECT COUNT(DISTINCT k) AS d FROM s {MINUTE}"
    sizes = [list(negotiate(bound(text), 64 * MIB, group_bytes_max=CAP).sizes.values())]
    grouped = f"SELECT v, COUNT(DISTINCT k) AS d FROM s {MINUTE} GROUP BY v"
    sizes.append(list(negotiate(bound(grouped), 64 * MIB, group_bytes_max=CAP).sizes.values()))
    assert sizes == [[14], [12]]
    light, heavy = (standing(name, f"{text} WEIGHT {w}") for name, w in (("l", 1), ("h", 20)))
    found = problem([light, heavy], group_bytes_max=CAP)
    tight = Budget(int(0.6 * found.present_bytes))
    given = found.given(allocate(found.demands, tight).choice)
    assert given[1].sizes[-1] > given[0].sizes[-1]


ONE = f"SELECT COUNT(DISTINCT k) AS d FROM s {MINUTE} WITHIN 1 PERCENT ELSE FAIL"
THREE = (
    "SELECT COUNT(DISTINCT k) AS d, COUNT(DISTINCT v) AS e, "
    f"DISTINCT_BOTH(k, v < 0.6, v > 0.4) AS b FROM s {MINUTE} WITHIN 2 PERCENT ELSE FAIL"
)
GROUPED_ONE = (
    f"SELECT k, COUNT(DISTINCT v) AS d FROM s {MINUTE} GROUP BY k WITHIN 5 PERCENT ELSE FAIL"
)
GROUPED_THREE = (
    "SELECT k, COUNT(DISTINCT v) AS d, SELF_JOIN_SIZE(k) AS f, COUNT(*) AS n "
    f"FROM s {MINUTE} GROUP BY k WITHIN 5 PERCENT ELSE FAIL"
)


@pytest.mark.parametrize("text", [ONE, THREE, GROUPED_ONE, GROUPED_THREE])
@pytest.mark.parametrize("there_is", [0.0, 0.5, 0.97])
@pytest.mark.parametrize("others", [[], ["other"]])
def test_who_is_refused_is_granted_what_it_was_told_that_it_needs(
    text: str, there_is: float, others: list[str]
) -> None:
    """No less would do: a KiB below, it is refused again."""
    stands = [standing(name, ONE.replace("(DISTINCT k)", "(DISTINCT v)")) for name in others]
    taken = problem(stands, group_bytes_max=CAP).present_bytes
    least = _needed(bound(text), taken, stands)
    needed = _needed(bound(text), taken + int(there_is * least), stands)
    assert needed == least
    granted = negotiate(bound(text), taken + needed, stands, group_bytes_max=CAP)
    assert granted.size_bytes <= needed
    assert "missed" not in granted.facts
    assert not granted.others
    with pytest.raises((PrecisionUnavailable, BudgetExceeded)):
        negotiate(bound(text), taken + needed - 2 * KIB, stands, group_bytes_max=CAP)


def _needed(query: BoundQuery, budget: int, stands: list[AllocationRequest]) -> int:
    """What a refusal says that a query needs, in bytes."""
    with pytest.raises((PrecisionUnavailable, BudgetExceeded)) as refused:
        negotiate(query, budget, stands, group_bytes_max=CAP)
    needs = re.search(r"the query needs ([\d,]+) KiB for its targets", str(refused.value))
    if needs is None:  # No size of a synopsis is in the way.
        needs = re.search(
            r"synopses take ([\d,]+) KiB and .* such ([\d,]+) KiB", str(refused.value)
        )
    assert needs is not None
    return KIB * sum(int(number.replace(",", "")) for number in needs.groups())


def test_aggregates_of_one_function_are_told_apart() -> None:
    text = f"SELECT COUNT(DISTINCT k) AS d, COUNT(DISTINCT v) AS e, TOP(k, 3) AS t FROM s {MINUTE}"
    facts = negotiate(bound(text), 64 * MIB, group_bytes_max=CAP).facts
    assert {"COUNT(DISTINCT k)", "COUNT(DISTINCT v)", "top 3"} <= facts.keys()
    assert "COUNT(DISTINCT v) price" in facts
    assert "count distinct" not in facts
    missed = negotiate(bound(THREE.replace("FAIL", "WIDEN")), MIB, group_bytes_max=CAP).facts
    assert "; COUNT(DISTINCT k): 2.000% takes" in missed["missed"]
    assert "; COUNT(DISTINCT v): 2.000% takes" in missed["missed"]
