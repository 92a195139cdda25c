"""The producer of `producer.py`, for the running event loop."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from shedder.client.aio_connection import AsyncConnection
from shedder.client.failures import Patience, patiently_async
from shedder.client.outbox import Outbox, check_whole, hello
from shedder.client.thinning import Thinning
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import InternalError, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import BatchLimits
from shedder.streams.push_parts import parts_of
from shedder.v1 import ingest_pb2
from shedder.wire.ingest import receipt_from_wire, schema_from_wire


class AsyncProducer:
    """As `Producer`, with `await`. For one task. Made by `AsyncClient.producer`."""

    def __init__(
        self,
        connection: AsyncConnection,
        stream: str,
        name: str,
        *,
        patience_s: float,
        thinning: str = "1",
    ) -> None:
        self._thinning = Thinning(thinning)
        self._connection = connection
        self._patience_s = patience_s
        self.stream = stream
        self.name = name
        self.epoch = 0
        self.schema: StreamSchema
        self._limits = BatchLimits()
        self._described = ingest_pb2.DescribeStreamResponse()
        self.help_wanted = False
        self.left_out = 0
        self._outbox = Outbox(stream, name)
        self._call: Any = None

    async def begin(self, epoch: int | None) -> Self:
        """Look up the stream, and where this producer has stopped.

        Raises:
          StaleEpoch: a newer incarnation has written.
        """
        request = ingest_pb2.DescribeStreamRequest(stream=self.stream, producer=self.name)
        described = await patiently_async(
            lambda: self._connection.call(self._connection.ingest.DescribeStream, request),
            self._patience(),
        )
        self.schema = schema_from_wire(described)
        self._limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)
        self.epoch = self._outbox.go_on(described, epoch)
        self._described = described
        return self

    def check_whole(self) -> None:
        """Check that the push before the next one is whole.

        Raises:
          SequenceGap: the end of that push is missing.
        """
        check_whole(self._described, self.name, self.epoch)

    @property
    def next_sequence(self) -> int:
        """The number that the next push gets."""
        return self._outbox.next_sequence

    async def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Send rows; returns when all are on their way, not when they are durable.

        Args, Returns, Raises: as `Producer.push`.
        """
        parts = parts_of(data, self.schema, self._limits, ends_at_error=sequence is None)
        if self._call is None and not len(self._outbox):
            await patiently_async(self._connect, self._patience())
        for part, batch in parts:
            place = self._outbox.check(part, is_numbered=sequence is not None)
            while self._outbox.is_full:
                await self._await_receipt()
            sent, gone = batch, None
            if self.help_wanted:
                sent, gone = self._thinning.divide(batch, self.schema.time_column)
                self.left_out += 0 if gone is None else gone.rows
            request = self._outbox.add(sent, sequence, gone, place)
            if self._call is not None:
                await self._send(request)
        return self.next_sequence

    async def flush(self) -> Receipt:
        """Wait until everything is durable; the last push's receipt (rows 0: there was none)."""
        while len(self._outbox):
            await self._await_receipt()
        return self._outbox.receipt

    async def close(self) -> None:
        """Flush and end."""
        try:
            await self.flush()
        finally:
            self._disconnect()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            self._disconnect()

    async def _send(self, request: bytes) -> None:
        try:
            await self._connection.write(self._call, request)
        except ShedderError:
            self._disconnect()  # It stays in the outbox; the next receipt awaited tells why.
        except BaseException:  # Called off, and gRPC has ended the call.
            self._disconnect()
            raise

    async def _await_receipt(self) -> None:
        response = await patiently_async(self._receive, self._patience())
        self.help_wanted = response.help_wanted
        self._outbox.acknowledge(receipt_from_wire(response.receipt), response.credits)

    async def _receive(self) -> ingest_pb2.AppendStreamResponse:
        try:
            if self._call is None:
                await self._connect()
            return await self._read()
        except BaseException:  # Called off, too: gRPC ends the call then.
            self._disconnect()
            raise

    async def _read(self) -> ingest_pb2.AppendStreamResponse:
        response: ingest_pb2.AppendStreamResponse | None = await self._connection.read(self._call)
        if response is None:
            raise InternalError("the server ended the stream before its receipts")
        return response

    async def _connect(self) -> None:
        """Open the stream and send what has no receipt."""
        self._call = self._connection.open(self._connection.append_stream)
        try:
            await self._connection.write(self._call, hello(self.stream, self.name, self.epoch))
            welcome = await self._read()
            self._outbox.credits = max(1, welcome.credits)
            for request in self._outbox.resend():
                await self._connection.write(self._call, request)
        except BaseException:  # Called off, too: gRPC ends the call then.
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _patience(self) -> Patience:
        return Patience(self._patience_s)
