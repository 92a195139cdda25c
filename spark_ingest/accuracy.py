"""Accuracy: ask many questions of a stream, have Spark answer them exactly, and compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from shedder.queries.database import Database
from spark_ingest.ask import Asked, ask
from spark_ingest.baseline import (
    SealedStream,
    check_position,
    relation,
    sample_rows,
    sealed_stream,
)
from spark_ingest.facts import find_truths
from spark_ingest.judge import judge
from spark_ingest.profile import profile
from spark_ingest.report import Report
from spark_ingest.workload import Question, questions


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask: how many questions, drawn with which seed, how many of standing queries."""

    seed: int = 7
    count: int = 400
    standing_share: float = 0.15


def draw(database: Database, directory: Path, stream: str, plan: Plan) -> list[Question]:
    """Seal the stream and draw questions from what is in it.

    Raises:
      UnknownStream: it is not there, or holds nothing.
    """
    database.seal(stream)
    sealed = sealed_stream(directory, stream)
    looks = profile(
        sealed.schema, sample_rows(sealed), start_us=sealed.start_us, end_us=sealed.end_us
    )
    return questions(looks, seed=plan.seed, count=plan.count, standing_share=plan.standing_share)


def ask_all(
    database: Database,
    directory: Path,
    stream: str,
    drawn: Sequence[Question],
    done: Callable[[], None] = lambda: None,
) -> Asked:
    """Ask the questions, then seal the stream, so that the judge sees all that answers know."""
    asked = Asked(sealed_stream(directory, stream).schema)
    ask(database, drawn, asked, done)
    database.seal(stream)
    return asked


def judged_by_spark(
    spark: SparkSession,
    sealed: SealedStream,
    asked: Asked,
    *,
    subject: str,
    seed: int | None,
    notes: Sequence[str] = (),
) -> Report:
    """Find the truth about every answer and report.

    Raises:
      FailedPrecondition: an answer knows tuples that are in no run.
    """
    for case in asked.cases:
        check_position(sealed, case.answer)
    with relation(spark, sealed) as name:
        truths = find_truths(spark, name, sealed.schema.time_column, asked.cases)
    judgement = judge(asked.cases, truths)
    return Report(
        subject=subject,
        created=datetime.now(UTC),
        seed=seed,
        questions=tuple(asked.questions),
        judged=judgement.judged,
        refused=tuple(asked.refused),
        unjudged=judgement.unjudged,
        notes=tuple(notes),
    )
