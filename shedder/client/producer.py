"""A producer: numbered batches over one open stream, several in flight, again after a loss."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.client.connection import Connection
from shedder.client.failures import Patience, patiently
from shedder.client.outbox import Outbox, epoch_after, hello
from shedder.client.thinning import Thinning
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import InternalError, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import ROWS_PER_BATCH, BatchLimits
from shedder.v1 import ingest_pb2
from shedder.wire.ingest import receipt_from_wire, schema_from_wire


class _Open:
    """An open AppendStream: requests go into a queue that gRPC reads on a thread of its own."""

    def __init__(self, connection: Connection, hello: bytes) -> None:
        self._connection = connection
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._requests.put(hello)
        self._call = connection.open(connection.append_stream, self._iterator())

    def send(self, request: bytes) -> None:
        self._requests.put(request)

    def read(self) -> ingest_pb2.AppendStreamResponse:
        response: ingest_pb2.AppendStreamResponse | None = self._connection.read(self._call)
        if response is None:
            raise InternalError("the server ended the stream before its receipts")
        return response

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()

    def _iterator(self) -> Iterator[bytes]:
        while (request := self._requests.get()) is not None:
            yield request


class Producer:
    """Appends to one stream under a name, idempotently. For one thread.

    Numbers begin at 0 with each epoch and have no gaps. After a crash of the producer,
    `next_sequence` says which batch comes next: everything before it is stored. When the
    connection is lost, what has no receipt is sent again.

    patience_s: how long it tries again when the server is gone or full. help_wanted: as the last
    receipt said, the server has more to do than it can: what `Client.summarise` sends instead of
    tuples would help it, or fewer tuples. left_out: rows that were not sent, ever. limits: of a
    batch, as the server had them when this began.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        name: str,
        *,
        epoch: int | None,
        patience_s: float,
        thinning: str = "1",
    ) -> None:
        """Look up the stream, and where this producer has stopped.

        thinning: see `Client.producer`.

        Raises:
          StaleEpoch: a newer incarnation has written. BadSetting: there is no such share.
        """
        self._thinning = Thinning(thinning)
        self._connection = connection
        self.patience_s = patience_s
        self.stream = stream
        self.name = name
        self.help_wanted = False
        self.left_out = 0
        self._outbox = Outbox(stream, name)
        self._open: _Open | None = None
        described = patiently(self._describe, self._patience())
        self.schema: StreamSchema = schema_from_wire(described)
        self.epoch, self._outbox.next_sequence = epoch_after(described, name, epoch)
        self.limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)

    @property
    def next_sequence(self) -> int:
        """The number that the next batch gets."""
        return self._outbox.next_sequence

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Send rows; returns when all are on their way, not when they are durable.

        Args:
          data: as in `Client.push`; more than 65,536 rows become several batches.
          sequence: of the first batch; None goes on from the last one. A number that is stored
            already is not stored again.

        Returns:
          The number that the next batch gets.

        Raises:
          SchemaMismatch, BadTimestamp: these rows were not sent; those before them were.
          ShedderError: an earlier batch was refused.
        """
        batches = self.conformed(data)
        self.open()
        for number, batch in enumerate(batches):
            while self._outbox.is_full:
                self.await_receipt()
            self.send(batch, None if sequence is None else sequence + number)
        return self.next_sequence

    # --- step by step, for who must not wait for long ----------------------------------------

    @property
    def outbox(self) -> Outbox:
        """What has no receipt yet."""
        return self._outbox

    def conformed(self, data: Any) -> Iterator[pa.RecordBatch]:
        """The data as batches of the stream.

        Raises:
          SchemaMismatch, BadTimestamp.
        """
        rows_max = min(ROWS_PER_BATCH, self.limits.rows_max)
        return conform(data, self.schema, rows_max=rows_max, limits=self.limits)

    def open(self) -> None:
        """Connect, unless there is something to be sent again, which connects by itself."""
        if self._open is None and not len(self._outbox):
            patiently(self._connect, self._patience())

    def send(self, batch: pa.RecordBatch, sequence: int | None) -> None:
        """Send one conformed batch, thinned if help is wanted; there must be room in the outbox."""
        gone = None
        if self.help_wanted:
            batch, gone = self._thinning.divide(batch, self.schema.time_column)
            self.left_out += 0 if gone is None else gone.rows
        request = self._outbox.add(batch, sequence, gone)
        if self._open is not None:
            self._open.send(request)

    def await_receipt(self) -> None:
        """The oldest batch's receipt, over as many connections as it takes."""
        response = patiently(self._receive, self._patience())
        self.help_wanted = response.help_wanted
        self._outbox.acknowledge(receipt_from_wire(response.receipt), response.credits)

    def disconnect(self) -> None:
        """Let go of the connection; what has no receipt is sent again over the next one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def flush(self) -> Receipt:
        """Wait until everything is durable; the last batch's receipt (rows 0: there was none)."""
        while len(self._outbox):
            self.await_receipt()
        return self._outbox.receipt

    def close(self) -> None:
        """Flush and end."""
        try:
            self.flush()
        finally:
            self.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.disconnect()

    def _receive(self) -> ingest_pb2.AppendStreamResponse:
        try:
            if self._open is None:
                self._connect()
            assert self._open is not None
            return self._open.read()
        except ShedderError:
            self.disconnect()
            raise

    def _connect(self) -> None:
        """Open the stream and send what has no receipt."""
        opened = _Open(self._connection, hello(self.stream, self.name, self.epoch))
        try:
            self._outbox.credits = max(1, opened.read().credits)
        except ShedderError:
            opened.close()
            raise
        self._open = opened
        for request in self._outbox.resend():
            opened.send(request)

    def _describe(self) -> ingest_pb2.DescribeStreamResponse:
        request = ingest_pb2.DescribeStreamRequest(stream=self.stream, producer=self.name)
        return self._connection.call(self._connection.ingest.DescribeStream, request)

    def _patience(self) -> Patience:
        return Patience(self.patience_s)
