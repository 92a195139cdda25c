"""Tails become runs in the background, whatever happens to their streams meanwhile."""

from __future__ import annotations

import pyarrow as pa
import structlog.testing

import shedder

CREATE = "CREATE STREAM requests (ts TIMESTAMP, hits BIGINT) TIMESTAMP BY ts"


def test_a_stream_may_be_dropped_when_its_run_has_just_been_written(tmp_path):
    with shedder.open(tmp_path) as engine:
        engine.execute(CREATE)
        stream = engine.core.stream("requests")
        engine.execute("DROP STREAM requests")
        engine.core.cutter._follow(stream)


def test_a_stream_may_be_dropped_while_its_run_waits_to_be_written(tmp_path):
    with shedder.open(tmp_path) as engine, structlog.testing.capture_logs() as logs:
        engine.execute(CREATE)
        engine.execute(CREATE.replace("requests", "others"))
        stream = engine.core.stream("requests")
        engine.execute("DROP STREAM requests")
        cutter, asked = engine.core.cutter, []
        cutter.cut_what_is_due = lambda: asked.append(True)  # What comes next is asked for.
        cutter._cut(stream)
        cutter._pool.submit(pa.cpu_count).result()  # It has one thread.
        engine.core.actor.call(lambda: None).result()
        assert asked
        assert not [log for log in logs if log["event"] == "run_not_written"]
