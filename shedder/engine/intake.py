"""The door of one stream: bytes are checked, numbered and handed to the log, in one order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from shedder.archive.commit import GroupCommit
from shedder.archive.records import Batch, Heartbeat, Kind
from shedder.cql.query import StreamSchema
from shedder.engine.producers import Arrival, Progress, judge, remember
from shedder.errors import ShedderError
from shedder.queries.database import Receipt
from shedder.streams.batches import BatchLimits, decode


@dataclass(slots=True, eq=False)
class Arrived:
    """A batch on its way from the log to the panes.

    accepted: the door's own count of rows, replays aside, when this one was durable; the ledger
    compares it with what was applied.
    """

    header: Batch
    batch: pa.RecordBatch
    accepted: int = 0


class Intake:
    """Gives out positions and sequence numbers of one stream. Safe to call from any thread.

    accepted: rows made durable. duplicate: rows of replays that were acknowledged again.
    refused_batches, refused_rows: what was turned away, and the rows of it that could be counted.
    """

    def __init__(
        self,
        stream_id: int,
        schema: StreamSchema,
        commit: GroupCommit,
        limits: BatchLimits,
        clock_us: Callable[[], int],
    ) -> None:
        self.stream_id = stream_id
        self.schema = schema
        self.accepted = 0
        self.duplicate = 0
        self.refused_batches = 0
        self.refused_rows = 0
        self.durable_position = 0
        self._commit = commit
        self._limits = limits
        self._clock_us = clock_us
        self._lock = threading.RLock()  # A future that is done calls back at once.
        self._next_position = 0
        self._producers: dict[str, Progress] = {}
        self._durable_producers: dict[str, Progress] = {}
        self._waiting: dict[str, Future[int]] = {}

    def restore(self, position: int, producers: dict[str, Progress]) -> None:
        """Go on from what was recovered."""
        with self._lock:
            self._next_position = self.durable_position = position
            self._producers = dict(producers)
            self._durable_producers = dict(producers)

    def append(
        self, payload: bytes, *, producer: str, epoch: int, sequence: int | None
    ) -> Future[Receipt]:
        """Check a batch and hand it to the log; the receipt comes when it is durable.

        Args:
          payload: an Arrow IPC stream, from anyone.
          producer: whose batch it is; "" is anonymous and has no numbers.
          epoch: the producer's incarnation.
          sequence: the batch's number; None goes on from the last one.

        Raises:
          BadBatch, SchemaMismatch, BadTimestamp, BatchTooLarge, SequenceGap, StaleEpoch,
          Overloaded, DiskFull, StorageFailed, Draining: and nothing of the batch is kept.
        """
        rows = 0
        try:
            batch = decode(payload, self.schema, self._limits)
            rows = batch.num_rows
            with self._lock:
                return self._admit(batch, payload, producer, epoch, sequence)
        except ShedderError:
            with self._lock:
                self.refused_batches += 1
                self.refused_rows += rows
            raise

    def progress(self, producer: str) -> Progress | None:
        """How far a producer is, durably."""
        with self._lock:
            return self._durable_producers.get(producer)

    def producers(self) -> dict[str, Progress]:
        """How far everybody is, durably."""
        with self._lock:
            return dict(self._durable_producers)

    def heartbeat(self, watermark_us: int) -> Future[int]:
        """Log a promise that nothing earlier will come; its log sequence when it is durable."""
        header = Heartbeat(self.stream_id, watermark_us, self._clock_us())
        return self._commit.submit(Kind.HEARTBEAT, [header.to_bytes()], header)

    def made_durable(self, arrived: Arrived) -> None:
        """The disk thread says, in log order, that a batch is on disk."""
        header = arrived.header
        with self._lock:
            self.durable_position = header.end_position
            self.accepted += header.rows
            arrived.accepted = self.accepted
            if header.producer:
                remember(self._durable_producers, header.producer, progress_of(header))

    def lost_in_flight(self) -> None:
        """The disk thread says that nothing which is not durable ever will be."""
        with self._lock:
            self._next_position = self.durable_position
            self._producers = dict(self._durable_producers)
            self._waiting.clear()

    def _admit(
        self, batch: pa.RecordBatch, payload: bytes, producer: str, epoch: int, sequence: int | None
    ) -> Future[Receipt]:
        number = 0
        if producer:
            progress = self._producers.get(producer)
            arrival, number = judge(producer, progress, epoch=epoch, sequence=sequence)
            if arrival is Arrival.DUPLICATE:
                assert progress is not None
                return self._acknowledge_again(batch.num_rows, producer, progress)
        header = Batch(
            stream=self.stream_id,
            producer=producer,
            epoch=epoch,
            sequence=number,
            first_position=self._next_position,
            rows=batch.num_rows,
            arrival_us=self._clock_us(),
        )
        durable = self._commit.submit(
            Kind.BATCH, [header.to_bytes(), payload], Arrived(header, batch)
        )
        self._next_position = header.end_position
        if producer:
            remember(self._producers, producer, progress_of(header))
            self._waiting[producer] = durable
            durable.add_done_callback(lambda done: self._arrived(producer, done))
        receipt = Receipt(self.schema.name, header.end_position, header.rows)
        return _when(durable, lambda: receipt)

    def _arrived(self, producer: str, done: Future[int]) -> None:
        with self._lock:
            if self._waiting.get(producer) is done:
                del self._waiting[producer]

    def _acknowledge_again(self, rows: int, producer: str, progress: Progress) -> Future[Receipt]:
        """A replay's receipt, given only when the first copy is durable."""
        again = Receipt(self.schema.name, progress.position, rows, duplicate=True)

        def count() -> Receipt:
            with self._lock:
                self.duplicate += rows
            return again

        waiting = self._waiting.get(producer)
        if waiting is None:
            waiting = Future()
            waiting.set_result(-1)
        return _when(waiting, count)


def progress_of(header: Batch) -> Progress:
    """Where a producer stands after this batch."""
    return Progress(header.epoch, header.sequence, header.end_position, header.rows)


def _when(durable: Future[int], result: Callable[[], Receipt]) -> Future[Receipt]:
    """A future that follows another one."""
    receipt: Future[Receipt] = Future()

    def settle(done: Future[int]) -> None:
        error = done.exception()
        if error is None:
            receipt.set_result(result())
        else:
            receipt.set_exception(error)

    durable.add_done_callback(settle)
    return receipt
