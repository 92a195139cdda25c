"""A connection for blocking calls: stubs, identity, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shedder.client.failures import translated, without_greeting
from shedder.client.target import Target
from shedder.errors import Unreachable
from shedder.v1.audit_pb2_grpc import AuditStub
from shedder.v1.backfill_pb2_grpc import BackfillStub
from shedder.v1.control_pb2_grpc import ControlStub
from shedder.v1.ingest_pb2_grpc import IngestStub
from shedder.v1.query_pb2_grpc import QueryStub
from shedder.v1.synopses_pb2_grpc import SynopsesStub
from shedder.wire.batches import append_stream
from shedder.wire.cached_answer import invoke
from shedder.wire.malloc_tuning import keep_big_blocks

Response = TypeVar("Response")


class Connection:
    """One channel and its stubs. Safe from any thread."""

    def __init__(self, target: Target) -> None:
        keep_big_blocks()
        self.address = str(target.address)
        self._metadata = target.metadata
        self._encrypted = target.credentials is not None
        self._channel = target.channel()
        self.ingest = IngestStub(self._channel)
        self.append_stream = append_stream(self._channel)
        self.query = QueryStub(self._channel)
        self.invoke = invoke(self._channel)
        self.control = ControlStub(self._channel)
        self.synopses = SynopsesStub(self._channel)
        self.backfill = BackfillStub(self._channel)
        self.audit = AuditStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def check(self, timeout_s: float) -> None:
        """Whether anybody is there.

        Raises:
          Unreachable: nobody is, or not the one that `ca` has signed.
        """
        try:
            self.call(self._health.Check, health_pb2.HealthCheckRequest(), timeout_s)
        except Unreachable as error:
            raise without_greeting(error, encrypted=self._encrypted) from None

    def call(
        self, method: Callable[..., Response], request: Any, timeout_s: float | None = None
    ) -> Response:
        """One request, one response.

        Raises:
          ShedderError: as the server raised it, or Unreachable.
        """
        try:
            return method(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise translated(error, self.address) from None

    def open(
        self, method: Callable[..., Any], requests: Any, timeout_s: float | None = None
    ) -> Any:
        """Start a call whose responses stream; read it with `read`."""
        return method(requests, timeout=timeout_s, metadata=self._metadata)

    def read(self, call: Iterator[Response]) -> Response | None:
        """The next response; None at the end.

        Raises:
          ShedderError: as the server raised it, or Unreachable.
        """
        try:
            return next(call, None)
        except grpc.RpcError as error:
            raise translated(error, self.address) from None

    def close(self) -> None:
        """End all calls."""
        self._channel.close()
