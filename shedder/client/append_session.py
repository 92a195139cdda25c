"""A producer's session: numbered batches over one call, sent again after a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from shedder.client.failures import Patience
from shedder.client.outbox import Outbox, hello
from shedder.client.steps import Open, OpenCall, Read, Steps, UnaryCall, Write, retried
from shedder.client.thinning import SourceThinning
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import InternalError, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import BatchLimits
from shedder.streams.push_parts import WHOLE, Part, parts_of
from shedder.v1 import ingest_pb2
from shedder.wire.ingest import receipt_from_wire, schema_from_wire


class AppendSession:
    """Appends to one stream under a name, idempotently; `begin` comes first. Does no I/O itself.

    Attributes:
      epoch: the producer's incarnation.
      schema: of the stream.
      described: the server's description of the stream when the session began.
      limits: of a batch, as the server had them then.
      outbox: batches that have no receipt yet.
      help_wanted: the server asked for help in the last receipt.
      left_out: rows that were thinned away.
    """

    def __init__(self, stream: str, name: str, *, patience_s: float, thinning: str = "1") -> None:
        """Prepare a session.

        Args:
          stream: to append to.
          name: the producer's.
          patience_s: time for which each exchange is repeated while the server is gone or full.
          thinning: see `Client.producer`.

        Raises:
          BadSetting: there is no such share.
        """
        self._thinning: Final = SourceThinning(thinning)
        self._patience_s = patience_s
        self.stream: Final = stream
        self.name: Final = name
        self.outbox: Final = Outbox(stream, name)
        self.epoch = 0
        self.schema: StreamSchema
        self.described = ingest_pb2.DescribeStreamResponse()
        self.help_wanted = False
        self.left_out = 0
        self.limits = BatchLimits()
        self._call: OpenCall | None = None
        self._opening: OpenCall | None = None  # A call whose welcome has not come.

    def begin(self, epoch: int | None, *, patience_s: float | None = None) -> Steps[None]:
        """Look up the stream and the place where the producer has stopped.

        Args:
          epoch: of the producer; None goes on in the newest one.
          patience_s: of this look-up; None means the session's.

        Raises:
          StaleEpoch: a newer incarnation has written.
        """
        patience = Patience(self._patience_s if patience_s is None else patience_s)
        described = yield from retried(self.describe, patience)
        self.schema = schema_from_wire(described)
        self.limits = BatchLimits(described.batch_rows_max, described.batch_bytes_max)
        self.epoch = self.outbox.go_on(described, epoch)
        self.described = described

    def describe(self) -> Steps[ingest_pb2.DescribeStreamResponse]:
        """Ask for the present state of the stream and of the producer, once."""
        request = ingest_pb2.DescribeStreamRequest(stream=self.stream, producer=self.name)
        described: ingest_pb2.DescribeStreamResponse = yield UnaryCall(
            lambda stubs: stubs.ingest.DescribeStream, request
        )
        return described

    def parts(self, data: Any, *, ends_at_error: bool) -> Iterator[tuple[Part, pa.RecordBatch]]:
        """Return the data as batches of the stream with their places in the push: see `parts_of`.

        Raises:
          SchemaMismatch, BadTimestamp.
        """
        return parts_of(data, self.schema, self.limits, ends_at_error=ends_at_error)

    def push(self, data: Any, sequence: int | None) -> Steps[int]:
        """Send rows, and return the number of the next push. Raises: as `Producer.push`."""
        yield from self.open()
        for part, batch in self.parts(data, ends_at_error=sequence is None):
            yield from self._send_part(part, batch, sequence)
        return self.outbox.next_sequence

    def push_parts(
        self, parts: Iterator[tuple[Part, pa.RecordBatch]], sequence: int | None
    ) -> Steps[Receipt]:
        """Send a push that is divided already, and return the receipt of all of it.

        Raises:
          ShedderError: also what `parts` raises, once the batches before are durable.
        """
        yield from self.open()
        while True:
            try:
                given = next(parts, None)
            except Exception:
                yield from self.flush()
                raise
            if given is None:
                return (yield from self.flush())
            yield from self._send_part(*given, sequence)

    def open(self) -> Steps[None]:
        """Connect, unless batches are to be sent again: then the next receipt connects."""
        if self._call is None and not len(self.outbox):
            yield from self._retried(self._connect)

    def send(self, batch: pa.RecordBatch, sequence: int | None, part: Part = WHOLE) -> Steps[None]:
        """Send one conformed batch, thinned if help is wanted; the outbox must have room."""
        left_out = None
        if self.help_wanted:
            batch, left_out = self._thinning.divide(batch, self.schema.time_column)
            self.left_out += 0 if left_out is None else left_out.rows
        request = self.outbox.add(batch, sequence, left_out, part)
        opened = self._call
        if opened is None:
            return
        try:
            yield Write(opened, request)
        except ShedderError:
            self.disconnect()  # The batch stays in the outbox; the next receipt awaited tells why.
        except BaseException:  # The task was cancelled, and gRPC has ended the call.
            self.disconnect()
            raise

    def await_receipt(self) -> Steps[None]:
        """Wait for the oldest batch's receipt, over as many connections as it takes."""
        response = yield from self._retried(self._receive)
        self.help_wanted = response.help_wanted
        self.outbox.acknowledge(receipt_from_wire(response.receipt), response.credits)

    def flush(self) -> Steps[Receipt]:
        """Wait until all is durable; return the last push's receipt (rows 0: there was none)."""
        while len(self.outbox):
            yield from self.await_receipt()
        return self.outbox.receipt

    def close(self) -> Steps[None]:
        """Flush and end."""
        try:
            yield from self.flush()
        finally:
            self.disconnect()

    def disconnect(self) -> None:
        """End the call; batches without a receipt are sent again over the next one."""
        calls, self._call, self._opening = (self._call, self._opening), None, None
        for opened in calls:
            if opened is not None:
                opened.cancel()

    def note_help(self, *, wanted: bool) -> None:
        """Note that another call's response said whether the server wants help."""
        self.help_wanted = wanted

    def _send_part(self, part: Part, batch: pa.RecordBatch, sequence: int | None) -> Steps[None]:
        place = self.outbox.check(part, is_numbered=sequence is not None)
        while self.outbox.is_full:
            yield from self.await_receipt()
        yield from self.send(batch, sequence, place)

    def _receive(self) -> Steps[ingest_pb2.AppendStreamResponse]:
        try:
            opened = self._call or (yield from self._connect())
            return (yield from _next_response(opened))
        except BaseException:  # A cancelled task included: gRPC ends the call then.
            self.disconnect()
            raise

    def _connect(self) -> Steps[OpenCall]:
        """Open the call, and send the batches that have no receipt."""
        opened: OpenCall = yield Open(lambda stubs: stubs.append_stream)
        self._opening = opened  # The welcome may never come; another thread may disconnect.
        try:
            yield Write(opened, hello(self.stream, self.name, self.epoch))
            welcome = yield from _next_response(opened)
            self.outbox.grant(welcome.credits)
            for request in self.outbox.resend():
                yield Write(opened, request)
        except BaseException:
            self._opening = None
            opened.cancel()
            raise
        self._call, self._opening = opened, None
        return opened

    def _retried(self, work: Callable[[], Steps[Any]]) -> Steps[Any]:
        return (yield from retried(work, Patience(self._patience_s)))


class SessionView:
    """The state of a session that a producer shows."""

    def __init__(self, session: AppendSession) -> None:
        self._session: Final = session

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._session.stream

    @property
    def name(self) -> str:
        """The producer's name."""
        return self._session.name

    @property
    def epoch(self) -> int:
        """The producer's incarnation."""
        return self._session.epoch

    @property
    def schema(self) -> StreamSchema:
        """The stream's schema."""
        return self._session.schema

    @property
    def next_sequence(self) -> int:
        """The number that the next push gets."""
        return self._session.outbox.next_sequence

    @property
    def help_wanted(self) -> bool:
        """Return whether the server, by its last receipt, has more work than it can do.

        `Client.summarise` instead of tuples would help it, or fewer tuples.
        """
        return self._session.help_wanted

    @property
    def left_out(self) -> int:
        """Rows that were thinned away and are never sent."""
        return self._session.left_out


def _next_response(call: OpenCall) -> Steps[ingest_pb2.AppendStreamResponse]:
    response: ingest_pb2.AppendStreamResponse | None = yield Read(call)
    if response is None:
        raise InternalError("the server ended the stream before its receipts")
    return response
