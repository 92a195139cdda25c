"""Load sheds work: levels ahead of the queue, exact counts, replays, what is forced, the door."""

from __future__ import annotations

import itertools
import threading

import pyarrow as pa
import pytest

from shedder.archive.log.records import LevelFrom
from shedder.engine.engine import Engine
from shedder.engine.load_shedding.controller_loop import Overload
from shedder.engine.load_shedding.spare_capacity import SpareCapacity
from shedder.errors import BadBatch, BadSetting, Overloaded
from shedder.overload.controller import TICK_S
from shedder.overload.memory_pressure import Pressure
from shedder.simulation.virtual_environment import VirtualEnvironment
from tests.engine.flooded import QUERIES, ROWS, SECOND, START, Flooded
from tests.engine.killed import copy_killed
from tests.engine.supervised import Recording

LOAD = ("age_ms", "queue_bytes", "tuples_per_s", "bytes_per_s")  # As the control table has it.


@pytest.fixture
def flooded(tmp_path):
    world = Flooded(tmp_path / "db")
    yield world
    world.engine.close()


def facts(engine):
    table = engine.control().to_pylist()
    return {row["key"]: row["value"] for row in table if row["entity"] == "overload"}


@pytest.mark.slow
def test_without_load_nothing_is_thinned(flooded):
    for _ in range(30):
        flooded.tick(1)
    assert set(flooded.levels("wide")) == {0}
    assert flooded.engine.overload.state.overloaded is False
    assert facts(flooded.engine)["overloaded"] == "0"


@pytest.mark.slow
def test_levels_are_in_force_for_what_waits_already(flooded):
    for _ in range(5):
        flooded.tick(1)
    flooded.send(1)
    before = flooded.engine.core.streams["s"].applied
    for _ in range(60):
        flooded.send()
    queued = flooded.machine.applier.waiting
    flooded.tick()
    flooded.tick()
    assert queued is not None
    assert max(flooded.levels("wide")) > 0
    applied = flooded.engine.core.streams["s"].applied - before
    assert applied < 60 * ROWS  # Much still waits, and the levels are there.


@pytest.mark.slow
def test_whoever_looks_at_a_flood_does_not_wait_for_its_end(flooded):
    flooded.flood()
    for _ in range(200):
        flooded.send()
    stream = flooded.engine.core.streams["s"]
    before = stream.applied
    assert facts(flooded.engine)["overloaded"] == "1"
    assert flooded.engine.execute("SHOW QUERIES").table.num_rows == len(QUERIES)
    assert stream.applied == before < len(flooded.sent) * ROWS
    assert flooded.engine.ledger("s").applied == len(flooded.sent) * ROWS
    assert stream.applied > before


def test_without_overload_everybody_sees_his_own_writes(flooded):
    for _ in range(3):  # The cost of a tuple is not known yet.
        flooded.send()
    assert facts(flooded.engine)["overloaded"] == "0"
    assert flooded.engine.execute("SHOW STREAMS").table.num_rows == 1
    assert flooded.engine.core.streams["s"].applied == 3 * ROWS


def test_who_has_waited_for_his_own_writes_long_enough_goes_ahead_of_a_flood(tmp_path):
    machine, blocked, order = Recording(), threading.Event(), []
    with Engine.open(tmp_path / "db", machine=machine, overload="on", audit="off") as engine:
        engine.overload.close()  # No tick says otherwise.
        core = engine.core
        core.set_sheds(sheds=True)
        core.ease(coalesces=True)
        core.executor.post(blocked.wait)
        core.executor.post(lambda: order.append("flood"))
        machine.urgent.clear()
        looking = threading.Thread(target=lambda: core.look(lambda: order.append("look")))
        looking.start()
        machine.urgent.wait()  # Before, the call was at the end of the queue.
        blocked.set()
        looking.join()
    assert order == ["look", "flood"]


@pytest.mark.slow
def test_the_cheapest_are_left_alone_and_counts_of_one_group_stay_exact(flooded):
    flooded.flood()
    plan = flooded.engine.core.standing_query("wide")[1].state.plan
    kinds = dict(zip((part.kind.value for part in plan.parts), flooded.levels("wide"), strict=True))
    assert kinds["frequent"] > 0
    assert kinds["count"] == kinds["moments"] == 0
    flooded.machine.settle()
    [row] = flooded.rows("wide")
    assert row["n"] == len(flooded.sent) * ROWS
    assert row["n_bound"] == row["s_bound"] == "exact"
    assert row["s"] == pytest.approx(
        sum(float(pa.compute.sum(b["x"]).as_py()) for b in flooded.sent)
    )


@pytest.mark.slow
def test_answers_say_what_was_thinned_and_the_ledger_is_exact(flooded):
    flooded.flood()
    flooded.machine.settle()
    answer = flooded.engine.query("groups").answer()
    assert answer.thinning < 1
    for row in answer.rows():
        truth = sum(
            float(pa.compute.sum(b["x"].filter(pa.compute.equal(b["g"], row["g"]))).as_py())
            for b in flooded.sent
        )
        assert row["s_low"] <= truth <= row["s_high"]
    ledger = flooded.engine.ledger("s")
    assert ledger.accepted == ledger.applied == len(flooded.sent) * ROWS
    for query in ledger.queries:
        assert query.read + query.thinned + query.late == ledger.applied
    assert max(query.thinned for query in ledger.queries) > 0


@pytest.mark.slow
def test_everything_is_read_again_when_the_flood_is_over(flooded):
    flooded.flood()
    assert flooded.engine.overload.state.overloaded
    flooded.machine.settle()
    for _ in range(50):
        flooded.tick(1)
    assert not flooded.engine.overload.state.overloaded
    assert set(flooded.levels("wide")) | set(flooded.levels("groups")) == {0}


@pytest.mark.slow
def test_a_replay_reads_every_batch_at_the_level_that_it_was_read_at(flooded, tmp_path):
    flooded.flood()
    flooded.machine.settle()
    before = {name: flooded.rows(name) for name in QUERIES}
    copy_killed(flooded.engine, tmp_path / "killed")
    with Engine.open(tmp_path / "killed", machine=VirtualEnvironment(2, START)) as again:
        for name, rows in before.items():
            assert again.query(name).answer().rows() == rows
        query = {q.query: q for q in again.ledger("s").queries}["groups"]
        assert query.thinned > 0
        assert query.read + query.thinned == len(flooded.sent) * ROWS
        query_state = again.core.standing_query("groups")[1].state
        assert set(query_state.levels) == {0}  # Load shedding is off there, so it goes on in full.


@pytest.mark.slow
def test_what_the_operator_forces_stays_until_it_is_given_back(tmp_path):
    Flooded(tmp_path / "db").engine.close()

    def say(*statements):  # On this machine: no thread waits for the log of a virtual one.
        with Engine.open(tmp_path / "db", clock_us=lambda: START) as engine:
            for statement in statements:
                engine.execute(statement)
            return engine.query("groups").explain()

    status = say("ALTER QUERY groups SET THINNING 1/1", "ALTER QUERY wide SET THINNING 1/2 FOR q")
    assert "(forced)" in status
    world = Flooded(tmp_path / "db")
    world.flood()
    assert set(world.levels("groups")) == {0}
    assert 1 in world.levels("wide")
    assert max(world.levels("wide")) > 1
    world.engine.close()
    assert "(forced)" not in say("ALTER QUERY groups SET THINNING AUTO")
    world = Flooded(tmp_path / "db")
    world.flood()
    assert max(world.levels("groups")) > 0
    world.engine.close()


def test_forced_levels_are_forced_after_a_restart(tmp_path):
    Flooded(tmp_path / "db").engine.close()
    with Engine.open(tmp_path / "db", clock_us=lambda: START) as engine:
        engine.execute("ALTER QUERY groups SET THINNING 1/4")
        copy_killed(engine, tmp_path / "killed")
    for place in ("db", "killed"):  # From the checkpoint, and by replay.
        with Engine.open(tmp_path / place, machine=VirtualEnvironment(2, START)) as again:
            query_state = again.core.standing_query("groups")[1].state
            assert query_state.forced == set(range(len(query_state.plan.parts)))
            assert set(query_state.levels) == {2}


@pytest.mark.slow
def test_overload_can_be_switched_off_and_on(flooded):
    flooded.flood()
    assert float(facts(flooded.engine)["tuples_per_s"]) > 0
    flooded.engine.set_control("overload", "", "mode", "off")
    flooded.machine.settle()
    assert set(flooded.levels("groups")) == {0}
    stopped = facts(flooded.engine)
    assert stopped["mode"] == "off"
    assert [stopped[key] for key in LOAD] == ["0.0", "0", "0", "0"]
    assert TICK_S not in dict(flooded.machine.ticks)
    flooded.engine.set_control("overload", "", "mode", "on")
    assert TICK_S in dict(flooded.machine.ticks)
    with pytest.raises(BadSetting, match="on or off"):
        flooded.engine.set_control("overload", "", "mode", "maybe")


def test_an_embedded_engine_lets_producers_wait_instead(tmp_path):
    world = Flooded(tmp_path / "db", overload="auto")
    assert TICK_S not in dict(world.machine.ticks)
    world.engine.close()


# --- the door --------------------------------------------------------------------------------


def test_a_held_door_refuses_before_anything_is_decoded(flooded):
    engine = flooded.engine
    engine.core.door.hold(1_000.0, {"s": 1.0}, flooded.machine.monotonic_s(), 0.1)
    flooded.machine.ns += int(1e9)
    send = {"producer": "", "epoch": 0, "sequence": None, "rows": 70}
    with pytest.raises(BadBatch):  # There is room: it is looked at.
        engine.append("s", b"garbage" * 1_000, **send)
    with pytest.raises(Overloaded) as refused:
        engine.append("s", b"garbage" * 1_000, **send)
    assert 4_000 <= refused.value.retry_after_ms <= 5_000
    assert engine.ledger("s").refused_rows == 140 - 70  # The rows of the first one are unknown.
    with pytest.raises(Overloaded):  # A call that waits and tries again was not refused.
        engine.append("s", b"garbage", **send, will_retry=True)
    assert engine.ledger("s").refused_batches == 2
    engine.core.door.hold(float("inf"), {"s": 1.0}, flooded.machine.monotonic_s(), 0.1)
    with pytest.raises(BadBatch):
        engine.append("s", b"garbage", **send)


# --- freshness -------------------------------------------------------------------------------


def test_who_finds_no_room_behind_a_held_door_has_not_used_up_what_it_lets_in(flooded):
    core, admission = flooded.engine.core, flooded.engine.admission
    core.door.hold(1e6, {"s": 1.0}, flooded.machine.monotonic_s(), TICK_S)
    flooded.machine.ns += SECOND * 100
    flooded.send()  # It waits to be applied.
    core.set_pressure(Pressure(full=True))
    for _ in range(5):
        with pytest.raises(Overloaded, match="memory is at its limit"):
            admission.admit("s", ROWS, 1_000_000)
    flooded.machine.settle()
    admission.admit("s", ROWS, 1_000_000)
    with pytest.raises(Overloaded, match="more comes than can be applied"):
        admission.admit("s", ROWS, 1_000_000)


@pytest.mark.slow
def test_stretched_periods_put_windows_off_and_an_idle_engine_catches_up(tmp_path):
    world = Flooded(tmp_path / "db")
    world.spacing_us = SECOND // 4
    engine = world.engine
    text = "SELECT COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 1 SECOND]"
    ends_of = {name: [] for name in ("one", "two")}
    for name, ends in ends_of.items():
        engine.register(name, text + f" WHERE k > {len(name)}")
        engine.listen(name, lambda answer, ends=ends: ends.append(answer.end_us))
    engine.core.ease(stretch=4)
    for _ in range(80):
        world.send()
        world.machine.applier.step()
    ends = ends_of["one"]
    assert ends == ends_of["two"]  # Late together.
    assert len(ends) in (4, 5)
    assert all(later - end == 4 * SECOND for end, later in itertools.pairwise(ends[1:]))
    assert engine.query("one").answer().end_us == ends[-1]
    world.machine.applier.step()  # Nothing waits: one of them is answered, and the next one later.
    caught_up = [engine.query(name).answer().end_us == START + 18 * SECOND for name in ends_of]
    assert sum(caught_up) == 1
    world.machine.applier.step()
    for name in ends_of:
        assert engine.query(name).answer().end_us == START + 18 * SECOND
    engine.close()


def test_a_record_of_load_survives_its_bytes():
    for level in (LevelFrom(3, "busy", (0, 3, 20), 17, 1 << 40), LevelFrom(1, "Straße", (), -1, 0)):
        assert LevelFrom.from_bytes(level.to_bytes()) == level


class Deaf:
    """Ignores the levels that the controller sets.

    requests: the levels that the controller requested, call by call.
    """

    def __init__(self):
        self.requests = []

    @property
    def waits(self):
        return bool(self.requests)

    def want(self, levels):
        self.requests.append(levels)


def test_only_who_is_to_read_otherwise_is_told_and_everybody_who_does_after_a_look(flooded):
    core, deaf = flooded.engine.core, Deaf()
    requests, spare = deaf.requests, SpareCapacity()
    overload = Overload(core, deaf, spare, share_out=lambda: None, on_idle=lambda: None)
    for _ in range(20):
        flooded.send()
    overload.look(core.machine.monotonic_s())
    full_ns = float(overload.facts()["full_ns_per_tuple"])
    overload.set_levels(0.9 * full_ns)
    overload.set_levels(0.9 * full_ns)
    [first] = requests
    assert len(first) == 1
    overload.set_levels(0.0)
    assert set(requests[1]) == {("s", "wide"), ("s", "groups")}
    overload.look(core.machine.monotonic_s())  # The requested levels are not in force.
    overload.set_levels(0.0)
    assert requests[2] == requests[1]
    overload.set_levels(float("inf"))  # Before those levels are in force.
    assert set(requests[3]) == set(requests[2])
    assert not any(level for levels in requests[3].values() for level in levels.values())


class Broken(Deaf):
    """Fails whenever the controller asks what is in force."""

    @property
    def waits(self):
        raise ZeroDivisionError


@pytest.mark.parametrize("levels", [Deaf(), Broken()])
def test_background_work_knows_what_load_leaves_after_a_tick_that_failed_too(flooded, levels):
    spare = SpareCapacity()
    assert (spare.idle, spare.share) == (True, 1.0)
    overload = Overload(
        flooded.engine.core, levels, spare, share_out=lambda: None, on_idle=lambda: None
    )
    for _ in range(20):
        flooded.send()
    flooded.machine.ns += SECOND * 1_000  # The batches have waited for a second.
    overload.tick()
    assert not overload.idle
    assert (spare.idle, spare.share) == (False, 0.0)


def test_records_of_levels_are_no_load_however_long_they_wait(flooded):
    """They are in force already. As load, setting those of many queries would be an overload."""
    core, machine = flooded.engine.core, flooded.machine
    flooded.tick(1)
    flooded.engine.services.load_levels.want({("s", "wide"): {1: 3}})
    machine.applier.step()
    assert max(flooded.levels("wide")) == 3
    group = machine.log.gather()
    assert group
    machine.log.commit(group)
    machine.ns += SECOND * 200
    load = core.meter.take()
    assert (load.age_ms, load.queue_bytes) == (0, 0)
    flooded.send()
    machine.ns += SECOND * 200
    assert core.meter.take().age_ms == 200
    machine.settle()
    assert (core.meter.age_ms, core.meter.queue_bytes) == (0, 0)
