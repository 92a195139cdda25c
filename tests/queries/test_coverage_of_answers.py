"""Answers from a stream's sample, end to end: every aggregate holds the truth as often as it says.

A cell is one output of one query over one population, asked of samples with fresh seeds. Sums,
averages and distinct counts are asked with and without their own weighted and hashed samples.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from shedder.queries.evidence.answer_builder import finish
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.streams.frame import Frame
from shedder.streams.live_sample import SampleView, StreamSample
from tests.queries.all_outputs import (
    GROUPED,
    OUTPUTS,
    SELECTIVITIES,
    WITH_OWN_SAMPLES,
    Truth,
    population,
    query_of,
)
from tests.queries.asking import SCHEMA
from tests.scale import scaled
from tests.seeds import seed
from tests.truth import gate

POPULATION, ROWS = 6_000, 400
# Samples of each population: a per-change run draws the even or the odd ones.
NUMBERS = scaled(range(seed("samples") % 2, 40, 2), range(40))
TRIALS = len(NUMBERS)
CONFIDENCE, POOLED_SLACK = 0.95, 0.01
POOLED_TRIALS_MIN = scaled(125, 500)  # Of an output, in each kind of samples in which it is asked.
DRAWN = ("uniform", "normal", "zipf", "lognormal-2", "constant", "adversarial")
# A per-change run draws every other population.
TESTED = scaled(DRAWN[seed("populations") % 2 :: 2], DRAWN)
# Other outputs are the same without the samples that few streams have. Per change they are asked
# beside these samples only where a sample has all tuples (the last test of this file).
KINDS = {
    "uniform": tuple(OUTPUTS),
    "every kind": scaled(WITH_OWN_SAMPLES, tuple(OUTPUTS)),
}


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
    """Return the score of every cell: all queries are asked of each of the samples."""
    scores: dict[Cell, Score] = defaultdict(Score)
    for name in TESTED:
        number = DRAWN.index(name)
        data = population(name, POPULATION)
        cells = [(s, g) for s in SELECTIVITIES for g in GROUPED]
        truths = [Truth.of(query_of(*cell), data) for cell in cells]
        queries = {
            kind: [query_of(*cell, requested) for cell in cells]
            for kind, requested in KINDS.items()
        }
        for trial in NUMBERS:
            view = view_of(data, ROWS, seed=1_000 * number + trial)
            for kind, requested in KINDS.items():
                for cell, query, known in zip(cells, queries[kind], truths, strict=True):
                    answer = finish(query, evidence_from_sample(query, of_kind(view, kind)))
                    for at, row in enumerate(answer.rows()):
                        for output in requested:
                            bound = row[f"{output}_bound"]
                            if bound != "none":
                                score = scores[output, name, *cell, kind]
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
    assert tried >= POOLED_TRIALS_MIN * sum(output in names for names in KINDS.values())
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
    assert claimed == {(d, s, g) for d in TESTED for s in SELECTIVITIES for g in GROUPED}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [(DRAWN[0], 0), *((name, size) for name in DRAWN for size in (1, 90))]
)
def test_no_tuple_one_tuple_and_samples_of_everything_are_answered_exactly(name, size):
    data = population(name, size)
    view = view_of(data, 90, seed=size)
    for selectivity in SELECTIVITIES:
        for grouped in GROUPED:
            query = query_of(selectivity, grouped)
            known = Truth.of(query, data)
            for kind in KINDS:
                found = evidence_from_sample(query, of_kind(view, kind))
                answer = finish(query, found)
                assert {row.get("domain") for row in answer.rows()} == set(known.outputs)
                assert found.missing is None
                for at, row in enumerate(answer.rows()):
                    for output in OUTPUTS:
                        assert row[f"{output}_bound"] == "exact", (output, row)
                        assert known.held_by(answer, at, row, output), (output, row)
