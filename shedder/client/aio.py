"""The client for the running event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.client import statement_operations
from shedder.client.aio_connection import AsyncConnection
from shedder.client.aio_producer import AsyncProducer
from shedder.client.aio_standing import AsyncQuery
from shedder.client.drivers import perform_async
from shedder.client.operations import Operations
from shedder.client.target import ServerTarget
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.table_schema import RelationSchema
from shedder.engine.remote_summaries.wire_format import NO_PRODUCERS
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.async_answer_batches import AsyncAnswerBatches
from shedder.queries.answers.database_api import Ledger, Params, Receipt


class AsyncClient:
    """As `Client`, with `await`. Make it with `shedder.client.connect_async`."""

    def __init__(self, target: ServerTarget, *, patience_s: float) -> None:
        self._connection = AsyncConnection(target)
        self._perform = partial(perform_async, self._connection)
        self._patience_s = patience_s
        self._operations = Operations(patience_s=patience_s)

    async def check(self, timeout_s: float) -> None:
        """Check that the server answers; raises Unreachable when it does not."""
        await self._connection.check(timeout_s)

    async def execute(
        self, sql: str, params: Params | None = None, *, timeout_s: float | None = None
    ) -> Answer:
        """Run one statement; a query is answered once, other statements with their status."""
        return await self._perform(statement_operations.execute(sql, params, timeout_s, None))

    async def execute_batches(
        self, sql: str, params: Params | None = None, *, timeout_s: float | None = None
    ) -> AsyncAnswerBatches:
        """Run one statement; `async for batch in await client.execute_batches(sql)`."""
        execution = statement_operations.Execution(sql, params, timeout_s, None)
        await self._perform(execution.begin())
        first = await self._perform(execution.next_rows())

        async def rows() -> AsyncIterator[pa.RecordBatch]:
            part = first
            while part is not None:
                for batch in part.to_batches():
                    yield batch
                part = await self._perform(execution.next_rows())
            for batch in execution.rest.to_batches():
                yield batch

        schema = (execution.rest if first is None else first).schema
        return AsyncAnswerBatches(schema, rows(), execution.without_rows, execution.cancel)

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
        return await self._perform(
            self._operations.streams.push(stream, data, producer, epoch, sequence)
        )

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
        await self._perform(self._operations.streams.heartbeat(stream, watermark_us))

    async def register(
        self,
        name: str,
        sql: str,
        params: Params | None = None,
        *,
        timeout_s: float | None = None,
    ) -> AsyncQuery:
        """As `Database.register`."""
        described = await self._perform(statement_operations.register(name, sql, params, timeout_s))
        return AsyncQuery(self._connection, described)

    async def query(self, name: str) -> AsyncQuery:
        """A standing query by name."""
        described = await self._perform(statement_operations.describe_query(name))
        return AsyncQuery(self._connection, described.query)

    async def schema(self, stream: str) -> StreamSchema:
        """A stream's definition; its seed stays with the server."""
        return await self._perform(self._operations.streams.schema(stream))

    async def relation(self, name: str) -> RelationSchema:
        """The definition of a stream or table."""
        return await self._perform(self._operations.streams.relation(name))

    async def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """(epoch, sequence) of the last durable push of a producer; as `Client.last_sequence`."""
        return await self._perform(self._operations.streams.last_sequence(stream, producer))

    async def ledger(self, stream: str) -> Ledger:
        """Return where every tuple of the stream went."""
        return await self._perform(self._operations.streams.ledger(stream))

    async def seal(self, stream: str) -> None:
        """Write the stream's tail into a run, so that other readers of the archive see it."""
        await self._perform(self._operations.streams.seal(stream))

    async def control(self, entity: str = "", name: str = "") -> pa.Table:
        """The control table: entity, name, key, value; all rows where a word is empty."""
        return await self._perform(statement_operations.control(entity, name))

    async def set_control(self, entity: str, name: str, key: str, value: str) -> None:
        """Set one value of the control table."""
        await self._perform(statement_operations.set_control(entity, name, key, value))

    async def plans(self, stream: str) -> str:
        """Return the description from which a client builds the stream's summaries."""
        return await self._perform(self._operations.summaries.plans(stream))

    async def merge(
        self,
        stream: str,
        summaries: bytes,
        *,
        producer: str | None = None,
        epoch: int = 0,
        sequence: int | None = None,
        tuples_follow: bool = False,
        after: Mapping[str, tuple[int, int]] = NO_PRODUCERS,
    ) -> Receipt:
        """Merge summaries into the stream's standing queries; as `Client.merge`."""
        return await self._perform(
            self._operations.summaries.merge(
                stream,
                summaries,
                producer=producer,
                epoch=epoch,
                sequence=sequence,
                tuples_follow=tuples_follow,
                after=after,
            )
        )

    async def follow(
        self, stream: str, data: Any, *, producer: str, epoch: int = 0, sequence: int | None = None
    ) -> Receipt:
        """Append rows whose summaries came before; as `Client.follow`."""
        return await self._perform(
            self._operations.summaries.follow(
                stream, data, producer=producer, epoch=epoch, sequence=sequence
            )
        )

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
