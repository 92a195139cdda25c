"""Steps with many pairs: the apply thread goes on with other work, and no answer shows a part."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pytest

from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.errors import DeadlineExceeded, RowQueryFailed, UnknownQuery
from tests.engine.dataflow.worlds import START_US, Subscriber, applied, batch, subscribed
from tests.engine.killed import copy_killed
from tests.seeds import seed

pytestmark = pytest.mark.slow

ROWS = 400  # Of each side with one key: 160,000 pairs, more than the kernel makes in two calls.
FAR = 10_000
CREATES = tuple(
    f"CREATE STREAM {name} (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts"
    for name in ("s", "t", "other")
)
WINDOW = "[RANGE INTERVAL '0.001' SECOND]"
PAIRS = (
    f"SELECT a.id, b.id AS partner FROM s {WINDOW} a JOIN t {WINDOW} b "
    "ON a.kind = b.kind AND a.id + b.id = 399"
)


class HeldPool(Executor):
    """Work that begins when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future, partial]] = []

    def submit(self, fn, /, *args, **kwargs):
        self.waiting.append((Future(), partial(fn, *args, **kwargs)))
        return self.waiting[-1][0]

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, work in waiting:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as error:
                    future.set_exception(error)


class HeldSteps(Environment):
    """This machine; long steps wait for `steps.release`."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = HeldPool()

    def pool(self, name):
        return self.steps if name == "shedder-steps" else super().pool(name)


def opened(path, **settings) -> tuple[Engine, HeldPool]:
    machine = HeldSteps()
    db = Engine.open(path, machine=machine, **settings)
    for text in CREATES:
        db.execute(text)
    return db, machine.steps


def push_sides(db: Engine, at: int, rows: int = ROWS) -> None:
    for name in ("s", "t"):
        db.push(name, batch([(at, number, 7) for number in range(rows)]))


def pass_by(db: Engine, time: int) -> None:
    for name in ("s", "t"):
        db.heartbeat(name, START_US + time)
    applied(db)


def partners(rows: int = ROWS) -> Counter:
    return Counter((number, 399 - number) for number in range(rows) if 0 <= 399 - number < rows)


def content(answer) -> Counter:
    return Counter(tuple(row.values()) for row in answer.table.to_pylist())


def test_other_queries_and_pushes_go_on_while_a_step_makes_many_pairs(tmp_path):
    db, steps = opened(tmp_path / "d")
    with db:
        db.register("q", PAIRS)
        db.register("o", f"SELECT id FROM other {WINDOW}")
        reader = Subscriber("q")
        reader.begin(db)
        push_sides(db, 100)
        applied(db)
        before = db.query("q").latest()
        pass_by(db, 200)
        assert len(steps.waiting) == 1
        db.push("other", batch([(10, 1, 1)]))
        db.heartbeat("other", START_US + 20)
        assert content(db.query("o").answer()) == Counter([(1,)])
        during = db.query("q").latest()
        assert content(during) == content(before) == Counter()
        assert [each.as_of_us for each in during.inputs] == [START_US + 200, START_US + 100]
        with pytest.raises(DeadlineExceeded):
            db.query("q").answer(timeout_s=0.01)
        assert "Join" in db.query("q").explain()
        steps.release()
        applied(db)
        answer = db.query("q").answer()
        assert content(answer) == partners()
        assert [each.as_of_us for each in answer.inputs] == [START_US + 200] * 2
        reader.read(db)
        assert Counter(row[:2] for row in reader.got) == partners()


def test_tuples_that_come_during_a_step_are_of_the_step_behind_it(tmp_path):
    db, steps = opened(tmp_path / "d")
    with db:
        db.register("q", PAIRS)
        reader = Subscriber("q")
        reader.begin(db)
        push_sides(db, 100)
        pass_by(db, 200)
        db.push("s", batch([(150, 0, 7), (300, 1, 7)]))  # The first is late.
        pass_by(db, 400)
        assert len(steps.waiting) == 1
        assert db.query("q").latest().late == 0
        waiting = db.core.executor.call(db.core.rows.queries["q"].when_read).result()
        steps.release()
        applied(db)
        waiting.result(timeout=10)
        answer = db.query("q").answer()
        assert content(answer) == partners() + Counter([(1, 398)])
        assert answer.late == 1
        reader.read(db)
        assert [row[2] for row in reader.got] == [100] * ROWS + [300]


def test_a_dropped_query_makes_no_more_pairs(tmp_path):
    db, steps = opened(tmp_path / "d")
    with db:
        db.register("q", PAIRS)
        push_sides(db, 100)
        pass_by(db, 200)
        left = db.query("q")
        waiting = db.core.executor.call(db.core.rows.queries["q"].when_read).result()
        db.execute("DROP QUERY q")
        waiting.result(timeout=10)
        with pytest.raises(UnknownQuery):
            left.answer()
        db.register("q", "SELECT id FROM s")
        steps.release()
        push_sides(db, 300)
        pass_by(db, 400)
        rows = db.query("q").answer().table
        assert rows["id"].to_pylist() == list(range(ROWS))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_kill_during_a_step_loses_no_row_and_repeats_none(checkpoint, tmp_path):
    db, steps = opened(tmp_path / "d")
    with db:
        db.register("q", PAIRS)
        reader = Subscriber("q")
        reader.begin(db)
        push_sides(db, 100)
        pass_by(db, 200)
        assert len(steps.waiting) == 1
        if checkpoint:  # It ends the step.
            db.core.executor.call(db.checkpoints.now).result()
            reader.read(db)
            assert len(reader.got) == ROWS
        copied = copy_killed(db, tmp_path / "killed")
        steps.release()
    with Engine.open(copied) as again:
        assert content(again.query("q").answer()) == partners()
        reader.read(again)
    assert Counter(row[:2] for row in reader.got) == partners()


def test_rows_are_the_same_over_kills_while_steps_go_on(tmp_path):
    """Each batch meets all batches before, which the window still has."""
    rows, batches = 300, 5
    rng = np.random.default_rng(seed("long steps"))
    with ExitStack() as stack:
        db = stack.enter_context(Engine.open(tmp_path / "0"))
        for text in CREATES:
            db.execute(text)
        db.register("q", PAIRS)
        reader = Subscriber("q")
        reader.begin(db)
        for number in range(batches):
            push_sides(db, 100 * number, rows)
            match rng.choice(["checkpoint", "kill", "read", "wait"]):
                case "checkpoint":
                    db.core.executor.call(db.checkpoints.now).result()
                case "kill":
                    copied = copy_killed(db, tmp_path / f"killed {number}")
                    db = stack.enter_context(Engine.open(copied))
                case "read":
                    reader.read(db)
                case "wait":
                    db.query("q").answer()
        pass_by(db, 1_000)
        db.query("q").answer()
        reader.read(db)
    assert reader.got == [
        (own, 399 - own, 100 * number, 1)
        for number in range(batches)
        for own in range(100, rows)
        for _ in range(2 * number + 1)
    ]


TABLED = {
    "versions": f"SELECT x.id, c.n FROM ({PAIRS}) x JOIN c ON c.k = x.id % 2",
    "corrected": f"SELECT x.id, r.n FROM ({PAIRS}) x JOIN r ON r.k = x.id % 2",
    "table pairs": f"SELECT a.id, w.n FROM s {WINDOW} a JOIN w ON w.n + a.id = 399 AND a.kind < 9",
}
BEHIND = 10  # Tuples that come during the step.


@pytest.mark.parametrize("name", TABLED)
def test_changes_of_a_table_during_a_step_are_behind_it(name, tmp_path):
    """The rows are those of an engine whose steps end at once, also after a kill."""
    rows = []
    for waits in (True, False):
        db, steps = opened(tmp_path / str(waits))
        with db:
            for table in "crw":
                kind = " RETROACTIVE" if table == "r" else ""
                db.execute(f"CREATE TABLE {table} (k BIGINT PRIMARY KEY, n BIGINT){kind}")
                values = ", ".join(f"({k}, {k})" for k in range(ROWS if table == "w" else 2))
                db.execute(f"INSERT INTO {table} VALUES {values}")
            db.register("q", TABLED[name])
            push_sides(db, 100)
            pass_by(db, 200)
            assert len(steps.waiting) == 1
            assert db.query("q").latest().table.num_rows == 0
            if not waits:
                steps.release()
            for table in "crw":
                db.execute(f"UPDATE {table} SET n = n + 1 WHERE k = 1")
            push_sides(db, 300, BEHIND)
            for table in "crw":
                db.execute(f"DELETE FROM {table} WHERE k = 0")
            pass_by(db, 1_100)  # The window still has the tuples of 300.
            killed = copy_killed(db, tmp_path / f"{waits} killed")
            while steps.waiting:
                steps.release()
                applied(db)
            rows.append(subscribed(db.query("q")))
        with Engine.open(killed) as again:
            assert subscribed(again.query("q")) == rows[-1]
    assert rows[0] == rows[1]
    entered = Counter(row[:2] for row in rows[0] if row[2] < moment(150))
    keys = range(ROWS)
    assert entered == (
        Counter((id_, 399 - id_) for id_ in keys)
        if name == "table pairs"
        else Counter((id_, id_ % 2) for id_ in keys)
    )
    later = {row[1] for row in rows[0] if row[2] == moment(300)}
    assert later == {"versions": {0, 2}, "corrected": {2}}.get(name, set(range(390, 400)))


OTHERS = {
    "window": f"SELECT ISTREAM(kind, MAX(id) AS m) FROM s {WINDOW} GROUP BY kind",
    "ids": f"SELECT a.id, b.id AS other FROM s {WINDOW} a JOIN t {WINDOW} b ON a.id = b.id",
    "shorter": "SELECT a.id FROM s [RANGE INTERVAL '0.0005' SECOND] a JOIN t [NOW] b "
    "ON a.kind = b.kind AND a.id + b.id = 399",
}


@pytest.mark.parametrize("drops", [False, True])
def test_steps_of_queries_that_share_go_on_while_a_retroactive_table_changes(drops, tmp_path):
    """One query makes long steps, and the others read its window meanwhile, or are dropped."""
    made, beside, kills = [], [], []
    for waits, others in ((True, OTHERS), (False, OTHERS), (False, {})):
        db, steps = opened(tmp_path / f"{waits} {len(others)}")
        with db:
            db.execute("CREATE TABLE r (k BIGINT PRIMARY KEY, n BIGINT) RETROACTIVE")
            db.execute("INSERT INTO r VALUES (0, 0), (1, 1)")
            for name, text in others.items():
                db.register(name, text)
            db.register("q", TABLED["corrected"])
            for number, at in enumerate((100, 500, 900, 1_300)):
                push_sides(db, at)
                pass_by(db, at + 100)
                assert steps.waiting
                if not waits:
                    steps.release()
                db.execute(f"UPDATE r SET n = n + {number} WHERE k = 1")
                if drops and others and number == 1:
                    db.execute("DROP QUERY ids")
                push_sides(db, at + 150, BEHIND)
                db.execute(f"DELETE FROM r WHERE k = {number % 2}")
                pass_by(db, at + 200)
                if waits and number == 2:
                    kills.append(copy_killed(db, tmp_path / "killed"))
                db.execute(f"INSERT INTO r VALUES ({number % 2}, {number + 7})")
                if drops and others and number == 2:
                    db.register("late", OTHERS["ids"])
                while steps.waiting:
                    steps.release()
                    applied(db)
                if waits and number == 2:
                    expected = subscribed(db.query("q"))
            made.append(subscribed(db.query("q")))
            beside.append([subscribed(db.query(name)) for name in others if name != "ids"])
    assert made[0] == made[1] == made[2]
    assert beside[0] == beside[1]
    with Engine.open(kills[0]) as again:
        rows = subscribed(again.query("q"))
        assert len(rows) > ROWS
        assert rows == expected[: len(rows)]


def moment(time: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(microseconds=START_US + time)


def test_a_step_beyond_the_limit_ends_its_query_alone(tmp_path):
    db, steps = opened(tmp_path / "d", row_query_bytes_max=1 << 20)
    with db:
        db.register("q", PAIRS.replace("AND a.id + b.id = 399", ""))
        db.register("ids", f"SELECT id FROM s {WINDOW}")
        push_sides(db, 100)
        pass_by(db, 200)
        assert len(steps.waiting) == 1
        steps.release()
        applied(db)
        with pytest.raises(RowQueryFailed, match="in one step"):
            db.query("q").answer()
        assert len(content(db.query("ids").answer())) == ROWS


def test_tuples_that_wait_for_a_step_hold_at_most_half_of_the_memory(tmp_path):
    db, steps = opened(tmp_path / "d", row_query_bytes_max=1 << 21)
    with db:
        db.register("q", PAIRS)
        push_sides(db, 100)
        pass_by(db, 200)
        assert len(steps.waiting) == 1
        for at in range(40):  # The apply thread ends the step itself, and all rows come.
            db.push("s", batch([(FAR + 2_000 * at, number, 8) for number in range(1_000)]))
        db.heartbeat("t", START_US + FAR + 80_000)
        applied(db)
        assert db.query("q").answer().watermark_us > START_US + FAR
        assert db.query("q").latest().table.num_rows == 0


def test_closing_leaves_a_step_to_the_restart(tmp_path):
    db, steps = opened(tmp_path / "d")
    db.register("q", PAIRS)
    push_sides(db, 100)
    pass_by(db, 200)
    assert len(steps.waiting) == 1
    db.close(within_s=0.0)
    with Engine.open(tmp_path / "d") as again:
        assert content(again.query("q").answer()) == partners()
