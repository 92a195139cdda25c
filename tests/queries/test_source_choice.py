"""One-time queries: the plan that is chosen from what is known, and how EXPLAIN prints it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shedder.queries.one_time.plan import KnownSources, PlanStep, Source, TimeRange
from shedder.queries.one_time.source_choice import choose, explained
from shedder.streams.basics import ColumnBasics
from shedder.streams.live_sample import SampleView
from synopses.intervals.sequential_looks import MET_OVER
from tests.queries.asking import ARROW, SCHEMA, ask, rows
from tests.queries.plans import PART, REDUCED
from tests.queries.sampled import view_of

DATA = rows(5000)
VIEW = view_of(DATA, 1000)
LATER = replace(VIEW, first=7)
ROLLUP = PlanStep(Source.ROLLUP, "m", "its windows are as fine", 90, "m: 90 rows for 3 runs")
INDEX = PlanStep(Source.INDEX, "client", "WHERE keeps little", 40, "client: about 40 of 5,000")
FILES = PlanStep(Source.ARCHIVE, tuples=5_000)
TIGHT, LOOSE = " WITHIN 0.001 PERCENT", " WITHIN 50 PERCENT"
COUNTED = "COUNT(*) AS n FROM requests WHERE ok"
AVERAGED = "AVG(bytes) AS a FROM requests WHERE ok"
NONE_MATCH = "domain, AVG(bytes) AS a FROM requests WHERE bytes > 1e9 GROUP BY domain"
NEEDED = "REDUCE BY uniform(0.5)"

SAMPLE, PARTLY, REDUCING = Source.SAMPLE, Source.PART, Source.REDUCED
ROLLED, INDEXED, EXACT = Source.ROLLUP, Source.INDEX, Source.ARCHIVE


@pytest.mark.parametrize(
    ("text", "known", "sources", "reason"),
    [
        (COUNTED, {}, (EXACT,), "the query has no target"),
        (COUNTED, {"exact": ROLLUP}, (ROLLED,), "the query has no target"),
        (COUNTED, {"exact": ROLLUP, "is_soonest": True}, (ROLLED,), ROLLUP.reason),
        (COUNTED + LOOSE, {"exact": INDEX, "is_soonest": True}, (INDEXED,), INDEX.reason),
        (COUNTED, {"part": REDUCED}, (REDUCING, EXACT), "the query says REDUCE BY"),
        (COUNTED + LOOSE, {"part": REDUCED}, (REDUCING, EXACT), "the query says REDUCE BY"),
        (f"{COUNTED}{LOOSE} {NEEDED}", {}, (EXACT,), "REDUCE BY has no effect on what is stored"),
        (COUNTED + LOOSE, {}, (SAMPLE,), "every value of the sample meets the target"),
        (COUNTED + LOOSE, {"exact": INDEX}, (SAMPLE,), "every value of the sample meets"),
        (COUNTED + LOOSE, {"part": PART}, (SAMPLE,), "every value of the sample meets the target"),
        (AVERAGED + LOOSE, {"part": PART}, (PARTLY, EXACT), "1,000 rows is too few to plan by"),
        (COUNTED + TIGHT, {}, (EXACT,), "the sample misses: n is"),
        (COUNTED + TIGHT, {"exact": INDEX}, (INDEXED,), "the sample misses: n is"),
        (COUNTED + TIGHT, {"part": PART}, (PARTLY, EXACT), "the sample misses: n is"),
        (COUNTED + TIGHT, {"part": PART, "exact": ROLLUP}, (PARTLY, ROLLED), "the sample misses"),
        (COUNTED + TIGHT + " ELSE FAIL", {}, (EXACT,), "the sample misses: n is"),
        (NONE_MATCH + LOOSE, {}, (EXACT,), "the sample has no row to estimate from"),
        (COUNTED + LOOSE, {"sample": None}, (EXACT,), "there is no sample"),
        (COUNTED + LOOSE, {"sample": None, "part": PART}, (PARTLY, EXACT), "there is no sample"),
        (COUNTED + LOOSE, {"sample": LATER}, (EXACT,), "the sample begins at position 7"),
    ],
)
def test_sources_follow_from_what_is_known(text, known, sources, reason):
    plan = choose(ask(text), KnownSources(**{"sample": VIEW} | known))
    assert tuple(step.source for step in plan.steps) == sources
    assert reason in plan.steps[0].reason
    assert [step.reason for step in plan.steps[1:]] == ["if no part suffices"] * (len(sources) - 1)


def test_only_a_sample_that_is_asked_predicts():
    for text, known in ((COUNTED, {}), (COUNTED + LOOSE, {"is_soonest": True})):
        plan = choose(ask(text), KnownSources(sample=VIEW, **known))
        assert (plan.look, plan.predicted) == (None, None)
    plan = choose(ask(COUNTED + TIGHT), KnownSources(sample=VIEW))
    assert plan.predicted is not None
    assert plan.predicted.estimate(0, "n").half_width > 0.0


def test_ranks_and_lists_are_not_taken_for_met_by_far():
    """Their distance from the target is no ratio of half widths and values."""
    view = view_of(rows(60_000), 12_000)
    for text in (
        "MEDIAN(bytes) AS m FROM requests WITHIN 0.02 RANK",
        "TOP(client, 2) AS t FROM requests WITHIN 20 PERCENT",
    ):
        plan = choose(ask(text), KnownSources(sample=view))
        assert plan.steps[0].source is Source.SAMPLE
        assert plan.look is not None
        assert plan.look.error > 1.0 / MET_OVER


@pytest.mark.slow
@pytest.mark.parametrize("meets", [0.125, 0.5])
def test_what_is_shown_as_an_interval_holds_given_that_it_is_shown(meets):
    """A target that one sample in eight meets: of the intervals shown 0.77 held."""
    values, rng = (
        np.random.default_rng(5).random(20_000),
        np.random.default_rng([6, round(1 / meets)]),
    )
    ok = pa.array(np.random.default_rng(7).random(20_000) < 0.5)
    data = rows(20_000).set_column(3, ARROW.field("bytes"), pa.array(values))
    data = data.set_column(4, ARROW.field("ok"), ok)
    basics = {one.name: ColumnBasics.of(data.column(one.name)) for one in SCHEMA.columns}
    true = values[np.asarray(ok)].mean()

    def view():
        kept = pa.array(np.sort(rng.choice(20_000, 1_500, replace=False)))
        return SampleView(SCHEMA, 0, 20_000, data.take(kept), basics, {}, {})

    def plan(query, each):
        return choose(query, KnownSources(sample=each))

    text = "AVG(bytes) AS a FROM requests WHERE ok WITHIN {:.9f} PERCENT"
    views, far = [view() for _ in range(200)], ask(text.format(0.1))
    errors = [plan(far, each).look.error for each in views]
    query = ask(text.format(0.1 * float(np.quantile(errors, meets))))
    found = [plan(query, each) for each in (*views, *(view() for _ in range(200)))]
    shown = [each.predicted for each in found if each.steps[0].source is Source.SAMPLE]
    held = sum(answer.estimate(0, "a").holds(true) for answer in shown)
    assert len(shown) >= 400 * meets / 2
    assert held >= 0.95 * len(shown)


def lines_of(text: str, **known) -> list[str]:
    sources = KnownSources(**{"sample": VIEW, "exact": FILES, "archive": "5,000 tuples"} | known)
    query = ask(text)
    return explained(query, sources, choose(query, sources)).splitlines()


def test_explain_says_the_stretch_in_moments():
    lines = lines_of(COUNTED, stretch=TimeRange(1_767_225_600_000_000, None))
    assert "stretch:   [2026-01-01 00:00:00.000Z, ∞)" in lines
    assert "stretch:   [-∞, ∞)" in lines_of(COUNTED)


def test_explain_prints_every_step_with_its_reason_and_what_it_reads():
    first, because, then, *rest = lines_of(COUNTED + TIGHT, part=PART, exact=ROLLUP)
    assert first == "source:    the archive, as much of it as the target needs"
    assert because.startswith("because:   the sample misses: n is")
    assert then == "then:      the rollup m, exactly, if no part suffices (90 tuples)"
    assert "reduced:   by until_error()" in rest
    assert any(line.startswith("predicted: n: ") for line in rest)
    assert rest[-1] == "rollup:    m: 90 rows for 3 runs"


def test_explain_of_one_step_says_what_it_reads():
    assert lines_of(COUNTED + LOOSE)[::2][:2] == [
        "source:    the live sample",
        "reads:     0 tuples",
    ]
    assert lines_of(COUNTED)[:3] == [
        "source:    the archive and the tail, exactly",
        "because:   the query has no target",
        "reads:     5,000 tuples",
    ]
    assert any("1,000 of 5,000 rows" in line for line in lines_of(COUNTED))
    assert lines_of(COUNTED, exact=INDEX, is_soonest=True) == [
        "source:    the index on client, exactly",
        "because:   WHERE keeps little",
        "reads:     40 tuples",
        "target:    no target",
        "stretch:   [-∞, ∞)",
        "index:     client: about 40 of 5,000",
    ]
