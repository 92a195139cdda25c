"""Push into the engine of this process: split, encode, append and await receipts."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shedder.engine.admission.stream_ingest import Ingest
from shedder.errors import FailedPrecondition, Overloaded
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import encode
from shedder.streams.push_parts import WHOLE, Part, parts_of

IN_FLIGHT = 16  # Batches: enough for one group to gather while another is being fsynced.
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class _Sent:
    """A batch before it is durable. is_fresh: its number cannot have been stored yet."""

    receipt: Future[Receipt]
    part: Part
    is_fresh: bool


class Pipeline:
    """Batches of one producer, several on their way to the disk at once. For one thread.

    receipt: of the newest push, as far as it is known to be durable; rows 0 before the first.
    """

    def __init__(self, ingest: Ingest, stream: str, *, producer: str, epoch: int) -> None:
        self._ingest = ingest
        self._stream = stream
        self._producer = producer
        self._epoch = epoch
        self._waiting: deque[_Sent] = deque()
        self.receipt = Receipt(stream, 0, 0)

    def send(
        self,
        batch: pa.RecordBatch,
        sequence: int | None,
        part: Part = WHOLE,
        *,
        is_fresh: bool = False,
    ) -> None:
        """Hand over one batch; waits while there is no room, as a producer in this process can.

        Args:
          batch: of exactly the stream's columns.
          sequence: the number of its push; None goes on from the last one.
          part: its place in its push.
          is_fresh: no earlier push used this number, so a replay is a mistake.

        Raises:
          ShedderError: this batch was refused, or an earlier one was lost.
        """
        future = self._append_patiently(encode(batch), batch.num_rows, sequence, part)
        self._waiting.append(_Sent(future, part, is_fresh))
        if len(self._waiting) > IN_FLIGHT:
            self._await_oldest()

    def settle(self) -> None:
        """Wait until nothing is on its way, whatever came of it."""
        wait_for([sent.receipt for sent in self._waiting])

    def drain(self) -> Receipt:
        """Wait until everything is durable; the last push's receipt.

        Raises:
          ShedderError: a batch was lost.
        """
        while self._waiting:
            self._await_oldest()
        return self.receipt

    def _await_oldest(self) -> None:
        sent = self._waiting.popleft()
        receipt = sent.receipt.result()
        self.receipt = self.receipt.and_rest(receipt) if sent.part.first_row else receipt
        if sent.is_fresh and receipt.duplicate:
            raise FailedPrecondition(
                f"numbers of producer {self._producer!r} in stream {self._stream!r} were used by "
                "another producer; give each producer its own name"
            )

    def _append_patiently(
        self, payload: bytes, rows: int, sequence: int | None, part: Part
    ) -> Future[Receipt]:
        while True:
            try:
                return self._ingest.append(
                    self._stream,
                    payload,
                    producer=self._producer,
                    epoch=self._epoch,
                    sequence=sequence,
                    rows=rows,
                    will_retry=True,
                    part=part,
                )
            except Overloaded:
                # Nothing of ours may be waiting, so the pause bounds how often we ask.
                ours = [sent.receipt for sent in self._waiting]
                wait_for(ours or [Future()], timeout=_PAUSE_S)


def push(
    ingest: Ingest, stream: str, data: Any, *, producer: str, epoch: int, sequence: int | None
) -> Receipt:
    """Append everything in `data` as one push, under one number; the receipt of all of it.

    Raises:
      SchemaMismatch, BadTimestamp, SequenceGap, SequenceReused, StaleEpoch, ProducerForgotten,
      DiskFull, StorageFailed. Batches before the one that failed are durable; under the same
      number, the same data stores the rest.
    """
    pipeline = Pipeline(ingest, stream, producer=producer, epoch=epoch)
    next_number = None
    if producer and sequence is None:
        next_number = ingest.producers.next_sequence(stream, producer, epoch)
    schema, ends_at_error = ingest.schema(stream), sequence is None
    try:
        for part, batch in parts_of(data, schema, ingest.limits, ends_at_error=ends_at_error):
            if part == WHOLE and sequence is None:  # The engine numbers the push.
                if producer or batch.num_rows:
                    pipeline.send(batch, None)
            else:
                pipeline.send(batch, next_number if sequence is None else sequence, part)
    finally:
        pipeline.settle()  # Also when a batch does not fit: those before it are durable.
    return pipeline.drain()
