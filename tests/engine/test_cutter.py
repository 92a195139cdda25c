"""Tails become runs in the background, whatever happens to their streams meanwhile."""

from __future__ import annotations

import shedder

CREATE = "CREATE STREAM requests (ts TIMESTAMP, hits BIGINT) TIMESTAMP BY ts"


def test_a_stream_may_be_dropped_when_its_run_has_just_been_written(tmp_path):
    with shedder.open(tmp_path) as engine:
        engine.execute(CREATE)
        stream = engine.core.stream("requests")
        engine.execute("DROP STREAM requests")
        engine.core.cutter._follow(stream)
