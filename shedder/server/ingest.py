"""The service Ingest."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import grpc

from shedder.engine.engine import Engine
from shedder.engine.ingest.producer_sequences import check_producer
from shedder.engine.tenants.access_control import check_stream
from shedder.errors import BadBatch, InvalidRequest, Overloaded, ShedderError, StorageFailed
from shedder.queries.answers.database_api import Receipt
from shedder.server.append_stream import (
    LOOK_S,
    AppendCall,
    Requests,
    append,
    credits_in,
    next_of,
    read_hello,
)
from shedder.server.authentication import caller
from shedder.server.call_context import CALL_LIMITS, CallLimits, Drain, Workers, settled
from shedder.server.health import Health
from shedder.server.metrics import Metrics
from shedder.server.wait_queues import Lines
from shedder.settings import Settings
from shedder.v1 import ingest_pb2
from shedder.v1.ingest_pb2_grpc import IngestServicer
from shedder.wire.append_metadata import check_declared, declared_in
from shedder.wire.batches import Carrying
from shedder.wire.ingest import (
    contents_to_wire,
    ledger_to_wire,
    receipt_to_wire,
    schema_to_wire,
    table_to_wire,
)

Appended = AsyncIterator[Carrying[ingest_pb2.AppendRequest]]
Context = grpc.aio.ServicerContext[Any, Any]
Result = TypeVar("Result")


class IngestService(IngestServicer):
    """Appends batches; nothing here blocks the event loop longer than checking one batch."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        *,
        workers: Workers,
        drain: Drain,
        metrics: Metrics,
        health: Health,
        limits: CallLimits = CALL_LIMITS,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._workers = workers
        self._drain = drain
        self._metrics = metrics
        self._health = health
        self._lines = Lines(engine.core.machine.monotonic_s)
        self._limits = limits

    async def Append(  # type: ignore[override]  # the boundary lets it read its request itself
        self, requests: Appended, context: Context
    ) -> ingest_pb2.AppendResponse:
        """One batch; answered when it is durable."""
        began = time.perf_counter()
        try:
            receipt = await self._received(requests, context)
        except ShedderError as error:
            await self._refused(error)
            raise
        self._metrics.receipt(receipt, time.perf_counter() - began)
        return ingest_pb2.AppendResponse(receipt=receipt_to_wire(receipt))

    async def _received(self, requests: Appended, context: Context) -> Receipt:
        """Receive one batch for a stream or table; returns when the batch is durable."""
        declared = declared_in(context.invocation_metadata())
        if declared is not None and self._is_table(declared.stream):
            batch = declared.stream, declared.rows, declared.size_bytes
            with self._engine.table_pushes.admitted(*batch):
                carrying = await _request_of(requests)
                check_declared(declared, carrying)
                return await self._put(carrying)
        if declared is not None:
            return await settled(await self._let_in(declared, requests))
        carrying = await _request_of(requests)
        request, size_bytes = carrying.request, memoryview(carrying.payload).nbytes
        if not self._is_table(request.stream):
            return await settled(await self._handed_over(carrying))
        with self._engine.table_pushes.admitted(request.stream, request.batch.rows, size_bytes):
            return await self._put(carrying)

    def _is_table(self, name: str) -> bool:
        """Return whether the caller has a table of this name."""
        table = self._engine.core.tables.get(name)
        return table is not None and caller.get().caller.owns(table)

    async def _put(self, carrying: Carrying[ingest_pb2.AppendRequest]) -> Receipt:
        """Put the rows of a batch into a table."""
        request = carrying.request
        name, batch = request.stream, request.batch
        if batch.summarised or batch.skipped or batch.HasField("left_out"):
            raise BadBatch(f"{name!r} is a table, which takes whole batches only")
        pushes, payload = self._engine.table_pushes, carrying.payload
        return await self._workers.run(lambda: pushes.put_encoded(name, payload, batch.rows))

    async def _let_in(
        self, declared: ingest_pb2.Declared, requests: Appended
    ) -> concurrent.futures.Future[Receipt]:
        """The batch on its way to the disk. What it declares lets it in before it is received."""
        check_stream(self._engine.core, caller.get().caller, declared.stream)
        admission = self._engine.admission
        batch = declared.stream, declared.rows, declared.size_bytes
        await self._patiently(
            declared.stream, lambda will_retry: admission.let_in(*batch, will_retry=will_retry)
        )
        try:
            carrying = await _request_of(requests)
            check_declared(declared, carrying)
        except BaseException:
            admission.give_back(*batch)
            raise
        return await self._handed_over(carrying, preadmitted=True)

    async def _handed_over(
        self, carrying: Carrying[ingest_pb2.AppendRequest], *, preadmitted: bool = False
    ) -> concurrent.futures.Future[Receipt]:
        """The batch on its way to the disk, checked."""
        request, engine_caller = carrying.request, caller.get().caller

        def hand_over(will_retry: bool) -> concurrent.futures.Future[Receipt]:
            nonlocal preadmitted  # Once: if there is no room then, it stands in line like others.
            was_let_in, preadmitted = preadmitted, False
            return append(
                self._engine,
                request.stream,
                request.producer,
                request.batch,
                carrying.payload,
                caller=engine_caller,
                final_attempt=not will_retry,
                preadmitted=was_let_in,
            )

        return await self._patiently(request.stream, hand_over)

    async def _patiently(self, stream: str, work: Callable[[bool], Result]) -> Result:
        """What work returns; where the stream's policy is to block, it waits for room.

        work: is told whether it is tried again when there is none.
        """
        while True:
            blocks = self._engine.blocks(stream)
            try:
                return work(blocks)
            except Overloaded as full:
                if not blocks:
                    raise
                await self._drain.race(asyncio.sleep(min(full.retry_after_ms / 1000, LOOK_S)))

    async def AppendStream(  # type: ignore[override]  # the boundary reads and writes
        self, request_iterator: Requests, context: Context
    ) -> AsyncIterator[ingest_pb2.AppendStreamResponse]:
        """Many batches, several in flight."""
        hello = await read_hello(request_iterator, self._drain)
        check_producer(hello.producer.name, hello.producer.epoch)
        welcome = self._described(hello.stream, hello.producer.name)
        line = self._lines.of(hello.stream)
        credits_now = credits_in(line)
        yield ingest_pb2.AppendStreamResponse(welcome=welcome, credits=credits_now)
        engine_caller = caller.get().caller
        call = AppendCall(
            self._engine, self._metrics, self._drain, hello, engine_caller, line, self._limits
        )
        try:
            async with aclosing(call.serve(request_iterator)) as responses:
                async for response in responses:
                    yield response
        except StorageFailed:
            await self._health.ingest_failed()
            raise

    async def Heartbeat(
        self, request: ingest_pb2.HeartbeatRequest, context: Context
    ) -> ingest_pb2.HeartbeatResponse:
        """A promise about event time; answered when it is durable."""
        self._check(request.stream)
        await self._workers.run(
            lambda: self._engine.heartbeat(request.stream, request.watermark_us)
        )
        return ingest_pb2.HeartbeatResponse()

    async def DescribeStream(
        self, request: ingest_pb2.DescribeStreamRequest, context: Context
    ) -> ingest_pb2.DescribeStreamResponse:
        """What the stream is and where a producer stands."""
        if request.takes_tables and self._is_table(request.stream):
            response = table_to_wire(self._engine.core.tables[request.stream].schema)
            self._add_limits(response)
            return response
        return self._described(request.stream, request.producer)

    async def GetLedger(
        self, request: ingest_pb2.GetLedgerRequest, context: Context
    ) -> ingest_pb2.GetLedgerResponse:
        """Return where every tuple went."""
        self._check(request.stream)
        ledger = await self._workers.run(lambda: self._engine.ledger(request.stream))
        return ledger_to_wire(ledger)

    async def _refused(self, error: ShedderError) -> None:
        self._metrics.refused.labels(type(error).reason).inc()
        if isinstance(error, StorageFailed):
            await self._health.ingest_failed()

    def _check(self, stream: str) -> None:
        """Raise UnknownStream unless it is the caller's."""
        check_stream(self._engine.core, caller.get().caller, stream)

    def _add_limits(self, response: ingest_pb2.DescribeStreamResponse) -> None:
        response.batch_rows_max = self._settings.batch_rows_max
        response.batch_bytes_max = self._settings.batch_bytes_max

    def _described(self, stream: str, producer: str) -> ingest_pb2.DescribeStreamResponse:
        self._check(stream)
        response: ingest_pb2.DescribeStreamResponse = schema_to_wire(self._engine.schema(stream))
        self._add_limits(response)
        response.takes_parts = True
        if not producer:
            return response
        check_producer(producer, 0)
        response.epoch_min = self._engine.ingest.producers.epoch_min(stream, producer)
        last = self._engine.last_sequence(stream, producer)
        if last is not None:
            response.last.epoch, response.last.sequence = last
            response.owed_rows = self._engine.ingest.producers.rows_to_follow(stream, producer)
            response.open_rows = self._engine.ingest.producers.open_rows(stream, producer)
            response.contents.extend(
                contents_to_wire(self._engine.ingest.producers.contents(stream, producer))
            )
        return response


async def _request_of(requests: Appended) -> Carrying[ingest_pb2.AppendRequest]:
    """What a call of Append carries: it is received now, and not before."""
    carrying = await next_of(requests)
    if carrying is None:
        raise InvalidRequest("an Append has one request, and this one has none")
    return carrying
