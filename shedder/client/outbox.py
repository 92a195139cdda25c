"""A producer's outbox: batches that were given a number and have no receipt yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from shedder.errors import FailedPrecondition, StaleEpoch
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import encoded
from shedder.streams.dropped_counts import Dropped
from shedder.v1 import ingest_pb2
from shedder.wire.batches import append_stream_bytes
from shedder.wire.source_sampling import left_out_to_wire


@dataclass(slots=True)
class _Sent:
    """One batch. numbered: by us, not by the caller. again: it may be stored already."""

    request: bytes
    sequence: int
    numbered: bool
    again: bool = False


class Outbox:
    """Numbers batches and keeps them until they have their receipts. No I/O here.

    credits: how many batches the server takes ahead of their receipts.
    next_sequence: the number of the next batch, when the caller gives none.
    """

    def __init__(self, stream: str, producer: str) -> None:
        self._stream = stream
        self._producer = producer
        self._waiting: deque[_Sent] = deque()
        self.next_sequence = 0
        self.credits = 1
        self.receipt = Receipt(stream, 0, 0)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unacknowledged(self) -> int:
        """The number of the oldest batch that has no receipt; of the next one when all have."""
        return self._waiting[0].sequence if self._waiting else self.next_sequence

    @property
    def is_full(self) -> bool:
        """Whether a receipt must be awaited before another batch is sent."""
        return len(self._waiting) >= self.credits

    def add(
        self, batch: pa.RecordBatch, sequence: int | None, left_out: Dropped | None = None
    ) -> bytes:
        """Number a batch and keep it; returns the serialised request.

        left_out: what was left out of the batch at the source.
        """
        number = self.next_sequence if sequence is None else sequence
        said = None if left_out is None else left_out_to_wire(left_out)
        request = append_stream_bytes(number, batch.num_rows, encoded(batch), said)
        self._waiting.append(_Sent(request, number, numbered=sequence is None))
        self.next_sequence = number + 1
        return request

    def acknowledge(self, receipt: Receipt, credits_left: int) -> Receipt:
        """The oldest batch has its receipt.

        Raises:
          FailedPrecondition: somebody else has used the number, so the batch was not stored.
        """
        sent = self._waiting.popleft()
        self.credits = max(1, credits_left)
        self.receipt = receipt
        if receipt.duplicate and sent.numbered and not sent.again:
            raise FailedPrecondition(
                f"sequence {sent.sequence} of producer {self._producer!r} in stream "
                f"{self._stream!r} was used by somebody else; give each producer its own name"
            )
        return receipt

    def skip(self, receipt: Receipt) -> None:
        """The next number has its receipt, by another way; nothing may be waiting for one."""
        assert not self._waiting
        self.next_sequence += 1
        self.receipt = receipt

    def resend(self) -> Iterator[bytes]:
        """What has no receipt, after the connection was lost: some of it may be stored."""
        for sent in self._waiting:
            sent.again = True
            yield sent.request


def hello(stream: str, producer: str, epoch: int) -> bytes:
    """The first request of an AppendStream, serialised."""
    message = ingest_pb2.AppendStreamRequest.Hello(
        stream=stream, producer=ingest_pb2.Producer(name=producer, epoch=epoch)
    )
    return ingest_pb2.AppendStreamRequest(hello=message).SerializeToString()


def epoch_after(
    described: ingest_pb2.DescribeStreamResponse, producer: str, epoch: int | None
) -> tuple[int, int]:
    """The epoch to go on in (None: the newest), and its next sequence number.

    Raises:
      StaleEpoch: a newer incarnation has written.
    """
    if not described.HasField("last"):
        return epoch or 0, 0
    last = described.last
    if epoch is None or epoch == last.epoch:
        return last.epoch, last.sequence + 1
    if epoch < last.epoch:
        raise StaleEpoch(producer, last.epoch, epoch)
    return epoch, 0
