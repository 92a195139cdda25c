"""The service Synopses."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import grpc

from shedder.engine.admission.summary_ingest import merge_bytes_max
from shedder.engine.engine import Engine
from shedder.engine.ingest.producer_sequences import check_producer
from shedder.engine.tenants.access_control import check_stream
from shedder.errors import ShedderError, StorageFailed
from shedder.server.authentication import caller
from shedder.server.call_context import Drain, Workers
from shedder.server.health import Health
from shedder.server.metrics import Metrics
from shedder.server.multipart import Parts, Requests
from shedder.streams.push_parts import Part
from shedder.v1 import synopses_pb2
from shedder.v1.synopses_pb2_grpc import SynopsesServicer
from shedder.wire.ingest import receipt_to_wire

Context = grpc.aio.ServicerContext[Any, Any]


class SynopsesService(SynopsesServicer):
    """Takes what was built of tuples elsewhere; checking it happens on a worker's thread."""

    def __init__(
        self,
        engine: Engine,
        *,
        workers: Workers,
        metrics: Metrics,
        health: Health,
        drain: Drain,
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._metrics = metrics
        self._health = health
        self._parts = Parts(merge_bytes_max(engine.core.settings), drain)

    async def GetPlans(
        self, request: synopses_pb2.GetPlansRequest, context: Context
    ) -> synopses_pb2.GetPlansResponse:
        """What a builder must know."""
        check_stream(self._engine.core, caller.get().caller, request.stream)
        plans = await self._workers.run(lambda: self._engine.plans(request.stream))
        return synopses_pb2.GetPlansResponse(plans=plans)

    async def Merge(
        self, request: synopses_pb2.MergeRequest, context: Context
    ) -> synopses_pb2.MergeResponse:
        """Answered when the summaries are durable, and the standing queries know them."""
        check_stream(self._engine.core, caller.get().caller, request.stream)
        return await self._merged(request, request.summaries)

    async def MergeInParts(
        self, requests: Requests, context: Context
    ) -> synopses_pb2.MergeResponse:
        """The same, of summaries that are larger than a message; a part of them is nothing."""
        whole = await self._parts.whole(requests)
        check_stream(self._engine.core, caller.get().caller, whole.merge.stream)
        producer = whole.merge.producer  # Checked before room is reserved for the parts.
        check_producer(producer.name, producer.epoch)
        with ExitStack() as stack:
            try:
                room = stack.enter_context(self._parts.room(whole.size_bytes, caller.get().tenant))
                data = await self._parts.gathered(requests, room)
            except ShedderError as error:
                self._metrics.refused.labels(type(error).reason).inc()
                self._engine.admission.intake(whole.merge.stream).refuse(0)
                raise
            return await self._merged(whole.merge, data, self._parts.bytes_max)

    async def _merged(
        self, request: synopses_pb2.MergeRequest, data: bytes, bytes_max: int | None = None
    ) -> synopses_pb2.MergeResponse:
        began = time.perf_counter()
        sequence = request.sequence if request.HasField("sequence") else None
        after = {each.producer.name: (each.producer.epoch, each.sequence) for each in request.after}
        try:
            receipt = await self._workers.run(
                lambda: self._engine.merge(
                    request.stream,
                    data,
                    producer=request.producer.name,
                    epoch=request.producer.epoch,
                    sequence=sequence,
                    tuples_follow=request.tuples_follow,
                    bytes_max=bytes_max,
                    after=after,
                    part=Part(request.first_row, not request.more),
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
