"""Registering over a long history: exact where history meets the stream, and nothing blocks."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.engine.rebuild.archive_replay import ROUNDS_MAX, History, catch_up

CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts"
HISTORY = 1_500_000
ROWS = 20_000


def tuples(first: int, rows: int) -> pa.Table:
    """Numbers in order; sums of v are whole numbers below 2^53."""
    numbers = np.arange(first, first + rows, dtype=np.int64)
    return pa.table(
        {
            "ts": pa.array(numbers).cast(pa.timestamp("us")),
            "k": numbers % 5_000,
            "v": (numbers % 1_000).astype(np.float64),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("run_rows", [1 << 19, 1 << 24], ids=["from runs", "from the tail"])
def test_a_query_registered_in_the_flow_counts_every_tuple_once(
    tmp_path: Path, run_rows: int
) -> None:
    sql = "SELECT COUNT(*) AS n, SUM(v) AS total, COUNT(DISTINCT k) AS d, MAX(ts) AS last FROM s"
    registered, reads, answered = threading.Event(), threading.Event(), threading.Event()

    def clock_us() -> int:
        """Return the time; the registering thread first waits here, before it reads history."""
        if threading.current_thread().name == "registers":
            reads.set()
            answered.wait()
        return time.time_ns() // 1_000

    with Engine.open(tmp_path, clock_us=clock_us, run_rows=run_rows) as db:
        db.execute(CREATE)
        db.push("s", tuples(0, HISTORY))
        other = db.register("other", "SELECT COUNT(*) AS n FROM s")

        def register() -> None:
            db.register("q", sql + " [RANGE UNBOUNDED]")
            registered.set()

        thread = threading.Thread(target=register, name="registers")
        thread.start()
        position = HISTORY
        reads.wait()
        while not registered.is_set():
            receipt = db.push("s", tuples(position, ROWS))
            position += ROWS
            assert other.answer(after=receipt).rows()[0]["n"] == position
            answered.set()
        thread.join()
        receipt = db.push("s", tuples(position, ROWS))
        position += ROWS
        standing = db.query("q").answer(after=receipt).rows()[0]
        exact = db.execute(sql).rows()[0]
        assert standing["n"] == exact["n"] == position
        assert standing["total"] == exact["total"]
        assert standing["last"] == exact["last"]
        assert standing["d_low"] <= 5_000 <= standing["d_high"]
        about = db.execute(
            "SELECT SUM(v) AS total FROM s WHERE k < 50 "
            "WITHIN 50 PERCENT CONFIDENCE 99.9999 PERCENT"
        ).rows()[0]
        truth = db.execute("SELECT SUM(v) AS total FROM s WHERE k < 50").rows()[0]["total"]
        assert about["total_low"] <= truth <= about["total_high"]


def test_a_reader_that_a_stream_outruns_gives_up_chasing() -> None:
    first_rows: list[int] = []

    def scan(position: int) -> list[tuple[int, pa.RecordBatch, None]]:
        rows = 1_000_000
        return [(position, pa.RecordBatch.from_pydict({"a": pa.nulls(rows)}), None)]

    def take(first: int, batch: pa.RecordBatch, live: None) -> bool:
        first_rows.append(first)
        return True

    history = History(scan, take)
    catch_up([history], lambda: 2 * history.position)  # It is never more than half way.
    assert first_rows == [1_000_000 * n for n in range(ROUNDS_MAX)]


def test_a_reader_that_wants_no_more_is_told_no_more() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    first_rows: list[int] = []
    history = History(
        lambda position: [(0, batch, None), (2, batch, None)],
        lambda first, *_: bool(first_rows.append(first)),
    )
    history.read_on()
    history.read_on()
    assert first_rows == [0]
    assert history.position == 0


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["plain", "hybrid(blocks=4, block_rows=100)", "eager(0.5)"])
def test_a_landmark_query_begins_in_history_and_goes_on(tmp_path: Path, layout: str) -> None:
    """From the middle of a run, over runs, late tuples and the tail, into what is still to come."""
    begin = 1_500
    window = f"[FROM CAST({tuples(begin, 1)['ts'][0].cast(pa.int64()).as_py()} AS TIMESTAMP)]"
    sql = (
        f"SELECT k < 2500 AS low, COUNT(*) AS n, SUM(v) AS s, MIN(ts) AS first, VAR(v) AS w "
        f"FROM s {window} GROUP BY low ORDER BY low"
    )
    with shedder.open(tmp_path) as db:
        db.execute(f"{CREATE} ARCHIVE {layout}")
        for first in range(0, 6_000, 2_000):
            db.push("s", tuples(first, 2_000))
            db.seal("s")
        db.push("s", tuples(1_400, 200))  # Late: a part of them is before the landmark.
        db.seal("s")
        db.execute("DELETE FROM s WHERE k = 1777")
        db.push("s", tuples(6_000, 500))
        query = db.register("since", sql)
        names = ("low", "n", "s", "first")

        def agree(receipt: Any) -> int:
            standing, exact = query.answer(after=receipt).rows(), db.execute(sql).rows()
            assert [[row[name] for name in names] for row in standing] == [
                [row[name] for name in names] for row in exact
            ]
            for mine, theirs in zip(standing, exact, strict=True):
                assert mine["w"] == pytest.approx(theirs["w"], rel=1e-9)
                assert mine["n_bound"] == mine["s_bound"] == "exact"
            return sum(row["n"] for row in standing)

        assert agree(None) == 6_500 - begin - 1 + 100
        assert agree(db.push("s", tuples(6_500, 300))) == 6_800 - begin - 1 + 100
        db.seal("s")
        assert agree(db.push("s", tuples(100, 300))) == 6_800 - begin - 1 + 100
    with shedder.open(tmp_path) as db:
        query = db.query("since")
        assert agree(db.push("s", tuples(6_800, 10))) == 6_810 - begin - 1 + 100
