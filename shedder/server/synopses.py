"""The service Synopses."""

from __future__ import annotations

import time
from typing import Any

import grpc

from shedder.engine.engine import Engine
from shedder.engine.ownership import check_stream
from shedder.errors import ShedderError, StorageFailed
from shedder.server.calls import Workers
from shedder.server.health import Health
from shedder.server.identity import caller
from shedder.server.metrics import Metrics
from shedder.v1 import synopses_pb2
from shedder.v1.synopses_pb2_grpc import SynopsesServicer
from shedder.wire.ingest import receipt_to_wire

Context = grpc.aio.ServicerContext[Any, Any]


class Synopses(SynopsesServicer):
    """Takes what was built of tuples elsewhere; checking it happens on a worker's thread."""

    def __init__(
        self, engine: Engine, *, workers: Workers, metrics: Metrics, health: Health
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._metrics = metrics
        self._health = health

    async def GetPlans(
        self, request: synopses_pb2.GetPlansRequest, context: Context
    ) -> synopses_pb2.GetPlansResponse:
        """What a builder must know."""
        check_stream(self._engine.core, caller.get().asker, request.stream)
        plans = await self._workers.run(lambda: self._engine.plans(request.stream))
        return synopses_pb2.GetPlansResponse(plans=plans)

    async def Merge(
        self, request: synopses_pb2.MergeRequest, context: Context
    ) -> synopses_pb2.MergeResponse:
        """Answered when the summaries are durable, and the standing queries know them."""
        check_stream(self._engine.core, caller.get().asker, request.stream)
        began = time.perf_counter()
        sequence = request.sequence if request.HasField("sequence") else None
        try:
            receipt = await self._workers.run(
                lambda: self._engine.merge(
                    request.stream,
                    request.summaries,
                    producer=request.producer.name,
                    epoch=request.producer.epoch,
                    sequence=sequence,
                    tuples_follow=request.tuples_follow,
                )
            )
        except ShedderError as error:
            self._metrics.refused.labels(type(error).reason).inc()
            if isinstance(error, StorageFailed):
                await self._health.ingest_failed()
            raise
        self._metrics.receipt(receipt, time.perf_counter() - began)
        return synopses_pb2.MergeResponse(
            receipt=receipt_to_wire(receipt),
            help_wanted=self._engine.overload.state.asks_help,
        )
