"""Of many clients that wait for room, each gets its turn."""

import asyncio
import threading
import time

import pytest

from shedder.engine.load_shedding.controller_loop import BACKLOG_MS, BACKLOG_MS_CALM
from shedder.overload.controller import AGE_MS, NORMAL
from shedder.server.append_stream import CREDITS, CREDITS_MIN
from shedder.server.call_context import CallLimits
from shedder.server.wait_queues import RECENT_S, Line, Lines
from tests.server.worlds import (
    FLOOD,
    PATIENCE_S,
    Front,
    SteeredMachine,
    connect,
    overloaded,
    ticks_until,
)
from tests.server_process import running
from tests.streams.streams import trades

CLIENTS, BATCHES = 6, 12


class Seldom(Front):
    """An engine that has room for one batch at every third request."""

    def __init__(self, engine):
        super().__init__(engine)
        self.order = []  # Producers in the order in which their batches were admitted.
        self._lock = threading.Lock()
        self._calls = 0

    def append(self, *args, **named):
        with self._lock:
            self._calls += 1
            if self._calls % 3:
                raise overloaded(2)
            self.order.append(named["producer"])
        return self.engine.append(*args, **named)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [CallLimits(append_patience_s=PATIENCE_S)])
def test_when_there_is_room_for_one_at_a_time_nobody_is_passed_over(
    client, engine, settings, limits
):
    front = Seldom(engine)
    with running(front, settings, limits) as address:
        push_together(str(address))
    assert client.ledger("trades").applied == 10 * CLIENTS * (BATCHES + 1)
    # While all of them waited, no producer had several turns more than another one.
    contended = front.order[CLIENTS : CLIENTS + CLIENTS * (BATCHES // 2)]
    turns = [contended.count(f"p{number}") for number in range(CLIENTS)]
    assert max(turns) - min(turns) <= BATCHES // 4, turns


def push_together(address):
    """Let all clients push at the same time, once every client is connected."""
    everybody = threading.Barrier(CLIENTS)

    def push(number):
        with (
            connect(address) as own,
            own.producer("trades", f"p{number}") as producer,
        ):
            producer.push(trades(10, number))
            producer.flush()
            everybody.wait()
            for _ in range(BATCHES):
                producer.push(trades(10, number))

    threads = [threading.Thread(target=push, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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


class Standing(SteeredMachine):
    """A steered machine whose clock stands, so that queues keep their length."""

    def monotonic_s(self):
        return 0.0


class Lining(Front):
    """An engine that signals when a batch is about to wait for admission."""

    def __init__(self, engine):
        super().__init__(engine)
        self.lined_up = threading.Semaphore(0)

    def blocks(self, stream):
        self.lined_up.release()
        return self.engine.blocks(stream)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Standing()])
def test_calls_that_wait_share_the_credits_of_one(client, engine, settings, machine):
    front = Lining(engine)
    with (
        running(front, settings, CallLimits(append_patience_s=PATIENCE_S)) as address,
        connect(address) as own,
        own.producer("trades", "one") as one,
        own.producer("trades", "other") as other,
    ):
        engine.overload.start()
        machine.backlog_ms = 0.0
        one.push(trades(10, 1))
        one.flush()
        assert one.outbox.credits == CREDITS
        machine.backlog_ms = BACKLOG_MS_CALM + 1  # Both wait.
        for producer in (one, other):
            producer.push(trades(10, 2))
            front.lined_up.acquire()
        machine.backlog_ms = 0.0
        for producer in (one, other):
            producer.flush()
        assert {one.outbox.credits, other.outbox.credits} == {CREDITS // 2}
        assert CREDITS_MIN < CREDITS // 2
        with own.producer("trades", "third") as third:  # A later one gets no more.
            third.push(trades(1, 3))
            third.flush()
            assert third.outbox.credits == CREDITS // 2


@pytest.mark.slow
@pytest.mark.parametrize("machine", [SteeredMachine()])
@pytest.mark.parametrize("limits", [CallLimits(append_patience_s=0.2)])
def test_while_what_has_come_takes_long_open_calls_wait_and_nobody_is_refused(
    client, engine, machine
):
    engine.overload.start()
    with client.producer("trades", "p") as producer:
        machine.backlog_ms = BACKLOG_MS_CALM + 1
        began = time.monotonic()
        producer.push(trades(10, 1))
        assert producer.flush().position == 10  # It was held back, and then taken all the same.
        assert time.monotonic() - began >= 0.2
        machine.backlog_ms = BACKLOG_MS_CALM
        producer.push(trades(10, 2))
        assert producer.flush().position == 20
    ledger = client.ledger("trades")
    assert (ledger.applied, ledger.refused_batches) == (20, 0)


@pytest.mark.parametrize("machine", [SteeredMachine()])
@pytest.mark.parametrize("policy", ["DROP", "DROP OLDEST"])
def test_where_tuples_are_dropped_nobody_is_held_back(client, engine, machine, policy):
    engine.overload.start()
    machine.backlog_ms = 2 * BACKLOG_MS
    assert engine.overload.backlog_ms("trades") == 2 * BACKLOG_MS
    client.execute(f"ALTER STREAM trades SET ON OVERLOAD {policy}")
    assert engine.overload.backlog_ms("trades") == 0
    engine.overload.stop()
    client.execute("ALTER STREAM trades SET ON OVERLOAD THIN")
    assert engine.overload.backlog_ms("trades") == 0


@pytest.mark.parametrize("machine", [SteeredMachine()])
def test_work_is_shed_before_anybody_waits(engine, machine):
    assert engine.overload.state == NORMAL
    assert engine.overload.backlog_ms_max == BACKLOG_MS_CALM > AGE_MS * 4
    machine.load = FLOOD
    ticks_until(engine, lambda state: state.overloaded)
    assert engine.overload.backlog_ms_max == BACKLOG_MS
