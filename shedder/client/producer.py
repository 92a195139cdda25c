"""A producer: numbered batches over one open stream, several in flight, again after a loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.client.connection import Connection
from shedder.client.failures import Patience, patiently
from shedder.client.outbox import Outbox, hello
from shedder.client.thinning import Thinning
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import InternalError, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import BatchLimits
from shedder.streams.push_parts import WHOLE, Part, parts_of
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

    Numbers begin at 0 with each epoch and have no gaps; each push takes one. After a crash of the
    producer, `next_sequence` says which push comes next: everything before it is stored. If some
    batches of that push are stored, pushing it again stores the others. When the connection is
    lost, what has no receipt is sent again.

    patience_s: how long it tries again when the server is gone or full. help_wanted: as the last
    receipt said, the server has more to do than it can: what `Client.summarise` sends instead of
    tuples would help it, or fewer tuples. left_out: rows that were not sent, ever. limits: of a
    batch, as the server had them when this began. described: what it said of the stream then.
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
        described = patiently(self.describe, self._patience())
        self.schema: StreamSchema = schema_from_wire(described)
        self.epoch = self._outbox.go_on(described, epoch)
        self.limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)
        self.described = described

    @property
    def next_sequence(self) -> int:
        """The number that the next push gets."""
        return self._outbox.next_sequence

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Send rows; returns when all are on their way, not when they are durable.

        Args:
          data: as in `Client.push`; more than 65,536 rows become several batches of one number.
          sequence: of this push; None goes on from the last one. A number that is stored already
            is not stored again.

        Returns:
          The number that the next push gets.

        Raises:
          SchemaMismatch, BadTimestamp: these rows were not sent; those before them were. Under the
            same `sequence`, the rest can be pushed.
          ShedderError: an earlier batch was refused.
        """
        self._send_parts(self.parts(data, ends_at_error=sequence is None), sequence)
        return self.next_sequence

    def push_parts(
        self, parts: Iterable[tuple[Part, pa.RecordBatch]], sequence: int | None
    ) -> Receipt:
        """Send a push that is divided already; the receipt of all of it.

        Raises:
          what `parts` raises, once the batches before are durable. ShedderError.
        """
        try:
            self._send_parts(parts, sequence)
        finally:
            receipt = self.flush()
        return receipt

    def _send_parts(
        self, parts: Iterable[tuple[Part, pa.RecordBatch]], sequence: int | None
    ) -> None:
        self.open()
        for part, batch in parts:
            place = self._outbox.check(part, is_numbered=sequence is not None)
            while self._outbox.is_full:
                self.await_receipt()
            self.send(batch, sequence, place)

    # --- step by step, for who must not wait for long ----------------------------------------

    @property
    def outbox(self) -> Outbox:
        """What has no receipt yet."""
        return self._outbox

    def parts(self, data: Any, *, ends_at_error: bool) -> Iterator[tuple[Part, pa.RecordBatch]]:
        """The data as batches of the stream, with their places in the push: see `parts_of`.

        Raises:
          SchemaMismatch, BadTimestamp.
        """
        return parts_of(data, self.schema, self.limits, ends_at_error=ends_at_error)

    def open(self) -> None:
        """Connect, unless there is something to be sent again, which connects by itself."""
        if self._open is None and not len(self._outbox):
            patiently(self._connect, self._patience())

    def send(self, batch: pa.RecordBatch, sequence: int | None, part: Part = WHOLE) -> None:
        """Send one conformed batch, thinned if help is wanted; there must be room in the outbox."""
        gone = None
        if self.help_wanted:
            batch, gone = self._thinning.divide(batch, self.schema.time_column)
            self.left_out += 0 if gone is None else gone.rows
        request = self._outbox.add(batch, sequence, gone, part)
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
        """Wait until everything is durable; the last push's receipt (rows 0: there was none)."""
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

    def describe(self) -> ingest_pb2.DescribeStreamResponse:
        """Ask the server for the present state of the stream and of this producer.

        Raises:
          ShedderError: the server does not answer now.
        """
        request = ingest_pb2.DescribeStreamRequest(stream=self.stream, producer=self.name)
        return self._connection.call(self._connection.ingest.DescribeStream, request)

    def _patience(self) -> Patience:
        return Patience(self.patience_s)
