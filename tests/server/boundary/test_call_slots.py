"""Calls in flight: no tenant's keep another one out, and control and probes always pass."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from grpc_health.v1 import health_pb2
from hypothesis import example, given
from hypothesis import strategies as st

import shedder
from shedder.engine.runtime.caller import Caller, Scope
from shedder.errors import Overloaded
from shedder.server.authentication import new_token
from shedder.server.call_context import CallLimits
from shedder.server.call_slots import Places
from tests.server.worlds import CREATE_TRADES, PATIENCE_S, Front, connect, health_of, overloaded
from tests.server_process import running
from tests.streams.streams import trades

COUNT = "SELECT COUNT(*) AS n FROM trades"


@given(st.integers(1, 80), st.lists(st.sampled_from("abc"), max_size=200))
@example(7, ["a"] * 6 + ["b"])  # Two take all of seven places: too few for two.
@example(16, ["a"] * 12 + ["b"] * 4)
@example(64, ["a"] * 48 + ["b"] * 12 + ["c"] * 4)
def test_whoever_has_no_place_yet_is_let_in_whatever_others_want(most, asking):
    places, taken = Places(most, "calls"), dict.fromkeys("abc", 0)
    for tenant in asking:
        try:
            places.take(tenant)
        except Overloaded:
            assert taken[tenant] >= 3 * (most - sum(taken.values()))
        else:
            taken[tenant] += 1
    assert sum(taken.values()) <= most
    assert max(taken.values()) <= 0.75 * most + 1
    others = sum(count > 0 for count in taken.values())
    if most >= 4**others:  # Each tenant takes three quarters of the places that are free.
        places.take("newcomer")


def test_who_leaves_makes_room():
    places = Places(4, "calls")
    for _ in range(10):
        with places.taken("a"), places.taken("a"), places.taken("a"):
            with pytest.raises(Overloaded, match=r"3 calls are in flight, 3 of tenant 'a'.* for 4"):
                places.take("a")
            with places.taken("b"), pytest.raises(Overloaded):
                places.take("c")


class Waiting(Front):
    """An engine without room until `room` is set; `arrived` counts the producers that asked."""

    def __init__(self, engine):
        super().__init__(engine)
        self.room = threading.Event()
        self.arrived = threading.Semaphore(0)
        self._waits = set()

    def append(self, *args, **named):
        if named["producer"] not in self._waits:  # Each producer retries.
            self._waits.add(named["producer"])
            self.arrived.release()
        if not self.room.is_set():
            raise overloaded(20)
        return self.engine.append(*args, **named)


@contextmanager
def waiting(front, connect, calls):
    """So many pushes, one of each client, which wait for room until the block ends."""
    clients = [connect() for _ in range(calls)]
    pushes = [
        threading.Thread(target=client.push, args=("trades", trades(10, seed)))
        for seed, client in enumerate(clients)
    ]
    try:
        for push in pushes:
            push.start()
        for _ in pushes:
            front.arrived.acquire()
        yield
    finally:
        front.room.set()
        for push in pushes:
            push.join()
        for client in clients:
            client.close()


@pytest.mark.slow
def test_while_all_places_for_appends_are_taken_an_operator_gets_through(engine, settings):
    """A stream that blocks holds its appends as long as it is full."""
    engine.execute(CREATE_TRADES)
    engine.execute("ALTER STREAM trades SET ON OVERLOAD BLOCK")
    front = Waiting(engine)
    with running(front, settings, CallLimits(calls_max=4)) as address:

        def patient():
            return connect(address, patience_s=PATIENCE_S)

        with waiting(front, patient, 3):
            client = connect(address, patience_s=0)
            with pytest.raises(Overloaded, match="3 appends are in flight, 3 of tenant 'default'"):
                client.push("trades", trades(10))
            client.set_control("overload", "", "mode", "off")
            assert client.control().num_rows > 0
            assert client.execute(COUNT).rows()[0]["n"] == 0  # Questions have places of their own.
        assert client.execute(COUNT).rows()[0]["n"] == 30


class Slow(Front):
    """An engine whose ledger takes until `go_on` is set."""

    def __init__(self, engine):
        super().__init__(engine)
        self.called, self.go_on = threading.Event(), threading.Event()

    def ledger(self, stream):
        self.called.set()
        self.go_on.wait()
        return self.engine.ledger(stream)


def test_above_the_limit_of_calls_probes_and_control_still_pass(engine, settings):
    engine.execute(CREATE_TRADES)
    front = Slow(engine)
    with (
        running(front, settings, CallLimits(calls_max=1)) as address,
        connect(address, patience_s=0) as client,
        ThreadPoolExecutor(1) as other,
    ):
        ledger = other.submit(client.ledger, "trades")
        front.called.wait()
        try:
            with pytest.raises(Overloaded, match="1 calls are in flight"):
                client.execute(COUNT)
            client.set_control("overload", "", "mode", "off")
            assert client.control().num_rows > 0
            assert health_of(str(address), "") == health_pb2.HealthCheckResponse.SERVING
        finally:
            front.go_on.set()
        assert ledger.result().applied == 0


@pytest.mark.slow
def test_one_tenants_waiting_appends_leave_places_to_another(tmp_path, authority):
    tokens = {}
    for name in ("acme", "bolt"):
        tokens[name], entry = new_token(name, [Scope.INGEST, Scope.QUERY], tenant=name)
        with authority.tokens_file.open("a") as file:
            file.write("\n" + entry)
    settings = authority.settings(tokens_file=authority.tokens_file)
    with (
        shedder.open(tmp_path / "data", settings) as engine,
        running(front := Waiting(engine), settings, CallLimits(calls_max=4)) as address,
    ):
        engine.execute(CREATE_TRADES, caller=Caller("acme"))
        engine.execute(CREATE_TRADES.replace("trades", "clicks"), caller=Caller("bolt"))
        engine.execute("ALTER STREAM trades SET ON OVERLOAD BLOCK")

        def of(name="acme", patience_s=PATIENCE_S):
            return connect(address, token=tokens[name], ca=authority.ca_pem, patience_s=patience_s)

        with waiting(front, of, 3):
            acme, bolt = of(patience_s=0), of("bolt", patience_s=0)
            with pytest.raises(Overloaded, match="3 of tenant 'acme'"):
                acme.push("trades", trades(10))
            with pytest.raises(Overloaded, match="full"):  # It was let in, and told by the engine.
                bolt.push("clicks", trades(10))
