"""Row queries beside what else an engine does: joined batches, retention, failed commits."""

from __future__ import annotations

import threading

from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.overload.load_meter import Meter
from tests.engine.dataflow.worlds import (
    CREATE,
    LATENESS_US,
    PICKED,
    START_US,
    Picked,
    Subscriber,
    applied,
    batch,
)
from tests.engine.killed import copy_killed


class JoinedMeter(Meter):
    """A meter that lets waiting batches be read as one, and notes how many tuples each run has."""

    tuples_at_once = 1 << 16

    def __init__(self, clock_ns, cpu_ns):
        super().__init__(clock_ns, cpu_ns)
        self.runs = []

    def begin(self, tuples):
        self.runs.append(tuples)
        super().begin(tuples)


class Joining(Environment):
    def meter(self):
        return JoinedMeter(self.monotonic_ns, self.cpu_ns)


RETAIN_US = 1_000
RETAINED = CREATE + " RETAIN INTERVAL '0.001' SECOND"


def test_batches_that_overload_joins_are_read_one_by_one(tmp_path):
    truth, reader = Picked(), Subscriber("q")
    pushes = [[(100, 0, 5)], [(200, 1, 5), (150, 2, 5)], [(170, 3, 5)], [(185, 4, 5), (181, 5, 5)]]
    with Engine.open(tmp_path / "d", machine=Joining()) as db:
        db.execute(CREATE)
        db.register("q", PICKED)
        reader.begin(db)
        db.push("s", batch([(0, 9, 0)]))  # Batches are joined only once there is a watermark.
        truth.push([(0, 9, 0)])
        db.core.ease(coalesces=True)
        free, held = threading.Event(), threading.Event()
        db.core.executor.post(lambda: (held.set(), free.wait()))
        held.wait()
        for rows in pushes:
            db.push("s", batch(rows))
            truth.push(rows)
        free.set()
        db.heartbeat("s", START_US + 300)
        truth.promise(300)
        applied(db)
        reader.read(db)
        late = db.query("q").answer().late
        runs = db.core.meter.runs
    assert runs == [1, 6]
    assert reader.got == truth.made
    assert late == truth.late == 1


def test_retention_keeps_what_a_restart_reads(tmp_path):
    """Between two checkpoints the watermark goes on, and what is older than RETAIN may go."""
    with Engine.open(tmp_path / "d", run_rows=16) as db:
        db.execute(RETAINED)
        db.register("w", "SELECT id FROM s [RANGE INTERVAL '0.0008' SECOND]")
        rows, stream_id = db.core.rows, db.core.stream("s").id
        for first in range(0, 2_000, 100):
            db.push("s", batch([(at, at, 5) for at in range(first, first + 100, 10)]))
        db.core.executor.call(db.checkpoints.now).result()
        at_checkpoint = START_US + 1_990 - LATENESS_US
        for first in range(2_000, 4_000, 100):
            db.push("s", batch([(at, at, 5) for at in range(first, first + 100, 10)]))
        needed = db.core.executor.call(
            lambda: rows.needs_all_from_us(stream_id, START_US + 3_970 - RETAIN_US)
        ).result()
        assert at_checkpoint - RETAIN_US <= needed <= at_checkpoint - 800
        db.seal("s")
        db.core.executor.call(db.checkpoints.tidy).result()
        first = min(db.execute("SHOW RUNS").table["first_position"].to_pylist())
        assert 0 < first < 400 - RETAIN_US / 10
        copied = copy_killed(db, tmp_path / "copy")
    with Engine.open(copied) as db:
        held = db.query("w").answer().table["id"].to_pylist()
    assert sorted(held) == list(range(3_970 - 800, 3_970, 10))
