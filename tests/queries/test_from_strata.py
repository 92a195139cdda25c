"""Evidence from parts that were read at different shares, against the exact answer."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.queries.sampling.from_strata import evidence_from_strata, thinned_together
from shedder.streams.basics import ColumnBasics
from shedder.streams.live_sample import SampleView
from tests import seeds
from tests.queries.all_outputs import OUTPUTS, SELECTIVITIES, Truth, population, query_of
from tests.queries.asking import SCHEMA, ask, rows
from tests.scale import scaled
from tests.truth import exact_quantile, gate

SIZES, SHARES = (2_000, 2_500, 1_500), (0.08, 0.25, 1.0)
TRIALS = 12
DRAWN = ("uniform", "normal", "zipf", "lognormal-2", "adversarial")
# A per-change run draws every other population.
TESTED = scaled(DRAWN[seeds.seed("strata") % 2 :: 2], DRAWN)


def view_of(data: pa.RecordBatch, share: float, rng: np.random.Generator) -> SampleView:
    """A simple random sample of these tuples, in their order, with the basics of all of them."""
    chosen = np.flatnonzero(rng.random(data.num_rows) < share)
    basics = {column.name: ColumnBasics.of(data.column(column.name)) for column in SCHEMA.columns}
    return SampleView(SCHEMA, 0, data.num_rows, data.take(chosen), basics, {}, {})


def views_of(data: pa.RecordBatch, seed: int, shares=SHARES) -> list[SampleView]:
    rng = np.random.default_rng([seed, 4])
    ends = np.cumsum((0, *SIZES))
    return [
        view_of(data.slice(first, last - first), share, rng)
        for first, last, share in zip(ends[:-1], ends[1:], shares, strict=True)
    ]


def evidence(query, views, seed: int = 0) -> Evidence:
    return evidence_from_strata(query, views, np.random.default_rng([seed, 6]))


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("name", TESTED)
def test_every_aggregate_holds_the_truth_as_often_as_it_says(name):
    data = population(name, sum(SIZES))
    tried, held = defaultdict(int), defaultdict(int)
    for selectivity in SELECTIVITIES:
        for grouped in ("one row", "grouped"):
            query = query_of(selectivity, grouped)
            known = Truth.of(query, data)
            for trial in range(TRIALS):
                answer = finish(query, evidence(query, views_of(data, trial), trial))
                for at, row in enumerate(answer.rows()):
                    for output in OUTPUTS:
                        if row[f"{output}_bound"] == "none":
                            continue
                        right = known.held_by(answer, at, row, output)
                        assert right or row[f"{output}_bound"] != "exact", (output, row)
                        tried[output] += 1
                        held[output] += right
    for output in OUTPUTS:
        assert tried[output], output
        # Rows of one sample are not independent: a sample of a query counts as one.
        trials = min(tried[output], 4 * TRIALS)
        assert held[output] >= gate(trials, 0.95) * tried[output] / trials, (output, tried, held)
    assert sum(held.values()) >= 0.94 * sum(tried.values())


def test_what_was_read_in_full_adds_no_error():
    """All but a small part: the interval is as wide as that part alone makes it."""
    data = rows(6_000)
    query = ask("COUNT(*) AS n, SUM(client) AS s FROM requests WHERE ok")
    views = views_of(data, 1, shares=(0.25, 1.0, 1.0))
    whole = finish(query, evidence(query, views))
    part = finish(query, evidence_from_sample(query, views[0]))
    for name in ("n", "s"):
        assert whole.estimate(0, name).half_width <= 1.3 * part.estimate(0, name).half_width


@pytest.mark.slow
def test_parts_that_were_all_read_are_exact():
    data = rows(6_000)
    query = query_of(1.0, "grouped")
    answer = finish(query, evidence(query, views_of(data, 1, shares=(1.0, 1.0, 1.0))))
    known = Truth.of(query, data)
    for at, row in enumerate(answer.rows()):
        for output in OUTPUTS:
            assert row[f"{output}_bound"] == "exact", output
            assert known.held_by(answer, at, row, output), (output, row)


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("where", ["", " WHERE ok"])
def test_sums_of_heavy_tails_are_not_much_wider_than_those_of_the_thinnest_part(where):
    """No normal interval can be argued for them, and bounds of parts that hold always add up."""
    data = rows(6_000)
    values = np.random.default_rng(3).lognormal(3.0, 1.0, 6_000)
    data = data.set_column(3, data.schema.field("bytes"), pa.array(values))
    counts = data.column("ok").to_numpy(zero_copy_only=False) | (not where)
    truths = {"s": values[counts].sum(), "a": values[counts].mean()}
    query = ask(f"SUM(bytes) AS s, AVG(bytes) AS a FROM requests{where}")
    held, ratios = 0, []
    for seed in range(40):
        views = views_of(data, seed, shares=(0.2, 0.4, 0.8))
        answer = finish(query, evidence(query, views, seed))
        rng = np.random.default_rng(seed)
        thinnest = finish(query, evidence_from_sample(query, thinned_together(views, rng)))
        for name, truth in truths.items():
            found, alone = answer.estimate(0, name), thinnest.estimate(0, name)
            held += found.low <= truth <= found.high
            ratios.append((found.high - found.low) / (alone.high - alone.low))
    assert held >= gate(80, 0.95)
    assert np.median(ratios) < 1.3


def test_without_a_filter_counts_and_extremes_are_exact():
    data = rows(6_000)
    query = ask(
        "COUNT(*) AS n, COUNT(bytes) AS b, MIN(bytes) AS lo, MAX(client) AS hi FROM requests"
    )
    [row] = finish(query, evidence(query, views_of(data, 1))).rows()
    sizes = data.column("bytes").to_numpy(zero_copy_only=False)
    assert [row[c + "_bound"] for c in ("n", "b", "lo", "hi")] == ["exact"] * 4
    assert (row["n"], row["b"]) == (6_000, np.isfinite(sizes).sum())
    assert (row["lo"], row["hi"]) == (np.nanmin(sizes), 500)


def test_one_part_is_a_sample_as_any_other():
    data = rows(2_000)
    [view] = [view_of(data, 0.2, np.random.default_rng(1))]
    query = ask("domain, AVG(bytes) AS a FROM requests GROUP BY domain")
    alone = finish(query, evidence_from_sample(query, view))
    empty = view_of(data.slice(0, 0), 1.0, np.random.default_rng(1))
    assert finish(query, evidence(query, [view, empty])).table.equals(alone.table)


def test_nothing_at_all_counts_zero():
    empty = view_of(rows(1).slice(0, 0), 1.0, np.random.default_rng(1))
    query = ask("COUNT(*) AS n FROM requests WHERE ok")
    [row] = finish(query, evidence(query, [empty, empty])).rows()
    assert (row["n"], row["n_bound"]) == (0, "exact")


def test_a_group_that_may_be_missing_lies_wholly_in_the_most_thinned_part():
    data = rows(6_000)
    query = ask("client, COUNT(*) AS n FROM requests GROUP BY client")
    mixed = evidence(query, views_of(data, 1)).missing
    fine = evidence(query, views_of(data, 1, shares=(0.25, 0.25, 1.0))).missing
    assert mixed is not None
    assert fine is not None
    assert mixed.weight_max > 2 * fine.weight_max


def test_a_sum_with_infinities_has_no_bound():
    data = rows(6_000)
    column = data.column("bytes").to_numpy(zero_copy_only=False).copy()
    column[100] = np.inf
    data = data.set_column(3, data.schema.field("bytes"), pa.array(column))
    query = ask("SUM(bytes) AS s, AVG(bytes) AS a, COUNT(*) AS n FROM requests WHERE ok OR NOT ok")
    [row] = finish(query, evidence(query, views_of(data, 1, shares=(1.0, 0.5, 1.0)))).rows()
    assert (row["s_bound"], row["a_bound"], row["n_bound"]) == ("none", "none", "interval")


@pytest.mark.slow
def test_parts_thinned_together_are_a_simple_random_sample():
    data = rows(6_000)
    met = np.zeros(6_000)
    for seed in range(300):
        view = thinned_together(views_of(data, seed), np.random.default_rng([seed, 8]))
        assert view.population == 6_000
        met[view.rows.column("ts").cast(pa.int64()).to_numpy()] += 1
    parts = [part.mean() for part in np.split(met, np.cumsum(SIZES)[:-1])]
    assert parts == pytest.approx([np.mean(parts)] * 3, rel=0.05)
    assert np.mean(parts) > 300 * 0.03


def test_counts_of_values_are_numbers_even_where_samples_are_too_small_to_be_thinned_together():
    query = ask(
        "SELF_JOIN_SIZE(client) AS s, JOIN_SIZE(client, LENGTH(domain)) AS j, "
        "COUNT(DISTINCT client) AS d FROM requests WHERE ok"
    )
    rng = np.random.default_rng(1)
    views = [view_of(rows(100, seed), 0.2, rng) for seed in (1, 2)]
    [row] = finish(query, evidence_from_strata(query, views, np.random.default_rng(0))).rows()
    for name in ("s", "j", "d"):
        assert row[name] is not None, name
        assert row[name + "_bound"] == "none" or row[name + "_low"] is not None


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("where", ["", " WHERE ok"])
@pytest.mark.parametrize("column", ["bytes", "client"])
def test_medians_use_the_rows_of_all_parts(column, where):
    """Thinned to the smallest share, parts that were read at 1/4 and 1/2 tell as little as 1/16."""
    data = rows(6_000)
    values = data.column(column).to_numpy(zero_copy_only=False)
    counts = data.column("ok").to_numpy(zero_copy_only=False) | (not where)
    truth = exact_quantile(values[counts & ~np.isnan(values.astype(float))], 0.5)
    query = ask(f"MEDIAN({column}) AS m FROM requests{where}")
    held, ratios = 0, []
    for seed in range(40):
        views = views_of(data, seed, shares=(1 / 16, 1 / 4, 1 / 2))
        answer = finish(query, evidence(query, views, seed))
        rng = np.random.default_rng(seed)
        thinnest = finish(query, evidence_from_sample(query, thinned_together(views, rng)))
        found, alone = answer.estimate(0, "m"), thinnest.estimate(0, "m")
        assert found.low <= found.value <= found.high
        held += found.low <= truth <= found.high
        ratios.append((found.high - found.low) / (alone.high - alone.low))
    assert held >= gate(40, 0.95)
    assert np.median(ratios) < 0.8
