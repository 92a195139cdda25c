"""Evidence from the sample against the exact answer; test_coverage_of_answers.py has its gate."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from shedder.queries.evidence.answer_builder import finish
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.queries.sampling.from_strata import evidence_from_strata
from synopses.model.estimate import Bound
from tests.queries.asking import ARROW, SCHEMA, ask, rows, truth
from tests.queries.sampled import view_of
from tests.truth import gate, keeps_its_promise

COUNT = 6000
KINDS = {"weighted": ["bytes"], "hashed": ["client"]}
AGGREGATES = (
    "COUNT(*) AS n, COUNT(bytes) AS nb, SUM(bytes) AS s, SUM(client) AS sc, AVG(bytes) AS a, "
    "AVG(client) AS ac, MIN(bytes) AS lo, MAX(bytes) AS hi, VARIANCE(client) AS v, "
    "STDDEV(bytes) AS sd, COUNT(DISTINCT client) AS c, COUNT(DISTINCT domain) AS d, "
    "QUANTILE(bytes, 0.9) AS q, MEDIAN(client) AS m, SUM(bytes) / COUNT(*) AS r, "
    "SUM(client - bytes) AS diff, FIRST(domain) AS fd, LAST(bytes) AS lb, LAST(ok) AS lo2, "
    "FIRST(day) AS fy"
)
QUERIES = {
    "all": f"{AGGREGATES} FROM requests",
    "filtered": f"{AGGREGATES} FROM requests WHERE ok AND bytes > 1",
    "rare": f"{AGGREGATES} FROM requests WHERE client = 77",
    "grouped": f"domain, {AGGREGATES} FROM requests GROUP BY domain",
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("kinds", [{}, KINDS], ids=["uniform", "every kind"])
def test_a_sample_of_everything_is_the_exact_answer(name, kinds):
    data, query = rows(800), ask(QUERIES[name] + (" ORDER BY domain" if "grouped" in name else ""))
    sampled = finish(query, evidence_from_sample(query, view_of(data, 1000, **kinds)))
    exact = finish(query, truth(query, data))
    assert sampled.table.column_names == exact.table.column_names
    for column in exact.table.column_names:
        expected, found = exact.table[column].to_pylist(), sampled.table[column].to_pylist()
        if pa.types.is_floating(exact.table.schema.field(column).type):
            assert found == [None if x is None else pytest.approx(x) for x in expected], column
        else:
            assert found == expected, column


def test_without_a_filter_counts_and_extremes_are_exact():
    data = rows(COUNT)
    query = ask("COUNT(*) AS n, COUNT(bytes) AS b, MIN(bytes) AS lo, MAX(ts) AS hi FROM requests")
    answer = finish(query, evidence_from_sample(query, view_of(data, 100)))
    exact = finish(query, truth(query, data))
    assert answer.table.equals(exact.table)


def test_the_first_and_the_last_of_a_part_of_the_rows_have_no_bound():
    query = ask("FIRST(bytes) AS f, LAST(domain) AS l FROM requests")
    [row] = finish(query, evidence_from_sample(query, view_of(rows(COUNT), 100))).rows()
    assert [row["f_bound"], row["l_bound"]] == ["none", "none"]
    assert row["f_low"] is None


def test_a_sum_of_everything_is_exact_up_to_the_end_of_64_bits():
    most = np.iinfo(np.int64).max
    query = ask("SUM(client) AS s FROM requests")
    for clients, total in (([most - 5, 3], most - 2), ([2**62, 1], 2**62 + 1), ([most, 1], None)):
        data = rows(2).set_column(2, ARROW.field("client"), pa.array(clients))
        [row] = finish(query, evidence_from_sample(query, view_of(data, 100))).rows()
        assert (row["s"], row["s_bound"]) == (total, "exact")


def test_a_sampled_sum_that_may_be_over_64_bits_has_no_bound():
    query = ask("SUM(client) AS s FROM requests")
    for step, bound in ((1, "interval"), (2**53, "none")):
        clients = pa.array((np.arange(2_000) % 7 + 1) * step)
        data = rows(2_000).set_column(2, ARROW.field("client"), clients)
        [row] = finish(query, evidence_from_sample(query, view_of(data, 300))).rows()
        assert row["s_bound"] == bound


def test_equal_times_are_told_apart_by_position_in_a_sample_of_everything():
    data = rows(50).set_column(0, ARROW.field("ts"), pa.array([7] * 50, pa.timestamp("us")))
    query = ask("FIRST(client) AS f, LAST(client) AS l FROM requests")
    [row] = finish(query, evidence_from_sample(query, view_of(data, 100))).rows()
    clients = data.column("client").to_pylist()
    assert (row["f"], row["l"]) == (clients[0], clients[-1])


def test_a_weighted_sample_narrows_a_heavy_sum_behind_a_filter():
    data = rows(COUNT)
    query = ask("SUM(bytes) AS s FROM requests WHERE bytes > 5")
    uniform = finish(query, evidence_from_sample(query, view_of(data, 400)))
    weighted = finish(query, evidence_from_sample(query, view_of(data, 400, weighted=["bytes"])))
    assert weighted.estimate(0, "s").half_width < uniform.estimate(0, "s").half_width / 2


def test_a_sum_over_no_seen_row_is_not_null_for_certain_when_its_weights_are_all_known():
    zeros = pa.array(np.zeros(COUNT, np.int64))
    data = rows(COUNT).set_column(2, SCHEMA.columns[2].name, zeros)
    query = ask("SUM(client) AS s FROM requests WHERE domain = ''")
    found = evidence_from_sample(query, view_of(data, 400, weighted=["client"]))
    row = finish(query, found).rows()[0]
    assert (row["s"], row["s_bound"]) == (None, "interval")  # zeros may match: their sum is 0
    assert (row["s_low"], row["s_high"]) == (0, 0)


def test_a_stretch_of_time_is_a_filter():
    data = rows(COUNT)
    query = ask("COUNT(*) AS n FROM requests")
    found = evidence_from_sample(query, view_of(data, 400), start_us=0, end_us=COUNT // 2)
    estimate = finish(query, found).estimate(0, "n")
    assert estimate.bound is Bound.INTERVAL
    assert estimate.holds(COUNT // 2)


def test_no_matching_row_leaves_averages_null_in_the_known_range_and_counts_bounded():
    query = ask("COUNT(*) AS n, AVG(client) AS a FROM requests WHERE domain = ''")
    answer = finish(query, evidence_from_sample(query, view_of(rows(COUNT), 400)))
    row = answer.rows()[0]
    assert (row["n"], row["n_low"], row["n_bound"]) == (0, 0, "interval")
    assert row["n_high"] > 0
    assert (row["a"], row["a_bound"]) == (None, "interval")
    assert (row["a_low"], row["a_high"]) == (1.0, 500.0)


def test_groups_that_may_be_missing_are_bounded():
    query = ask("client, COUNT(*) AS n FROM requests GROUP BY client")
    data = rows(COUNT)
    for seed in range(20):
        found = evidence_from_sample(query, view_of(data, 400, seed))
        assert found.missing is not None
        assert found.missing.weight_max is not None
        seen = set(found.keys[0].to_pylist())
        clients, counts = np.unique(data.column("client").to_numpy(), return_counts=True)
        missed = counts[~np.isin(clients, list(seen))]
        assert missed.max(initial=0) < found.missing.weight_max
    assert evidence_from_sample(query, view_of(data, COUNT)).missing is None


def test_top_lists_hold_all_their_counts_at_once():
    data = rows(COUNT)
    query = ask("TOP(client, 5) AS t FROM requests")
    clients, counts = np.unique(data.column("client").to_numpy(), return_counts=True)
    exact = dict(zip(clients.tolist(), counts.tolist(), strict=True))
    lists_held = guaranteed = 0
    for seed in range(40):
        answer = finish(query, evidence_from_sample(query, view_of(data, 400, seed)))
        items = answer.rows()[0]["t"]
        lists_held += all(item["low"] <= exact[item["value"]] <= item["high"] for item in items)
        guaranteed += items[0]["guaranteed"]
        others = [exact[c] for c in exact if c not in {item["value"] for item in items}]
        sure = [item["low"] for item in items if item["guaranteed"]]
        assert all(max(others) <= low for low in sure)
    assert lists_held >= gate(40, 0.95)
    assert guaranteed == 40  # the first is far ahead of everything


@pytest.mark.slow
@pytest.mark.parametrize("where", ["", " WHERE bytes > 1.0"])
@pytest.mark.parametrize("promise", ["NEGATIVES", "POSITIVES"])
def test_frequent_lists_keep_their_promise(promise, where):
    data = rows(COUNT)
    query = ask(f"FREQUENT(client, 0.05 NO FALSE {promise}) AS f FROM requests{where}")
    counts = Counter(
        row["client"] for row in data.to_pylist() if not where or (row["bytes"] or 0) > 1.0
    )
    held, sure = 0, set()
    for seed in range(40):
        answer = finish(query, evidence_from_sample(query, view_of(data, 1_000, seed)))
        [row] = answer.rows()
        assert row["f_bound"] == "interval"
        kept = row["f"], row["f_bound"], counts, 0.05
        held += keeps_its_promise(*kept, positives=promise == "POSITIVES")
        sure |= {item["value"] for item in row["f"] if item["guaranteed"]}
    assert held >= gate(40, 0.95)
    assert counts.most_common(1)[0][0] in sure  # The first is far ahead of everything.


def test_a_share_that_no_sample_can_see_is_said_to_be_one():
    data = rows(COUNT)
    query = ask("FREQUENT(client, 0.0001) AS f FROM requests")
    [row] = finish(query, evidence_from_sample(query, view_of(data, 400, 1))).rows()
    assert row["f_bound"] == "none"
    everything = finish(query, evidence_from_sample(query, view_of(data, COUNT)))
    assert everything.rows()[0]["f_bound"] == "exact"


def test_infinite_values_leave_sums_without_a_bound_and_counts_with_one():
    values = pa.array([1.0, float("inf")] * 500)
    data = rows(1000).set_column(3, SCHEMA.columns[3].name, values)
    query = ask("SUM(bytes) AS s, COUNT(bytes) AS n FROM requests WHERE ok")
    answer = finish(query, evidence_from_sample(query, view_of(data, 100)))
    row = answer.rows()[0]
    assert row["s_bound"] == "none"
    assert row["n_bound"] == "interval"


def test_an_extreme_beside_the_end_of_a_range_that_doubles_cannot_tell_apart_is_not_exact():
    data = rows(COUNT)
    least = 2**60 + 1 + np.arange(COUNT)[::-1]  # The least one comes last.
    data = data.set_column(2, "client", pa.array(least))
    query = ask("MIN(client) AS lo, MAX(client) AS hi FROM requests WHERE ok")
    whole = finish(query, truth(query, data)).rows()[0]
    for seed in range(20):
        [row] = finish(query, evidence_from_sample(query, view_of(data, 300, seed))).rows()
        for name in ("lo", "hi"):
            assert row[name + "_low"] <= whole[name] <= row[name + "_high"]
            assert row[name + "_bound"] != "exact" or row[name] == whole[name]


@pytest.mark.parametrize(
    ("composed", "of"),
    [
        ("100 * SUM(client) / COUNT(*)", "SUM(client)"),
        ("SUM(client) / COUNT(client)", "AVG(client)"),
        ("AVG(client) - MIN(client) / MAX(client)", "AVG(client)"),
    ],
)
@pytest.mark.parametrize("views", ["sample", "strata"])
def test_exact_parts_of_an_expression_spend_no_confidence(composed, of, views):
    """COUNT(*) without a filter is known: the quotient is as wide as the sum, at 95 %."""
    data = rows(COUNT)

    def answer_of(text):
        query = ask(f"{text} AS r FROM requests")
        if views == "sample":
            return finish(query, evidence_from_sample(query, view_of(data, 600)))
        parts = [view_of(data.slice(0, 2000), 600), view_of(data.slice(2000), 300, seed=1)]
        rng = np.random.default_rng(5)
        return finish(query, evidence_from_strata(query, parts, rng))

    answer, alone = answer_of(composed), answer_of(of)
    assert answer.confidence == pytest.approx(0.95)
    [row], [part] = answer.rows(), alone.rows()
    scale = 100 / COUNT if of.startswith("SUM") else 1.0
    width = (part["r_high"] - part["r_low"]) * scale
    assert row["r_high"] - row["r_low"] == pytest.approx(width, rel=1e-4)  # Sums are whole.


def test_certain_extremes_of_an_expression_spend_no_confidence():
    """A filter leaves the ends certain: only the average spends delta."""
    data = rows(COUNT)
    query = ask("AVG(client) - MIN(client) AS r FROM requests WHERE ok")
    evidence = evidence_from_sample(query, view_of(data, 600))
    confidences = {each.function.name: e.confidence for each, e in evidence.estimates.items()}
    assert confidences == {"AVG": pytest.approx(0.95), "MIN": 1.0}
    assert finish(query, evidence).confidence == pytest.approx(0.95)
