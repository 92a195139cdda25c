"""Accuracy: ask many questions of a stream, have Spark answer them exactly, and compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, chain
from pathlib import Path

from pyspark.sql import SparkSession

from shedder.queries.answers.database_api import Database
from spark_ingest.baseline import (
    SealedStream,
    check_position,
    reading,
    relation,
    sample_rows,
    sealed_stream,
    stretch_of,
)
from spark_ingest.exact_counts import Passed, Truths, find_truths
from spark_ingest.judgement import Judgement, judge
from spark_ingest.profile import StreamProfile, profile
from spark_ingest.question_runner import AnsweredQuestions, ask
from spark_ingest.relational.row_question import RelationalQuestion, row_questions
from spark_ingest.relational.row_truth import RowCase, judge_rows
from spark_ingest.report import AccuracyReport, Effort
from spark_ingest.row_places import places_by_case
from spark_ingest.scores import Judged
from spark_ingest.workload import Question, questions


@dataclass(frozen=True, slots=True)
class AccuracyPlan:
    """What to ask: how many questions, drawn with which seed, how many of standing queries.

    row_share: of the questions, in [0, 1], that are joins, set operations and other row queries.
    """

    seed: int = 7
    count: int = 400
    standing_share: float = 0.25
    row_share: float = 0.05


def draw(
    database: Database, directory: Path, stream: str, plan: AccuracyPlan
) -> list[Question | RelationalQuestion]:
    """Seal the stream and draw questions from what is in it.

    Raises:
      UnknownStream: it is not there. FailedPrecondition: it holds nothing.
    """
    database.seal(stream)
    sealed = sealed_stream(directory, stream)
    looks, seed, share = reading(sealed, profile_of), plan.seed, plan.standing_share
    count = round(plan.count * plan.row_share)
    rows = row_questions(looks, rows=sealed.rows, seed=seed, count=count, standing_share=share)
    others = questions(looks, seed=seed, count=plan.count - len(rows), standing_share=share)
    return [*others, *rows]


def profile_of(sealed: SealedStream) -> StreamProfile:
    """What the stream's data look like, by a sample of its rows."""
    rows = sample_rows(sealed)
    return profile(sealed.schema, rows, start_us=sealed.start_us, end_us=sealed.end_us)


def ask_all(
    database: Database,
    directory: Path,
    stream: str,
    drawn: Sequence[Question | RelationalQuestion],
    done: Callable[[], None] = lambda: None,
) -> AnsweredQuestions:
    """Ask the questions, then seal the stream, so that the judge sees all that answers know."""
    answered = AnsweredQuestions(sealed_stream(directory, stream).schema)
    ask(database, drawn, answered, done)
    database.seal(stream)
    return answered


def judged_by_spark(
    spark: SparkSession,
    sealed: SealedStream,
    answered: AnsweredQuestions,
    *,
    subject: str,
    seed: int | None,
    notes: Sequence[str] = (),
    passed: Passed = lambda _done, _of: None,
) -> AccuracyReport:
    """Find the truth about every answer and report; passed: is told how far it is.

    Raises:
      FailedPrecondition: an answer knows tuples that are in no run.
    """
    subjects = {subject: answered}
    (report,) = judged_together(spark, sealed, subjects, seed=seed, notes=notes, passed=passed)
    return report


def judged_together(
    spark: SparkSession,
    sealed: SealedStream,
    answered: Mapping[str, AnsweredQuestions],
    *,
    seed: int | None,
    notes: Sequence[str] = (),
    passed: Passed = lambda _done, _of: None,
) -> list[AccuracyReport]:
    """Find the truth about the answers of several, in the passes of one; a report of each.

    Args:
      spark: the session. sealed: the stream that all of them were asked about.
      answered: by subject. seed: of the questions. notes: for each report.
      passed: is told how far Spark is.

    Raises:
      FailedPrecondition: an answer knows tuples that are in no run.
    """
    for case in chain.from_iterable(each.cases for each in answered.values()):
        check_position(sealed, case.answer.position)
    for row_case in chain.from_iterable(each.rows for each in answered.values()):
        check_position(sealed, row_case.end_position)
    firsts = accumulate((len(each.questions) for each in answered.values()), initial=0)
    places = dict(
        zip(answered, firsts, strict=False)
    )  # Of each one's questions among those of all.
    cases = [
        replace(case, number=case.number + places[subject])
        for subject, each in answered.items()
        for case in each.cases
    ]
    began = time.monotonic()

    def found(sealed: SealedStream) -> tuple[Truths, dict[int, bool]]:
        time_column = sealed.schema.time_column
        with relation(spark, sealed, *stretch_of(case.answer for case in cases)) as name:
            values = find_truths(spark, name, time_column, cases, passed)
            return values, places_by_case(spark, name, time_column, cases, archived=True)

    truths, placed = reading(sealed, found)
    rows = {subject: _judged_rows(spark, sealed, each.rows) for subject, each in answered.items()}
    row_cases = sum(map(len, rows.values()))
    passes = truths.passes + len(placed) + row_cases
    effort = Effort(passes, len(cases) + row_cases, time.monotonic() - began)
    shapes = reading(sealed, profile_of).shapes
    reports = []
    for subject, each in answered.items():
        first = places[subject]
        certain = {at - first: holds for at, holds in placed.items()}
        judgement = judge(each.cases, truths.of(first, each.cases), shapes, certain)
        reports.append(_report(subject, each, judgement, rows[subject], effort, seed, notes))
    return reports


def _judged_rows(
    spark: SparkSession, sealed: SealedStream, cases: Sequence[RowCase]
) -> list[Judged]:
    """Judge the row questions whose answers have all tuples of their windows."""
    judgeable = [case for case in cases if case.judgeable]

    def found(sealed: SealedStream) -> list[Judged]:
        with relation(spark, sealed) as name:
            return judge_rows(spark, name, sealed.schema.time_column, judgeable)

    return reading(sealed, found) if judgeable else []


def _report(
    subject: str,
    answered: AnsweredQuestions,
    judgement: Judgement,
    rows: Sequence[Judged],
    effort: Effort,
    seed: int | None,
    notes: Sequence[str],
) -> AccuracyReport:
    return AccuracyReport(
        subject=subject,
        created=datetime.now(UTC),
        seed=seed,
        questions=tuple(answered.questions),
        judged=(*judgement.judged, *rows),
        refused=tuple(answered.refused),
        unjudged=judgement.unjudged + len(answered.rows) - len(rows),
        groups=judgement.groups,
        effort=effort,
        notes=tuple(notes),
    )
