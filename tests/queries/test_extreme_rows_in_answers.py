"""Answers from a live sample beside the extreme rows of its stream: narrow, and true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shedder.queries.evidence.answer_builder import finish
from shedder.queries.one_time.plan import KnownSources, Source
from shedder.queries.one_time.source_choice import PLANNED_BY_MIN, choose, explained
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.streams.frame import Frame
from shedder.streams.live_sample import SampleView, StreamSample
from tests.queries.asking import ARROW, SCHEMA, ask
from tests.queries.plans import PART
from tests.truth import gate

SIZE, ROWS = 6_000, 1_024  # 16 rows are kept at each end of the two numeric columns.
GROUPS = 4
SPIKES = 12


def stream_of(seed: int, *, spike: float = 1e5) -> pa.RecordBatch:
    """Twelve values of 10^5 in a column that is else 10 +- 1, in four groups."""
    rng = np.random.default_rng(seed)
    size = rng.normal(10.0, 1.0, SIZE)
    size[rng.choice(SIZE, SPIKES, replace=False)] = spike
    columns = [
        pa.array(np.arange(SIZE), pa.timestamp("us")),
        pa.array([f"d{at}" for at in rng.integers(0, GROUPS, SIZE)]),
        pa.array(rng.integers(1, 4, SIZE), mask=rng.random(SIZE) < 0.1),
        pa.array(size, mask=rng.random(SIZE) < 0.05),
        pa.array(rng.random(SIZE) < 0.5),
        pa.array(np.zeros(SIZE, np.int32)).view(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def view_of(data: pa.RecordBatch, seed: int = 0) -> SampleView:
    sample = StreamSample(replace(SCHEMA, seed=seed), rows=ROWS)
    for first in range(0, data.num_rows, 1_000):
        sample.update(first, Frame(data.slice(first, 1_000), SCHEMA.time_column))
    return sample.view()


QUERY = "SUM({x}) AS s, AVG({x}) AS a, VAR({x}) AS v, STDDEV({x}) AS d FROM requests"
ENDS = {"": (None, None), "window": (1_000, 5_000)}


def truths(data: pa.RecordBatch, x: str, where: str, window: str, group: str | None) -> dict:
    """The exact answers, by numpy."""
    size, client = (
        data[name].cast(pa.float64()).to_numpy(zero_copy_only=False) for name in ("bytes", "client")
    )
    values = {"bytes": size, "bytes * client": size * client, "bytes - client": size - client}[x]
    chosen = ~np.isnan(values)
    if where:
        chosen &= data["ok"].to_numpy(zero_copy_only=False)
    if group is not None:
        chosen &= np.array(data["domain"].to_pylist()) == group
    first, last = ENDS[window]
    if first is not None:
        chosen[:first], chosen[last:] = False, False
    there = values[chosen]
    return {"s": there.sum(), "a": there.mean(), "v": there.var(ddof=1), "d": there.std(ddof=1)}


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize(
    ("x", "grouped", "where", "window"),
    [
        ("bytes", False, "", ""),
        ("bytes", False, " WHERE ok", ""),
        ("bytes", True, "", ""),
        ("bytes", True, " WHERE ok", "window"),
        ("bytes * client", True, "", ""),
        ("bytes - client", False, "", "window"),
    ],
)
def test_intervals_are_narrow_and_hold_the_truth_as_often_as_they_say(x, grouped, where, window):
    text = ("domain, " if grouped else "") + QUERY.format(x=x) + where
    query = ask(text + (" GROUP BY domain" if grouped else ""))
    start_us, end_us = ENDS[window]
    trials, held, narrow = 40, dict.fromkeys("savd", 0), 0
    data = stream_of(1)
    group = "d1" if grouped else None
    known = truths(data, x, where, window, group)
    for seed in range(trials):
        view = view_of(data, seed)
        answers = [
            finish(query, evidence_from_sample(query, each, start_us=start_us, end_us=end_us))
            for each in (view, replace(view, extremes=None))
        ]
        row, without = (
            next(row for row in answer.rows() if row.get("domain") == group) for answer in answers
        )
        for name, truth in known.items():
            assert row[f"{name}_bound"] == "interval"
            slack = 1e-9 * abs(truth)
            held[name] += row[f"{name}_low"] - slack <= truth <= row[f"{name}_high"] + slack
        narrow += 4 * (row["s_high"] - row["s_low"]) < without["s_high"] - without["s_low"]
    assert narrow == trials
    for name, count in held.items():
        assert count >= gate(trials, 0.95), (name, count)


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("grouped", [False, True])
def test_correlations_are_narrower_beside_extreme_rows_and_hold(grouped: bool) -> None:
    data = stream_of(1)
    text = "CORR(bytes, bytes + client) AS r FROM requests"
    query = ask(f"domain, {text} GROUP BY domain" if grouped else text)
    group = "d1" if grouped else None
    size, client = (
        data[name].cast(pa.float64()).to_numpy(zero_copy_only=False) for name in ("bytes", "client")
    )
    chosen = ~np.isnan(size) & ~np.isnan(client)
    if grouped:
        chosen &= np.array(data["domain"].to_pylist()) == group
    right = np.corrcoef(size[chosen], (size + client)[chosen])[0, 1]
    trials, held, widths = 40, 0, []
    for seed in range(trials):
        view = view_of(data, seed)
        rows = [
            next(row for row in finish(query, evidence_from_sample(query, each)).rows()
                 if row.get("domain") == group)
            for each in (view, replace(view, extremes=None))
        ]  # fmt: skip
        assert rows[0]["r_low"] <= rows[0]["r"] <= rows[0]["r_high"]
        held += rows[0]["r_low"] - 1e-9 <= right <= rows[0]["r_high"] + 1e-9
        widths.append([row["r_high"] - row["r_low"] for row in rows])
    assert held >= gate(trials, 0.95)
    beside, without = np.mean(widths, axis=0)
    assert beside <= 0.7 * without


def test_a_group_with_an_infinite_value_has_no_sum_and_the_others_have() -> None:
    data = stream_of(2)
    size = data["bytes"].to_numpy(zero_copy_only=False).copy()
    group = data["domain"][7].as_py()
    size[7] = np.inf
    view = view_of(data.set_column(3, "bytes", pa.array(size)))
    query = ask("domain, SUM(bytes) AS s, AVG(bytes) AS a FROM requests GROUP BY domain")
    for row in finish(query, evidence_from_sample(query, view)).rows():
        bound = "none" if row["domain"] == group else "interval"
        assert (row["s_bound"], row["a_bound"]) == (bound, bound)


def same_without(view: SampleView, text: str) -> bool:
    """Whether a query has the same intervals without the extreme rows."""
    found, expected = (
        evidence_from_sample(ask(text), each).estimates
        for each in (view, replace(view, extremes=None))
    )
    ends = (
        (column.low, column.high, column.bound, expected[aggregate])
        for aggregate, column in found.items()
    )
    return all(
        np.array_equal(low, other.low, equal_nan=True)
        and np.array_equal(high, other.high, equal_nan=True)
        and np.array_equal(bound, other.bound)
        for low, high, bound, other in ends
    )


def test_a_column_without_extreme_values_is_averaged_by_group_as_without_extreme_rows() -> None:
    """Twenty groups of which few rows were read; `bytes` has extreme rows, `client` has none."""
    groups = np.full(SIZE, "most", object)
    groups[-400:] = [f"d{at % 20}" for at in range(400)]
    view = view_of(stream_of(10).set_column(1, "domain", pa.array(groups)))
    text = "domain, AVG(client) AS a, STDDEV(client) AS d FROM requests GROUP BY domain"
    assert same_without(view, text)
    assert not same_without(view, text.replace("client", "bytes"))


def test_whole_numbers_that_doubles_do_not_hold_are_asked_without_extreme_rows() -> None:
    data = stream_of(3)
    client = np.arange(SIZE) % 7 + 2**60
    client[:5] = 2**61
    view = view_of(data.set_column(2, "client", pa.array(client)))
    text = "SUM(client) AS s, AVG(client) AS a, VAR(client) AS v FROM requests WHERE ok"
    assert same_without(view, text)
    assert not same_without(view, text.replace("client", "bytes"))


def test_values_whose_squares_no_double_holds_are_asked_without_extreme_rows() -> None:
    assert same_without(
        view_of(stream_of(4, spike=1e200)), "VAR(bytes) AS v FROM requests WHERE ok"
    )


def test_rows_of_which_none_matches_add_nothing() -> None:
    view = view_of(stream_of(5))
    query = ask("SUM(bytes) AS s FROM requests WHERE bytes BETWEEN 9.9 AND 10.1")
    [row] = finish(query, evidence_from_sample(query, view)).rows()
    size = view.rows["bytes"].to_numpy(zero_copy_only=False)
    seen = size[(size >= 9.9) & (size <= 10.1)].sum()
    assert row["s"] == pytest.approx(seen * SIZE / ROWS, rel=0.03)
    assert row["s_low"] < row["s"] < row["s_high"] < 1e5


ALL = "COUNT(*) AS n, COUNT(client) AS c, SUM(bytes) AS s, MEDIAN(bytes) AS m, MAX(bytes) AS most"


@pytest.mark.parametrize("ok", ["", " AND ok"])
def test_a_filter_that_no_other_row_passes_is_answered_exactly(ok) -> None:
    data = stream_of(6)
    view = view_of(data)
    query = ask(f"{ALL} FROM requests WHERE bytes > 1000{ok}")
    found = evidence_from_sample(query, view)
    [row] = finish(query, found).rows()
    size = data["bytes"].to_numpy(zero_copy_only=False)
    chosen = size > 1_000
    if ok:
        chosen &= data["ok"].to_numpy(zero_copy_only=False)
    there = data["client"].is_valid().to_numpy(zero_copy_only=False)
    assert (row["n"], row["c"]) == (chosen.sum(), (chosen & there).sum())
    assert (row["s"], row["m"], row["most"]) == (size[chosen].sum(), 1e5, 1e5)
    assert {row[f"{name}_bound"] for name in ("n", "c", "s", "m", "most")} == {"exact"}
    assert found.position == SIZE


def test_a_filter_that_no_row_at_all_passes_is_answered_exactly() -> None:
    query = ask(f"{ALL} FROM requests WHERE bytes > 1e9")
    [row] = finish(query, evidence_from_sample(query, view_of(stream_of(6)))).rows()
    assert (row["n"], row["c"], row["s"], row["m"], row["most"]) == (0, 0, None, None, None)
    assert {row[f"{name}_bound"] for name in ("n", "c", "s", "m", "most")} == {"exact"}


def test_a_filter_that_other_rows_may_pass_is_not() -> None:
    view = view_of(stream_of(6))
    _, high = view.extremes.ends["bytes"]
    for where, bound in ((f"bytes >= {high!r}", "interval"), (f"bytes > {high!r}", "exact")):
        query = ask(f"COUNT(*) AS n FROM requests WHERE {where}")
        [row] = finish(query, evidence_from_sample(query, view)).rows()
        assert row["n_bound"] == bound


def test_the_greatest_value_is_exact_where_an_extreme_row_matches() -> None:
    data = stream_of(7)
    view = view_of(data)
    query = ask("domain, MAX(bytes) AS most, MIN(bytes) AS least FROM requests GROUP BY domain")
    size, groups = (
        data["bytes"].to_numpy(zero_copy_only=False),
        np.array(data["domain"].to_pylist()),
    )
    for row in finish(query, evidence_from_sample(query, view)).rows():
        own = size[groups == row["domain"]]
        assert (row["most"], row["least"]) == (np.nanmax(own), np.nanmin(own))
        assert (row["most_bound"], row["least_bound"]) == ("exact", "exact")
    query = ask("MAX(bytes) AS most FROM requests WHERE bytes < 12")
    [row] = finish(query, evidence_from_sample(query, view)).rows()
    assert row["most_low"] <= np.nanmax(size[size < 12]) <= row["most_high"] < 1e5


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_counts_hold_as_often_as_they_say_where_extreme_rows_match() -> None:
    data = stream_of(8)
    size = data["bytes"].to_numpy(zero_copy_only=False)
    query = ask("COUNT(*) AS n, COUNT(client) AS c FROM requests WHERE bytes > 12.2")
    there = data["client"].is_valid().to_numpy(zero_copy_only=False)
    known = {"n": (size > 12.2).sum(), "c": ((size > 12.2) & there).sum()}
    trials, held = 60, dict.fromkeys(known, 0)
    for seed in range(trials):
        [row] = finish(query, evidence_from_sample(query, view_of(data, seed))).rows()
        for name, truth in known.items():
            held[name] += row[f"{name}_low"] <= truth <= row[f"{name}_high"]
    for name, count in held.items():
        assert count >= gate(trials, 0.95), (name, count)


def test_explain_names_the_extreme_rows_and_a_target_is_met_by_them() -> None:
    view = view_of(stream_of(9))
    query = ask("SUM(bytes) AS s FROM requests WITHIN 2 PERCENT")
    known = KnownSources(sample=view)
    plan = choose(query, known)
    lines = dict(line.split(":", 1) for line in explained(query, known, plan).splitlines()[:7])
    rows = view.extremes.rows
    expected = f"{rows.num_rows:,} rows beyond an end of a column, {rows.nbytes:,} bytes"
    assert lines["extremes"].strip() == expected
    assert plan.steps[0].source is Source.SAMPLE
    without = KnownSources(sample=replace(view, extremes=None))
    assert choose(query, without).steps[0].source is Source.ARCHIVE


def test_the_archive_is_planned_by_the_sample_alone_which_it_is_read_like() -> None:
    view = view_of(stream_of(9))
    query = ask("AVG(bytes) AS s FROM requests WHERE ok WITHIN 0.001 PERCENT")
    looks = [
        choose(query, KnownSources(sample=replace(each, schema=SCHEMA), part=PART)).look
        for each in (whole(view), replace(whole(view), extremes=None))
    ]
    assert looks[0] is not None
    assert looks[0].error == looks[1].error


def whole(view: SampleView) -> SampleView:
    """A view with enough rows to plan by."""
    times = -(-PLANNED_BY_MIN // ROWS)
    rows = pa.Table.from_batches([view.rows] * times).combine_chunks().to_batches()[0]
    return replace(view, rows=rows, position=SIZE * times)
