"""Of many clients that wait for room, each gets its turn."""

import asyncio
import threading
import time

import pytest

import shedder
from shedder import errors
from shedder.engine.overload import BACKLOG_MS, BACKLOG_MS_CALM
from shedder.overload.controller import AGE_MS, NORMAL, State
from shedder.server.append_stream import CREDITS, CREDITS_MIN
from shedder.server.lines import RECENT_S, Line, Lines
from tests.streams.streams import trades

CLIENTS, BATCHES = 6, 12


@pytest.mark.slow
def test_when_there_is_room_for_one_at_a_time_nobody_is_passed_over(
    client, engine, address, monkeypatch
):
    append, lock, asked, order = engine.append, threading.Lock(), [0], []

    def seldom(*args, **kwargs):
        """Room for one batch, at every third question."""
        with lock:
            asked[0] += 1
            if asked[0] % 3:
                error = errors.Overloaded("full")
                error.retry_after_ms = 2
                raise error
            order.append(kwargs["producer"])
        return append(*args, **kwargs)

    everybody = threading.Barrier(CLIENTS)

    def push(number):
        with (
            shedder.connect(address) as own,
            own.producer("trades", f"p{number}") as producer,
        ):
            producer.push(trades(10, number))
            producer.flush()
            everybody.wait()
            for _ in range(BATCHES):
                producer.push(trades(10, number))

    monkeypatch.setattr(engine, "append", seldom)
    threads = [threading.Thread(target=push, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.ledger("trades").applied == 10 * CLIENTS * (BATCHES + 1)
    # While all of them waited, nobody had several turns more than anybody else.
    contended = order[CLIENTS : CLIENTS + CLIENTS * (BATCHES // 2)]
    turns = [contended.count(f"p{number}") for number in range(CLIENTS)]
    assert max(turns) - min(turns) <= BATCHES // 4, turns


def test_a_line_is_as_long_as_it_was_of_late_and_its_first_goes_first():
    now, order = [0.0], []
    line = Line(lambda: now[0])

    async def stand(name, go):
        async with line.first():
            order.append(name)
            await go.wait()

    async def together():
        go = asyncio.Event()
        standing = [asyncio.create_task(stand(name, go)) for name in range(9)]
        await asyncio.sleep(0)
        assert (line.length, line.is_empty) == (9, False)
        go.set()
        await asyncio.gather(*standing)

    async def alone():
        async with line.first():
            return line.length

    assert (line.length, line.is_empty) == (0, True)
    asyncio.run(together())
    assert order == list(range(9))
    assert (line.length, line.is_empty) == (9, True)  # It empties in bursts.
    assert asyncio.run(alone()) == 9
    now[0] += 1.5 * RECENT_S
    assert asyncio.run(alone()) == 9  # One alone does not make it short at once.
    now[0] += 1.5 * RECENT_S
    assert line.length == 1
    now[0] += 2.5 * RECENT_S
    assert line.length == 0


def test_calls_of_one_stream_stand_in_one_line():
    lines = Lines()
    one = lines.of("trades")
    assert lines.of("trades") is one is not lines.of("quotes")


@pytest.mark.slow
def test_calls_that_wait_share_the_credits_of_one(client, address, engine, monkeypatch):
    engine.overload.start()
    meter = engine.core.meter = Slow(engine.core.meter)
    with (
        client.producer("trades", "one") as one,
        client.producer("trades", "other") as other,
    ):
        one.push(trades(10, 1))
        one.flush()
        assert one._outbox.credits == CREDITS
        monkeypatch.setattr("shedder.server.append_stream.LOOK_MS_MAX", 5)
        monkeypatch.setattr("shedder.server.append_stream.PATIENCE_S", 1.0)
        meter.told_ms = BACKLOG_MS_CALM + 1  # Both wait, until they are let in all the same.
        for producer in (one, other):
            producer.push(trades(10, 2))
        for producer in (one, other):
            producer.flush()
        assert {one._outbox.credits, other._outbox.credits} == {CREDITS // 2}
        assert CREDITS_MIN < CREDITS // 2
        with client.producer("trades", "third") as third:  # Who comes meanwhile has no more.
            third.push(trades(1, 3))
            assert third._outbox.credits == CREDITS // 2
            meter.told_ms = 0.0


class Slow:
    """A meter whose queue takes as long as it is told."""

    def __init__(self, meter):
        self._meter = meter
        self.told_ms = 0.0

    def drain_ms(self, more_bytes, *, one_run=0.0):
        return self.told_ms

    def __getattr__(self, name):
        return getattr(self._meter, name)


@pytest.mark.slow
def test_while_what_has_come_takes_long_open_calls_wait_and_nobody_is_refused(
    client, engine, monkeypatch
):
    monkeypatch.setattr("shedder.server.append_stream.PATIENCE_S", 0.2)
    meter = engine.core.meter = Slow(engine.core.meter)
    engine.overload.start()
    with client.producer("trades", "p") as producer:
        meter.told_ms = BACKLOG_MS_CALM + 1
        began = time.monotonic()
        producer.push(trades(10, 1))
        assert producer.flush().position == 10  # It was held back, and then taken all the same.
        assert time.monotonic() - began >= 0.2
        meter.told_ms = BACKLOG_MS_CALM
        producer.push(trades(10, 2))
        assert producer.flush().position == 20
    ledger = client.ledger("trades")
    assert (ledger.applied, ledger.refused_batches) == (20, 0)


@pytest.mark.parametrize("policy", ["DROP", "DROP OLDEST"])
def test_where_tuples_are_dropped_nobody_is_held_back(client, engine, policy):
    meter = engine.core.meter = Slow(engine.core.meter)
    engine.overload.start()
    meter.told_ms = 2 * BACKLOG_MS
    assert engine.overload.backlog_ms("trades") == 2 * BACKLOG_MS
    client.execute(f"ALTER STREAM trades SET ON OVERLOAD {policy}")
    assert engine.overload.backlog_ms("trades") == 0
    engine.overload.stop()
    client.execute("ALTER STREAM trades SET ON OVERLOAD THIN")
    assert engine.overload.backlog_ms("trades") == 0


def test_work_is_shed_before_anybody_waits(engine):
    engine.overload.state = NORMAL
    assert engine.overload.backlog_ms_max == BACKLOG_MS_CALM > AGE_MS * 4
    engine.overload.state = State(budget_ns=100.0)
    assert engine.overload.backlog_ms_max == BACKLOG_MS
