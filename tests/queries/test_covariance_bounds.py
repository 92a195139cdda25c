"""Functions of pairs: from a sample, under late tuples, and whole."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.late_tuple_bounds import widen_late
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.streams.basics import ColumnBasics
from shedder.streams.frame import Frame
from shedder.streams.live_sample import SampleView, StreamSample
from synopses.moments.covariance import GroupedCrossMoments
from tests.queries.asking import ARROW, SCHEMA, ask, exact_rows, truth
from tests.seeds import seed
from tests.sequential import holds
from tests.truth import draw

OUTPUTS = {
    "pop": "COVAR_POP(bytes, client)",
    "samp": "COVAR_SAMP(client, bytes)",
    "corr": "CORR(bytes, client)",
    "slope": "REGR_SLOPE(client, bytes)",
    "base": "REGR_INTERCEPT(client, bytes)",
}
SELECTED = ", ".join(f"{text} AS {name}" for name, text in OUTPUTS.items())
TRIALS = 50  # Most trials. On literal seeds 40 have the same power (tests/sequential.py).


def population(distribution: str, size: int, noise: float = 1.0) -> pa.RecordBatch:
    """Client goes along with bytes; some of either are NULL or NaN."""
    rng = np.random.default_rng([3, size])
    size_bytes = draw(distribution, 7, size)
    spread = max(float(np.std(size_bytes)), 1.0) if size else 1.0
    client = np.floor(size_bytes + rng.normal(0, noise * spread, size)).astype(np.int64)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(size), pa.timestamp("us")),
            pa.array([f"d{at}" for at in rng.integers(0, 3, size)]),
            pa.array(client, mask=rng.random(size) < 0.05),
            pa.array(np.where(rng.random(size) < 0.02, np.nan, size_bytes)),
            pa.array(rng.random(size) < 0.5),
            pa.nulls(size, pa.date32()),
        ],
        schema=ARROW,
    )


def view_of(data: pa.RecordBatch, rows: int, drawn: int = 0) -> SampleView:
    sample = StreamSample(replace(SCHEMA, seed=drawn), rows=rows)
    sample.update(0, Frame(data, "ts"))
    return sample.view()


def held(answer: Answer, exact: Answer) -> dict[str, list[bool]]:
    """Which claims of the outputs hold the truth; those that claim nothing are left out."""
    rows = {row.get("domain"): at for at, row in enumerate(exact.rows())}
    found: dict[str, list[bool]] = {name: [] for name in OUTPUTS}
    for at, row in enumerate(answer.rows()):
        for name in OUTPUTS:
            if row[f"{name}_bound"] == "none":
                continue
            right = exact.estimate(rows[row.get("domain")], name).value
            claim = answer.estimate(at, name)
            slack = 1e-9 * max(1.0, abs(right))
            found[name].append(claim.low - slack <= right <= claim.high + slack)
    return found


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("distribution", ["uniform", "normal", "lognormal-2", "zipf"])
@pytest.mark.parametrize("tail", ["", " WHERE ok", " GROUP BY domain"])
def test_intervals_of_samples_hold_the_truth_as_often_as_they_say(distribution, tail):
    data = population(distribution, 4_000)
    keys = "domain, " if "GROUP" in tail else ""
    query = ask(f"{keys}{SELECTED} FROM requests{tail} WITHIN 5 PERCENT CONFIDENCE 80 PERCENT")
    exact = finish(query, truth(query, data))

    @cache
    def scores(number: int) -> dict[str, list[bool]]:
        view = view_of(data, 600, seed("cross", tail, distribution, number))
        return held(finish(query, evidence_from_sample(query, view)), exact)

    def score(name: str, number: int) -> tuple[int, int]:
        return sum(scores(number)[name]), len(scores(number)[name])

    for name in OUTPUTS:
        outcome = holds(partial(score, name), 0.8, trials=TRIALS)
        assert outcome, (name, outcome)


def test_a_correlation_of_a_sample_is_known_to_a_thirtieth():
    data = population("normal", 50_000, noise=0.5)
    query = ask("CORR(bytes, client) AS corr, COVAR_SAMP(bytes, client) AS samp FROM requests")
    exact = finish(query, truth(query, data))
    answer = finish(query, evidence_from_sample(query, view_of(data, 8_000)))
    assert answer.estimate(0, "corr").half_width < 1 / 30
    assert exact.estimate(0, "corr").value == pytest.approx(0.89, abs=0.02)
    assert answer.rows()[0]["samp_bound"] == "interval"


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 2, 90])
@pytest.mark.parametrize("distribution", ["normal", "constant", "lognormal-2"])
@pytest.mark.parametrize("group", ["", "domain"])
def test_a_sample_of_everything_is_exact(size, distribution, group):
    data = population(distribution, size)
    query = ask(
        f"domain, {SELECTED} FROM requests GROUP BY domain"
        if group
        else f"{SELECTED} FROM requests"
    )
    answer = finish(query, evidence_from_sample(query, view_of(data, 100)))
    exact = {row.get("domain"): row for row in finish(query, truth(query, data)).rows()}
    for row in answer.rows():
        for name in OUTPUTS:
            right = exact[row.get("domain")][name]
            assert row[f"{name}_bound"] == "exact"
            assert row[name] == (
                None if right is None else pytest.approx(right, rel=1e-9, abs=1e-9)
            )


def test_a_sample_that_may_have_missed_the_spread_claims_no_more_than_what_is_always_true():
    data = population("constant", 3_000)
    query = ask("CORR(bytes, bytes) AS c, REGR_SLOPE(bytes, bytes) AS b FROM requests")
    [row] = finish(query, evidence_from_sample(query, view_of(data, 100))).rows()
    assert (row["c"], row["c_low"], row["c_high"]) == (None, -1.0, 1.0)
    assert (row["c_bound"], row["b_bound"]) == ("interval", "none")


def test_an_infinite_range_claims_nothing():
    data = population("normal", 3_000)
    infinite = np.array(data.column("bytes").to_numpy(zero_copy_only=False))
    infinite[7] = np.inf
    spoiled = data.set_column(3, ARROW.field("bytes"), pa.array(infinite))
    query = ask(f"{SELECTED} FROM requests")
    [row] = finish(query, evidence_from_sample(query, view_of(spoiled, 100))).rows()
    assert {row[f"{name}_bound"] for name in OUTPUTS} == {"none"}
    [row] = finish(query, truth(query, spoiled)).rows()
    assert {row[name] for name in OUTPUTS} == {None}


def on_time_evidence(query: BoundQuery, data: pa.RecordBatch, late: int) -> Evidence:
    """The exact evidence with the sums that panes have."""
    exact = truth(query, data)
    names = exact_rows(query, data).column("g0").to_pylist() if query.groups else [None]
    numbers = {name: at for at, name in enumerate(names)}
    frame = Frame(data, "ts")
    domains = data.column("domain").to_pylist()
    crosses = {}
    for aggregate in query.aggregates:
        assert aggregate.argument is not None
        assert aggregate.second is not None
        pairs = frame.pairs(aggregate.argument, aggregate.second)
        rows = range(data.num_rows) if pairs.rows is None else pairs.rows.tolist()
        ids = [numbers[domains[row]] if query.groups else 0 for row in rows]
        moments = GroupedCrossMoments(len(names))
        moments.update(np.array(ids, np.int32), pairs.first, pairs.second)
        crosses[aggregate] = moments.sums()
    return replace(exact, late=late, crosses=crosses)


@pytest.mark.slow
@pytest.mark.parametrize("late", [1, 9, 150])
@pytest.mark.parametrize("kind", ["random", "lowest", "corners"])
@pytest.mark.parametrize("group", ["", "domain"])
@pytest.mark.parametrize("distribution", ["normal", "lognormal-2"])
def test_the_answer_with_the_late_pairs_is_inside(late, kind, group, distribution):
    data = population(distribution, 400)
    x = np.nan_to_num(data.column("bytes").to_numpy(zero_copy_only=False))
    y = data.column("client").fill_null(0).to_numpy()
    worth = {
        "random": np.random.default_rng(late).random(400),
        "lowest": x,
        "corners": -np.abs((x - x.mean()) * (y - y.mean())),
    }[kind]
    on_time = data.take(pa.array(np.sort(np.argsort(worth, kind="stable")[late:])))
    query = ask(
        f"domain, {SELECTED} FROM requests GROUP BY domain"
        if group
        else f"{SELECTED} FROM requests"
    )
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    widened = finish(query, widen_late(query, on_time_evidence(query, on_time, late), basics))
    for name, each in held(widened, finish(query, truth(query, data))).items():
        assert all(each), name
        assert len(each) == widened.table.num_rows, name


def test_one_late_pair_moves_a_correlation_of_many_a_little():
    data = population("uniform", 20_000, noise=0.1)
    query = ask("CORR(bytes, client) AS c FROM requests")
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    widened = finish(query, widen_late(query, on_time_evidence(query, data, 1), basics))
    assert 0 < widened.estimate(0, "c").half_width < 0.01


def test_late_pairs_of_unknown_range_or_of_unknown_sums_leave_no_bound_but_of_a_correlation():
    data = population("normal", 100)
    query = ask(f"{SELECTED} FROM requests")
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    blind = widen_late(query, replace(truth(query, data), late=1), basics)
    endless = {**basics, "bytes": ColumnBasics(100, 0, 0.0, np.inf)}
    unbounded = widen_late(query, on_time_evidence(query, data, 1), endless)
    [row] = finish(query, unbounded).rows()  # An infinite value makes all of them NULL.
    assert {row[f"{name}_bound"] for name in OUTPUTS} == {"none"}
    [row] = finish(query, blind).rows()
    bounds = {text.split("(")[0]: row[f"{name}_bound"] for name, text in OUTPUTS.items()}
    assert bounds.pop("CORR") == "interval"
    assert set(bounds.values()) == {"none"}
