"""One-time queries: the sources of a plan are read until the target is met."""

from __future__ import annotations

import pytest

from shedder.errors import BudgetExceeded, DeadlineExceeded, PrecisionUnavailable
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.from_exact import SOURCE as ARCHIVE
from shedder.queries.one_time.plan import ScanEstimate, TimeRange
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.queries.sampling.interval_columns import SOURCE as SAMPLE
from tests.queries.asking import ask, rows, truth
from tests.queries.plans import PART, REDUCED, Archive, answered, too_slow
from tests.queries.sampled import view_of

DATA = rows(5000)
VIEW = view_of(DATA, 1000)
TIGHT, LOOSE = " WITHIN 0.001 PERCENT", " WITHIN 50 PERCENT"
COUNTED = "COUNT(*) AS n FROM requests WHERE ok"


def exactly(query) -> Archive:
    return Archive(lambda: truth(query, DATA))


def test_without_a_target_the_answer_is_exact():
    query = ask(COUNTED)
    assert answered(query, VIEW, exactly(query)).sources == (ARCHIVE,)


def test_a_target_that_the_sample_meets_does_not_read_the_archive():
    answer = answered(ask(COUNTED + LOOSE), VIEW, Archive())
    assert answer.sources == (SAMPLE,)
    assert answer.met is True


def test_a_target_that_the_sample_misses_is_answered_exactly():
    query = ask(COUNTED + TIGHT)
    answer = answered(query, VIEW, exactly(query))
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
    archive = Archive(read=ScanEstimate(truth(query, DATA), 0.0, 0.1))
    assert answered(query, view, archive, PART).sources == (ARCHIVE,)
    assert archive.before == [None]


def test_of_a_count_a_sample_of_a_thousand_rows_plans():
    """Its interval is exact, and as narrow as one of so many rows can be."""
    query = ask(COUNTED + " WITHIN 3 PERCENT")
    archive = exactly(query)
    assert answered(query, VIEW, archive, PART).sources == (ARCHIVE,)
    [look] = archive.before
    assert look is not None
    assert look.share == pytest.approx(0.2)
    assert 1.0 < look.error < 10.0


@pytest.mark.parametrize("part", [None, PART])
@pytest.mark.parametrize(("target", "low", "high"), [(10, 1.3, 1.4), (50, 1.0, 1.05)])
def test_a_sample_is_the_first_look_and_pays_for_it_unless_it_meets_the_target_by_far(
    part, target, low, high
):
    """The first look cost 1.364 times the width, even where the target was met ten times over."""
    data = rows(60_000)
    view = view_of(data, 12_000)
    query = ask(f"{COUNTED} WITHIN {target} PERCENT")
    plain = finish(query, evidence_from_sample(query, view))
    first = answered(query, view, Archive(), part)
    assert first.sources == (SAMPLE,)
    assert first.confidence == pytest.approx(0.95)
    times = first.estimate(0, "n").half_width / plain.estimate(0, "n").half_width
    assert low <= times <= high


def test_what_a_sample_misses_plans_what_is_read_and_everything_is_the_last_resort():
    data = rows(60_000)
    query = ask(COUNTED + " WITHIN 1 PERCENT")
    archive = Archive(lambda: truth(query, data))
    answer = answered(query, view_of(data, 12_000), archive, PART)
    assert answer.rows()[0]["n_bound"] == "exact"
    [look] = archive.before
    assert look is not None
    assert look.share == pytest.approx(0.2)
    assert 1.0 < look.error < 10.0


def test_a_reduction_that_is_asked_once_does_not_go_on_from_the_sample():
    query = ask(COUNTED + " WITHIN 1 PERCENT")
    archive = Archive(read=ScanEstimate(evidence_from_sample(query, VIEW), 0.5, 0.2))
    answered(query, VIEW, archive, REDUCED)
    assert archive.before == [None]


@pytest.mark.parametrize(("contract", "exact"), [("WIDEN", False), ("EXACT", True)])
def test_a_part_that_misses_is_the_answer_only_where_it_was_asked_for(contract, exact):
    query = ask(f"{COUNTED} WITHIN 1 PERCENT ELSE {contract}")
    look = ScanEstimate(evidence_from_sample(query, VIEW), 5.0, 0.2)
    for part in (REDUCED, PART):
        answer = answered(query, None, Archive(lambda: truth(query, DATA), look), part)
        assert answer.met is (exact or part is PART)


def test_a_part_that_was_all_there_was_time_for_is_the_answer():
    query = ask(COUNTED + " WITHIN 1 PERCENT")
    look = ScanEstimate(evidence_from_sample(query, VIEW), 5.0, 0.2, is_late=True)
    assert answered(query, None, Archive(read=look), PART).met is False


def test_when_what_is_left_is_too_slow_the_part_answers_and_says_so():
    query = ask(COUNTED + " WITHIN 1 PERCENT")
    look = ScanEstimate(evidence_from_sample(query, VIEW), 5.0, 0.2)
    answer = answered(query, None, Archive(too_slow, look), PART)
    assert answer.met is False
    assert any("what the part that was read knows" in note for note in answer.notes)


def test_a_sample_without_matching_rows_decides_nothing():
    query = ask("domain, AVG(bytes) AS a FROM requests WHERE bytes > 1e9 GROUP BY domain" + LOOSE)
    assert answered(query, VIEW, exactly(query)).sources == (ARCHIVE,)


def test_when_the_archive_is_too_slow_the_sample_answers_and_says_so():
    answer = answered(ask(COUNTED + TIGHT), VIEW, Archive(too_slow))
    assert answer.sources == (SAMPLE,)
    assert answer.met is False
    assert any("could not be read" in note for note in answer.notes)


def test_when_the_archive_is_too_slow_omit_hides_what_misses():
    answer = answered(ask(COUNTED + TIGHT + " ELSE OMIT"), VIEW, Archive(too_slow))
    assert answer.rows()[0]["n"] is None


@pytest.mark.parametrize(
    ("contract", "error"), [("FAIL", PrecisionUnavailable), ("EXACT", DeadlineExceeded)]
)
def test_when_the_archive_is_too_slow_fail_and_exact_raise(contract, error):
    with pytest.raises(error):
        answered(ask(f"{COUNTED}{TIGHT} ELSE {contract}"), VIEW, Archive(too_slow))


def test_fail_goes_to_the_archive_before_it_fails():
    query = ask(COUNTED + TIGHT + " ELSE FAIL")
    assert answered(query, VIEW, exactly(query)).sources == (ARCHIVE,)


def test_without_a_target_there_is_nothing_to_fall_back_to():
    def too_large() -> Evidence:
        raise BudgetExceeded("more memory than the budget")

    with pytest.raises(BudgetExceeded):
        answered(ask(COUNTED), VIEW, Archive(too_large))


def test_the_answer_says_which_stretch_it_covers():
    stretch = TimeRange(0, 2500, watermark_us=9000, complete=True)
    answer = answered(ask(COUNTED + LOOSE), VIEW, Archive(), stretch=stretch)
    assert (answer.start_us, answer.end_us, answer.watermark_us) == (0, 2500, 9000)
    assert answer.estimate(0, "n").value < 1000


@pytest.mark.parametrize(("contract", "source"), [("WIDEN", SAMPLE), ("EXACT", ARCHIVE)])
def test_one_output_without_a_bound_does_not_send_the_statement_to_the_archive(contract, source):
    query = ask(f"COUNT(*) AS n, LAST(bytes) AS l FROM requests WHERE ok{LOOSE} ELSE {contract}")
    answer = answered(query, VIEW, exactly(query))
    assert answer.sources == (source,)
    [row] = answer.rows()
    assert row["n_met"] is True
    assert (row["l_bound"], row["l_met"]) == (
        ("none", False) if source == SAMPLE else ("exact", True)
    )


def test_a_correlation_that_misses_its_target_is_read_on_for():
    """It lies in [-1, 1], so it has a distance from its target, and more rows can narrow it."""
    query = ask("CORR(bytes, client) AS c FROM requests WITHIN 50 PERCENT")
    archive = exactly(query)
    answered(query, view_of(rows(60_000), 12_000), archive, PART)
    [look] = archive.before
    assert look is not None
    assert 1.0 < look.error < float("inf")
