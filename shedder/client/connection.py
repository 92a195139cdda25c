"""A connection for blocking calls."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from shedder.client.failures import closed, translated, without_greeting
from shedder.client.stubs import Stubs
from shedder.client.target import ServerTarget
from shedder.errors import Unreachable
from shedder.wire.malloc_tuning import keep_big_blocks


class StreamedCall:
    """A call whose responses stream; its requests lie in a queue that a thread of gRPC reads.

    The call ends when this object is dropped: the thread of gRPC keeps the queue, not the object.
    """

    def __init__(self, method: Any, request: Any, timeout_s: float | None, metadata: Any) -> None:
        """request: the only request; None: `write` sends requests."""
        self._requests: SimpleQueue[Any] = SimpleQueue()
        weakref.finalize(self, self._requests.put, None)
        requests = iter(self._requests.get, None) if request is None else request
        self._call = method(requests, timeout=timeout_s, metadata=metadata)

    def wait_for_start(self) -> None:
        """Wait until the server has accepted the call."""
        self._call.initial_metadata()

    def write(self, request: Any) -> None:
        """Send one request; it waits in memory when the server does not read."""
        self._requests.put(request)

    def read(self) -> Any:
        """Return the next response; None at the end."""
        return next(self._call, None)

    def cancel(self) -> None:
        """End the call at once."""
        self._requests.put(None)
        self._call.cancel()


class Connection:
    """One channel and its stubs. Safe from any thread."""

    def __init__(self, target: ServerTarget) -> None:
        keep_big_blocks()
        self.address = str(target.address)
        self._metadata = target.metadata
        self._encrypted = target.credentials is not None
        self._channel = target.channel()
        self._is_closed = False
        self.stubs = Stubs(self._channel)

    def check(self, timeout_s: float) -> None:
        """Check that the server answers.

        Raises:
          Unreachable: no server answers, or its certificate is not one that `ca` has signed.
        """
        try:
            self.call(self.stubs.health.Check, health_pb2.HealthCheckRequest(), timeout_s)
        except Unreachable as error:
            raise without_greeting(error, encrypted=self._encrypted) from None

    def call(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        """Send one request and return its response.

        Raises:
          ShedderError: as the server raised it, or Unreachable.
        """
        with self._translating():
            return method(request, timeout=timeout_s, metadata=self._metadata)

    def open(
        self,
        method: Any,
        request: Any = None,
        timeout_s: float | None = None,
        *,
        awaits_start: bool = False,
    ) -> StreamedCall:
        """Begin a call whose responses stream: see `steps.Open`.

        Raises:
          FailedPrecondition: the client is closed.
        """
        with self._translating():
            opened = StreamedCall(method, request, timeout_s, self._metadata)
        if awaits_start:
            try:
                opened.wait_for_start()
            except BaseException:  # The caller does not get the call, so nothing else ends it.
                opened.cancel()
                raise
        return opened

    def read(self, call: StreamedCall) -> Any:
        """Return the next response of a call; None at its end.

        Raises:
          ShedderError: as the server raised it, or Unreachable.
        """
        with self._translating():
            return call.read()

    def write(self, call: StreamedCall, request: Any) -> None:
        """Send one request of a call; why the call has ended, the next `read` says."""
        call.write(request)

    def wait(self, time_s: float) -> None:
        """Let a time pass."""
        time.sleep(time_s)

    def close(self) -> None:
        """End all calls."""
        self._is_closed = True
        self._channel.close()

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Raise errors of gRPC as ours; a closed channel cancels calls and raises ValueError."""
        try:
            yield
        except (grpc.RpcError, ValueError) as error:
            if self._is_closed:
                raise closed(self.address) from None
            if isinstance(error, grpc.RpcError):
                raise translated(error, self.address) from None
            raise
