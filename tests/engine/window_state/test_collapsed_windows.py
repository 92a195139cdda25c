"""COLLAPSE: long windows of few panes, each answer exact over the stretch it says it covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.engine.registration.query_handle import Query
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import PrecisionUnavailable
from shedder.queries.answers.answer import Answer

SECOND = 1_000_000
NOW_US = 1_700_000_000 * SECOND
STREAM = (
    "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts "
    "LATENESS INTERVAL '2' SECOND"
)
HOUR = "[RANGE 1 HOUR SLIDE 1 SECOND COLLAPSE]"  # 60 panes of a second, then of a minute.
SELECT = (
    "SELECT {}COUNT(*) AS n, SUM(k) AS total, MIN(k) AS low, MAX(k) AS high, "
    "COUNT(DISTINCT k) AS keys, MEDIAN(v) AS middle FROM s {} {} WITHIN 5 PERCENT"
)
UNGROUPED = SELECT.format("", HOUR, "")


def open_at(directory: Path, **overrides: Any) -> Engine:
    return Engine.open(
        directory,
        clock_us=lambda: NOW_US + 10**6 * SECOND,
        checkpoint_seconds=1e6,
        allocation_seconds=1e6,
        **overrides,
    )


def tuples(seconds: np.ndarray, seed: int, keys: int = 500) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(NOW_US + (seconds * SECOND).astype(np.int64), pa.timestamp("us")),
            "k": pa.array(rng.integers(0, keys, len(seconds))),
            "v": pa.array(rng.lognormal(2, 1, len(seconds))),
        }
    )


def standing_of(db: Engine, query: Query) -> QueryState:
    return db.core.standing_query(query.name)[1].state


def panes_held(db: Engine, query: Query) -> int:
    """How many panes there are once what came with the newest answer is done.

    An answer is told before the panes are dropped that no window needs any more.
    """
    return db.core.executor.call(lambda: len(standing_of(db, query).panes)).result()


def check(answer: Answer, sent: pa.Table, resolution_s: int = 60, range_s: int = 3_600) -> None:
    """Against the exact truth of the stretch that the answer says it is of."""
    start, end = answer.start_us, answer.end_us
    assert start is not None
    assert end is not None
    begin = end - range_s * SECOND
    assert start % (resolution_s * SECOND) == 0
    assert 0 <= begin - start < resolution_s * SECOND
    assert answer.resolution_us == resolution_s * SECOND
    times = sent["ts"].cast(pa.int64()).to_numpy()
    inside = (times >= start) & (times < end)
    keys, values = (sent[name].to_numpy()[inside] for name in ("k", "v"))
    assert answer.late == 0
    for row in answer.rows():
        mine = np.ones(len(keys), np.bool_) if "g" not in row else keys % 3 == row["g"]
        assert row["n"] == mine.sum()
        assert row["n_bound"] == "exact"
        if not mine.any():
            continue
        assert (row["total"], row["low"], row["high"]) == (
            keys[mine].sum(), keys[mine].min(), keys[mine].max(),
        )  # fmt: skip
        assert row["keys_low"] <= len(np.unique(keys[mine])) <= row["keys_high"]
        middle = np.sort(values[mine])[(mine.sum() - 1) // 2]
        assert row["middle_low"] <= middle <= row["middle_high"]
    assert sum(row["n"] for row in answer.rows()) == inside.sum()


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "groups"])
def test_every_answer_is_exact_over_the_stretch_it_covers(tmp_path: Path, grouped: bool) -> None:
    text = SELECT.format("k % 3 AS g, ", HOUR, "GROUP BY k % 3") if grouped else UNGROUPED
    db = open_at(tmp_path / "data")
    db.execute(STREAM)
    query = db.register("q", text)
    sent, newest = [], 0.0
    for number in range(24):
        # Minutes of small steps, gaps, and leaps over many panes in one batch.
        length = [7, 90, 1_000, 0.5][number % 4]
        newest += length
        seconds = np.random.default_rng(number).uniform(newest - length, newest, 300)
        sent.append(tuples(seconds, number))
        answer = query.answer(after=db.push("s", sent[-1]))
        check(answer, pa.concat_tables(sent))
        query_state = standing_of(db, query)
        assert panes_held(db, query) <= query_state.grid.panes_max(2 * SECOND)
        if number % 8 == 5:
            if number == 5:
                db.close()
            else:  # As after a crash: from the checkpoint of some batches ago, and the log.
                db.checkpoints.now()
                for more in range(3):
                    newest += 40
                    sent.append(tuples(np.linspace(newest - 40, newest, 100), 100 + more))
                    answer = query.answer(after=db.push("s", sent[-1]))
                db.core.store.close()
            db = open_at(tmp_path / "data")
            query = db.query("q")
            again = query.answer()
            check(again, pa.concat_tables(sent))
            assert (again.start_us, again.end_us) == (answer.start_us, answer.end_us)
            assert again.rows() == answer.rows()
    assert query_state.grid.panes_max(2 * SECOND) < 250  # Of 3,600 without COLLAPSE.
    db.close()


@pytest.mark.slow
def test_windows_that_close_at_once_are_each_told_of_their_own_stretch(tmp_path: Path) -> None:
    text = "SELECT COUNT(*) AS n FROM s [RANGE 4 MINUTES SLIDE 1 SECOND COLLAPSE]"
    with open_at(tmp_path / "data") as db:
        db.execute(STREAM)
        query = db.register("q", text)
        answers: list[Answer] = []
        db.listen("q", answers.append)
        query.answer(after=db.push("s", tuples(np.arange(0, 300, 0.5), 1)))
        before = len(answers)
        query.answer(after=db.push("s", tuples(np.arange(300, 350, 0.5), 2)))
        starts = [answer.start_us for answer in answers[before:]]
        ends = [answer.end_us for answer in answers[before:]]
        assert ends == list(range(ends[0], ends[0] + 50 * SECOND, SECOND))
        assert starts == [(end - 240 * SECOND) // (15 * SECOND) * 15 * SECOND for end in ends]
        counts = [answer.rows()[0]["n"] for answer in answers[before:]]
        assert counts == [
            2 * (end - max(start, NOW_US)) // SECOND
            for start, end in zip(starts, ends, strict=True)
        ]


@pytest.mark.slow
def test_a_query_that_is_registered_later_has_the_same_panes(tmp_path: Path) -> None:
    with open_at(tmp_path / "data") as db:
        db.execute(STREAM)
        sent = tuples(np.random.default_rng(3).permutation(np.arange(0, 9_000, 0.25)), 3)
        db.push("s", sent)
        query = db.register("q", UNGROUPED)
        check(query.answer(), sent)
        query_state = standing_of(db, query)
        assert panes_held(db, query) <= query_state.grid.panes_max(2 * SECOND)
        more = tuples(np.arange(9_000, 9_100, 0.25), 4)
        check(query.answer(after=db.push("s", more)), pa.concat_tables([sent, more]))


def test_three_rungs_are_climbed_one_after_the_other(tmp_path: Path) -> None:
    text = "SELECT COUNT(*) AS n FROM s [RANGE 10 MINUTES SLIDE 1 SECOND COLLAPSE BY 4 AFTER 8]"
    with open_at(tmp_path / "data") as db:
        db.execute(STREAM)
        query = db.register("q", text)
        sent = []
        for minute in range(15):
            sent.append(tuples(np.arange(60 * minute, 60 * minute + 60, 0.1), minute))
            answer = query.answer(after=db.push("s", sent[-1]))
            times = pa.concat_tables(sent)["ts"].cast(pa.int64()).to_numpy()
            assert answer.start_us is not None
            inside = (times >= answer.start_us) & (times < answer.end_us)
            assert answer.rows()[0]["n"] == inside.sum()
        query_state = standing_of(db, query)
        assert answer.resolution_us == 64 * SECOND
        assert query_state.grid.coarsening.grains == (1, 4, 16, 64)
        assert 30 <= panes_held(db, query) <= query_state.grid.panes_max(2 * SECOND) <= 60


def test_a_stored_pane_that_climbs_two_rungs_between_checkpoints_does_not_stay(
    tmp_path: Path,
) -> None:
    text = "SELECT COUNT(*) AS n FROM s [RANGE 80 SECONDS SLIDE 1 SECOND COLLAPSE BY 2 AFTER 8]"
    with open_at(tmp_path) as db:
        db.execute(STREAM)
        query = db.register("q", text)
        for begin in (
            0,
            14,
            28,
            60,
        ):  # Pane 4 is stored as it is, then half of a cell, then a quarter.
            receipt = db.push("s", tuples(np.arange(begin, begin + 8, 0.1), begin))
            before = query.answer(after=receipt).rows()
            if begin == 0:
                db.core.executor.call(db.checkpoints.now).result()
    with open_at(tmp_path) as db:
        assert db.query("q").answer().rows() == before


@pytest.mark.slow
def test_thinned_panes_collapse_like_others(tmp_path: Path) -> None:
    text = f"SELECT COUNT(*) AS n, SUM(k) AS total FROM s {HOUR} CONFIDENCE 99.9999 PERCENT"
    with open_at(tmp_path / "data") as db:
        db.execute(STREAM)
        query = db.register("q", text)
        sent = tuples(np.arange(0, 5_000, 0.05), 1)
        for part in range(10):
            db.thinning.set_thinning("q", [0, 2, 4][part % 3])
            answer = query.answer(after=db.push("s", sent.slice(10_000 * part, 10_000)))
        assert answer.start_us is not None
        times = sent["ts"].cast(pa.int64()).to_numpy()
        inside = (times >= answer.start_us) & (times < answer.end_us)
        row = answer.rows()[0]
        total = sent["k"].to_numpy()[inside].sum()
        assert row["n_low"] <= inside.sum() <= row["n_high"] <= 1.05 * inside.sum()
        assert row["total_low"] <= total <= row["total_high"] <= 1.1 * total


@pytest.mark.slow
def test_once_or_standing_a_window_is_the_same(tmp_path: Path) -> None:
    with open_at(tmp_path / "data") as db:
        db.execute(STREAM)
        sent = tuples(np.arange(0, 4_000, 0.5), 1)
        receipt = db.push("s", sent)
        standing = db.register("q", UNGROUPED).answer(after=receipt)
        once = db.execute(UNGROUPED.removesuffix("WITHIN 5 PERCENT"))
        check(once, sent)
        assert (once.start_us, once.end_us) == (standing.start_us, standing.end_us)
        assert once.rows()[0]["n"] == standing.rows()[0]["n"]


@pytest.mark.slow
def test_the_memory_of_a_collapsed_window_is_what_is_asked_for(tmp_path: Path) -> None:
    distinct = "SELECT COUNT(DISTINCT k) AS keys FROM s [RANGE 1 HOUR SLIDE 1 SECOND{}]"
    with open_at(tmp_path / "data", memory_bytes=256 << 20) as db:
        db.execute(STREAM)
        with pytest.raises(PrecisionUnavailable, match="are free"):
            db.register("whole", distinct.format("") + " WITHIN 1 PERCENT ELSE FAIL")
        query = db.register("q", distinct.format(" COLLAPSE") + " WITHIN 1 PERCENT ELSE FAIL")
        sent = tuples(np.arange(0, 4_000, 0.02), 1, keys=1 << 40)
        query.answer(after=db.push("s", sent))
        query_state = standing_of(db, query)
        assert query_state.size_bytes <= int(query.granted["bytes"])


def test_what_it_got_is_told_everywhere(tmp_path: Path) -> None:
    db = shedder.open(tmp_path / "data", clock_us=lambda: NOW_US + 10**6 * SECOND)
    with db:
        db.execute(STREAM)
        query = db.register("q", UNGROUPED)
        db.push("s", tuples(np.arange(0, 4_000, 0.5), 1))
        answer = query.answer(after=db.push("s", tuples(np.arange(4_000, 4_010, 0.5), 2)))
        assert answer.resolution.total_seconds() == 60
        assert "resolution:   INTERVAL '1' MINUTE" in answer.explain()
        assert answer.facts()["resolution_us"] == 60 * SECOND
        explained = query.explain()
        assert "old panes: after INTERVAL '1' MINUTE of INTERVAL '1' MINUTE" in explained
        assert "COLLAPSE BY 60 AFTER 60" in query.text
