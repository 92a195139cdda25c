"""A producer's outbox: batches of numbered pushes that have no receipt yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from shedder.engine.ingest.producer_sequences import OWN_PREFIX
from shedder.errors import (
    FailedPrecondition,
    ProducerForgotten,
    SequenceGap,
    StaleEpoch,
    Unimplemented,
)
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import encoded
from shedder.streams.dropped_counts import Dropped
from shedder.streams.push_parts import WHOLE, Part
from shedder.v1 import ingest_pb2
from shedder.wire.batches import append_stream_bytes
from shedder.wire.source_sampling import left_out_to_wire


@dataclass(slots=True)
class _SentBatch:
    """One batch.

    is_own_number: the outbox has numbered the push, not the caller.
    again: the batch may be stored already.
    """

    request: bytes
    sequence: int
    part: Part
    is_own_number: bool
    again: bool = False


class Outbox:
    """Numbers batches and keeps them until they have their receipts. No I/O here.

    credits: how many batches the server takes ahead of their receipts.
    next_sequence: the number of the next push, when the caller gives none.
    takes_parts: the server takes several batches under one number.
    receipt: of the newest push, as far as it has receipts.
    """

    def __init__(self, stream: str, producer: str) -> None:
        self._stream = stream
        self._producer = producer
        self._waiting: deque[_SentBatch] = deque()
        self._begun: int | None = None  # A push of which the server has some batches already.
        self._next_row = 0  # First row of the next batch in its push.
        self.next_sequence = 0
        self.takes_parts = True
        self.credits = 1
        self.receipt = Receipt(stream, 0, 0)

    def go_on(self, described: ingest_pb2.DescribeStreamResponse, epoch: int | None) -> int:
        """Go on where the producer has stopped; the epoch in which it is.

        Raises:
          StaleEpoch: a newer incarnation has written.
        """
        epoch, self.next_sequence = epoch_after(described, self._producer, epoch)
        self.takes_parts = described.takes_parts
        if described.open_rows and epoch == described.last.epoch:
            self._begun = self.next_sequence
            self._next_row = described.open_rows
        return epoch

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unacknowledged(self) -> tuple[int, int]:
        """Number and first row of the oldest batch that has no receipt, else of the next batch."""
        if not self._waiting:
            return self.next_sequence, self._next_row
        return self._waiting[0].sequence, self._waiting[0].part.first_row

    @property
    def is_full(self) -> bool:
        """Return whether a receipt must be awaited before another batch is sent."""
        return len(self._waiting) >= self.credits

    def grant(self, credits_left: int) -> None:
        """Set how many batches the server takes ahead of their receipts; at least one may go."""
        self.credits = max(1, credits_left)

    def check(self, part: Part, *, is_numbered: bool) -> Part:
        """The place that a batch of a push has for the server.

        is_numbered: the caller has numbered the push.

        Raises:
          Unimplemented: the server takes one batch for each number.
        """
        if self.takes_parts or part == WHOLE:
            return part
        if is_numbered or part.skipped:
            raise Unimplemented(
                "the server is older than this client, and takes one batch for each number: push "
                "fewer rows under one number, or no `sequence`"
            )
        return WHOLE

    def add(
        self,
        batch: pa.RecordBatch,
        sequence: int | None,
        left_out: Dropped | None = None,
        part: Part = WHOLE,
    ) -> bytes:
        """Number a batch and keep it; returns the serialised request.

        left_out: what was left out of the batch at the source. part: its place in its push.
        """
        number = self.next_sequence if sequence is None else sequence
        said = None if left_out is None else left_out_to_wire(left_out)
        request = append_stream_bytes(number, batch.num_rows, encoded(batch), said, part)
        self._waiting.append(_SentBatch(request, number, part, is_own_number=sequence is None))
        self.next_sequence = number + part.is_last
        self._next_row = _row_after(
            part, batch.num_rows + (0 if left_out is None else left_out.rows)
        )
        return request

    def acknowledge(self, receipt: Receipt, credits_left: int) -> Receipt:
        """Match a receipt with the oldest batch.

        Raises:
          FailedPrecondition: another producer used the number, so the batch was not stored.
        """
        sent = self._waiting.popleft()
        self.grant(credits_left)
        self.receipt = self.receipt.and_rest(receipt) if sent.part.first_row else receipt
        may_be_stored = sent.again or sent.sequence == self._begun
        if receipt.duplicate and sent.is_own_number and not may_be_stored:
            raise FailedPrecondition(
                f"sequence {sent.sequence} of producer {self._producer!r} in stream "
                f"{self._stream!r} was used by another sender; give each producer its own name"
            )
        return receipt

    def skip(self, receipt: Receipt, rows: int, part: Part = WHOLE) -> None:
        """Count the next batch, of `rows` rows, as acknowledged; it was sent by another call.

        No batch may be waiting for its receipt.
        """
        assert not self._waiting
        self.next_sequence += part.is_last
        self._next_row = _row_after(part, rows)
        self.receipt = self.receipt.and_rest(receipt) if part.first_row else receipt

    def resend(self) -> Iterator[bytes]:
        """What has no receipt, after the connection was lost: some of it may be stored."""
        for sent in self._waiting:
            sent.again = True
            yield sent.request


def _row_after(part: Part, rows: int) -> int:
    """Return the first row of the batch after this one, in its push."""
    return 0 if part.is_last else part.first_row + rows + part.skipped


def hello(stream: str, producer: str, epoch: int) -> bytes:
    """The first request of an AppendStream, serialised."""
    message = ingest_pb2.AppendStreamRequest.Hello(
        stream=stream, producer=ingest_pb2.Producer(name=producer, epoch=epoch)
    )
    return ingest_pb2.AppendStreamRequest(hello=message).SerializeToString()


def check_whole(
    described: ingest_pb2.DescribeStreamResponse, producer: str, epoch: int | None
) -> None:
    """Check that the push before the next number is whole.

    Raises:
      SequenceGap: the end of that push is missing.
    """
    if described.open_rows and epoch in (None, described.last.epoch):
        number = described.last.sequence + 1
        raise SequenceGap(producer, number, number + 1, rows=described.open_rows)


def epoch_after(
    described: ingest_pb2.DescribeStreamResponse, producer: str, epoch: int | None
) -> tuple[int, int]:
    """The epoch to go on in (None: the newest), and its next sequence number.

    Raises:
      StaleEpoch: a newer incarnation has written.
      ProducerForgotten: it is not known, may have stored rows, and no epoch is given.
    """
    if not described.HasField("last"):
        epoch_min = described.epoch_min
        if epoch is None and epoch_min and not producer.startswith(OWN_PREFIX):
            raise ProducerForgotten(producer, 0, epoch_min)
        return epoch_min if epoch is None else epoch, 0
    last = described.last
    if epoch is None or epoch == last.epoch:
        return last.epoch, last.sequence + 1
    if epoch < last.epoch:
        raise StaleEpoch(producer, last.epoch, epoch)
    return epoch, 0
