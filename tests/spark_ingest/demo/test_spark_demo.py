"""The tour of the pipeline, with fewer questions and a part of a year instead of three years.

Nightly runs use the whole year.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from shedder.queries.answers.answer import Answer
from spark_ingest.demo.both_ways import WAYS, Flights, Ran, run_both_ways, write_flights
from spark_ingest.demo.questions import STANDING
from spark_ingest.demo.spark import judged_ways, said
from spark_ingest.question_runner import AnsweredQuestions
from spark_ingest.report import AccuracyReport
from spark_ingest.scores import MISSING
from tests.scale import scaled

pytestmark = [pytest.mark.tour, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

DRAWN = 12
EVERY = scaled(8, 1)  # One in `EVERY` flights is sent.
TOUR = [query.name for query in STANDING]


def changed(
    answer: Answer, names: tuple[str, ...], change: Callable[[np.ndarray], object]
) -> Answer:
    """The answer with other numbers in some of its columns."""
    table = answer.table
    for name in names:
        at = table.schema.get_field_index(name)
        values = change(table[name].to_numpy(zero_copy_only=False).astype(np.float64))
        column = pa.array(values, from_pandas=True).cast(table.schema.field(at).type, safe=False)
        table = table.set_column(at, table.schema.field(at), column)
    return replace(answer, table=table)


def one_count_too_many(answered: AnsweredQuestions) -> AnsweredQuestions:
    """Of one carrier, one flight more than there were: a value that claims to be exact."""
    at = TOUR.index("delays_by_carrier")
    case = answered.cases[at]

    def more(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values[:1] + 1, values[1:]])

    wrong = changed(case.answer, ("flights", "flights_low", "flights_high"), more)
    return replace(
        answered,
        cases=[*answered.cases[:at], replace(case, answer=wrong), *answered.cases[at + 1 :]],
    )


def intervals_beside_the_truth(answered: AnsweredQuestions) -> AnsweredQuestions:
    """Each interval of a single number as wide as it was, and where it cannot hold the truth."""
    cases = []
    for case in answered.cases:
        answer = case.answer
        for name, _ in case.aggregates():
            low, high = f"{name}_low", f"{name}_high"
            if low in answer.table.schema.names:
                ends = [answer.table[each].to_numpy(zero_copy_only=False) for each in (low, high)]
                wide = np.subtract(ends[1], ends[0], dtype=np.float64)
                answer = changed(answer, (low, high), lambda values, wide=wide: values + wide + 1)
        cases.append(replace(case, answer=answer))
    return replace(answered, cases=cases)


def thinned(flights: Flights) -> Flights:
    """Keep one in `EVERY` flights, in the same files."""
    size_bytes = rows = 0
    for file in flights.directory.iterdir():
        whole = pq.read_table(file)
        part = whole.take(np.arange(0, len(whole), EVERY))
        pq.write_table(part, file, row_group_size=len(part) // 2 + 1)
        size_bytes, rows = size_bytes + part.nbytes, rows + len(part)
    return replace(flights, size_bytes=size_bytes, rows=rows)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    home = tmp_path_factory.mktemp("tour")
    flights = thinned(write_flights(home / "source", 1))
    return run_both_ways(spark, home, flights, DRAWN, Console(quiet=True))


@pytest.fixture(scope="module")
def reports(spark: SparkSession, ran: Ran) -> dict[str, AccuracyReport]:
    wrong = {
        "one value": one_count_too_many(ran.answered["summarised"]),
        "intervals": intervals_beside_the_truth(ran.answered["summarised"]),
    }
    return judged_ways(spark, ran.sealed, {**ran.answered, **wrong})


def passed(ran: Ran, reports: dict[str, AccuracyReport], tmp_path: Path) -> tuple[bool, str]:
    console = Console(width=160)
    with console.capture() as shown:
        held = said(console, ran, reports, tmp_path)
    return held, shown.get()


def test_both_ways_take_every_flight_once_and_spark_agrees(
    ran: Ran, reports: dict[str, AccuracyReport], tmp_path: Path
) -> None:
    held, report = passed(ran, {way: reports[way] for way in WAYS}, tmp_path)
    assert held, report
    assert f"{ran.flights.rows:,} flights, taken once by both ways: True" in report
    assert 336_776 <= ran.flights.rows * EVERY < 336_776 + 4 * EVERY
    assert "UNLIKE" not in report
    assert len(ran.answered["summarised"].cases) == len(TOUR) + DRAWN
    compared = {each.query for each in ran.panes}
    assert compared >= set(TOUR)
    assert len(compared) + ran.thinned == len(TOUR) + DRAWN
    for way in WAYS:
        assert len(reports[way].questions) == len(TOUR) + DRAWN
        assert {each.question for each in reports[way].judged} == set(range(len(TOUR) + DRAWN))


@pytest.mark.parametrize("way", ["one value", "intervals"])
def test_answers_that_are_falsified_fail_the_tour(
    ran: Ran, reports: dict[str, AccuracyReport], tmp_path: Path, way: str
) -> None:
    held, report = passed(
        ran, {"summarised": reports[way], "forwarded": reports["forwarded"]}, tmp_path
    )
    assert not held
    assert "as often as they say: False" in report
    failed = [score for score in reports[way].gates if not score.passed]
    if way == "one value":
        assert {score.aggregate for score in failed} == {"COUNT(*)"}
    else:
        assert "all" in {score.aggregate for score in failed}
        missed = [
            each for each in reports[way].judged if each.confidence < 1 and not each.verdict.held
        ]
        assert not {each.aggregate for each in missed} & {MISSING}
