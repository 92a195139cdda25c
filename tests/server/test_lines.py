"""Of many clients that wait for room, each gets its turn."""

import threading
import time

import shedder
from shedder import errors
from shedder.server.append_stream import HOLD_BACK_AGE_MS
from tests.streams.streams import trades

CLIENTS, BATCHES = 6, 12


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


class Slow:
    """A meter whose queue is as old as it is told."""

    def __init__(self, meter):
        self._meter = meter
        self.age_ms = 0.0

    def __getattr__(self, name):
        return getattr(self._meter, name)


def test_while_what_has_come_waits_for_long_open_calls_wait_and_nobody_is_refused(
    client, engine, monkeypatch
):
    monkeypatch.setattr("shedder.server.append_stream.PATIENCE_S", 0.2)
    meter = engine.core.meter = Slow(engine.core.meter)
    engine.overload.start()
    with client.producer("trades", "p") as producer:
        meter.age_ms = HOLD_BACK_AGE_MS + 1
        began = time.monotonic()
        producer.push(trades(10, 1))
        assert producer.flush().position == 10  # It was held back, and then taken all the same.
        assert time.monotonic() - began >= 0.2
        meter.age_ms = HOLD_BACK_AGE_MS
        producer.push(trades(10, 2))
        assert producer.flush().position == 20
    ledger = client.ledger("trades")
    assert (ledger.applied, ledger.refused_batches) == (20, 0)
