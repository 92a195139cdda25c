"""One-time queries: which source answers, and what happens when it cannot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shedder.errors import BudgetExceeded, DeadlineExceeded, PrecisionUnavailable
from shedder.queries.choose import Source, Stretch, answer_once, choose, explain_once
from shedder.queries.evidence import Evidence
from shedder.queries.from_exact import SOURCE as ARCHIVE
from shedder.queries.from_sample import SOURCE as SAMPLE
from tests.queries.asking import ask, rows, truth
from tests.queries.test_from_sample import view_of

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
