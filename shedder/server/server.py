"""The server: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

import grpc
import structlog
from grpc_reflection.v1alpha import reflection

from shedder.cpu_priority import run_soon
from shedder.engine.engine import Engine
from shedder.server.audit import AuditService
from shedder.server.authorization import Gate
from shedder.server.backfill import BackfillService
from shedder.server.call_context import CALL_LIMITS, SEND_BYTES_MAX, CallLimits, Drain, Workers
from shedder.server.connections import Connections
from shedder.server.control import ControlService
from shedder.server.descriptors import connections_allowed
from shedder.server.health import Health
from shedder.server.ingest import IngestService
from shedder.server.interceptor import Boundary
from shedder.server.listener import checked_address, listen
from shedder.server.method_lookup import ByName
from shedder.server.metrics import ControlGauges, Metrics
from shedder.server.query import QueryService
from shedder.server.synopses import SynopsesService
from shedder.settings import Settings
from shedder.v1 import audit_pb2, backfill_pb2, control_pb2, ingest_pb2, query_pb2, synopses_pb2
from shedder.v1.audit_pb2_grpc import add_AuditServicer_to_server
from shedder.v1.backfill_pb2_grpc import add_BackfillServicer_to_server
from shedder.v1.control_pb2_grpc import add_ControlServicer_to_server
from shedder.v1.ingest_pb2_grpc import add_IngestServicer_to_server
from shedder.v1.query_pb2_grpc import add_QueryServicer_to_server
from shedder.v1.synopses_pb2_grpc import add_SynopsesServicer_to_server
from shedder.wire.addresses import Address, parse_address
from shedder.wire.malloc_tuning import keep_big_blocks

MESSAGE_ROOM_BYTES = 80 << 10  # What an AppendRequest has beside its batch, or a part of summaries.
STREAMS_PER_CONNECTION_MAX = 100
CONTROL_THREADS = 4  # Of its own: whatever waits for an answer, an operator does not.
LOOK_S = 1.0  # How often connections are counted, and changed tokens or tenants files are read.

# The apply thread must not keep a caller waiting for CPython's usual 5 ms.
SWITCH_INTERVAL_S = 0.0002

_SERVICES = (ingest_pb2, query_pb2, synopses_pb2, backfill_pb2, audit_pb2, control_pb2)

_log = structlog.get_logger("shedder.server")


def channel_options(settings: Settings, connections_max: int) -> list[tuple[str, int]]:
    """gRPC's options; those that are not its defaults have a reason."""
    return [
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.server_handshake_timeout_ms", 10_000),  # gRPC's default is two minutes.
        ("grpc.max_connection_idle_ms", 1_800_000),  # Time without a call; clients reconnect.
        ("grpc.max_receive_message_length", settings.batch_bytes_max + MESSAGE_ROOM_BYTES),
        ("grpc.max_send_message_length", SEND_BYTES_MAX),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
        ("grpc.so_reuseport", 0),  # Else a second server takes the same port without a word.
        ("grpc.http2.bdp_probe", 0),  # Else each stalled stream holds about 6 MiB.
        ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 120_000),  # A client that vanished is noticed in minutes, and
        ("grpc.keepalive_timeout_ms", 20_000),  # its open calls end; the default is two hours.
    ]


class Server:
    """An engine, served. Lives on the event loop that starts it; the engine stays its maker's."""

    def __init__(
        self, engine: Engine, settings: Settings, limits: CallLimits = CALL_LIMITS
    ) -> None:
        checked_address(settings)
        keep_big_blocks()
        self._settings = settings
        self._limits = limits
        self._workers = Workers()
        self._controllers = Workers(CONTROL_THREADS, waiting_max=sys.maxsize)
        self._drain = Drain()
        self._health = Health()
        self._metrics = Metrics()
        self._metrics.registry.register(ControlGauges(engine.control))
        self._gate = Gate(settings)
        connections_max = connections_allowed(settings.connections_max)
        self._connections = Connections(connections_max)
        self._server = grpc.aio.server(  # The boundary limits calls, by tenant and by connection.
            interceptors=[Boundary(self._gate, self._metrics, self._connections, limits)],
            options=channel_options(settings, connections_max),
        )
        if connections_max < settings.connections_max:
            _log.warning(
                "few_descriptors", connections_max=connections_max, remedy="raise `ulimit -n`"
            )
        self._add_services(engine)
        self._stop_metrics: Callable[[], None] = lambda: None
        self._housekeeping: asyncio.Task[None] | None = None
        self._engine = engine

    async def start(self) -> Address:
        """Listen.

        Returns:
          The address, with the port that was taken.

        Raises:
          BadSetting: it cannot listen there.
        """
        address = listen(self._server, self._settings)
        if self._settings.overload != "off":
            self._engine.overload.start()
        if self._settings.audit != "off":
            self._engine.audit.start()
        await self._server.start()
        await self._health.serving()
        if self._settings.metrics_listen is not None:
            self._stop_metrics = self._metrics.serve(parse_address(self._settings.metrics_listen))
        self._housekeeping = asyncio.create_task(self._look_around(address.port))
        _log.info("listening", address=str(address), insecure=self._settings.insecure)
        return address

    async def stop(self, grace_s: float | None = None) -> None:
        """Drain: say so to probes, end open streams, let running calls finish, stop."""
        grace_s = self._settings.drain_s if grace_s is None else grace_s
        _log.info("draining", grace_s=grace_s)
        await self._health.stopping()
        self._drain.begin()
        await self._server.stop(grace_s)
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        self._stop_metrics()
        self._workers.close()
        self._controllers.close()
        _log.info("stopped")

    def _add_services(self, engine: Engine) -> None:
        workers, drain = self._workers, self._drain
        server = ByName.of(self._server)
        ingest = IngestService(
            engine,
            self._settings,
            workers=workers,
            drain=drain,
            metrics=self._metrics,
            health=self._health,
            limits=self._limits,
        )
        add_IngestServicer_to_server(ingest, server)
        query = QueryService(engine, workers=workers, drain=drain, limits=self._limits)
        add_QueryServicer_to_server(query, server)
        synopses = SynopsesService(
            engine,
            workers=workers,
            metrics=self._metrics,
            health=self._health,
            drain=self._drain,
        )
        add_SynopsesServicer_to_server(synopses, server)
        add_BackfillServicer_to_server(BackfillService(engine, workers=workers), server)
        add_AuditServicer_to_server(AuditService(engine, workers=workers), server)
        control = ControlService(engine, workers=self._controllers, drain=drain)
        add_ControlServicer_to_server(control, server)
        self._health.add_to(server)
        if self._settings.reflection:
            names = [
                service.full_name
                for module in _SERVICES
                for service in module.DESCRIPTOR.services_by_name.values()
            ]
            reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)

    async def _look_around(self, port: int) -> None:
        tokens = self._gate.tokens
        while True:
            await asyncio.sleep(LOOK_S)
            self._metrics.connections_closed.inc(await self._connections.look_aside(port))
            if tokens is not None:
                tokens.refresh_or_keep()
            self._engine.quotas.refresh_tenants()


def serve(
    engine: Engine, settings: Settings, ready: Callable[[Address], None] = lambda _: None
) -> float:
    """Serve an engine until SIGTERM or SIGINT, then drain. A second signal stops at once.

    Args:
      engine: stays open; the caller closes it, which writes the last checkpoint.
      settings: where to listen, and which callers to admit.
      ready: told the address as soon as calls are answered.

    Returns:
      how much of `drain_s` is left to close the engine; s.

    Raises:
      BadSetting: the settings are not safe, or the address is taken.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    run_soon()
    return asyncio.run(_serve(engine, settings, ready))


async def _serve(engine: Engine, settings: Settings, ready: Callable[[Address], None]) -> float:
    server = Server(engine, settings)
    stopping, at_once = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (at_once if stopping.is_set() else stopping).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    ready(await server.start())
    await stopping.wait()
    ends_s = loop.time() + settings.drain_s
    draining = asyncio.create_task(server.stop())
    hurry = asyncio.create_task(at_once.wait())
    await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not draining.done():
        await server.stop(0)
    await draining
    return 0.0 if at_once.is_set() else max(ends_s - loop.time(), 0.0)
