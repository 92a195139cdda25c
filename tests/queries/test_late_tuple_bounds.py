"""Late tuples: whatever they were, the widened interval holds the answer with them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.known_range import known_range
from shedder.queries.evidence.late_quantiles import late_quantile
from shedder.queries.evidence.late_tuple_bounds import outward_int, widen_late
from shedder.queries.evidence.missing_tuple_bounds import allow_for, of_the_others
from shedder.streams.basics import ColumnBasics
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.kernels.hashing import murmur_int64
from synopses.model.estimate import Bound, Estimates
from tests.queries.asking import ARROW, ask, rows, truth
from tests.truth import keeps_its_promise

AGGREGATES = (
    "COUNT(*) AS n, COUNT(bytes) AS nb, COUNT(client) AS nc, SUM(bytes) AS s, SUM(client) AS sc, "
    "AVG(bytes) AS a, MIN(bytes) AS lo, MAX(client) AS hi, VARIANCE(client) AS v, "
    "STDDEV(bytes) AS sd, COUNT(DISTINCT client) AS d, QUANTILE(bytes, 0.5) AS q, "
    "SUM(bytes - client) AS diff, SELF_JOIN_SIZE(client) AS sj, SELF_JOIN_SIZE(domain) AS se, "
    "JOIN_SIZE(client, LENGTH(domain)) AS j, DISTINCT_BOTH(client, ok, bytes > 1) AS both, "
    "DISTINCT_ONLY(client, ok, bytes > 1) AS only, JACCARD(client, ok, bytes > 1) AS alike"
)


@pytest.mark.slow
@pytest.mark.parametrize("late", [1, 7, 60])
@pytest.mark.parametrize("kind", ["random", "lowest", "highest"])
@pytest.mark.parametrize("group", ["", "domain"])
def test_the_answer_with_the_late_tuples_is_inside(late, kind, group):
    data = rows(300, seed=1)
    order = np.random.default_rng(late).permutation(300)
    if kind != "random":
        sizes = data.column("bytes").to_numpy(zero_copy_only=False)
        order = np.argsort(np.nan_to_num(sizes, nan=1.0), kind="stable")
        order = order if kind == "lowest" else order[::-1]
    on_time = data.take(pa.array(np.sort(order[late:])))
    text = f"{AGGREGATES} FROM requests"
    query = ask(f"{group}, {text} GROUP BY {group}" if group else text)
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    evidence = replace(truth(query, on_time), late=late)
    widened = finish(query, widen_late(query, evidence, basics))
    exact = finish(query, truth(query, data))
    rows_by_group = {row.get(group): at for at, row in enumerate(exact.rows())}
    for at, row in enumerate(widened.rows()):
        whole = rows_by_group[row.get(group)]
        for name in widened.approximate:
            expected, found = exact.estimate(whole, name).value, widened.estimate(at, name)
            assert found.bound is not Bound.EXACT, name
            if not np.isnan(expected):
                slack = 1e-9 * abs(expected)
                assert found.low - slack <= expected <= found.high + slack, (name, found, expected)
    assert any("came too late" in note for note in widened.notes)


def test_without_late_tuples_nothing_changes():
    query = ask("COUNT(*) AS n FROM requests")
    evidence = truth(query, rows(10))
    assert widen_late(query, evidence, {}) is evidence


def test_text_and_infinite_ranges_have_no_bound():
    query = ask("MIN(domain) AS t, AVG(bytes) AS a FROM requests")
    data = rows(50)
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    basics["bytes"] = ColumnBasics(50, 0, -np.inf, np.inf)
    answer = finish(query, widen_late(query, replace(truth(query, data), late=1), basics))
    assert [answer.rows()[0][c] for c in ("t_bound", "a_bound")] == ["none", "none"]


def test_late_tuples_leave_a_first_that_was_before_them_and_a_last_that_was_after_them():
    query = ask("FIRST(bytes) AS f, LAST(domain) AS l, LAST(client) AS c FROM requests")
    first, text, last = query.aggregates
    data = rows(50)
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    times = {first: np.array([100]), text: np.array([900]), last: np.array([899])}

    def bounds(late_span, times=times):
        evidence = replace(truth(query, data), late=1, late_span=late_span, times=times)
        answer = finish(query, widen_late(query, evidence, basics))
        return [answer.rows()[0][f"{name}_bound"] for name in "flc"]

    assert bounds((101, 900)) == ["exact", "exact", "none"]
    assert bounds((100, 899)) == ["none", "exact", "exact"]
    assert bounds(None) == ["none"] * 3
    assert bounds((101, 300), {}) == ["none"] * 3


def test_a_group_without_values_may_get_one_by_a_late_tuple():
    query = ask("FIRST(bytes) AS f FROM requests WHERE client < 0")
    evidence = replace(
        truth(query, rows(50)),
        late=1,
        late_span=(0, 10),
        times={query.aggregates[0]: np.array([2**63 - 1])},
    )
    widened = widen_late(query, evidence, {"bytes": ColumnBasics()})
    assert finish(query, widened).rows()[0]["f_bound"] == "none"


@pytest.mark.parametrize("late", [1, 9])
def test_a_group_without_values_has_the_range_of_late_ones(late):
    """It had no bound: a sum of nothing but late values, an average or an end is in their range."""
    text = """domain, SUM(client) AS s, SUM(bytes) AS sb, AVG(bytes) AS a, MIN(bytes) AS lo,
      MAX(client) AS hi, MIN(ts) AS t, QUANTILE(client, 0.3) AS q FROM requests GROUP BY domain"""
    query, whole = ask(text), rows(40, seed=3)
    nothing = pa.array(np.arange(40) < late)
    on_time = whole.slice(late)
    for at, kind in ((2, pa.int64()), (3, pa.float64())):
        on_time = on_time.set_column(at, ARROW.field(at), pa.nulls(40 - late, kind))
        kept = pc.if_else(nothing, whole.column(at), pa.nulls(40, kind))
        whole = whole.set_column(at, ARROW.field(at), kept)
    basics = {name: ColumnBasics.of(whole.column(name)) for name in whole.schema.names}
    evidence = replace(truth(query, on_time), late=late)
    exact = {row["domain"]: row for row in finish(query, truth(query, whole)).rows()}
    found = finish(query, widen_late(query, evidence, basics)).rows()
    for row in found:
        for name in ("s", "sb", "a", "lo", "hi", "q"):
            true = exact[row["domain"]][name]
            assert (row[name], row[f"{name}_bound"]) == (None, "interval")
            slack = 1e-9 * abs(true or 0)
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            assert true is None or low - slack <= true <= high + slack, (name, low, true, high)
        assert row["t_bound"] == "interval"
    assert any(exact[row["domain"]]["s"] is not None for row in found)


def test_a_sum_that_late_tuples_may_take_over_64_bits_has_no_bound():
    query = ask("SUM(client) AS s FROM requests")
    most = np.iinfo(np.int64).max
    data = rows(1).set_column(2, ARROW.field("client"), pa.array([most - 10_000]))
    exact = replace(truth(query, data), late=2)
    for end, bound in ((100, "interval"), (6_000, "none")):
        answer = finish(query, widen_late(query, exact, {"client": ColumnBasics(3, 0, 0, end)}))
        assert answer.rows()[0]["s_bound"] == bound
    assert "64 bits" in answer.explain()


def test_a_group_of_late_tuples_only_has_at_most_all_of_them():
    query = ask("domain, COUNT(*) AS n FROM requests GROUP BY domain")
    exact = replace(truth(query, rows(50)), late=7)
    assert widen_late(query, exact, {}).missing == MissingGroups(
        8.0, 1.0, "a group may have no tuple but late ones"
    )
    sampled = replace(exact, missing=MissingGroups(5.0, 0.9))
    assert widen_late(query, sampled, {}).missing == MissingGroups(12.0, 0.9)
    unknown = replace(exact, missing=MissingGroups(None, 0.9, "why"))
    assert widen_late(query, unknown, {}).missing == unknown.missing
    one = ask("COUNT(*) AS n FROM requests")
    assert widen_late(one, replace(truth(one, rows(5)), late=7), {}).missing is None


def test_the_items_of_a_list_can_have_all_late_tuples_more():
    query = ask("TOP(client, 1) AS t FROM requests")
    data = rows(50)
    exact = finish(query, truth(query, data)).rows()[0]["t"][0]
    widened = widen_late(query, replace(truth(query, data), late=5), {"client": ColumnBasics()})
    item = finish(query, widened).rows()[0]["t"][0]
    assert item == exact | {"high": exact["count"] + 5, "guaranteed": False}


def test_late_tuples_may_make_values_frequent_of_which_a_list_says_nothing():
    query = ask(
        "FREQUENT(client, 0.1) AS f, FREQUENT(client, 0.1 NO FALSE POSITIVES) AS s FROM requests"
    )
    found = replace(truth(query, rows(50)), late=5)
    row = finish(query, widen_late(query, found, {"client": ColumnBasics()})).rows()[0]
    assert (row["f_bound"], row["s_bound"]) == ("none", "none")
    summary = GroupedFrequent(1, 64)
    clients = rows(50).column("client").to_numpy()
    summary.update(None, murmur_int64(clients)[0], clients)
    again = {
        each: partial(summary.frequent, each.parameter, each.promise) for each in query.aggregates
    }
    known = widen_late(query, replace(found, frequents=again), {"client": ColumnBasics()})
    row = finish(query, known).rows()[0]
    for more in ([7] * 5, [*range(5)], []):
        counts = Counter([*clients.tolist(), *more])
        assert keeps_its_promise(row["f"], row["f_bound"], counts, 0.1, positives=False)
        assert keeps_its_promise(row["s"], row["s_bound"], counts, 0.1, positives=True)


def test_the_range_of_an_expression_follows_from_its_columns():
    query = ask("SUM(bytes * 2 - client) AS s FROM requests")
    argument = query.aggregates[0].argument
    assert argument is not None
    basics = {"bytes": ColumnBasics(9, 1, -1.0, 3.0), "client": ColumnBasics(9, 0, 0, 10)}
    low, high = known_range(argument, basics)
    assert (low, high) == (pytest.approx(-12), pytest.approx(6))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("late", [1, 3, 40])
def test_a_quantile_that_can_be_asked_again_moves_no_further_than_late_ranks_allow(share, late):
    rng = np.random.default_rng(late)
    groups = [np.sort(rng.normal(0, 1, count)) for count in (1, 7, 90, 1000, 1023)]

    def at(q: float) -> Estimates:
        picked = np.array([g[max(1, math.ceil(q * len(g))) - 1] for g in groups])
        return Estimates.exact(picked, "test")

    counts = np.array([len(g) for g in groups])
    low, high = late_quantile(at, counts, share=share, late=late, ends=(-9.0, 9.0))
    for group, values in enumerate(groups):
        for extra in (rng.uniform(-9, 9, late), np.full(late, -9.0), np.full(late, 9.0)):
            for count in range(late + 1):
                whole = np.sort(np.append(values, extra[:count]))
                exact = whole[max(1, math.ceil(share * len(whole))) - 1]
                assert low[group] <= exact <= high[group]
    if share == 0.5 and late < 40:
        assert high[3] - low[3] < 0.1


def test_what_the_source_knows_keeps_averages_and_quantiles_narrow():
    query = ask("AVG(bytes) AS a, QUANTILE(bytes, 0.5) AS q FROM requests")
    data = rows(1000)
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    values = np.sort(data.column("bytes").drop_null().to_numpy())
    values = values[~np.isnan(values)]
    quantile = query.aggregates[1]
    blind = replace(truth(query, data), late=2)
    knowing = replace(
        blind,
        counts=dict.fromkeys(query.aggregates, np.array([len(values)])),
        quantiles={
            quantile: lambda q: Estimates.exact(values[[math.ceil(q * len(values)) - 1]], "test")
        },
    )
    wide, narrow = (finish(query, widen_late(query, each, basics)) for each in (blind, knowing))
    for name in ("a", "q"):
        assert narrow.estimate(0, name).half_width < wide.estimate(0, name).half_width / 50


def test_ends_at_the_edge_of_int64_reach_the_edge():
    least, greatest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    ends = np.array([float(least), -(2.0**62), 5.0, float(greatest)])
    lows, highs = outward_int(ends, -1), outward_int(ends, 1)
    assert lows[0] == least
    assert highs[-1] == greatest
    for low, exact, high in zip(lows, (least, -(2**62), 5, greatest), highs, strict=True):
        assert low <= exact <= high


def test_a_whole_number_that_is_rounded_to_two_to_the_53_stays_inside():
    query = ask("MIN(client) AS lo, MAX(client) AS hi FROM requests")
    data = rows(3)
    for clients in ([2**53 + 1, 2**53 + 3], [-(2**53) - 1, -(2**53) - 3]):
        held = data.slice(0, 2).set_column(2, "client", pa.array(clients))
        basics = {"client": ColumnBasics.of(held.column("client"))}
        found = widen_late(query, replace(truth(query, held), late=1), basics)
        [row] = finish(query, found).rows()
        for name, exact in (("lo", min(clients)), ("hi", max(clients))):
            assert row[name + "_low"] <= exact <= row[name + "_high"], (name, row)


def test_a_list_of_tuples_of_unknown_number_stays_without_a_bound_when_others_are_allowed_for():
    query = ask("FREQUENT(client, 0.1) AS f FROM requests")
    [aggregate] = query.aggregates
    summary = GroupedFrequent(1, 64)
    clients = rows(50).column("client").to_numpy()
    summary.update(None, murmur_int64(clients)[0], clients)
    again = {aggregate: partial(summary.frequent, aggregate.parameter, aggregate.promise)}
    known = replace(truth(query, rows(50)), frequents=again)
    unknown = {"client": ColumnBasics()}
    wide = allow_for(query, of_the_others(known, "lost"), 1, unknown, became="were lost")
    assert finish(query, wide).rows()[0]["f_bound"] == "none"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("count", [0, 1, 7, 400])
@pytest.mark.parametrize("late", [1, 5])
def test_rank_errors_allow_for_late_tuples_on_either_side(share, count, late):
    query = ask(f"QUANTILE(bytes, {share}) AS q FROM requests WITHIN 0.01 RANK")
    [quantile] = query.aggregates
    at = max(0, math.ceil(share * count) - 1)
    column = Estimates.exact(np.array([float(at)]), "test", np.array([count == 0]))
    found = replace(
        truth(query, rows(3)),
        estimates={quantile: column},
        counts={quantile: np.array([count])},
        quantiles={quantile: lambda q: column},
        rank_errors={quantile: np.zeros(1)},
        late=late,
    )
    basics = {"bytes": ColumnBasics(count + late, 0, -1.0, float(count))}
    wide = widen_late(query, found, basics)
    [error] = wide.rank_errors[quantile]
    for added in range(1, late + 1) if count else ():
        for below in range(added + 1):
            off = abs(at + below + 1 - math.ceil(share * (count + added)))
            assert off / (count + added) <= error
    assert error <= (late + 1) / (count + late)
    [row] = finish(query, wide).rows()
    assert row["q_met"] == (error <= 0.01)
    assert count == 400 or not row["q_met"]


def test_a_value_that_is_null_meets_no_rank_target_though_all_ranks_of_no_values_are_known():
    query = ask("QUANTILE(bytes, 0.5) AS q FROM requests WITHIN 0.1 RANK")
    [quantile] = query.aggregates
    ends = (np.array([end]) for end in (0.0, 1.0, 9.0))
    null = Estimates(*ends, np.array([Bound.INTERVAL], np.uint8), np.ones(1, np.bool_), 1.0, "test")
    known = truth(query, rows(3))
    found = replace(known, estimates={quantile: null}, rank_errors={quantile: np.zeros(1)})
    [row] = finish(query, found).rows()
    assert (row["q"], row["q_low"], row["q_high"]) == (None, 1.0, 9.0)
    assert row["q_met"] is False
