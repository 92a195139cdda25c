"""Tails become runs in the background, whatever happens to their streams meanwhile."""

from __future__ import annotations

import datetime

import pyarrow as pa
import structlog.testing

from shedder.engine.engine import Engine
from tests.engine.hooked import WithHook
from tests.engine.supervised import INDEXES, Supervised, settle

CREATE = "CREATE STREAM {0} (ts TIMESTAMP, hits BIGINT) TIMESTAMP BY ts"
RUN_ROWS = 1_000


def push(engine, stream, rows=1):
    times = pa.array([datetime.datetime(2026, 1, 1)] * rows, pa.timestamp("us"))
    engine.push(stream, pa.table({"ts": times, "hits": range(rows)}))


def runs(engine, stream):
    return [run.rows for run in engine.core.store.runs(engine.core.stream(stream).id)]


def created(engine):
    for name in ("requests", "others"):
        engine.execute(CREATE.format(name))
    push(engine, "others")


def test_a_stream_may_be_dropped_when_its_run_has_just_been_written(tmp_path):
    machine = WithHook()
    with Engine.open(tmp_path, machine=machine) as engine:
        created(engine)
        push(engine, "requests")
        settle(engine, INDEXES)
        written = []

        def drop():
            machine.hooked.happen = lambda: None
            written.extend(runs(engine, "requests"))
            engine.execute("DROP STREAM requests")

        machine.hooked.happen = drop  # Called when the cutter requests an index of the written run.
        engine.seal("requests")
        assert written == [1]
        assert list(engine.core.streams) == ["others"]
        engine.seal("others")
        assert runs(engine, "others") == [1]


def test_a_stream_may_be_dropped_while_its_run_waits_to_be_written(tmp_path):
    machine = Supervised()
    with (
        Engine.open(tmp_path, machine=machine, run_rows=RUN_ROWS) as engine,
        structlog.testing.capture_logs() as logs,
    ):
        created(engine)
        with machine.held("shedder-runs"):
            push(engine, "requests", RUN_ROWS)
            engine.core.executor.call(int).result()  # The batch is applied, and its run is due.
            engine.execute("DROP STREAM requests")
        machine.settle("shedder-runs")
        engine.seal("others")
        assert runs(engine, "others") == [1]
        engine.execute(CREATE.format("requests"))  # A new stream of the same name is cut as usual.
        push(engine, "requests", RUN_ROWS)
        engine.core.executor.call(int).result()
        machine.settle("shedder-runs")
        assert runs(engine, "requests") == [RUN_ROWS]
        assert "run_not_written" not in {log["event"] for log in logs}


def test_a_long_tail_becomes_runs_of_a_sixteenth_of_the_memory_each(tmp_path):
    """Writing a run takes as much memory again as its tuples."""
    machine = Supervised()
    with Engine.open(tmp_path, machine=machine, memory_bytes=256 << 20) as engine:
        engine.execute("CREATE STREAM wide (ts TIMESTAMP, text VARCHAR) TIMESTAMP BY ts")
        with machine.held("shedder-runs"):
            for number in range(10):
                times = pa.array([datetime.datetime(2026, 1, 1)] * 4, pa.timestamp("us"))
                texts = [f"{number}".ljust(1 << 20)] * 4
                engine.push("wide", pa.table({"ts": times, "text": texts}))
            engine.core.executor.call(int).result()
        machine.settle("shedder-runs")
        engine.seal("wide")
        assert sum(runs(engine, "wide")) == 40
        assert max(runs(engine, "wide")) <= 16
