"""One open AppendStream: batches in, receipts out, in the same order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from shedder.engine.engine import Engine
from shedder.engine.ingest.producer_sequences import check_producer
from shedder.engine.runtime.caller import Caller
from shedder.engine.tenants.access_control import check_stream
from shedder.errors import BadBatch, Draining, InvalidRequest, Overloaded, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.server.call_context import CALL_LIMITS, CallLimits, Drain, settled
from shedder.server.metrics import Metrics
from shedder.server.wait_queues import Line
from shedder.v1 import ingest_pb2
from shedder.wire.batches import Carrying
from shedder.wire.ingest import part_from_wire, receipt_to_wire
from shedder.wire.source_sampling import left_out_from_wire

CREDITS_MIN = 2  # One in line, one on its way.
CREDITS = 16  # Batches without a receipt: enough to gather one group while another is fsynced.
HELLO_S_MAX = 10.0
LOOK_S = 1.0  # Longest time between two tries of a call in the wait queue, in seconds.
LOOK_MS_MIN, LOOK_MS_MAX = 5, 50

Received = TypeVar("Received")
Request = Carrying[ingest_pb2.AppendStreamRequest]
Requests = AsyncIterator[Request]


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """A batch on its way to the disk."""

    receipt: Future[Receipt]
    arrived: float


_End = ShedderError | None  # Why no more batches come: an error, or the client is done.


class AppendCall:
    """Reads batches ahead of their receipts, as far as the credits go."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        drain: Drain,
        hello: ingest_pb2.AppendStreamRequest.Hello,
        caller: Caller,
        line: Line,
        limits: CallLimits = CALL_LIMITS,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._metrics = metrics
        self._drain = drain
        self._line = line
        self._stream = hello.stream
        self._producer = hello.producer
        self._asker = caller
        self._taken: asyncio.Queue[_Taken | _End] = asyncio.Queue(CREDITS)

    async def serve(
        self, requests: Requests
    ) -> AsyncGenerator[ingest_pb2.AppendStreamResponse, None]:
        """Answer batches with receipts until the client is done or one of them fails.

        Raises:
          ShedderError: what the first batch that has no receipt failed of.
        """
        reader = asyncio.create_task(self._read(requests))
        try:
            while isinstance(taken := await self._taken.get(), _Taken):
                receipt = await settled(taken.receipt)
                self._metrics.receipt(receipt, time.perf_counter() - taken.arrived)
                yield ingest_pb2.AppendStreamResponse(
                    receipt=receipt_to_wire(receipt),
                    credits=credits_in(self._line),
                    help_wanted=self._engine.overload.state.asks_help,
                )
            if taken is not None:
                raise taken
        finally:
            reader.cancel()

    async def _read(self, requests: Requests) -> None:
        end: _End = None
        try:
            while True:
                request = await self._drain.race(next_of(requests))
                if request is None:
                    break
                await self._taken.put(await self._take(request))
        except ShedderError as error:
            if not isinstance(error, Draining):
                self._metrics.refused.labels(type(error).reason).inc()
            end = error.with_traceback(None)  # Else it keeps this frame, and its last batch.
        except Exception as error:  # A bug: the call's own task crosses the boundary with it.
            failed: Future[Receipt] = Future()
            failed.set_exception(error)
            await self._taken.put(_Taken(failed, time.perf_counter()))
        await self._taken.put(end)

    async def _take(self, carrying: Request) -> _Taken:
        request = carrying.request
        if request.WhichOneof("message") != "batch":
            raise InvalidRequest("after hello, an AppendStream takes batches only")
        arrived = time.perf_counter()
        if self._line.is_empty:
            with suppress(Overloaded):
                return self._hand_over(carrying, arrived)
        patience_s = None if self._engine.blocks(self._stream) else self._limits.append_patience_s
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s), self._line.first():
                while True:
                    try:
                        return self._hand_over(carrying, arrived)
                    except Overloaded as full:
                        wait_s = min(full.retry_after_ms / 1000, LOOK_S)
                    await self._drain.race(asyncio.sleep(wait_s))
        return self._hand_over(carrying, arrived, final_attempt=True)

    def _hand_over(
        self, carrying: Request, arrived: float, *, final_attempt: bool = False
    ) -> _Taken:
        """Give a batch to the engine.

        Raises:
          Overloaded: there is no room; or, before the last try, the backlog would take too long to
            apply. The second cause only paces calls with many batches in flight, so that a flood
            makes no deep queue. The last try is not refused for it.
        """
        if not final_attempt:
            overload = self._engine.overload
            over_ms = overload.backlog_ms(self._stream) - overload.backlog_ms_max
            if over_ms > 0:
                message = f"what has come takes {over_ms:.0f} ms too long to be applied"
                wait_ms = int(min(max(over_ms, LOOK_MS_MIN), LOOK_MS_MAX))
                raise Overloaded(message, retry_after_ms=wait_ms)
        receipt = append(
            self._engine,
            self._stream,
            self._producer,
            carrying.request.batch,
            carrying.payload,
            caller=self._asker,
            final_attempt=final_attempt,
        )
        return _Taken(receipt, arrived)


def credits_in(line: Line) -> int:
    """Return how many batches a client may have without a receipt.

    Calls that wait for room share what one alone may have: what stands behind the batch that is in
    line only gets older, and comes too late although it was in time.
    """
    return max(CREDITS_MIN, CREDITS // max(1, line.length))


def append(
    engine: Engine,
    stream: str,
    producer: ingest_pb2.Producer,
    batch: ingest_pb2.Batch,
    payload: bytes | memoryview,
    *,
    caller: Caller,
    final_attempt: bool = True,
    preadmitted: bool = False,
) -> Future[Receipt]:
    """Hand one batch, whose payload lies beside it, to the engine.

    caller: whose stream it must be.
    final_attempt: if there is no room, it counts as refused; else it is tried again.
    preadmitted: it was, as it is, before it was received.

    Raises:
      what `Engine.append` raises, and BadBatch: the payload has other rows than it declares, or
        what is left out of it cannot be. BadSetting: there is no such producer or part.
    """
    sequence = batch.sequence if batch.HasField("sequence") else None
    try:
        if batch.rows < 0:
            raise BadBatch(f"the batch declares {batch.rows} rows")
        check_producer(producer.name, producer.epoch)
        part = part_from_wire(batch)
        check_stream(engine.core, caller, stream)
        left_out = None
        if batch.HasField("left_out"):
            left_out = left_out_from_wire(batch.left_out, engine.schema(stream))
    except ShedderError:
        if preadmitted:
            size_bytes = memoryview(payload).nbytes
            engine.admission.give_back(stream, batch.rows, size_bytes)
        raise
    return engine.append(
        stream,
        payload,
        producer=producer.name,
        epoch=producer.epoch,
        sequence=sequence,
        rows=batch.rows,
        will_retry=not final_attempt,
        summarised=batch.summarised,
        left_out=left_out,
        preadmitted=preadmitted,
        part=part,
    )


async def next_of(requests: AsyncIterator[Received]) -> Received | None:
    """Return the next request; None when the client is done."""
    return await anext(requests, None)


async def read_hello(requests: Requests, drain: Drain) -> ingest_pb2.AppendStreamRequest.Hello:
    """The first request of a call.

    Raises:
      InvalidRequest: it is something else, or did not come in time.
    """
    first = await drain.race(next_of(requests), HELLO_S_MAX)
    if first is None or first.request.WhichOneof("message") != "hello":
        raise InvalidRequest("an AppendStream begins with hello")
    return first.request.hello
