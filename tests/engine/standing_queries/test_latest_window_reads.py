"""Window answers that several threads read while slides go on, against the window as of each read.

Golab, "Sliding Window Query Processing over Data Streams" (2006), chapter 7, calls a read
window-serializable (WS) if it returns one window that was true at some instant, and
latest-window-serializable (LWS) if that is the newest window as of its commit.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.queries.answers.answer import Answer
from tests.seeds import seed

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
SLOTS = (1, 3, 20, 50)  # Widths of the windows in slides of a second.
PUSHES, ROWS = 40, 500
READS = 3  # Of a thread, beside each push.


@pytest.mark.slow
def test_each_read_is_the_newest_window_as_of_its_position(tmp_path: Path) -> None:
    random = np.random.default_rng(seed("latest window reads"))
    times = START_US + np.sort(random.integers(0, 100 * SECOND_US, PUSHES * ROWS))
    values = random.integers(-1000, 1000, len(times))
    turns = {slots: threading.Semaphore(0) for slots in SLOTS}
    reads: dict[int, list[Answer]] = {slots: [] for slots in SLOTS}

    with Engine.open(tmp_path / "data") as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP NOT NULL, x BIGINT) TIMESTAMP BY ts")
        queries = {
            slots: db.register(
                f"w{slots}",
                f"SELECT COUNT(*) AS n, SUM(x) AS total FROM s [RANGE {slots} SECONDS "
                "SLIDE 1 SECOND]",
            )
            for slots in SLOTS
        }

        def read(slots: int) -> None:
            for _ in range(PUSHES):
                turns[slots].acquire()
                reads[slots].extend(queries[slots].answer() for _ in range(READS))

        readers = [threading.Thread(target=read, args=(slots,)) for slots in SLOTS]
        for each in readers:
            each.start()
        for first in range(0, len(times), ROWS):
            for turn in turns.values():
                turn.release()
            some = slice(first, first + ROWS)
            receipt = db.push(
                "s", pa.table({"ts": pa.array(times[some], pa.timestamp("us")), "x": values[some]})
            )
        for each in readers:
            each.join()
        for slots in SLOTS:
            reads[slots].append(queries[slots].answer(after=receipt))

    sums = np.concatenate([[0], np.cumsum(values)])
    for slots, answers in reads.items():
        for answer in answers:
            if answer.position == 0:
                continue
            read_times = times[: answer.position]
            end = int(read_times[-1]) // SECOND_US * SECOND_US
            assert answer.end_us == end
            low, high = np.searchsorted(read_times, [end - slots * SECOND_US, end])
            (row,) = answer.table.to_pylist()
            assert row["n"] == high - low
            assert row["total"] == (sums[high] - sums[low] if high > low else None)
        assert answers[-1].end_us == int(times[-1]) // SECOND_US * SECOND_US
        positions = [answer.position for answer in answers]
        assert positions == sorted(positions)
