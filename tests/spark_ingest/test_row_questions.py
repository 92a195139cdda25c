"""Row questions of `shedder accuracy`: joins, set operations and subqueries, judged by Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import shedder
from shedder.queries.answers.answer import Answer, InputProgress
from spark_ingest.accuracy import AccuracyPlan, ask_all, draw, judged_by_spark
from spark_ingest.baseline import relation, sealed_stream
from spark_ingest.profile import StreamProfile, profile
from spark_ingest.relational.row_question import (
    LEFT,
    RIGHT,
    RowKind,
    SideWindow,
    row_questions,
)
from spark_ingest.relational.row_truth import RowCase, judge_rows
from tests.scale import scaled
from tests.spark_ingest.archives import stream_schema

SECOND = 1_000_000
ROWS = 2_000
QUESTIONS = scaled(8, 64)
CREATE = (
    "CREATE STREAM s (ts TIMESTAMP NOT NULL, x DOUBLE, k BIGINT, g VARCHAR, b BOOLEAN) "
    "TIMESTAMP BY ts"
)


def rows() -> pa.Table:
    """Ten seconds of tuples, with NULL, NaN and texts that need escapes."""
    rng = np.random.default_rng(5)
    nowhere = rng.random(ROWS) < 0.1
    return pa.table(
        {
            "ts": pa.array(np.sort(rng.integers(0, 10 * SECOND, ROWS)), pa.timestamp("us")),
            "x": rng.choice([0.5, 1.5, np.nan, 2.5], ROWS),
            "k": pa.array(rng.zipf(1.4, ROWS) % 50, mask=nowhere),
            "g": rng.choice(["a'b", "c\\", "${d}", None], ROWS),
            "b": rng.random(ROWS) < 0.5,
        }
    )


@pytest.fixture(scope="module")
def looks() -> StreamProfile:
    table = rows()
    schema = stream_schema("s", table.schema)
    return profile(schema, table, start_us=0, end_us=10 * SECOND)


def test_questions_are_of_every_kind_both_ways_and_the_same_for_one_seed(
    looks: StreamProfile,
) -> None:
    drawn = row_questions(looks, rows=ROWS, seed=3, count=40, standing_share=0.5)
    assert Counter(each.kind for each in drawn if each.standing).keys() == set(RowKind)
    assert Counter(each.kind for each in drawn if not each.standing).keys() == set(RowKind)
    assert drawn == row_questions(looks, rows=ROWS, seed=3, count=40, standing_share=0.5)
    assert drawn != row_questions(looks, rows=ROWS, seed=4, count=40, standing_share=0.5)


def test_a_stream_without_keys_has_selections_and_one_without_columns_nothing(
    looks: StreamProfile,
) -> None:
    numbers = tuple(column for column in looks.columns if column.name == "x")
    drawn = row_questions(replace(looks, columns=numbers), rows=ROWS, seed=3, count=9)
    assert {each.kind for each in drawn} == {RowKind.ROWS}
    assert row_questions(replace(looks, columns=()), rows=ROWS, seed=3, count=9) == []


def test_windows_of_standing_questions_end_at_the_instant_of_the_answer() -> None:
    assert SideWindow(None, 5).span(100) == (95, 100)
    assert SideWindow(7, 5).span(100) == (7, 12)


@pytest.mark.spark
@pytest.mark.slow
def test_answers_of_every_kind_are_true_and_an_altered_answer_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    plan = AccuracyPlan(seed=1, count=QUESTIONS, standing_share=0.5, row_share=1.0)
    with shedder.open(tmp_path) as db:
        db.execute(CREATE)
        db.push("s", rows())
        answered = ask_all(db, tmp_path, "s", draw(db, tmp_path, "s", plan))
    assert not answered.refused
    sealed = sealed_stream(tmp_path, "s")
    report = judged_by_spark(spark, sealed, answered, subject="s", seed=1)
    assert [one.verdict.held for one in report.judged] == [True] * plan.count
    assert {one.aggregate for one in report.judged} == {kind.value for kind in RowKind}
    assert (report.passed, report.unjudged) == (True, 0)

    whole = max(answered.rows, key=lambda case: case.answer.table.num_rows)
    table = whole.answer.table
    shorter, longer = table.slice(1), pa.concat_tables([table, table.slice(0, 1)])
    answers = [
        replace(whole.answer, table=shorter),
        replace(whole.answer, table=longer),
        replace(whole.answer, table=shorter, cut="cut behind a limit"),
        replace(whole.answer, table=longer, cut="cut behind a limit"),
    ]
    with relation(spark, sealed) as name:
        cases = [replace(whole, answer=answer) for answer in answers]
        judged = judge_rows(spark, name, "ts", cases)
    assert [one.verdict.truth for one in judged] == [1, 1, 0, 1]
    assert [one.verdict.held for one in judged] == [False, False, True, False]


@pytest.mark.parametrize("lacking", ["late", "dropped", "lost"])
def test_an_answer_that_lacks_tuples_is_not_judged(looks: StreamProfile, lacking: str) -> None:
    (question,) = row_questions(looks, rows=ROWS, seed=3, count=1)
    whole = InputProgress("s", LEFT, position=ROWS, as_of_us=SECOND)
    missing = replace(whole, alias=RIGHT, **{lacking: 1})
    table = pa.table({"k": [1]})
    assert RowCase(0, question, Answer(table, inputs=(whole, whole))).judgeable
    assert not RowCase(0, question, Answer(table, inputs=(whole, missing))).judgeable
