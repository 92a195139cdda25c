"""The database's words over the wire, for the running event loop."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.client.aio_connection import AsyncConnection
from shedder.client.aio_producer import AsyncProducer
from shedder.client.aio_standing import AsyncQuery
from shedder.client.failures import Patience, deadline_s, patiently_async
from shedder.client.identifiers import OwnNames
from shedder.client.target import Target
from shedder.cql.statements.bound_query import StreamSchema
from shedder.engine.remote_summaries.wire_format import AT_LEAST_BYTES
from shedder.errors import InternalError
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.database_api import Ledger, Params, Receipt
from shedder.v1 import control_pb2, ingest_pb2, query_pb2, synopses_pb2
from shedder.wire import tables
from shedder.wire.answers import answer_from_wire
from shedder.wire.ingest import ledger_from_wire, receipt_from_wire, schema_from_wire
from shedder.wire.parameters import parameters_to_wire
from shedder.wire.summaries import merge_in_parts


class AsyncClient:
    """As `Client`, with `await`. Make it with `shedder.client.connect_async`."""

    def __init__(self, target: Target, *, patience_s: float) -> None:
        self._connection = AsyncConnection(target)
        self._patience_s = patience_s
        self._names = OwnNames()

    async def check(self, timeout_s: float) -> None:
        """Whether the server is there; raises Unreachable when not."""
        await self._connection.check(timeout_s)

    async def execute(
        self, sql: str, params: Params | None = None, *, timeout_s: float | None = None
    ) -> Answer:
        """Run one statement; a query is answered once, other statements with their status."""
        request = query_pb2.ExecuteRequest(
            sql=sql, parameters=parameters_to_wire(params), timeout_s=timeout_s
        )
        call = self._connection.open(self._connection.query.Execute, request, deadline_s(timeout_s))
        response = None
        while (better := await self._connection.read(call)) is not None:
            response = better
        if response is None:
            raise InternalError("the server ended the call before its answer")
        return answer_from_wire(response.answer)

    async def push(
        self,
        stream: str,
        data: Any,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> Receipt:
        """Append rows and return when they are durable; as `Client.push`."""
        with self._names.name(producer) as name:
            given_epoch = epoch if producer else None
            async with await self.producer(stream, name, epoch=given_epoch) as opened:
                if sequence is None:
                    opened.check_whole()
                try:
                    await opened.push(data, sequence=sequence)
                except Exception:  # What is before the bad rows is durable.
                    await opened.flush()
                    raise
                return await opened.flush()

    async def producer(
        self, stream: str, name: str, *, epoch: int | None = None, thinning: str = "1"
    ) -> AsyncProducer:
        """A producer that keeps batches in flight and goes on where it stopped.

        thinning: as of `Client.producer`.
        """
        made = AsyncProducer(
            self._connection, stream, name, patience_s=self._patience_s, thinning=thinning
        )
        return await made.begin(epoch)

    async def heartbeat(self, stream: str, watermark_us: int) -> None:
        """Promise that no tuple with an event time below watermark_us will follow."""
        request = ingest_pb2.HeartbeatRequest(stream=stream, watermark_us=watermark_us)
        await self._patiently(self._connection.ingest.Heartbeat, request)

    async def register(self, name: str, sql: str, params: Params | None = None) -> AsyncQuery:
        """Make a query standing; one of the same name and text is returned as it is."""
        request = query_pb2.RegisterRequest(
            name=name, sql=sql, parameters=parameters_to_wire(params)
        )
        response = await self._connection.call(self._connection.query.Register, request)
        return AsyncQuery(self._connection, response.query)

    async def query(self, name: str) -> AsyncQuery:
        """A standing query by name."""
        request = query_pb2.DescribeRequest(name=name)
        response = await self._connection.call(self._connection.query.Describe, request)
        return AsyncQuery(self._connection, response.query)

    async def schema(self, stream: str) -> StreamSchema:
        """A stream's definition; its seed stays with the server."""
        request = ingest_pb2.DescribeStreamRequest(stream=stream)
        described = await self._patiently(self._connection.ingest.DescribeStream, request)
        return schema_from_wire(described)

    async def ledger(self, stream: str) -> Ledger:
        """Where every tuple of the stream went."""
        request = ingest_pb2.GetLedgerRequest(stream=stream)
        response = await self._connection.call(self._connection.ingest.GetLedger, request)
        return ledger_from_wire(response)

    async def plans(self, stream: str) -> str:
        """What somebody elsewhere must know to build the stream's summaries."""
        request = synopses_pb2.GetPlansRequest(stream=stream)
        response = await self._patiently(self._connection.synopses.GetPlans, request)
        plans: str = response.plans
        return plans

    async def merge(
        self, stream: str, summaries: bytes, *, producer: str, epoch: int = 0, sequence: int
    ) -> Receipt:
        """Merge summaries into the stream's standing queries; as `Client.merge`, with a number."""
        request = synopses_pb2.MergeRequest(
            stream=stream,
            producer=ingest_pb2.Producer(name=producer, epoch=epoch),
            sequence=sequence,
        )
        asked = ingest_pb2.DescribeStreamRequest(stream=stream)
        limit = AT_LEAST_BYTES
        if len(summaries) > limit:
            described = await self._patiently(self._connection.ingest.DescribeStream, asked)
            limit = described.batch_bytes_max
        if len(summaries) <= max(limit, AT_LEAST_BYTES):
            request.summaries = summaries
            response = await self._patiently(self._connection.synopses.Merge, request)
            return receipt_from_wire(response.receipt)

        async def sent() -> Any:
            parts = merge_in_parts(request, summaries, limit)
            return await self._connection.call(self._connection.synopses.MergeInParts, parts)

        response = await patiently_async(sent, Patience(self._patience_s))
        return receipt_from_wire(response.receipt)

    async def seal(self, stream: str) -> None:
        """Write the stream's tail into a run, so that other readers of the archive see it."""
        request = control_pb2.SetRequest(entity="stream", name=stream, key="seal")
        await self._connection.call(self._connection.control.Set, request)

    async def control(self, entity: str = "", name: str = "") -> pa.Table:
        """The control table: entity, name, key, value; all rows where a word is empty."""
        request = control_pb2.GetRequest(entity=entity, name=name)
        response = await self._connection.call(self._connection.control.Get, request)
        return tables.from_bytes(response.table)

    async def close(self) -> None:
        """End all calls."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _patiently(self, method: Any, request: Any) -> Any:
        """A call that may be repeated without harm."""
        return await patiently_async(
            lambda: self._connection.call(method, request), Patience(self._patience_s)
        )
