"""A producer for blocking calls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.client.append_session import AppendSession, SessionView
from shedder.client.connection import Connection
from shedder.client.drivers import perform
from shedder.client.outbox import Outbox
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import BatchLimits
from shedder.streams.push_parts import WHOLE, Part
from shedder.v1 import ingest_pb2


class Producer(SessionView):
    """Appends to one stream under a name, idempotently. For one thread.

    Numbers begin at 0 with each epoch and have no gaps; each push takes one. After a crash of the
    producer, `next_sequence` says which push comes next: everything before it is stored. If some
    batches of that push are stored, pushing it again stores the others. When the connection is
    lost, batches without a receipt are sent again.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        name: str,
        *,
        epoch: int | None,
        patience_s: float,
        begin_patience_s: float | None = None,
        thinning: str = "1",
    ) -> None:
        """Look up the stream, and where this producer has stopped.

        Args:
          connection: to the server.
          stream: to append to.
          name: the producer's.
          epoch: its incarnation; None goes on in the newest one.
          patience_s: time for which an exchange is repeated while the server is gone or full.
          begin_patience_s: that of the look-up; None means patience_s.
          thinning: see `Client.producer`.

        Raises:
          StaleEpoch: a newer incarnation has written.
          BadSetting: there is no such share.
        """
        super().__init__(AppendSession(stream, name, patience_s=patience_s, thinning=thinning))
        self._perform = partial(perform, connection)
        self._perform(self._session.begin(epoch, patience_s=begin_patience_s))

    @property
    def limits(self) -> BatchLimits:
        """The limits of a batch, as the server had them when this producer began."""
        return self._session.limits

    @property
    def described(self) -> ingest_pb2.DescribeStreamResponse:
        """The server's description of the stream when this producer began."""
        return self._session.described

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
        return self._perform(self._session.push(data, sequence))

    def flush(self) -> Receipt:
        """Wait until everything is durable; the last push's receipt (rows 0: there was none)."""
        return self._perform(self._session.flush())

    def close(self) -> None:
        """Flush and end."""
        self._perform(self._session.close())

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

    # --- step by step, for a sender that must not wait for long -------------------------------

    @property
    def outbox(self) -> Outbox:
        """The batches that have no receipt yet."""
        return self._session.outbox

    def parts(self, data: Any, *, ends_at_error: bool) -> Iterator[tuple[Part, pa.RecordBatch]]:
        """Return the data as batches of the stream with their places in the push: see `parts_of`.

        Raises:
          SchemaMismatch, BadTimestamp.
        """
        return self._session.parts(data, ends_at_error=ends_at_error)

    def open(self) -> None:
        """Connect, unless batches are to be sent again: then the next receipt connects."""
        self._perform(self._session.open())

    def send(self, batch: pa.RecordBatch, sequence: int | None, part: Part = WHOLE) -> None:
        """Send one conformed batch, thinned if help is wanted; the outbox must have room."""
        self._perform(self._session.send(batch, sequence, part))

    def await_receipt(self) -> None:
        """Wait for the oldest batch's receipt, over as many connections as it takes."""
        self._perform(self._session.await_receipt())

    def note_help(self, *, wanted: bool) -> None:
        """Note that another call's response said whether the server wants help."""
        self._session.note_help(wanted=wanted)

    def disconnect(self) -> None:
        """End the call; batches without a receipt are sent again over the next one."""
        self._session.disconnect()

    def describe(self) -> ingest_pb2.DescribeStreamResponse:
        """Ask the server for the present state of the stream and of this producer.

        Raises:
          ShedderError: the server does not answer now.
        """
        return self._perform(self._session.describe())
