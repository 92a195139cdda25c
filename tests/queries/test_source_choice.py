"""One-time queries: which source answers, and what happens when it cannot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from shedder.errors import BudgetExceeded, DeadlineExceeded, PrecisionUnavailable
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.from_exact import SOURCE as ARCHIVE
from shedder.queries.one_time.source_choice import (
    Look,
    Partly,
    Source,
    Stretch,
    answer_once,
    choose,
    explain_once,
)
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.queries.sampling.interval_columns import SOURCE as SAMPLE
from shedder.streams.basics import ColumnBasics
from shedder.streams.live_sample import SampleView
from synopses.intervals.sequential_looks import MET_OVER
from tests.queries.asking import ARROW, SCHEMA, ask, rows, truth
from tests.queries.sampled import view_of

DATA = rows(5000)
VIEW = view_of(DATA, 1000)
TIGHT, LOOSE = " WITHIN 0.001 PERCENT", " WITHIN 50 PERCENT"
COUNTED = "COUNT(*) AS n FROM requests WHERE ok"


def never() -> Evidence:
    raise AssertionError("the archive was read")


def too_slow() -> Evidence:
    raise DeadlineExceeded("no exact answer within 1 s")


def exactly(query) -> Callable[[], Evidence]:
    return lambda: truth(query, DATA)


def test_without_a_target_the_answer_is_exact():
    query = ask(COUNTED)
    assert answer_once(query, VIEW, exactly(query)).sources == (ARCHIVE,)


def test_a_target_that_the_sample_meets_does_not_read_the_archive():
    answer = answer_once(ask(COUNTED + LOOSE), VIEW, never)
    assert answer.sources == (SAMPLE,)
    assert answer.met is True


def test_a_target_that_the_sample_misses_is_answered_exactly():
    query = ask(COUNTED + TIGHT)
    answer = answer_once(query, VIEW, exactly(query))
    assert answer.sources == (ARCHIVE,)
    assert answer.met is True


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (COUNTED, 999),
        ("AVG(bytes) AS n FROM requests WHERE ok", 1_000),
        ("COUNT(*) AS n, AVG(bytes) AS a FROM requests WHERE ok", 1_000),
        ("ok, COUNT(*) AS n FROM requests GROUP BY ok", 1_000),
    ],
)
def test_a_small_sample_is_no_look_where_the_archive_can_be_read_in_part(text, sampled):
    query, view = ask(text + LOOSE), view_of(DATA, sampled)
    part = Look(truth(query, DATA), 0.0, 0.1)
    before: list[Look | None] = []

    def read(look: Look | None) -> Look | None:
        before.append(look)
        return part

    partly = Partly(read, asked_for=False, reads_on=True)
    assert choose(query, view, partly=partly).source is Source.PART
    assert answer_once(query, view, never, partly=partly).sources == (ARCHIVE,)
    assert before == [None]


def test_of_a_count_a_sample_of_a_thousand_rows_plans():
    """Its interval is exact, and as narrow as one of so many rows can be."""
    query = ask(COUNTED + " WITHIN 3 PERCENT")
    before: list[Look | None] = []

    def read(look: Look | None) -> Look | None:
        before.append(look)
        return None

    partly = Partly(read, asked_for=False, reads_on=True)
    assert answer_once(query, VIEW, exactly(query), partly=partly).sources == (ARCHIVE,)
    [look] = before
    assert look is not None
    assert look.share == pytest.approx(0.2)
    assert 1.0 < look.error < 10.0


@pytest.mark.parametrize("partly", [None, Partly(lambda _: None, asked_for=False, reads_on=True)])
@pytest.mark.parametrize(("target", "low", "high"), [(10, 1.3, 1.4), (50, 1.0, 1.05)])
def test_a_sample_is_the_first_look_and_pays_for_it_unless_it_meets_the_target_by_far(
    partly, target, low, high
):
    """The first look cost 1.364 times the width, even where the target was met ten times over."""
    data = rows(60_000)
    view = view_of(data, 12_000)
    query = ask(f"{COUNTED} WITHIN {target} PERCENT")
    plain = finish(query, evidence_from_sample(query, view))
    first = answer_once(query, view, never, partly=partly)
    assert first.sources == (SAMPLE,)
    assert first.confidence == pytest.approx(0.95)
    times = first.estimate(0, "n").half_width / plain.estimate(0, "n").half_width
    assert low <= times <= high


def test_ranks_and_lists_are_not_taken_for_met_by_far():
    """Their distance from the target is no ratio of half widths and values."""
    view = view_of(rows(60_000), 12_000)
    for text in (
        "MEDIAN(bytes) AS m FROM requests WITHIN 0.02 RANK",
        "TOP(client, 2) AS t FROM requests WITHIN 20 PERCENT",
    ):
        choice = choose(ask(text), view)
        assert choice.source is Source.SAMPLE
        assert choice.look is not None
        assert choice.look.error > 1.0 / MET_OVER


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

    text = "AVG(bytes) AS a FROM requests WHERE ok WITHIN {:.9f} PERCENT"
    views, far = [view() for _ in range(200)], ask(text.format(0.1))
    errors = [choose(far, each).look.error for each in views]
    query = ask(text.format(0.1 * float(np.quantile(errors, meets))))
    found = [choose(query, each) for each in (*views, *(view() for _ in range(200)))]
    shown = [each.sampled for each in found if each.source is Source.SAMPLE]
    held = sum(answer.estimate(0, "a").holds(true) for answer in shown)
    assert len(shown) >= 400 * meets / 2
    assert held >= 0.95 * len(shown)


def test_what_a_sample_misses_plans_what_is_read_and_everything_is_the_last_resort():
    data = rows(60_000)
    view = view_of(data, 12_000)
    before: list[Look] = []

    def read(look: Look | None) -> Look | None:
        assert look is not None
        before.append(look)
        return None

    query = ask(COUNTED + " WITHIN 1 PERCENT")
    partly = Partly(read, asked_for=False, reads_on=True)
    answer = answer_once(query, view, lambda: truth(query, data), partly=partly)
    assert answer.rows()[0]["n_bound"] == "exact"
    assert before[0].share == pytest.approx(0.2)
    assert 1.0 < before[0].error < 10.0


@pytest.mark.parametrize(("contract", "exact"), [("WIDEN", False), ("EXACT", True)])
def test_a_part_that_misses_is_the_answer_only_where_it_was_asked_for(contract, exact):
    query = ask(f"{COUNTED} WITHIN 1 PERCENT ELSE {contract}")
    look = Look(evidence_from_sample(query, VIEW), 5.0, 0.2)
    for asked_for in (True, False):
        partly = Partly(lambda _: look, asked_for=asked_for, reads_on=not asked_for)
        answer = answer_once(query, None, lambda: truth(query, DATA), partly=partly)
        assert answer.met is (exact or not asked_for)


def test_a_part_that_was_all_there_was_time_for_is_the_answer():
    query = ask(COUNTED + " WITHIN 1 PERCENT")
    look = Look(evidence_from_sample(query, VIEW), 5.0, 0.2, is_late=True)
    partly = Partly(lambda _: look, asked_for=False, reads_on=True)
    assert answer_once(query, None, never, partly=partly).met is False


def test_when_what_is_left_is_too_slow_the_part_answers_and_says_so():
    query = ask(COUNTED + " WITHIN 1 PERCENT")
    look = Look(evidence_from_sample(query, VIEW), 5.0, 0.2)
    partly = Partly(lambda _: look, asked_for=False, reads_on=True)
    answer = answer_once(query, None, too_slow, partly=partly)
    assert answer.met is False
    assert any("what the part that was read knows" in note for note in answer.notes)


def test_without_a_sample_of_everything_so_far_the_answer_is_exact():
    query = ask(COUNTED + LOOSE)
    assert choose(query, None).source is Source.EXACT


def test_a_sample_without_matching_rows_decides_nothing():
    query = ask("domain, AVG(bytes) AS a FROM requests WHERE bytes > 1e9 GROUP BY domain" + LOOSE)
    assert answer_once(query, VIEW, exactly(query)).sources == (ARCHIVE,)


def test_when_the_archive_is_too_slow_the_sample_answers_and_says_so():
    answer = answer_once(ask(COUNTED + TIGHT), VIEW, too_slow)
    assert answer.sources == (SAMPLE,)
    assert answer.met is False
    assert any("could not be read" in note for note in answer.notes)


def test_when_the_archive_is_too_slow_omit_hides_what_misses():
    answer = answer_once(ask(COUNTED + TIGHT + " ELSE OMIT"), VIEW, too_slow)
    assert answer.rows()[0]["n"] is None


@pytest.mark.parametrize(
    ("contract", "error"), [("FAIL", PrecisionUnavailable), ("EXACT", DeadlineExceeded)]
)
def test_when_the_archive_is_too_slow_fail_and_exact_raise(contract, error):
    with pytest.raises(error):
        answer_once(ask(f"{COUNTED}{TIGHT} ELSE {contract}"), VIEW, too_slow)


def test_fail_goes_to_the_archive_before_it_fails():
    query = ask(COUNTED + TIGHT + " ELSE FAIL")
    assert answer_once(query, VIEW, exactly(query)).sources == (ARCHIVE,)


def test_without_a_target_there_is_nothing_to_fall_back_to():
    def too_large() -> Evidence:
        raise BudgetExceeded("more memory than the budget")

    with pytest.raises(BudgetExceeded):
        answer_once(ask(COUNTED), VIEW, too_large)


def test_the_answer_says_which_stretch_it_covers():
    stretch = Stretch(0, 2500, watermark_us=9000, complete=True)
    answer = answer_once(ask(COUNTED + LOOSE), VIEW, never, stretch)
    assert (answer.start_us, answer.end_us, answer.watermark_us) == (0, 2500, 9000)
    assert answer.estimate(0, "n").value < 1000


def test_explain_says_the_stretch_in_moments():
    text = explain_once(ask(COUNTED), VIEW, Stretch(1_767_225_600_000_000, None))
    assert "[2026-01-01 00:00:00.000Z, ∞)" in text
    assert "[-∞, ∞)" in explain_once(ask(COUNTED), VIEW)


def test_explain_says_the_source_and_why():
    assert "the live sample" in explain_once(ask(COUNTED + LOOSE), VIEW)
    text = explain_once(ask(COUNTED + TIGHT), VIEW)
    assert "the archive" in text
    assert "the sample misses: n is" in text
    assert "1,000 of 5,000 rows" in text
    assert "no target" in explain_once(ask(COUNTED), VIEW)


@pytest.mark.parametrize(("contract", "source"), [("WIDEN", SAMPLE), ("EXACT", ARCHIVE)])
def test_one_output_without_a_bound_does_not_send_the_statement_to_the_archive(contract, source):
    query = ask(f"COUNT(*) AS n, LAST(bytes) AS l FROM requests WHERE ok{LOOSE} ELSE {contract}")
    answer = answer_once(query, VIEW, exactly(query))
    assert answer.sources == (source,)
    [row] = answer.rows()
    assert row["n_met"] is True
    assert (row["l_bound"], row["l_met"]) == (
        ("none", False) if source == SAMPLE else ("exact", True)
    )


def test_a_correlation_that_misses_its_target_is_read_on_for():
    """It lies in [-1, 1], so it has a distance from its target, and more rows can narrow it."""
    query = ask("CORR(bytes, client) AS c FROM requests WITHIN 50 PERCENT")
    before: list[Look | None] = []
    partly = Partly(before.append, asked_for=False, reads_on=True)
    data = rows(60_000)
    answer_once(query, view_of(data, 12_000), exactly(query), partly=partly)
    [look] = before
    assert look is not None
    assert 1.0 < look.error < float("inf")
