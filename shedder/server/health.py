"""Health, as grpc.health.v1 has it: the server's, and that of ingest and queries apart."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio  # type: ignore[attr-defined]  # the stubs lack it

from shedder.v1 import ingest_pb2, query_pb2

INGEST = ingest_pb2.DESCRIPTOR.services_by_name["Ingest"].full_name
QUERY = query_pb2.DESCRIPTOR.services_by_name["Query"].full_name

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """What probes are told."""

    def __init__(self) -> None:
        self._servicer = aio.HealthServicer()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Offer the service."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def serving(self) -> None:
        """Everything is there."""
        for service in ("", INGEST, QUERY):
            await self._servicer.set(service, _SERVING)

    async def ingest_failed(self) -> None:
        """The log cannot be written: ingest has stopped, queries go on."""
        await self._servicer.set(INGEST, _NOT_SERVING)

    async def stopping(self) -> None:
        """Nothing will be there soon."""
        await self._servicer.enter_graceful_shutdown()
