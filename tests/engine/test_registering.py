"""Registering over a long history: exact where history meets the stream, and nobody waits."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.history import ROUNDS_MAX, History, catch_up

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


@pytest.mark.parametrize("run_rows", [1 << 19, 1 << 24], ids=["from runs", "from the tail"])
def test_a_query_registered_in_the_flow_counts_every_tuple_once(
    tmp_path: Path, run_rows: int
) -> None:
    sql = "SELECT COUNT(*) AS n, SUM(v) AS total, COUNT(DISTINCT k) AS d, MAX(ts) AS last FROM s"
    with shedder.open(tmp_path, run_rows=run_rows) as db:
        db.execute(CREATE)
        db.push("s", tuples(0, HISTORY))
        other = db.register("other", "SELECT COUNT(*) AS n FROM s")
        registered = threading.Event()

        def register() -> None:
            db.register("q", sql + " [RANGE UNBOUNDED]")
            registered.set()

        thread = threading.Thread(target=register)
        thread.start()
        position, meanwhile = HISTORY, 0
        while not registered.is_set():
            receipt = db.push("s", tuples(position, ROWS))
            position += ROWS
            assert other.answer(after=receipt).rows()[0]["n"] == position
            meanwhile += not registered.is_set()
        thread.join()
        assert meanwhile >= 2  # The stream went on while history was read.
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
    told: list[int] = []

    def scan(position: int) -> list[tuple[int, pa.RecordBatch]]:
        rows = 1_000_000
        return [(position, pa.RecordBatch.from_pydict({"a": pa.nulls(rows)}))]

    def take(first: int, batch: pa.RecordBatch) -> bool:
        told.append(first)
        return True

    history = History(scan, take)
    catch_up([history], lambda: 2 * history.position)  # It is never more than half way.
    assert told == [1_000_000 * n for n in range(ROUNDS_MAX)]


def test_a_reader_that_wants_no_more_is_told_no_more() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    told: list[int] = []
    history = History(
        lambda position: [(0, batch), (2, batch)], lambda first, _: bool(told.append(first))
    )
    history.read_on()
    history.read_on()
    assert told == [0]
    assert history.position == 0
