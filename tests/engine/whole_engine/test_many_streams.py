"""Many streams at once: tails, drops and doors do not stand in each other's way."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.errors import Draining, ShedderError, UnknownStream

NOW_US = 1_700_000_000_000_000
CREATE = "CREATE STREAM {} (ts TIMESTAMP, text VARCHAR) TIMESTAMP BY ts"


def texts(rows: int, size: int) -> pa.Table:
    times = pa.array([NOW_US + i for i in range(rows)], pa.timestamp("us"))
    return pa.table({"ts": times, "text": pa.array(["x" * size] * rows)})


@pytest.mark.slow
def test_many_small_tails_make_room_before_producers_have_to_wait(tmp_path: Path) -> None:
    """Six tails of 12 MiB are more than a quarter of 256 MiB; none is a sixteenth."""
    with Engine.open(tmp_path / "data", memory_bytes=256 << 20, checkpoint_seconds=1e6) as db:
        for number in range(6):
            db.execute(CREATE.format(f"s{number}"))
            db.push(f"s{number}", texts(12, 1 << 20))
        for number in range(6):
            assert db.push(f"s{number}", texts(1, 10)).position == 13


@pytest.mark.slow
def test_streams_that_are_dropped_under_ingest_take_nobody_with_them(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data") as db:
        db.execute(CREATE.format("stays"))
        db.execute(CREATE.format("goes"))
        stop, broken = threading.Event(), []

        def ingest() -> None:
            while not stop.is_set():
                try:
                    db.push("goes", texts(3, 5))
                except UnknownStream:
                    continue
                except (ShedderError, Draining) as error:
                    broken.append(error)
                    return

        writer = threading.Thread(target=ingest)
        writer.start()
        for _ in range(25):
            db.push("stays", texts(2, 5))
            db.execute("DROP STREAM goes")
            db.execute(CREATE.format("goes"))
        stop.set()
        writer.join()
        assert not broken
        assert db.ledger("stays").applied == 50
