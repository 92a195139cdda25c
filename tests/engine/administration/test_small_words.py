"""What SHOW, push and subscribe promise in passing."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest

import shedder
from shedder.errors import BatchTooLarge
from tests.engine.world import CREATE, requests

ODD = (
    'CREATE STREAM "my ""stream""" ("select" TIMESTAMP, "größe" DOUBLE NOT NULL, at DATE) '
    "TIMESTAMP BY \"select\" LATENESS INTERVAL '1500' MILLISECOND "
    "RETAIN INTERVAL '14' DAY"
)


@pytest.mark.parametrize("create", [CREATE, ODD], ids=["plain", "odd"])
def test_show_streams_gives_the_statement_that_makes_the_stream(
    tmp_path: Path, create: str
) -> None:
    with shedder.open(tmp_path / "a") as db:
        db.execute(create)
        (shown,) = db.execute("SHOW STREAMS").table["definition"].to_pylist()
        again = shown.replace("CREATE STREAM", "CREATE STREAM IF NOT EXISTS", 1)
        db.execute(again)  # It would refuse a stream that is not the same.
    with shedder.open(tmp_path / "b") as db:
        db.execute(shown)
        assert db.execute("SHOW STREAMS").table["definition"].to_pylist() == [shown]


def test_rows_are_split_to_fit_the_limits_of_a_batch(tmp_path: Path) -> None:
    table = requests(1_000, seed=1)
    with shedder.open(tmp_path, batch_rows_max=100, batch_bytes_max=80_000) as db:
        db.execute(CREATE)
        assert db.push("requests", table).position == 1_000
        with db.producer("requests", "p") as producer:
            assert producer.push(table) == 1
        assert db.ledger("requests").accepted == 2_000


def test_a_row_that_no_batch_can_hold_is_refused(tmp_path: Path) -> None:
    with shedder.open(tmp_path, batch_bytes_max=80_000) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, t VARCHAR) TIMESTAMP BY ts")
        row = {"ts": pa.array([0], pa.timestamp("us")), "t": ["x" * 100_000]}
        with pytest.raises(BatchTooLarge, match="80000"):
            db.push("s", pa.table(row))


@pytest.mark.slow
def test_a_subscription_that_nobody_reads_ends_with_its_reader(tmp_path: Path) -> None:
    with shedder.open(tmp_path) as db:
        db.execute(CREATE)
        query = db.register("n", "SELECT COUNT(*) AS n FROM requests")
        listeners = db.core.standing_query("n")[1].listeners
        slides = query.subscribe()
        assert len(listeners) == 1
        slides.close()
        assert len(listeners) == 0
        assert list(slides) == []
        slides = query.subscribe()
        del slides
        gc.collect()
        assert len(listeners) == 0
