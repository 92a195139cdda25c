"""Answers: what they say to people and to the wire."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from shedder.queries.answers.answer import Answer, ArchiveRead, MissingGroups
from shedder.queries.answers.text_format import shown
from shedder.queries.evidence.answer_builder import finish
from synopses.model.estimate import Bound
from tests.queries.asking import ask, between, evidence, known


def answer() -> Answer:
    query = ask("domain, COUNT(*) AS n, COUNT(DISTINCT client) AS c FROM requests GROUP BY domain")
    found = evidence(query, [["a", "b"]], known(1204113, 5), between([200, 7], [198, 5], [203, 9]))
    return finish(query, found)


def test_a_value_reads_as_plus_minus_percent_at_its_confidence():
    assert shown(1204113, 1194480, 1213746, "interval", 0.95) == "1,204,113 ± 0.8 % (95 %)"
    assert shown(7, 7, 7, "exact") == "7"
    assert shown(7, 7, 7, "interval", 0.95) == "7 (95 %)"
    assert shown(None) == "NULL"
    assert shown(0, 0, 3, "interval", 0.95) == "0 ± 3 (95 %)"
    assert shown(5.0, None, None, "none") == "5 (no bound)"
    assert shown(None, 1, 3, "interval") == "NULL, in [1, 3]"


def test_an_answer_prints_one_cell_per_estimate():
    lines = str(answer()).splitlines()
    assert lines[0].split() == ["domain", "n", "c"]
    assert "1,204,113" in lines[2]
    assert "200 ± 1.5 % (95 %)" in lines[2]
    assert "late: " not in str(answer())


def test_columns_stay_in_line_beside_wide_letters_and_marks():
    names = ["日本語", "e\u0301", "Łódź", "plain"]
    lines = str(Answer(pa.table({"name": names, "n": [1, 20, 300, 4]}))).splitlines()
    assert lines == [
        "name      n",
        "──────  ───",
        "日本語    1",
        "e\u0301        20",
        "Łódź    300",
        "plain     4",
    ]


def test_an_answer_that_late_tuples_widen_says_so():
    assert "late: 1,200 tuples" in str(replace(answer(), late=1200))


def test_everything_but_the_table_travels_as_json():
    whole = Answer(
        answer().table,
        query="SELECT 1",
        start_us=0,
        end_us=60_000_000,
        resolution_us=1_000_000,
        watermark_us=5,
        position=12,
        late=3,
        complete=False,
        sources=("moments", "hll"),
        missing=MissingGroups(99.0, 0.95, "why"),
        others=1,
        notes=("n",),
        missed=2,
        elapsed_ms=1.5,
        archive=ArchiveRead("uniform(0.5)", 0.4, 0.5, 0.45, 0.55, 32, 64, 10_000, 20_000, 2),
    )
    facts = json.loads(json.dumps(whole.facts()))
    assert facts.keys() == {field.name for field in fields(Answer)} - {"table"}
    assert MissingGroups(**facts.pop("missing")) == whole.missing
    assert ArchiveRead(**facts.pop("archive")) == whole.archive
    lists = {name: tuple(facts.pop(name)) for name in ("sources", "notes")}
    assert replace(whole, **facts, **lists).facts() == whole.facts()
    assert whole.window == (
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
    )


def test_an_estimate_comes_back_with_its_interval():
    found = answer().estimate(0, "c")
    assert (found.value, found.low, found.high, found.bound) == (200, 198, 203, Bound.INTERVAL)
    assert answer().estimate(1, "n").half_width == 0
    with pytest.raises(TypeError):
        answer().estimate(0, "domain")
    with pytest.raises(KeyError, match="no column 'sum'; the answer has domain, "):
        answer().estimate(0, "sum")


def test_a_status_is_an_answer_too():
    status = Answer.status("stream requests created")
    assert status.rows() == [{"status": "stream requests created"}]
    assert "stream requests created" in str(status)
    assert status.met is None


def test_explain_says_what_was_asked_of_the_archive_given_and_read():
    part = ArchiveRead("by_age('1 day')", 0.0, 0.75, 0.0, 0.77, 32, 64, 10_000, 2_000_000, 2)
    text = Answer(answer().table, archive=part).explain()
    assert "by_age('1 day'): asked 0 % to 75 %, given 0 % to 77 %" in text
    assert "32 of 64" in text
    assert "10,000 of 2,000,000" in text
    assert "reduced by" not in Answer(answer().table).explain()


def test_a_notebook_shows_what_print_shows():
    assert repr(answer()) == str(answer())


def test_what_is_certain_of_missing_groups_is_called_so():
    text = Answer(answer().table, missing=MissingGroups(86.0, 1.0)).explain()
    assert "none of 86 tuples or more is missing (for certain)" in text


def test_explain_names_window_sources_and_missing_groups():
    text = Answer(answer().table, sources=("sample",), missing=MissingGroups(400.0, 0.95)).explain()
    assert "[-∞, ∞)" in text
    assert "none of 400 tuples or more is missing (95 %)" in text
