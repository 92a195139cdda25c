"""One-time questions about the past of Linear Road, beside its standing queries."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest

from examples.linear_road.past_questions import (
    COLUMNS,
    MILES,
    Past,
    PastQuestion,
    Questions,
    Schedule,
    digest_of,
)
from examples.linear_road.replay import Replay
from examples.linear_road.road_database import instant, opened
from examples.linear_road.traffic import Traffic, expressways
from examples.linear_road.visibility import visibility
from tests.scale import scaled
from tests.seeds import seed

pytestmark = pytest.mark.slow

MINUTES = scaled(3, 12)
QUESTIONS = scaled(12, 120)
SECONDS = scaled(6, 60)  # Each is pushed, and has a question.
SEGMENTS = 30

_TRUTH = """
    SELECT {} FROM reports
    WHERE xway = {} AND dir = {} AND seg >= {} AND seg <= {}
    AND epoch_us(ts) >= {} AND epoch_us(ts) < {}
"""


def bag(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))


def truth(oracle: duckdb.DuckDBPyConnection, question: PastQuestion) -> pa.Table:
    place = (question.xway, question.direction, question.first, question.last)
    times = (instant(question.start_s), instant(question.end_s))
    return oracle.sql(_TRUTH.format(", ".join(COLUMNS), *place, *times)).to_arrow_table()


def test_questions_beside_the_standing_queries_have_the_rows_of_duckdb(tmp_path):
    """A thread asks while another pushes; each question is about what was pushed before it."""
    roads = [
        Traffic(seed("past questions"), xway, rate=lambda _: 1_500, segments=SEGMENTS)
        for xway in range(2)
    ]
    minutes = list(expressways(roads, MINUTES))
    past = Past()
    for minute in minutes:
        past.add(minute.posreports)
    oracle = duckdb.connect()
    oracle.register("reports", pa.concat_tables([minute.posreports for minute in minutes]))
    with opened(tmp_path / "data", 2) as db, ThreadPoolExecutor(1) as threads:
        replay = Replay(db)
        replay.step(minutes[0].posreports, minutes[0].balances, instant(60))
        schedule = Schedule(db, Questions(2, SEGMENTS, seed("drawn questions")), horizon_s=60)
        asking = threads.submit(schedule.answers, [time.perf_counter()] * QUESTIONS)
        for at, minute in enumerate(minutes[1:], start=1):
            replay.report(minute.posreports)
            schedule.horizon_s = 60 * (at + 1)
            replay.answer(minute.balances, instant(60 * (at + 1)))
        answers = asking.result()
        assert Counter(each.question.selectivity for each in answers) == Counter(
            dict.fromkeys(MILES, QUESTIONS // 3)
        )
        for each in answers:
            expected = truth(oracle, each.question)
            assert each.digest == digest_of(expected) == past.digest(each.question), each.question
        for each in answers[:3]:
            expected = bag(truth(oracle, each.question))
            assert expected
            assert bag(each.question.rows(db)) == expected
            assert bag(each.question.rows_of_a_scan(db)) == expected
    oracle.close()


def test_a_digest_differs_if_one_value_of_one_row_does():
    columns = {name: pa.array([1, 2, 3]) for name in COLUMNS}
    rows = pa.table(columns)
    assert digest_of(rows) == digest_of(rows.take(pa.array([2, 0, 1])))
    others = [rows.set_column(at, name, pa.array([1, 2, 4])) for at, name in enumerate(COLUMNS)]
    digests = {digest_of(each) for each in (rows, *others, rows.slice(0, 2))}
    assert len(digests) == len(others) + 2


def test_a_question_after_a_push_sees_all_of_its_reports(tmp_path):
    seen = visibility(tmp_path / "data", rate=6_000, seconds=SECONDS)
    assert (seen.reports, seen.unseen, len(seen.answer_s)) == (100 * SECONDS, 0, SECONDS)
