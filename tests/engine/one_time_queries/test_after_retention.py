"""Queries over a past that retention has removed before they came: refused, or said to lack it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.errors import BadQuery, BeforeRetention
from tests.engine.supervised import Supervised
from tests.engine.world import SECOND

MINUTE_US = 60 * SECOND
START_US = 472_222 * 60 * MINUTE_US
CREATE = """CREATE STREAM s (ts TIMESTAMP NOT NULL, v BIGINT NOT NULL) TIMESTAMP BY ts
    LATENESS INTERVAL '0' SECOND RETAIN INTERVAL '1' HOUR"""
COUNTED = "SELECT COUNT(*) AS n, SUM(v) AS s FROM s"
SLIDING = f"{COUNTED} [RANGE INTERVAL '2' HOUR SLIDE INTERVAL '10' MINUTE]"


def tuples(first: int, end: int) -> pa.Table:
    """One each minute."""
    minutes = np.arange(first, end)
    return pa.table(
        {"ts": pa.array(START_US + minutes * MINUTE_US, pa.timestamp("us")), "v": minutes}
    )


def at(minute: int) -> str:
    return f"CAST({START_US + minute * MINUTE_US} AS TIMESTAMP)"


def push(engine: Engine, *tables: pa.Table) -> None:
    for table in tables:
        engine.push("s", table)
        engine.seal("s")
    core = engine.core
    core.executor.call(engine.checkpoints.tidy).result()


def tens(first: int, end: int) -> list[pa.Table]:
    """Ten minutes each."""
    return [tuples(begin, begin + 10) for begin in range(first, end, 10)]


@pytest.fixture
def engine(tmp_path):
    """Four hours, of which the last is there."""
    with Engine.open(tmp_path / "data", checkpoint_seconds=1e6) as engine:
        engine.execute(CREATE)
        push(engine, *tens(0, 240))
        yield engine


def first_kept(engine: Engine) -> int:
    """Return the first minute of the four hours that retention has kept."""
    kept = engine.execute(COUNTED).rows()[0]["n"]
    assert 60 <= kept <= 70
    return 240 - kept


@pytest.mark.slow
def test_a_window_that_begins_before_is_refused_asked_once_or_registered(engine):
    for window in (f"[FROM {at(0)}]", f"[FROM {at(0)} TO {at(230)}]"):
        with pytest.raises(BeforeRetention):
            engine.execute(f"{COUNTED} {window}")
        with pytest.raises(BeforeRetention):
            engine.register("all", f"{COUNTED} {window}")
        with pytest.raises(BeforeRetention):
            engine.execute(f"EXPLAIN CREATE QUERY q AS {COUNTED} {window}")
    assert engine.execute("SHOW QUERIES").rows() == []


@pytest.mark.slow
def test_one_that_begins_with_what_is_kept_goes_on_from_there(engine):
    first = first_kept(engine)
    query = engine.register("last", f"{COUNTED} [FROM {at(first)}]")
    push(engine, *tens(240, 260))
    row = query.answer().rows()[0]
    assert (row["n"], row["n_bound"], row["s"]) == (260 - first, "exact", sum(range(first, 260)))


@pytest.mark.slow
def test_a_window_that_moves_says_what_it_lacks_until_it_lacks_nothing(engine, tmp_path):
    query, kept_from = engine.register("moving", SLIDING), first_kept(engine)
    for end in range(250, 400, 10):
        if end == 300:
            engine.close()
            engine = Engine.open(tmp_path / "data", checkpoint_seconds=1e6)
            query = engine.query("moving")
        push(engine, tuples(end - 10, end))
        answer = query.answer()
        begins = (answer.start_us - START_US) // MINUTE_US
        row = answer.rows()[0]
        if begins < kept_from:
            assert (row["n_bound"], row["s_bound"], answer.complete) == ("none", "none", False)
            assert any("retention had removed tuples before" in note for note in answer.notes)
        else:
            assert (row["n"], row["n_bound"]) == (120, "exact")
            assert row["s"] == sum(range(begins, begins + 120))
            assert answer.complete
            assert not answer.notes
    assert begins > 180
    engine.close()


@pytest.mark.slow
def test_a_query_that_was_there_before_lacks_nothing(tmp_path):
    with Engine.open(tmp_path, checkpoint_seconds=1e6) as engine:
        engine.execute(CREATE)
        query = engine.register("moving", SLIDING)
        whole = engine.register("whole", f"{COUNTED} [FROM {at(0)}]")
        push(engine, *tens(0, 240))
        assert query.answer().rows()[0]["n_bound"] == "exact"
        row = whole.answer().rows()[0]
        assert (row["n"], row["n_bound"], row["s"]) == (240, "exact", sum(range(240)))


@pytest.mark.slow
def test_one_without_a_begin_counts_what_is_there_and_tells(engine):
    query = engine.register("ever", f"{COUNTED} [RANGE UNBOUNDED]")
    answer = query.answer()
    assert answer.rows()[0]["n"] == 240 - first_kept(engine)
    assert any("retention had removed tuples before" in note for note in answer.notes)


@pytest.mark.slow
def test_a_slide_is_not_answered_from_an_archive_that_lacks_a_part_of_it(tmp_path):
    """The panes of a query that was there before have had what is gone."""
    machine = Supervised()
    with Engine.open(tmp_path, machine=machine, checkpoint_seconds=1e6) as engine:
        engine.execute(CREATE)
        text = SLIDING.replace("SUM(v) AS s", "QUANTILE(v, 0.5) AS s")
        query = engine.register("exact", f"{text} WITHIN 0.000001 PERCENT ELSE EXACT")
        for first in range(0, 240_000, 8_000):  # 1,000 each minute.
            numbers = np.arange(first, first + 8_000)
            times = pa.array(START_US + numbers * (MINUTE_US // 1_000), pa.timestamp("us"))
            push(engine, pa.table({"ts": times, "v": numbers}))
            if first:  # The first batch closes no window, so no slide is answered exactly.
                machine.settle("shedder-exact-slides")
            engine.core.executor.call(int).result()
        answer = query.answer()
        row, begins = answer.rows()[0], (answer.start_us - START_US) // (MINUTE_US // 1_000)
        assert row["n"] == 120_000
        assert row["s_low"] <= begins + 59_999 <= row["s_high"]


@pytest.mark.slow
def test_a_standing_query_is_not_reduced(engine):
    with pytest.raises(BadQuery, match="asked once"):
        engine.register("part", f"{COUNTED} [RANGE UNBOUNDED] REDUCE BY uniform(0.5)")
