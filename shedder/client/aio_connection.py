"""A connection for the running event loop: stubs, identity, errors."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shedder.client.failures import translated, without_greeting
from shedder.client.target import Target
from shedder.errors import Unreachable
from shedder.v1.control_pb2_grpc import ControlStub
from shedder.v1.ingest_pb2_grpc import IngestStub
from shedder.v1.query_pb2_grpc import QueryStub
from shedder.v1.synopses_pb2_grpc import SynopsesStub
from shedder.wire.batches import append_stream
from shedder.wire.cached_answer import invoke
from shedder.wire.malloc_tuning import keep_big_blocks
from shedder.wire.status import from_call

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it


class AsyncConnection:
    """One channel and its stubs. For one event loop."""

    def __init__(self, target: Target) -> None:
        keep_big_blocks()
        self.address = str(target.address)
        self._metadata = target.metadata
        self._encrypted = target.credentials is not None
        self._channel = target.aio_channel()
        self.ingest: Any = IngestStub(self._channel)
        self.append_stream = append_stream(self._channel)
        self.query: Any = QueryStub(self._channel)
        self.invoke = invoke(self._channel)
        self.control: Any = ControlStub(self._channel)
        self.synopses: Any = SynopsesStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def check(self, timeout_s: float) -> None:
        """Whether anybody is there.

        Raises:
          Unreachable: nobody is, or not the one that `ca` has signed.
        """
        try:
            await self.call(self._health.Check, health_pb2.HealthCheckRequest(), timeout_s)
        except Unreachable as error:
            raise without_greeting(error, encrypted=self._encrypted) from None

    async def call(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        """One request, one response.

        Raises:
          ShedderError: as the server raised it, or Unreachable.
        """
        try:
            return await method(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise translated(error, self.address) from None

    def open(self, method: Any, request: Any = None, timeout_s: float | None = None) -> Any:
        """Start a call whose responses stream; read it with `read`."""
        if request is None:
            return method(timeout=timeout_s, metadata=self._metadata)
        return method(request, timeout=timeout_s, metadata=self._metadata)

    async def read(self, call: Any) -> Any:
        """The next response; None at the end.

        Raises:
          ShedderError: as the server raised it, or Unreachable.
        """
        try:
            response = await call.read()
        except grpc.RpcError as error:
            raise translated(error, self.address) from None
        return None if response is _EOF else response

    async def write(self, call: Any, request: Any) -> None:
        """Send one request of a call.

        Raises:
          ShedderError: why the call has ended.
        """
        try:
            await call.write(request)
        except grpc.RpcError as error:
            raise translated(error, self.address) from None
        except asyncio.InvalidStateError:  # It had ended before.
            ended = await call.code(), await call.details(), await call.trailing_metadata()
            raise from_call(*ended, self.address) from None

    async def close(self) -> None:
        """End all calls."""
        await self._channel.close(None)
