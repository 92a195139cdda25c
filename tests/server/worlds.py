"""Engines and file systems with faults for servers under test, and their clients."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

import shedder
from shedder import client, errors
from shedder.archive.files.file_system import OsFiles
from shedder.client.buffered_producer import SpillingProducer
from shedder.client.connection import Connection
from shedder.client.target import ServerTarget
from shedder.engine.runtime.environment import Environment
from shedder.overload.controller import NORMAL, STRETCH_MAX
from shedder.overload.load import Load
from shedder.v1 import audit_pb2, backfill_pb2, control_pb2, ingest_pb2, query_pb2, synopses_pb2
from tests.streams.streams import trades

CREATE = "CREATE STREAM {} (ts TIMESTAMP NOT NULL, key BIGINT, value DOUBLE) TIMESTAMP BY ts"
CREATE_TRADES = CREATE.format("trades")
PATIENCE_S = 250.0  # Longer than any test: pytest's timeout ends a test that waits for nothing.
SERVICES = [
    service
    for module in (audit_pb2, backfill_pb2, control_pb2, ingest_pb2, query_pb2, synopses_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
]
METHODS = [
    f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods
]


def health_of(address: str, service: str) -> int:
    """Return the status that a health probe of a service gets."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return stub.Check(health_pb2.HealthCheckRequest(service=service)).status


def again(settings, address):
    """Return the settings of a server that starts again at the address of the last server."""
    return settings.model_copy(update={"listen": str(address)})


def overloaded(retry_after_ms):
    """Return a refusal for lack of room."""
    return errors.Overloaded("full", retry_after_ms=retry_after_ms)


def wait_until_reached(address):
    """Wait until a server without TLS accepts a connection, over as many attempts as it takes."""
    with grpc.insecure_channel(str(address)) as channel:
        grpc.channel_ready_future(channel).result(PATIENCE_S)


class Front:
    """An engine as its server sees it; a subclass puts its own methods before the engine's."""

    def __init__(self, engine):
        self.engine = engine

    def __getattr__(self, name):
        return getattr(self.engine, name)


class Full(Front):
    """An engine that has no room for batches while `full` is set."""

    retry_after_ms = 5

    def __init__(self, engine):
        super().__init__(engine)
        self.full = threading.Event()

    def append(self, *args, **named):
        if self.full.is_set():
            raise overloaded(self.retry_after_ms)
        return self.engine.append(*args, **named)


class Asking(Full):
    """An engine whose receipts ask for help while `help_wanted` is true, at any load."""

    help_wanted = False

    @property
    def overload(self):
        state = replace(NORMAL, stretch=STRETCH_MAX if self.help_wanted else 1)
        return _WithState(self.engine.overload, state)


class _WithState:
    """An overload controller that reports a given state."""

    def __init__(self, overload, state):
        self.state = state
        self._overload = overload

    def __getattr__(self, name):
        return getattr(self._overload, name)


class Holding(Front):
    """An engine that makes batches durable but holds receipts back while `holds` is true."""

    def __init__(self, engine):
        super().__init__(engine)
        self.holds = False
        self.came = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.held = []  # Pairs of futures: the engine's, and the one that the server waits for.

    def append(self, *args, **named):
        future, waits = self.engine.append(*args, **named), Future()
        with self._lock:
            if not self.holds:
                return future
            self.held.append((future, waits))
        self.came.release()
        return waits

    def let_go(self):
        """Hand out all receipts, in order."""
        with self._lock:
            self.holds = False
        for future, waits in self.held:
            waits.set_result(future.result())


class Listened(Front):
    """An engine that signals when one of its listeners has left."""

    def __init__(self, engine):
        super().__init__(engine)
        self.left = threading.Semaphore(0)

    def listen(self, name, put):
        stop = self.engine.listen(name, put)

        def leave():
            stop()
            self.left.release()

        return leave


class SteeredMachine(Environment):
    """A machine whose load the test sets.

    backlog_ms: how long the queue takes to be applied; None means as measured.
    load: of the next tick; None means as measured.
    """

    backlog_ms = None
    load = None

    def meter(self):
        return _SteeredMeter(self, super().meter())


class _SteeredMeter:
    def __init__(self, machine, meter):
        self._machine = machine
        self._meter = meter

    def drain_ms(self, more_bytes, *, one_run=0.0):
        backlog_ms = self._machine.backlog_ms
        return (
            self._meter.drain_ms(more_bytes, one_run=one_run) if backlog_ms is None else backlog_ms
        )

    def take(self, machine):
        return self._machine.load or self._meter.take(machine)

    def __getattr__(self, name):
        return getattr(self._meter, name)


CALM = Load(at_s=0.0)
FLOOD = Load(  # Old enough for help, not for refusals; tuples cost too much even without synopses.
    at_s=0.0, tuples_per_s=1e6, bytes_per_s=1e8, age_ms=200.0, overhead_ns_per_tuple=1e6
)


def ticks_until(engine, condition):
    """Let the overload controller look until its state is as wanted."""
    for _ in range(100):
        if condition(engine.overload.state):
            return
        engine.overload.tick()
    raise AssertionError(f"after 100 ticks the state is {engine.overload.state}")


class FullDisk(OsFiles):
    """A file system that makes no file while `errno` is set."""

    errno: int | None = None

    def create(self, path):
        if self.errno is not None:
            raise OSError(self.errno, os.strerror(self.errno))
        return super().create(path)


DISK_ERRNOS = [errno.ENOSPC, errno.EIO]


class Wire:
    """A client's connection; a subclass puts its own methods before the connection's."""

    def __init__(self, connection):
        self.connection = connection

    def __getattr__(self, name):
        return getattr(self.connection, name)


def connect(address, **options):
    """Connect a client to a running server, however long the first contact takes."""
    return shedder.connect(str(address), **{"timeout_s": PATIENCE_S} | options)


async def connect_async(address, **options):
    """Connect as `connect` does, in the running event loop."""
    return await client.connect_async(str(address), **{"timeout_s": PATIENCE_S} | options)


def target_of(address):
    """Return the target for a server on this machine, without TLS."""
    nothing = dict.fromkeys(("token", "ca", "cert", "key"))
    return ServerTarget.of(str(address), insecure=True, **nothing)


def connection_to(address):
    """Return a client's connection, which the caller must close."""
    return Connection(target_of(address))


def spilling(connection, spill, *, patience_s=PATIENCE_S, epoch=None, **options):
    """Return a producer `p` of `trades` that spills as soon as there is no room."""
    return SpillingProducer(
        connection,
        "trades",
        "p",
        epoch=epoch,
        patience_s=patience_s,
        spill=spill,
        hold_s=0.0,
        **options,
    )


def flushed(producer):
    """Flush a producer whose patience is short, however long that takes."""
    while True:
        with suppress(errors.Overloaded):
            return producer.flush()


def interrupt(producer):
    """End a producer as Ctrl-C does, without waiting for receipts."""
    producer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)


def one_by_one(producer, seeds, rows):
    """Yield the batches of one push; each follows the receipts of all parts put before."""
    for seed in seeds:
        yield trades(rows, seed)
        producer.flush()


def stored(client):
    """How often each value is in the archive; those of `trades` are all different."""
    table = client.execute("SELECT value, COUNT(*) AS n FROM trades GROUP BY value").table
    return dict(zip(table["value"].to_pylist(), table["n"].to_pylist(), strict=True))


def pushed(seeds, rows=10):
    """Return the result of `stored` after one batch of each seed."""
    return {value: 1 for seed in seeds for value in trades(rows, seed)["value"].to_pylist()}


def answers(client, name):
    """Return the current answer of a query of `twins`, with all batches pushed before."""
    client.ledger(name)
    return client.query(f"of_{name}").answer().table
