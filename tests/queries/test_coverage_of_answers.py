"""Answers from a stream's sample, end to end: every aggregate holds the truth as often as it says.

A cell is one output of one query over one population, asked of samples with fresh seeds. Sums,
averages and distinct counts are asked with and without their own weighted and hashed samples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.query import BoundQuery
from shedder.queries.answer import Answer
from shedder.queries.finish import finish
from shedder.queries.from_sample import evidence_from_sample
from shedder.streams.frame import Frame
from shedder.streams.sample import SampleView, StreamSample
from tests.queries.asking import ARROW, SCHEMA, ask, truth
from tests.truth import draw, gate, keeps_its_promise

POPULATION, ROWS, TRIALS = 6_000, 400, 40
CONFIDENCE, POOLED_SLACK, POOLED_TRIALS_MIN = 0.95, 0.01, 1_000
DRAWN = ("uniform", "normal", "zipf", "lognormal-2", "constant", "adversarial")
SELECTIVITIES = {1.0: "", 0.01: " WHERE ok"}
OUTPUTS = {
    "rows": "COUNT(*)",
    "count": "COUNT(bytes)",
    "total": "SUM(bytes)",
    "whole total": "SUM(client)",
    "average": "AVG(bytes)",
    "least": "MIN(bytes)",
    "greatest": "MAX(client)",
    "variance": "VARIANCE(bytes)",
    "deviation": "STDDEV(client)",
    "clients": "COUNT(DISTINCT client)",
    "domains": "COUNT(DISTINCT domain)",
    "both": "DISTINCT_BOTH(client, bytes > 0.5, domain = 'd1')",
    "only": "DISTINCT_ONLY(client, bytes > 0.5, domain = 'd1')",
    "alike": "JACCARD(client, bytes > 0.5, domain <> 'd1')",
    "p90": "QUANTILE(bytes, 0.9)",
    "median": "MEDIAN(client)",
    "share": "CDF(bytes, 0.5)",
    "tail share": "CDF(client, 3)",
    "top": "TOP(client, 5)",
    "frequent": "FREQUENT(client, 0.1)",
    "surely frequent": "FREQUENT(client, 0.05 NO FALSE POSITIVES)",
    "buckets": "HISTOGRAM(bytes, [0, 0.5, 1, 3])",
    "ratio": "SUM(bytes) / COUNT(*)",
    "difference": "SUM(client - bytes)",
}
SHARES = {"frequent": 0.1, "surely frequent": 0.05}
SELECTED = ", ".join(f'{text} AS "{name}"' for name, text in OUTPUTS.items())
GROUPED = {"one row": "", "grouped": " GROUP BY domain"}
KINDS = ("uniform", "every kind")


def population(name: str, size: int) -> pa.RecordBatch:
    """A stream in the distribution's own order: bytes as drawn, client their whole part."""
    rng = np.random.default_rng([20261121, size])
    values = draw(name, 7, size)
    client = np.clip(np.floor(values), -1e6, 1e6).astype(np.int64)
    sizes = np.where(rng.random(size) < 0.01, np.nan, values)
    domain = np.minimum(rng.zipf(1.5, size), 7)
    columns = [
        pa.array(np.arange(size), pa.timestamp("us")),
        pa.array([f"d{d}" for d in domain], mask=rng.random(size) < 0.02),
        pa.array(client, pa.int64()),
        pa.array(sizes, mask=rng.random(size) < 0.05),
        pa.array(rng.random(size) < 0.01),
        pa.array((client % 30).astype(np.int32)).view(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def view_of(data: pa.RecordBatch, rows: int, seed: int) -> SampleView:
    """A sample of every kind, that came in several batches."""
    schema = replace(SCHEMA, seed=seed)
    sample = StreamSample(schema, rows=rows, weighted=["bytes", "client"], hashed=["client"])
    for first in range(0, data.num_rows, 2_500):
        sample.update(first, Frame(data.slice(first, 2_500), schema.time_column))
    return sample.view()


def of_kind(view: SampleView, kind: str) -> SampleView:
    """The same sample without those parts that few streams have."""
    return view if kind == "every kind" else replace(view, weighted={}, hashed={})


def query_of(selectivity: float, grouped: str) -> BoundQuery:
    """All outputs in one query; each is at the query's confidence by itself."""
    keys = "domain, " if GROUPED[grouped] else ""
    return ask(f"{keys}{SELECTED} FROM requests{SELECTIVITIES[selectivity]}{GROUPED[grouped]}")


@dataclass(frozen=True, slots=True)
class Truth:
    """The exact answer by group: its outputs, and how often each client occurs."""

    outputs: Mapping[Any, Mapping[str, Any]]
    counts: Mapping[Any, Counter[int]]

    @classmethod
    def of(cls, query: BoundQuery, data: pa.RecordBatch) -> Truth:
        counts: dict[Any, Counter[int]] = defaultdict(Counter)
        for row in data.select(["domain", "client", "ok"]).to_pylist():
            if row["ok"] or query.where is None:
                counts[row["domain"] if query.groups else None][row["client"]] += 1
        exact = finish(query, truth(query, data))
        return cls({row.get("domain"): row for row in exact.rows()}, counts)

    def held_by(self, answer: Answer, at: int, row: Mapping[str, Any], output: str) -> bool:
        """Whether one value of the answer holds it: a whole list at once."""
        if output == "top":
            return _list_holds(row["top"], self.counts[row.get("domain")])
        if output in SHARES:
            counts, positives = self.counts[row.get("domain")], output == "surely frequent"
            bound = row[f"{output}_bound"]
            return keeps_its_promise(
                row[output], bound, counts, SHARES[output], positives=positives
            )
        if output == "buckets":
            exact = self.outputs[row.get("domain")][output]
            return all(
                found["low"] <= true["count"] <= found["high"]
                for found, true in zip(row[output], exact, strict=True)
            )
        exact, found = self.outputs[row.get("domain")][output], answer.estimate(at, output)
        if exact is None or row[output] is None:
            return exact is None and row[output] is None
        slack = 1e-9 * max(abs(exact), 1.0)  # Sums of doubles differ in their last bits.
        return found.low - slack <= exact <= found.high + slack


def _list_holds(items: Sequence[Mapping[str, Any]], counts: Counter[int]) -> bool:
    outside = set(counts) - {item["value"] for item in items}
    most = max((counts[client] for client in outside), default=0)
    return all(
        item["low"] <= counts[item["value"]] <= item["high"]
        and (not item["guaranteed"] or counts[item["value"]] >= most)
        for item in items
    )


@dataclass(slots=True)
class Score:
    """Claims of one cell and those that held; exact ones apart, for they may not miss once."""

    tried: int = 0
    held: int = 0
    exact_tried: int = 0
    exact_held: int = 0

    def add(self, held: bool, *, exact: bool) -> None:
        if exact:
            self.exact_tried += 1
            self.exact_held += held
        else:
            self.tried += 1
            self.held += held


Cell = tuple[str, str, float, str, str]  # output, distribution, selectivity, grouped, kind


def measured() -> dict[Cell, Score]:
    """Every cell: all queries are asked of each of the samples."""
    scores: dict[Cell, Score] = defaultdict(Score)
    for number, name in enumerate(DRAWN):
        data = population(name, POPULATION)
        asked = [(s, g, query_of(s, g)) for s in SELECTIVITIES for g in GROUPED]
        truths = [Truth.of(query, data) for _, _, query in asked]
        for trial in range(TRIALS):
            view = view_of(data, ROWS, seed=1_000 * number + trial)
            for kind in KINDS:
                for (selectivity, grouped, query), known in zip(asked, truths, strict=True):
                    answer = finish(query, evidence_from_sample(query, of_kind(view, kind)))
                    for at, row in enumerate(answer.rows()):
                        for output in OUTPUTS:
                            bound = row[f"{output}_bound"]
                            if bound != "none":
                                score = scores[output, name, selectivity, grouped, kind]
                                held = known.held_by(answer, at, row, output)
                                score.add(held, exact=bound == "exact")
    return scores


@pytest.fixture(scope="module")
def scores() -> dict[Cell, Score]:
    return measured()


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("output", OUTPUTS)
def test_every_aggregate_holds_the_truth_as_often_as_it_says(output, scores):
    cells = {cell: score for cell, score in scores.items() if cell[0] == output}
    for cell, score in cells.items():
        assert score.exact_held == score.exact_tried, cell
        # Groups of one sample are not independent trials: one sample counts as one.
        samples = min(score.tried, TRIALS)
        needed = gate(samples, CONFIDENCE) * score.tried / max(samples, 1)
        assert score.held >= needed, (cell, score)
    tried, held = (sum(getattr(s, what) for s in cells.values()) for what in ("tried", "held"))
    assert tried >= POOLED_TRIALS_MIN
    assert held >= (CONFIDENCE - POOLED_SLACK) * tried, held / tried


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("output", ["least", "greatest"])
def test_extremes_that_spend_no_confidence_never_miss(output, scores):
    assert all(s.held == s.tried for cell, s in scores.items() if cell[0] == output)


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("output", [name for name in OUTPUTS if name != "frequent"])
def test_every_aggregate_makes_a_claim_in_every_population(output, scores):
    claimed = {cell[1:4] for cell, s in scores.items() if cell[0] == output and s.tried}
    claimed |= {cell[1:4] for cell, s in scores.items() if cell[0] == output and s.exact_tried}
    assert claimed == {(d, s, g) for d in DRAWN for s in SELECTIVITIES for g in GROUPED}


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 90])
@pytest.mark.parametrize("name", DRAWN)
def test_no_tuple_one_tuple_and_samples_of_everything_are_answered_exactly(name, size):
    data = population(name, size)
    for selectivity in SELECTIVITIES:
        for grouped in GROUPED:
            query = query_of(selectivity, grouped)
            known = Truth.of(query, data)
            for kind in KINDS:
                found = evidence_from_sample(query, of_kind(view_of(data, 90, seed=size), kind))
                answer = finish(query, found)
                assert {row.get("domain") for row in answer.rows()} == set(known.outputs)
                assert found.missing is None
                for at, row in enumerate(answer.rows()):
                    for output in OUTPUTS:
                        assert row[f"{output}_bound"] == "exact", (output, row)
                        assert known.held_by(answer, at, row, output), (output, row)
