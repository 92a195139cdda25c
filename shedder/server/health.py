"""Health, as grpc.health.v1 has it: the server's, and that of ingest and queries apart."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio  # type: ignore[attr-defined]  # the stubs lack it

from shedder.errors import InvalidRequest
from shedder.v1 import ingest_pb2, query_pb2

INGEST = ingest_pb2.DESCRIPTOR.services_by_name["Ingest"].full_name
QUERY = query_pb2.DESCRIPTOR.services_by_name["Query"].full_name

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


NAME_CHARS_MAX = 256  # Of a service in a probe; an open Watch keeps the name.


class _Servicer(aio.HealthServicer):  # type: ignore[misc]  # the stubs lack it
    """grpc's servicer, which refuses long names."""

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:
        """Return the status of a service."""
        _check_name(request.service)
        return await super().Check(request, context)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Send the status of a service whenever it changes."""
        _check_name(request.service)
        await super().Watch(request, context)


def _check_name(service: str) -> None:
    if len(service) > NAME_CHARS_MAX:
        raise InvalidRequest(
            f"a service's name of {len(service):,} characters; at most {NAME_CHARS_MAX}"
        )


class Health:
    """What probes are told."""

    def __init__(self) -> None:
        self._servicer = _Servicer()

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
