"""The methods of a server on one channel, blocking or for an event loop."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health_pb2_grpc

from shedder.v1.audit_pb2_grpc import AuditStub
from shedder.v1.backfill_pb2_grpc import BackfillStub
from shedder.v1.control_pb2_grpc import ControlStub
from shedder.v1.ingest_pb2_grpc import IngestStub
from shedder.v1.query_pb2_grpc import QueryStub
from shedder.v1.synopses_pb2_grpc import SynopsesStub
from shedder.wire.batches import append_stream
from shedder.wire.cached_answer import invoke


class Stubs:
    """One stub of each service; `append_stream` and `invoke` leave large fields as bytes.

    The types of methods differ between blocking and asynchronous channels, so they are `Any`.
    """

    def __init__(self, channel: Any) -> None:
        """channel: a `grpc.Channel` or a `grpc.aio.Channel`."""
        self.ingest: Any = IngestStub(channel)
        self.append_stream: Any = append_stream(channel)
        self.query: Any = QueryStub(channel)
        self.invoke: Any = invoke(channel)
        self.control: Any = ControlStub(channel)
        self.synopses: Any = SynopsesStub(channel)
        self.backfill: Any = BackfillStub(channel)
        self.audit: Any = AuditStub(channel)
        self.health: Any = health_pb2_grpc.HealthStub(channel)
