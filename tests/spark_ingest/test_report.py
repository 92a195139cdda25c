"""The report says what was found, needs nothing else, and is safe to open."""

import dataclasses
import datetime as dt
import json
import math
import re
import xml.etree.ElementTree as ET

import pytest

from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.statements.statement import Target, TargetKind
from shedder.queries.certification.value_verdict import (
    Claim,
    Ranks,
    judge_quantile,
    judge_top,
    judge_value,
)
from spark_ingest.report import AccuracyReport, Effort, Refusal, to_html, to_json, write
from spark_ingest.scores import GroupCount, Judged, Made, Tally, pooled

TARGET = Target(TargetKind.RELATIVE, 0.2)


def counted(question: int, value: float, *, truth: float, key: str = "") -> Judged:
    claim = Claim(value, 0.9 * value, 1.1 * value, "interval", True)
    verdict = judge_value(AggregateFunction.COUNT, claim, truth, TARGET)
    return Judged(question, key, "COUNT(*)", "sample", 0.95, verdict)


def thinned(question: int, level: int) -> Judged:
    """A count of a column with a heavy tail, of so many bytes, read at 2^-level."""
    made = Made("bytes", "heavy tail", 2.0**-level, 4096 << question)
    return dataclasses.replace(counted(question, 100.0 + level, truth=100.0), made=made)


def report(judged: list[Judged], questions: tuple[str, ...] = ("SELECT 1",)) -> AccuracyReport:
    created = dt.datetime(2026, 1, 2, 3, 4)
    refused = (Refusal("SELECT nothing", "BadQuery: expected a column"),)
    return AccuracyReport("flights", created, 7, questions, tuple(judged), refused)


@pytest.fixture
def mixed() -> AccuracyReport:
    ranks = Ranks(n=100, below_low=40, to_high=60, below=49, upto=51)
    median = judge_quantile(Claim(7.0, 6.0, 8.0, "interval", None), 0.5, ranks, None)
    unbounded = judge_value(AggregateFunction.MAX, Claim(1, None, None, "none", None), 9, None)
    exact = judge_value(AggregateFunction.SUM, Claim(5, None, None, "exact", True), 5, TARGET)
    return report(
        [
            *(counted(at, 100.0 + at, truth=101.0) for at in range(12)),
            counted(12, 100.0, truth=200.0, key="<b>JFK</b>"),
            Judged(13, "", "QUANTILE", "log buckets", 0.95, median),
            Judged(14, "", "MAX", "sample", 0.95, unbounded),
            Judged(15, "", "SUM", "moments", 1.0, exact),
        ],
        tuple(f"SELECT {at} WHERE origin = '<script>'" for at in range(16)),
    )


def test_the_page_needs_nothing_else_and_escapes_what_data_say(mixed):
    page = to_html(mixed)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;JFK&lt;/b&gt;" in page
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", page)


def test_page_and_json_count_intervals_and_certain_values_one_by_one(mixed):
    """A certain interval is no interval that may miss, and each group is a value."""
    certain = judge_value(AggregateFunction.MIN, Claim(3, 2, 4, "interval", True), 3, TARGET)
    rows = [
        *mixed.judged,
        *(counted(12, 100.0, truth=101.0, key=key) for key in "ab"),
        Judged(15, "", "MIN", "sample", 1.0, certain),
    ]
    found = dataclasses.replace(mixed, judged=tuple(rows))
    assert found.intervals == Tally(values=16, held=15, questions=14)
    assert found.certain == Tally(values=2, held=2, questions=1)
    page, plain = to_html(found), to_json(found)
    assert re.search(r"<b>15\s+/ 16</b>\s+<span>intervals held the truth \(93.8 %\)", page)
    assert re.search(r"<b>2\s+/ 2</b>\s+<span>values that claimed certainty", page)
    assert plain["intervals"] == {"values": 16, "held": 15, "questions": 14}
    assert plain["certain"] == {"values": 2, "held": 2, "questions": 1}
    assert found.intervals.values == pooled(found.judged)[-1].values


def test_who_refuses_much_has_not_passed(mixed):
    assert mixed.passed
    assert mixed.failure == ""
    refusals = [Refusal(f"SELECT {at}", "BudgetExceeded: no room") for at in range(2)]
    silent = dataclasses.replace(mixed, refused=tuple(refusals))
    assert not silent.passed
    assert silent.failure == "2 questions were refused: BudgetExceeded: no room"
    assert "too few answered" in to_html(silent)
    assert not dataclasses.replace(mixed, judged=(), questions=()).answered


def test_the_worst_are_those_that_an_interval_held(mixed):
    assert mixed.worst
    assert {one.question for one in mixed.worst}.isdisjoint({14})  # From nowhere to anywhere.


def test_every_plot_is_well_formed(mixed):
    pictures = re.findall(r"<svg.*?</svg>", to_html(mixed), re.DOTALL)
    assert len(pictures) == 5
    for picture in pictures:
        assert "nan" not in picture
        ET.fromstring(picture)


@pytest.mark.slow
def test_what_thinning_and_bytes_did_to_errors_is_drawn_and_counted_by_the_shape_of_data():
    rows = [thinned(at, at % 3) for at in range(18)]
    found = dataclasses.replace(
        report(rows, tuple(f"SELECT {at}" for at in range(18))),
        groups=GroupCount(answers=3, there=30, answered=27, declared=2, undeclared=1),
        effort=Effort(passes=4, questions=18, seconds=2.5),
    )
    page = to_html(found)
    assert "bytes · heavy tail" in page
    assert all(name in page for name in ("all read", "1/2 read", "1/4 read", "4 KiB"))
    assert "27 were listed and\n2 were not" in page
    assert "(0.22 passes each,\n2.5 s)" in page
    plain = to_json(found)
    assert plain["groups"]["undeclared"] == 1
    assert plain["values"][1]["thinning"] == 0.5
    assert [gate["aggregate"] for gate in plain["gates"]] == ["COUNT(*)", "bytes", "all", "all"]
    for picture in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(picture)


def test_misses_are_shown_with_the_question_that_repeats_them(mixed):
    (missed,) = mixed.misses
    assert missed.question == 12
    assert "SELECT 12 WHERE" in to_html(mixed)


@pytest.mark.slow
def test_the_json_holds_every_value_and_is_strict_json(mixed, tmp_path):
    as_json, as_html = write(mixed, tmp_path / "deep" / "er")
    text = as_json.read_text()
    found = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert found == json.loads(json.dumps(to_json(mixed)))
    assert len(found["values"]) == 16
    assert found["passed"] is True
    assert as_html.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("value", [dt.datetime(2026, 1, 2), dt.date(2026, 1, 2), math.nan, "JFK"])
def test_lists_of_values_of_any_type_are_strict_json(value, tmp_path):
    items = [{"value": value, "count": 3, "low": 3, "high": 4, "guaranteed": True}]
    listed = judge_top(Claim(items, None, None, "interval", None), {value: 3}, 2, 1)
    as_json, _ = write(report([Judged(0, "", "TOP", "frequent", 0.95, listed)]), tmp_path)
    found = json.loads(as_json.read_text(), parse_constant=pytest.fail)
    [item] = found["values"][0]["value"]
    shown = value.isoformat() if isinstance(value, dt.date) else value
    assert item == {**items[0], "value": None if value != value else shown}


@pytest.mark.parametrize(
    ("value", "high", "truth"),
    [(1.0, math.inf, math.inf), (math.inf, math.inf, 1.0), (1, 9, 1e-310)],
)
def test_errors_that_are_not_finite_are_none_and_not_drawn(value, high, truth, tmp_path):
    verdict = judge_value(
        AggregateFunction.MAX, Claim(value, 0.0, high, "interval", None), truth, None
    )
    assert verdict.held
    assert verdict.error is None
    assert verdict.half_width is None
    rows = [Judged(at, "", "MAX", "sample", 0.95, verdict) for at in range(6)]
    as_json, _ = write(report(rows), tmp_path)
    json.loads(as_json.read_text(), parse_constant=pytest.fail)


def test_a_report_fails_when_a_certain_value_is_wrong_once():
    wrong = judge_value(AggregateFunction.SUM, Claim(5, None, None, "exact", None), 6, None)
    assert not report([Judged(0, "", "SUM", "moments", 1.0, wrong)]).passed


def test_a_report_of_nothing_but_answers_without_a_bound_does_not_pass():
    verdict = judge_value(AggregateFunction.SUM, Claim(5, None, None, "none", None), 6, None)
    found = dataclasses.replace(report([Judged(0, "", "SUM", "moments", 1.0, verdict)]), refused=())
    assert not found.passed
    assert found.failure.startswith("nothing was claimed that could be judged")


def test_a_report_that_judged_nothing_does_not_pass():
    assert not report([]).passed
    assert "too few answered" in to_html(report([]))


def test_an_open_interval_is_drawn_without_infinite_numbers():
    claim = Claim(5, 4, None, "interval", None)
    verdict = judge_value(AggregateFunction.COUNT, claim, 6, None)
    assert verdict.half_width is None
    page = to_html(report([Judged(0, "", "COUNT(*)", "sample", 0.95, verdict)]))
    assert str(math.inf) not in re.sub(r"<style>.*</style>", "", page, flags=re.DOTALL)
