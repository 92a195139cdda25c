"""A silent stream: queries of several streams go on without it, and a replay does the same."""

from __future__ import annotations

from threading import Event

import pytest

from shedder.archive.files.data_directory import FORMAT_IDLE, format_of
from shedder.engine.apply.idle_streams import IdleStreams
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from tests.engine.dataflow.worlds import START_US, Subscriber, applied, batch
from tests.engine.killed import copy_killed
from tests.engine.query_worlds import Advanced

pytestmark = pytest.mark.slow

IDLE_S = 60.0
WINDOW = "[RANGE INTERVAL '0.01' SECOND]"
PAIRS = f"SELECT a.id, b.id AS partner FROM s {WINDOW} a LEFT JOIN t {WINDOW} b ON a.kind = b.kind"


def opened(path, machine: Environment | None = None) -> Engine:
    db = Engine.open(path, machine=machine or Advanced(), idle_seconds=IDLE_S)
    for name in ("s", "t"):
        db.execute(f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts")
    return db


def beat(db: Engine, name: str, time: int) -> None:
    """Raise a watermark; all records before are applied, and those that this leads to."""
    db.heartbeat(name, START_US + time)
    applied(db)


def pass_time(db: Engine, time: int) -> None:
    """Let the time-out pass while `s` goes on; twice, because records are looked at behind one."""
    for later in (time, time + 1):
        beat(db, "s", later)
        db.core.machine.now_s += IDLE_S
    beat(db, "s", time + 2)
    db.core.executor.call(lambda: None).result()
    beat(db, "s", time + 3)


def marks(db: Engine, name: str = "q") -> dict[str, int | None]:
    inputs = db.query(name).answer().inputs
    return {it.alias: it.as_of_us and it.as_of_us - START_US for it in inputs}


def test_a_silent_stream_holds_others_up_until_the_time_out_alone(tmp_path):
    with opened(tmp_path / "d") as db:
        db.register("q", PAIRS)
        reader = Subscriber("q")
        reader.begin(db)
        db.push("t", batch([(100, 1, 7)]))
        db.push("s", batch([(200, 2, 7), (300, 3, 8)]))
        beat(db, "s", 1_000)
        reader.read(db)
        assert reader.got == []
        assert marks(db) == {"a": 1_000, "b": 100}
        assert format_of(db.core.store.directory) < FORMAT_IDLE
        pass_time(db, 1_001)
        assert format_of(db.core.store.directory) == FORMAT_IDLE
        assert marks(db) == {"a": 1_004, "b": 1_004}
        assert "counts as idle" in db.query("q").explain()
        reader.read(db)
        assert [row[:3] for row in reader.got] == [(2, 1, 200), (3, None, 300)]
        db.push("t", batch([(500, 4, 8), (2_000, 5, 8)]))  # The first is late.
        beat(db, "s", 3_000)
        assert marks(db) == {"a": 3_000, "b": 2_000}
        late = {it.alias: it.late for it in db.query("q").answer().inputs}
        assert late == {"a": 0, "b": 1}
        assert not db.query("q").answer().complete
        assert "counts as idle" not in db.query("q").explain()


def test_a_stream_without_tuples_is_idle_and_two_silent_streams_stay_where_they_are(tmp_path):
    with opened(tmp_path / "d") as db:
        db.register("q", PAIRS)
        db.push("s", batch([(200, 2, 7)]))
        pass_time(db, 300)
        assert marks(db) == {"a": 303, "b": 303}
        for _ in range(4):
            db.core.machine.now_s += IDLE_S
            applied(db)
        assert marks(db) == {"a": 303, "b": 303}


def test_no_stream_is_idle_without_a_time_out(tmp_path):
    with Engine.open(tmp_path / "d", machine=Advanced(), idle_seconds=0) as db:
        for name in ("s", "t"):
            db.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts"
            )
        db.register("q", PAIRS)
        db.push("t", batch([(100, 1, 7)]))
        pass_time(db, 1_000)
        assert marks(db) == {"a": 1_003, "b": 100}
        assert format_of(db.core.store.directory) < FORMAT_IDLE


def test_heartbeats_and_queries_of_one_stream_keep_a_stream_from_being_idle(tmp_path):
    with opened(tmp_path / "d") as db:
        db.register("q", PAIRS)
        db.register("alone", f"SELECT id FROM t {WINDOW}")
        beat(db, "t", 50)
        for time in range(100, 108):
            beat(db, "s", 10 * time)
            beat(db, "t", time)
            db.core.machine.now_s += 0.9 * IDLE_S
        assert marks(db) == {"a": 1_070, "b": 107}
        assert marks(db, "alone") == {"t": 107}


def test_a_stream_whose_records_wait_to_be_applied_is_not_idle(tmp_path):
    """The apply thread is busy for longer than the time-out, and applies `s` before `t`."""
    with opened(tmp_path / "d") as db:
        db.register("q", PAIRS)
        db.push("t", batch([(100, 1, 7)]))
        for time in (1_000, 1_001):
            beat(db, "s", time)
            db.core.machine.now_s += 0.5 * IDLE_S
        beat(db, "s", 1_002)  # The stream is seen to be behind.
        freed = Event()
        busy = db.core.executor.call(freed.wait)
        db.core.intakes["s"].heartbeat(START_US + 1_003).result()
        db.push("t", batch([(200, 2, 7)]))
        db.core.machine.now_s += IDLE_S
        freed.set()
        assert busy.result()
        for time in (1_004, 1_005):
            beat(db, "s", time)
        assert marks(db) == {"a": 1_005, "b": 200}


class GatedDisk(Advanced):
    """Records that are on the disk count as durable while the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Event()
        self.gate.set()

    def group_commit(self, queue, log, durable, failed):
        def when_open(entries):
            assert self.gate.wait(60)
            durable(entries)

        return super().group_commit(queue, log, when_open, failed)


def test_a_stream_whose_record_is_on_its_way_to_the_disk_is_not_idle(tmp_path):
    """Its record would stand before that of the idle stream."""
    machine = GatedDisk()
    with opened(tmp_path / "d", machine) as db:
        db.register("q", PAIRS)
        db.push("t", batch([(100, 1, 7)]))
        beat(db, "s", 1_000)
        idle = IdleStreams(db.core)
        db.core.executor.call(lambda: idle.go_on(0.0)).result()
        machine.gate.clear()
        durable = db.core.intakes["t"].heartbeat(START_US + 150)
        db.core.executor.call(lambda: idle.go_on(IDLE_S)).result()
        machine.gate.set()
        durable.result()
        applied(db)
        assert marks(db) == {"a": 1_000, "b": 150}
        assert format_of(db.core.store.directory) < FORMAT_IDLE
        db.core.executor.call(lambda: idle.go_on(2 * IDLE_S)).result()
        beat(db, "s", 1_001)
        applied(db)
        assert marks(db) == {"a": 1_001, "b": 1_001}


def test_a_view_that_has_failed_is_idle_and_answers_of_its_readers_say_so(tmp_path):
    with opened(tmp_path / "d") as db:
        db.execute(f"CREATE VIEW v AS SELECT id, kind FROM t {WINDOW}")
        db.execute("CREATE VIEW beside AS SELECT id FROM v")
        pairs = PAIRS.replace("JOIN t", "JOIN v")
        readers = {"q": pairs, "rows": "SELECT id FROM beside", "n": "SELECT COUNT(*) AS n FROM v"}
        for name, text in readers.items():
            db.register(name, text)
        db.push("t", batch([(100, 1, 7)]))
        beat(db, "t", 150)
        failing = db.core.rows.queries["v"]
        db.core.executor.call(lambda: failing.guard(lambda: 1 // 0)).result()
        db.push("s", batch([(120, 2, 7), (300, 3, 8)]))
        pass_time(db, 1_000)
        assert marks(db) == {"a": 1_003, "b": 1_003}
        reader = Subscriber("q", db.query("q").answer().resume.partition(".")[0] + ".0")
        reader.read(db)
        assert [row[:3] for row in reader.got] == [(2, 1, 120), (3, None, 300)]
        for name in readers:
            answer = db.query(name).answer()
            assert not answer.complete
            assert any("view v gets no more rows: query 'v' failed" in it for it in answer.notes)


def test_heartbeats_that_repeat_a_watermark_keep_a_stream_from_being_idle(tmp_path):
    with opened(tmp_path / "d") as db:
        db.register("q", PAIRS)
        for time in range(100, 108):
            beat(db, "s", time)
            beat(db, "t", 50)
            db.core.machine.now_s += 0.5 * IDLE_S
        assert marks(db) == {"a": 107, "b": 50}


def test_a_view_of_tables_alone_may_be_idle(tmp_path):
    """Its watermark follows no stream, but the changes of its tables."""
    with opened(tmp_path / "d") as db:
        db.execute("CREATE TABLE c (kind BIGINT PRIMARY KEY)")
        db.execute("CREATE VIEW v AS SELECT kind FROM c")
        db.execute("INSERT INTO c VALUES (7)")
        db.register("q", f"SELECT a.id FROM s {WINDOW} a LEFT JOIN v {WINDOW} b ON a.kind = b.kind")
        applied(db)
        later = db.core.streams["v"].watermark_us - START_US + 1
        db.push("s", batch([(later, 1, 7)]))
        pass_time(db, later + 100)
        assert marks(db) == {"a": later + 103, "b": later + 103}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restart_has_the_same_rows_and_late_tuples(checkpoint, tmp_path):
    with opened(tmp_path / "d") as db:
        db.register("q", PAIRS)
        reader = Subscriber("q")
        reader.begin(db)
        db.push("t", batch([(100, 1, 7)]))
        db.push("s", batch([(200, 2, 7), (300, 3, 8)]))
        pass_time(db, 1_000)
        if checkpoint:
            db.core.executor.call(db.checkpoints.now).result()
        idle = copy_killed(db, tmp_path / "idle")
        finish(db)
        expected = marks(db), db.query("q").answer().late, rows(db, reader)
        killed = copy_killed(db, tmp_path / "killed")
    for path, finished in ((idle, False), (killed, True)):
        with Engine.open(path, machine=Advanced(), idle_seconds=IDLE_S) as again:
            if not finished:
                assert marks(again) == {"a": 1_003, "b": 1_003}
                finish(again)
            assert (marks(again), again.query("q").answer().late, rows(again, reader)) == expected


def finish(db: Engine) -> None:
    """Push a late and a timely tuple, and close."""
    db.push("s", batch([(1_500, 6, 8)]))
    db.push("t", batch([(500, 4, 8), (1_400, 5, 8)]))
    beat(db, "s", 3_000)
    beat(db, "t", 3_000)


def rows(db: Engine, reader: Subscriber):
    own = Subscriber("q", reader.token)
    own.read(db)
    return own.got


def test_queries_that_share_operators_go_on_together(tmp_path):
    texts = {"q": PAIRS, "same": PAIRS, "other": PAIRS + " WHERE a.id > 2"}
    with opened(tmp_path / "d") as db:
        for name, text in texts.items():
            db.register(name, text)
        db.push("t", batch([(100, 1, 7)]))
        db.push("s", batch([(200, 2, 7), (300, 3, 8)]))
        pass_time(db, 1_000)
        db.register("late", PAIRS)  # It has seen no record of the idle stream.
        db.push("s", batch([(1_100, 4, 9)]))
        beat(db, "s", 1_200)
        for name in texts:
            assert marks(db, name) == {"a": 1_200, "b": 1_200}
        assert db.query("q").answer().table.num_rows == 3
        assert db.query("same").answer().table.num_rows == 3
        assert db.query("other").answer().table.num_rows == 2
        assert marks(db, "late") == {"a": 1_200, "b": 100}
        beat(db, "t", 1_200)
        assert db.query("late").answer().table == db.query("q").answer().table


def test_a_query_that_does_not_count_a_stream_as_idle_shares_nothing_with_one_that_does(tmp_path):
    """`t` is ahead of `s`, and idle for the older query since a third stream went on."""
    with opened(tmp_path / "d") as db:
        db.execute("CREATE STREAM u (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts")
        db.register("third", PAIRS.replace("FROM s", "FROM u"))
        db.register("older", PAIRS)
        for name, time in (("s", 50), ("t", 100), ("u", 200)):
            db.push(name, batch([(time, time, 7)]))
        for step in range(4):
            beat(db, "u", 300 + step)
            beat(db, "s", 60 + step)
            db.core.machine.now_s += IDLE_S * (step < 2)
        assert marks(db, "third") == {"a": 303, "b": 303}
        db.register("newer", PAIRS + " WHERE a.id < 1000")
        beat(db, "s", 150)
        assert marks(db, "older") == {"a": 150, "b": 150}
        assert marks(db, "newer") == {"a": 150, "b": 100}
        beat(db, "t", 150)
        assert db.query("newer").answer().table == db.query("older").answer().table
