"""A connection for the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from shedder.client.failures import closed, translated, without_greeting
from shedder.client.stubs import Stubs
from shedder.client.target import ServerTarget
from shedder.errors import Unreachable
from shedder.wire.malloc_tuning import keep_big_blocks
from shedder.wire.status import from_call

_EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it


class AsyncConnection:
    """One channel and its stubs. For one event loop."""

    def __init__(self, target: ServerTarget) -> None:
        keep_big_blocks()
        self.address = str(target.address)
        self._metadata = target.metadata
        self._encrypted = target.credentials is not None
        self._channel = target.aio_channel()
        self._is_closed = False
        self.stubs = Stubs(self._channel)

    async def check(self, timeout_s: float) -> None:
        """Check that the server answers.

        Raises:
          Unreachable: no server answers, or its certificate is not one that `ca` has signed.
        """
        try:
            await self.call(self.stubs.health.Check, health_pb2.HealthCheckRequest(), timeout_s)
        except Unreachable as error:
            raise without_greeting(error, encrypted=self._encrypted) from None

    async def call(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        """Send one request and return its response.

        Raises:
          ShedderError: as the server raised it, or Unreachable.
        """
        with self._translating():
            return await method(request, timeout=timeout_s, metadata=self._metadata)

    async def open(
        self,
        method: Any,
        request: Any = None,
        timeout_s: float | None = None,
        *,
        awaits_start: bool = False,
    ) -> Any:
        """Begin a call whose responses stream: see `steps.Open`.

        Raises:
          ShedderError: the server does not accept the call whose start is awaited.
          FailedPrecondition: the client is closed.
        """
        requests = () if request is None else (request,)
        with self._translating():
            opened = method(*requests, timeout=timeout_s, metadata=self._metadata)
            if awaits_start:
                try:
                    await opened.initial_metadata()
                except BaseException:  # The caller does not get the call, so nothing else ends it.
                    opened.cancel()
                    raise
        return opened

    async def read(self, call: Any) -> Any:
        """Return the next response of a call; None at its end.

        Raises:
          ShedderError: as the server raised it, or Unreachable.
        """
        with self._translating():
            response = await call.read()
        return None if response is _EOF else response

    async def write(self, call: Any, request: Any) -> None:
        """Send one request of a call.

        Raises:
          ShedderError: why the call has ended.
        """
        try:
            with self._translating():
                await call.write(request)
        except asyncio.InvalidStateError:  # The call had ended before.
            ended = await call.code(), await call.details(), await call.trailing_metadata()
            raise from_call(*ended, self.address) from None

    async def wait(self, time_s: float) -> None:
        """Let a time pass."""
        await asyncio.sleep(time_s)

    async def close(self) -> None:
        """End all calls."""
        self._is_closed = True
        await self._channel.close(None)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Raise errors of gRPC as ours.

        gRPC raises CancelledError also in a task that was not cancelled, if its call was.
        """
        try:
            yield
        except Exception as error:
            if self._is_closed:  # A closed channel cancels calls and raises UsageError.
                raise closed(self.address) from None
            if isinstance(error, grpc.RpcError):
                raise translated(error, self.address) from None
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            if self._is_closed:
                raise closed(self.address) from None
            raise from_call(grpc.StatusCode.CANCELLED, None, None, self.address) from None
