"""Which windows close when: first tuples, promises, late tuples, jumps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.errors import UnknownQuery

SECOND = 1_000_000
DAY = 86_400 * SECOND
NOW_US = 1_700_000_000 * SECOND
SLIDING = "[RANGE INTERVAL '60' SECOND SLIDE INTERVAL '20' SECOND]"
COUNT = f"SELECT COUNT(*) AS n FROM s {SLIDING}"


def at(*seconds: float) -> pa.Table:
    """Tuples at these seconds from now."""
    times = [NOW_US + int(s * SECOND) for s in seconds]
    return pa.table({"ts": pa.array(times, pa.timestamp("us")), "v": pa.array(times, pa.int64())})


def open_at(directory: Path, **overrides: Any) -> Engine:
    """An engine whose clock stands still."""
    return Engine.open(directory, clock_us=lambda: NOW_US, **overrides)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with open_at(tmp_path / "data") as engine:
        engine.execute("CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts")
        yield engine


def test_a_first_tuple_from_the_far_future_does_not_silence_a_query(db: Engine) -> None:
    query = db.register("n", COUNT)
    db.push("s", at(400 * 86_400))
    answer = query.answer(after=db.push("s", at(0, 50, 100)))
    assert answer.end_us == (NOW_US + 100 * SECOND) // (20 * SECOND) * (20 * SECOND)
    assert answer.rows()[0]["n"] == 1


def test_a_promise_before_any_tuple_closes_the_window_it_passes(db: Engine) -> None:
    query = db.register("n", COUNT)
    answers: list[Any] = []
    db.listen("n", answers.append)
    db.heartbeat("s", NOW_US)
    assert [answer.end_us for answer in answers] == [NOW_US // (20 * SECOND) * (20 * SECOND)]
    assert query.answer().rows()[0]["n"] == 0


def test_windows_that_end_before_the_first_tuple_are_answered_one_after_the_other(
    db: Engine,
) -> None:
    db.execute(
        "CREATE STREAM l (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts LATENESS INTERVAL '2' SECOND"
    )
    query = db.register("l", COUNT.replace("FROM s", "FROM l"))
    answers: list[Any] = []
    db.listen("l", answers.append)
    answer = query.answer(after=db.push("l", at(0)))
    assert answer.end_us == NOW_US - 20 * SECOND
    answer = query.answer(after=db.push("l", at(3)))
    assert (answer.end_us, answer.rows()[0]["n"]) == (NOW_US, 0)
    assert answers == []
    answer = query.answer(after=db.push("l", at(22)))
    assert (answer.end_us, answer.rows()[0]["n"]) == (NOW_US + 20 * SECOND, 2)
    assert [each.end_us for each in answers] == [answer.end_us]


def test_a_subscriber_of_a_query_that_is_dropped_is_told_so(db: Engine) -> None:
    answers = db.register("n", COUNT).subscribe()
    db.push("s", at(0, 100))
    assert next(answers).complete
    db.execute("DROP QUERY n")
    with pytest.raises(UnknownQuery):
        next(answers)


def test_before_the_first_window_closes_the_empty_one_before_it_is_the_answer(db: Engine) -> None:
    query = db.register("n", COUNT)
    answers: list[Any] = []
    db.listen("n", answers.append)
    answer = query.answer(after=db.push("s", at(3)))
    assert (answer.end_us, answer.rows()[0]["n"]) == (NOW_US, 0)
    assert not answers


def test_a_late_tuple_is_in_the_next_answer_of_the_window_it_was_late_for(db: Engine) -> None:
    query = db.register("n", COUNT)
    answers: list[Any] = []
    db.listen("n", answers.append)
    before = query.answer(after=db.push("s", at(0, 30, 70)))
    assert before.rows()[0]["n_bound"] == "exact"
    after = query.answer(after=db.push("s", at(31)))
    assert (after.start_us, after.late) == (before.start_us, 1)
    row = after.rows()[0]
    assert (row["n_low"], row["n_high"], row["n_bound"]) == (2, 3, "interval")
    assert len({answer.end_us for answer in answers}) == len(
        answers
    )  # No window is answered twice.


@pytest.mark.slow
def test_wrong_clocks_take_bounded_memory_and_are_not_forgotten(tmp_path: Path) -> None:
    clock = [NOW_US]
    batches, rows = 5, 20_000
    with Engine.open(tmp_path / "data", clock_us=lambda: clock[0]) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, v BIGINT) TIMESTAMP BY ts")
        query = db.register("n", COUNT)
        for number in range(batches):
            first = 2 * 86_400 + number * 20 * rows
            db.push("s", at(0, *range(first, first + 20 * rows, 20)))
        after = db.register("after", COUNT + " WHERE v > 0")
        for one in (query, after):
            query_state = db.core.standing_query(one.name)[1].state
            assert len(query_state.late_panes.by_pane) <= 1 << 16
            assert not [p for p in query_state.panes if p > 2 * NOW_US // SECOND]
    last_us = NOW_US + (2 * 86_400 + 20 * batches * rows) * SECOND
    clock[0] = last_us
    with Engine.open(tmp_path / "data", clock_us=lambda: clock[0]) as db:
        db.heartbeat("s", last_us)
        for name in ("n", "after"):
            row = db.query(name).answer().rows()[0]
            assert row["n_low"] <= 3 <= row["n_high"]
