"""Answers by group from a stratified sample: they hold, and small groups are known as well."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.streams.frame import Frame
from shedder.streams.live_sample import SampleView, StreamSample
from tests.queries.asking import ARROW, SCHEMA, ask, truth
from tests.scale import scaled
from tests.seeds import seed
from tests.truth import draw, gate

STRATA = {("domain",): ("bytes",)}
OUTPUTS = {
    "rows": "COUNT(*)",
    "count": "COUNT(bytes)",
    "total": "SUM(bytes)",
    "whole": "SUM(client)",
    "average": "AVG(bytes)",
    "least": "MIN(bytes)",
    "latest": "MAX(client)",
    "variance": "VARIANCE(bytes)",
    "deviation": "STDDEV(client)",
    "clients": "COUNT(DISTINCT client)",
    "p90": "QUANTILE(bytes, 0.9)",
    "share": "CDF(bytes, 0.5)",
}
SELECTED = ", ".join(f"{text} AS {name}" for name, text in OUTPUTS.items())


def population(
    distribution: str, size: int, groups: int = 12, shift: float = 3.0
) -> pa.RecordBatch:
    """Groups of Zipf sizes; bytes as drawn and, by group, further from zero."""
    rng = np.random.default_rng([5, size])
    group = np.minimum(rng.zipf(1.4, size), groups)
    values = draw(distribution, 3, size) + 3.0 * group
    client = np.clip(np.floor(values), -(2**50), 2**50).astype(np.int64)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(size), pa.timestamp("us")),
            pa.array([f"d{g}" for g in group], mask=group == groups),  # NULL is a group, too.
            pa.array(client),
            pa.array(values, mask=rng.random(size) < 0.03),
            pa.array(rng.random(size) < 0.2),
            pa.nulls(size, pa.date32()),
        ],
        schema=ARROW,
    )


def view_of(
    data: pa.RecordBatch,
    rows: int,
    seed: int = 0,
    *,
    stratified: bool = True,
    weighted: bool = False,
) -> SampleView:
    sample = StreamSample(
        replace(SCHEMA, seed=seed),
        rows=rows,
        strata=STRATA if stratified else None,
        weighted=["bytes"] if weighted else [],
    )
    for first in range(0, data.num_rows, 500):
        sample.update(first, Frame(data.slice(first, 500), SCHEMA.time_column))
    return sample.view()


def answer_of(text: str, view: SampleView) -> Answer:
    query = ask(text)
    return finish(query, evidence_from_sample(query, view))


DISTRIBUTIONS = ["normal", "lognormal-2", "zipf", "constant", "spike"]
CLAUSES = [("", "domain"), (" WHERE ok", "domain"), ("", "domain, ok")]


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("distribution", range(5), ids=DISTRIBUTIONS)
@pytest.mark.parametrize("clauses", range(3), ids=["all", "some", "two keys"])
@pytest.mark.parametrize("turn", range(scaled(1, 2)))
def test_intervals_hold_the_truth_as_often_as_they_say(
    distribution: int, clauses: int, turn: int
) -> None:
    """A per-change run covers every pair of distribution, query and kind of sample."""
    intervals_hold(
        DISTRIBUTIONS[distribution],
        *CLAUSES[clauses],
        weighted=bool((distribution + clauses + seed("kinds") + turn) % 2),
    )


def intervals_hold(distribution: str, where: str, keys: str, *, weighted: bool) -> None:
    data = population(distribution, 6_000)
    text = f"{keys}, {SELECTED} FROM requests{where} GROUP BY {keys} WITHIN 5 PERCENT"
    query = ask(text)
    names = keys.split(", ")
    exact = {tuple(row[k] for k in names): row for row in finish(query, truth(query, data)).rows()}
    held: dict[str, list[bool]] = defaultdict(list)
    for number in range(12):
        answer = answer_of(text, view_of(data, 400, number, weighted=weighted))
        assert answer.sources == ("stratified sample",)
        found = set()
        for at, row in enumerate(answer.rows()):
            key = tuple(row[k] for k in names)
            found.add(key)
            for name in OUTPUTS:
                right, bound = exact[key][name], row[f"{name}_bound"]
                if bound == "none":
                    continue
                if right is None:
                    assert row[name] is None, (name, key)
                    continue
                estimate = answer.estimate(at, name)
                slack = 1e-9 * max(1.0, abs(right))
                inside = estimate.low - slack <= right <= estimate.high + slack
                assert inside or bound == "interval", (name, key, row[name], right)
                if bound == "interval":
                    held[name].append(inside)
        missed = [exact[key]["rows"] for key in exact.keys() - found]
        assert not missed or answer.missing is not None
        if missed and answer.missing is not None:
            assert answer.missing.weight_max is not None
            held["missing"].append(max(missed) < answer.missing.weight_max)
    for name, each in held.items():
        assert sum(each) >= gate(len(each), 0.95), (name, sum(each), len(each))


@pytest.mark.parametrize(
    ("output", "times"),
    [("QUANTILE(bytes, 0.5)", 5.0), ("AVG(client)", 2.5), ("AVG(bytes)", 0.0), ("COUNT(*)", 0.0)],
)
def test_at_equal_rows_the_worst_group_is_known_far_better(output: str, times: float) -> None:
    data = population("normal", 60_000, groups=40)
    text = f"domain, {output} AS a FROM requests GROUP BY domain"
    uniform = answer_of(text, view_of(data, 2_000, stratified=False))
    by_group = answer_of(text, view_of(data, 2_000))

    def worst(answer: Answer) -> float:
        return max(
            answer.estimate(at, "a").half_width / abs(answer.estimate(at, "a").value)
            for at in range(answer.table.num_rows)
        )

    assert by_group.table.num_rows == 40
    assert worst(by_group) * max(times, 1.0) <= worst(uniform)
    if not times:
        assert worst(by_group) == 0.0  # Counts and moments of measures are taken of all tuples.


def test_groups_that_fit_are_exact_and_none_is_missing() -> None:
    data = population("lognormal-2", 20_000, groups=90)
    text = f"domain, {SELECTED} FROM requests GROUP BY domain"
    answer, exact = answer_of(text, view_of(data, 3_000)), finish(ask(text), truth(ask(text), data))
    right = {row["domain"]: row for row in exact.rows()}
    assert answer.missing is None
    assert {row["domain"] for row in answer.rows()} == set(right)
    small = [row for row in answer.rows() if right[row["domain"]]["rows"] <= 16]
    assert small
    for row in small:
        for name in OUTPUTS:
            assert row[f"{name}_bound"] == "exact", (name, row)
            assert row[name] == pytest.approx(right[row["domain"]][name], rel=1e-9)


def test_groups_without_room_share_a_stratum_and_may_be_missing() -> None:
    size = 40_000
    data = population("normal", size)
    at = data.schema.get_field_index("domain")
    many = np.random.default_rng(1).integers(0, 300, size)
    data = data.set_column(at, data.schema.field(at), pa.array([f"g{m}" for m in many]))
    answer = answer_of("domain, COUNT(*) AS n FROM requests GROUP BY domain", view_of(data, 1_000))
    counts = np.bincount(many)
    assert answer.missing is not None
    held = 0
    for row in answer.rows():
        held += row["n_low"] <= counts[int(row["domain"][1:])] <= row["n_high"]
    assert held >= gate(answer.table.num_rows, 0.95)
    seen = {row["domain"] for row in answer.rows()}
    assert answer.missing.weight_max is not None
    assert answer.missing.weight_max > max(
        (counts[m] for m in range(300) if f"g{m}" not in seen), default=0
    )


@pytest.mark.parametrize(
    "text",
    [
        "COUNT(*) AS n FROM requests",
        "ok, COUNT(*) AS n FROM requests GROUP BY ok",
        "domain, TOP(client, 3) AS t FROM requests GROUP BY domain",
        "UPPER(domain) AS d, COUNT(*) AS n FROM requests GROUP BY UPPER(domain)",
    ],
)
def test_other_questions_are_asked_of_the_uniform_sample(text: str) -> None:
    assert answer_of(text, view_of(population("normal", 3_000), 200)).sources == ("sample",)


def test_an_empty_stream_has_no_groups() -> None:
    view = view_of(population("normal", 0), 50)
    answer = answer_of("domain, AVG(bytes) AS a FROM requests GROUP BY domain", view)
    assert answer.rows() == []


@pytest.mark.parametrize("half", [0, 1_500, 4_000])
def test_a_stored_sample_of_strata_goes_on_as_if_it_had_not_stopped(half: int) -> None:
    data = population("normal", 5_000)

    def fed(sample: StreamSample, first: int, end: int) -> StreamSample:
        for at in range(first, end, 500):
            sample.update(at, Frame(data.slice(at, min(500, end - at)), SCHEMA.time_column))
        return sample

    whole = fed(StreamSample(SCHEMA, rows=300, strata=STRATA), 0, 5_000)
    stopped = fed(StreamSample(SCHEMA, rows=300, strata=STRATA), 0, half)
    resumed = fed(StreamSample.from_bytes(SCHEMA, stopped.to_bytes()), half, 5_000)
    assert resumed.to_bytes() == whole.to_bytes()
    assert resumed.strata == STRATA
    assert resumed.size_bytes > 0
