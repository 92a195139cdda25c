"""Tails become runs in the background, whatever happens to their streams meanwhile."""

from __future__ import annotations

import datetime

import pyarrow as pa
import structlog.testing

import shedder

CREATE = "CREATE STREAM {0} (ts TIMESTAMP, hits BIGINT) TIMESTAMP BY ts"


def dropped(engine):
    """What the engine knew of a stream that is gone; there is another one, with a tuple."""
    engine.execute(CREATE.format("requests"))
    engine.execute(CREATE.format("others"))
    batch = {"ts": [datetime.datetime(2026, 1, 1)], "hits": [1]}
    engine.push("others", pa.RecordBatch.from_pydict(batch))
    stream = engine.core.stream("requests")
    engine.execute("DROP STREAM requests")
    return stream


def assert_others_are_written(engine):
    engine.seal("others")
    [run] = engine.core.store.runs(engine.core.stream("others").id)
    assert run.rows == 1


def test_a_stream_may_be_dropped_when_its_run_has_just_been_written(tmp_path):
    with shedder.open(tmp_path) as engine:
        engine.core.cutter._follow(dropped(engine))
        assert_others_are_written(engine)


def test_a_stream_may_be_dropped_while_its_run_waits_to_be_written(tmp_path):
    with shedder.open(tmp_path) as engine, structlog.testing.capture_logs() as logs:
        cutter = engine.core.cutter
        cutter._cut(dropped(engine))
        cutter._pool.submit(pa.cpu_count).result()  # It has one thread.
        assert not cutter._cutting
        assert_others_are_written(engine)
        assert "run_not_written" not in {log["event"] for log in logs}
