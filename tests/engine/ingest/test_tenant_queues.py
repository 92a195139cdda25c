"""The queue of what waits to be applied: each tenant has its share, and no more."""

from __future__ import annotations

import pytest

from shedder.engine.engine import Engine
from shedder.engine.ingest.tenant_queues import TenantQueues
from shedder.errors import BadBatch, Overloaded
from shedder.simulation.virtual_environment import VirtualEnvironment
from tests.engine.two_tenants import ACME, BOLT, CREATE, SEND, START, batch


@pytest.fixture
def machine():
    return VirtualEnvironment(1, START)


@pytest.fixture
def engine(tmp_path, machine):
    engine = Engine.open(tmp_path / "data", machine=machine, ingest_queue_bytes=1 << 20)
    engine.execute(CREATE.format("a"), caller=ACME)
    yield engine
    engine.close()


def append_all(engine, stream, rows=5_000):
    """Until it is refused; how many were taken, and why no more."""
    taken, error = refused_at(engine, stream, rows)
    return taken, str(error)


def refused_at(engine, stream, rows=5_000):
    for number in range(1_000):
        try:
            engine.append(stream, batch(rows), rows=rows, **SEND)
        except Overloaded as error:
            return number, error
    raise AssertionError("never refused")


def test_shares_are_by_weight_among_those_who_have_streams():
    weights = {"a": 3.0, "b": 1.0}
    queues = TenantQueues(lambda tenant: weights.get(tenant, 1.0))
    queues.add_stream("a")
    assert queues.share("a") == 1.0
    queues.add_stream("b")
    queues.add_stream("b")
    assert (queues.share("a"), queues.share("b")) == (0.75, 0.25)
    queues.drop_stream("b")
    assert queues.share("b") == 0.25
    queues.drop_stream("b")
    assert queues.share("a") == 1.0


def test_one_tenants_backlog_leaves_the_others_their_room(engine, machine):
    engine.execute(CREATE.format("b"), caller=BOLT)
    taken, refusal = append_all(engine, "a")
    assert "of tenant 'acme' wait to be applied; its share of the queue is 524288" in refusal
    assert taken * 80_000 <= 524_288 + 90_000
    ledger_b = 0
    for _ in range(5):  # Not one of them waits for the other tenant's backlog to go.
        engine.append("b", batch(1_000), rows=1_000, **SEND)
        ledger_b += 1_000
    machine.settle()
    assert engine.core.queues.queued_bytes("acme") == 0
    assert engine.core.queues.queued_bytes("bolt") == 0
    assert engine.ledger("b").accepted == ledger_b
    ledger = engine.ledger("a")
    assert (ledger.accepted, ledger.refused_rows) == (taken * 5_000, 5_000)
    assert append_all(engine, "a")[0] == taken


def test_who_is_alone_has_all_of_it(engine, machine):
    alone, _ = append_all(engine, "a")
    machine.settle()
    engine.execute(CREATE.format("b"), caller=BOLT)
    assert append_all(engine, "a")[0] < alone
    machine.settle()
    engine.execute("DROP STREAM b", caller=BOLT)
    assert append_all(engine, "a")[0] == alone


def test_what_the_log_refuses_is_not_in_the_queue(engine, machine):
    with pytest.raises(BadBatch):
        engine.append("a", b"garbage", rows=1, **SEND)
    assert engine.core.queues.queued_bytes("acme") == 0


def test_what_may_come_before_the_door_is_held_is_shared_too(engine):
    engine.execute(CREATE.format("b"), caller=BOLT)
    both = {"a": 1.0, "b": 1.0}
    engine.core.door.hold(float("inf"), both, 0.0, 0.1, waiting_bytes_max=500_000.0)
    taken, refusal = append_all(engine, "a", rows=1_000)
    assert "more comes than can be applied" in refusal
    assert 250_000 < engine.core.queues.queued_bytes("acme") < 250_000 + 20_000
    assert taken > 10
    engine.append("b", batch(1_000), rows=1_000, **SEND)
    assert engine.core.queues.queued_bytes("bolt") > 0


def retry_ms(engine, stream, rows=5_000):
    with pytest.raises(Overloaded) as refused:
        engine.append(stream, batch(rows), rows=rows, **SEND)
    return refused.value.retry_after_ms


def busy(engine, machine, queue_bytes, tuples_per_s=1_000, size_bytes=16):
    """The meter has seen how long tuples take to be applied, and how much waits."""
    meter, ns = engine.core.meter, machine.monotonic_ns
    assert meter.clock_ns() == ns()
    meter.came(100, 100 * size_bytes)
    meter.begin(100)
    machine.time_us += 100 * 1_000_000 // tuples_per_s
    meter.applied(100, 0)
    meter.done()
    meter.take()
    meter.came(queue_bytes // size_bytes, queue_bytes)


def test_who_finds_the_queue_full_comes_back_when_it_is_worked_off_and_not_all_at_once(
    engine, machine
):
    """16,000 bytes/s are applied, and 32,000 too many wait."""
    busy(engine, machine, (1 << 20) + 32_000)
    apply_s = engine.core.meter.apply_s
    assert apply_s(16_000) == pytest.approx(1.0)
    size_bytes = len(batch(500))
    turns = [2.0 + turn * apply_s(size_bytes) for turn in range(3)]
    refusal = [retry_ms(engine, "a", 500) for _ in range(3)]
    assert refusal == [pytest.approx(1e3 * turn, abs=2) for turn in turns]
    assert engine.ledger("a").refused_batches == 3


def test_what_waits_for_the_disk_is_told_by_what_becomes_durable(engine, machine):
    busy(engine, machine, 0)
    taken, error = refused_at(engine, "a")  # Nothing is written in between.
    assert "wait for the disk" in str(error)
    size_bytes = len(batch(5_000))
    ahead = engine.core.log_queue.in_flight_bytes
    over_s = engine.core.meter.store_s(ahead + size_bytes - (1 << 20))
    assert error.retry_after_ms == pytest.approx(1e3 * min(over_s, 5.0), abs=1)
    assert taken > 10


def test_a_tenants_share_drains_among_what_others_have(engine, machine):
    """Both have as much waiting, so its own goes half as fast as all does."""
    engine.execute(CREATE.format("b"), caller=BOLT)
    busy(engine, machine, 0, tuples_per_s=10_000)
    machine.log.commit(machine.log.gather())
    append_all(engine, "a", 1_000)
    append_all(engine, "b", 1_000)
    machine.log.commit(machine.log.gather())
    over = engine.core.queues.queued_bytes("acme") - (1 << 19)
    assert over > 0
    wait_s = engine.core.meter.apply_s(2 * over)
    assert wait_s < 5.0
    taken_ms = retry_ms(engine, "a", 1_000)
    assert taken_ms > 1e3 * wait_s - 1  # The first slot was given to the call refused before.
