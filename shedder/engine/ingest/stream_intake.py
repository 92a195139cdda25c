"""The door of one stream: bytes are checked, numbered and handed to the log, in one order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa

from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.records import DROPPED, FOLLOW, SUMMARISED, Batch, Built, Heartbeat, Kind
from shedder.cql.statements.bound_query import DEFAULT_TENANT, StreamSchema
from shedder.engine.ingest.drop_policy import DoorDrops
from shedder.engine.ingest.expected_rows import Owed
from shedder.engine.ingest.producer_sequences import (
    Arrival,
    Progress,
    check_replay,
    judge,
    remember,
)
from shedder.engine.ingest.tenant_queues import QueueShares
from shedder.engine.remote_summaries.validation import Checked
from shedder.errors import BadBatch, Overloaded, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import BatchLimits, decode, encode
from shedder.streams.dropped_counts import Dropped


@dataclass(slots=True, eq=False)
class Arrived:
    """A batch, or what was built of tuples elsewhere, on its way from the log to the panes.

    dropped: what was dropped at the door, or left out, of the batch that this is the rest of.
    accepted: the door's own count of rows, replays aside, when this one was durable; the ledger
    compares it with what was applied.
    """

    header: Batch | Built
    content: pa.RecordBatch | Checked
    accepted: int = 0
    dropped: Dropped | None = None
    tenant: str = DEFAULT_TENANT


class Intake:
    """Gives out positions and sequence numbers of one stream. Safe to call from any thread.

    accepted: rows made durable. duplicate: rows of replays that were acknowledged again.
    refused_batches, refused_rows: what was turned away, and the rows of it that could be counted.
    drops: says which tuples are dropped, of a stream that drops; they are acknowledged, too.
    """

    def __init__(
        self,
        stream_id: int,
        schema: StreamSchema,
        commit: GroupCommit,
        limits: BatchLimits,
        clock_us: Callable[[], int],
        queues: QueueShares | None = None,
    ) -> None:
        self.stream_id = stream_id
        self.schema = schema
        self.accepted = 0
        self.duplicate = 0
        self.refused_batches = 0
        self.refused_rows = 0
        self.durable_position = 0
        self.drops: DoorDrops | None = None
        self._commit = commit
        self._limits = limits
        self._clock_us = clock_us
        self.queues = QueueShares() if queues is None else queues
        self._lock = threading.RLock()  # A future that is done calls back at once.
        self._next_position = 0
        self._producers: dict[str, Progress] = {}
        self._durable_producers: dict[str, Progress] = {}
        self._waiting: dict[str, Future[int]] = {}
        self._owed = Owed()
        self._durable_owed = Owed()

    def restore(self, position: int, producers: dict[str, Progress], owed: Owed) -> None:
        """Go on from what was recovered."""
        with self._lock:
            self._next_position = self.durable_position = position
            self._producers = dict(producers)
            self._durable_producers = dict(producers)
            self._owed, self._durable_owed = owed.copy(), owed.copy()

    def append(
        self,
        payload: bytes | memoryview,
        *,
        producer: str,
        epoch: int,
        sequence: int | None,
        rows: int | None = None,
        summarised: bool = False,
        left_out: Dropped | None = None,
    ) -> Future[Receipt]:
        """Check a batch and hand it to the log; the receipt comes when it is durable.

        Args:
          payload: an Arrow IPC stream, from anyone.
          producer: whose batch it is; "" is anonymous and has no numbers.
          epoch: the producer's incarnation.
          sequence: the batch's number; None goes on from the last one.
          rows: that it declares, by which it was let in; None: it does not say.
          summarised: summaries of it came before; it is for the archive. Its producer's name is
            `rows_name` of theirs.
          left_out: what the producer has left out of it, by chance.

        Raises:
          BadBatch, SchemaMismatch, BadTimestamp, BatchTooLarge, SequenceGap, SequenceReused,
          StaleEpoch, Overloaded, DiskFull, StorageFailed, Draining: and nothing of the batch is
            kept.
        """
        found = 0
        try:
            batch = decode(payload, self.schema, self._limits)
            found = batch.num_rows
            if rows is not None and found != rows:
                raise BadBatch(f"the batch declares {rows:,} rows and has {found:,}")
            if summarised and left_out is not None:
                raise BadBatch("rows that follow their summaries are all there: none is left out")
            with self._lock:
                return self._admit(
                    batch, payload, producer, epoch, sequence, summarised, left_out=left_out
                )
        except Overloaded:
            raise  # Whoever sends it may wait, and try again: he counts it.
        except ShedderError:
            self.refuse(found)
            raise

    def refuse(self, rows: int) -> None:
        """Something with so many rows was turned away."""
        with self._lock:
            self.refused_batches += 1
            self.refused_rows += rows

    def append_built(
        self,
        checked: Checked,
        payload: bytes,
        *,
        producer: str,
        epoch: int,
        sequence: int | None,
        tuples_follow: bool = False,
    ) -> Future[Receipt]:
        """Hand what was built of tuples elsewhere to the log; it takes no positions.

        tuples_follow: they will come later, for the archive.

        Raises:
          BadBatch: they cannot follow.
          SequenceGap, SequenceReused, StaleEpoch, Overloaded, DiskFull, StorageFailed, Draining:
            nothing is kept.
        """
        with self._lock:
            return self._admit(checked, payload, producer, epoch, sequence, tuples_follow)

    def has(self, producer: str, epoch: int, sequence: int | None) -> bool:
        """Whether a producer's number has come before.

        Raises:
          SequenceGap, StaleEpoch.
        """
        if not producer:
            return False
        with self._lock:
            known = self._producers.get(producer)
            arrival, _ = judge(producer, known, epoch=epoch, sequence=sequence)
        return arrival is Arrival.DUPLICATE

    def progress(self, producer: str) -> Progress | None:
        """How far a producer is, durably."""
        with self._lock:
            return self._durable_producers.get(producer)

    def owed_rows(self, producer: str) -> int:
        """Rows of a producer's summaries that are to follow, durably."""
        with self._lock:
            return self._durable_owed.of(producer)

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
            self.accepted += _new_rows(header)
            arrived.accepted = self.accepted
            if header.producer:
                remember(self._durable_producers, header.producer, progress_of(header))
            _note_owed(self._durable_owed, header)

    def lost_in_flight(self) -> None:
        """The disk thread says that nothing which is not durable ever will be."""
        with self._lock:
            self._next_position = self.durable_position
            self._producers = dict(self._durable_producers)
            self._owed = self._durable_owed.copy()
            self._waiting.clear()

    def _admit(
        self,
        content: pa.RecordBatch | Checked,
        payload: bytes | memoryview,
        producer: str,
        epoch: int,
        sequence: int | None,
        flag: bool,
        *,
        left_out: Dropped | None = None,
    ) -> Future[Receipt]:
        rows = content.num_rows
        number = 0
        if producer:
            progress = self._producers.get(producer)
            arrival, number = judge(producer, progress, epoch=epoch, sequence=sequence)
            if arrival is Arrival.DUPLICATE:
                assert progress is not None
                whole = rows if left_out is None else rows + left_out.rows
                check_replay(producer, progress, sequence=number, rows=whole)
                return self._acknowledge_again(rows, producer, progress)
        if flag:
            self._check_owed(content, producer)
        here, now_us = self._next_position, self._clock_us()
        header: Batch | Built
        dropped = left_out
        if isinstance(content, pa.RecordBatch):
            kind, flags = Kind.BATCH, SUMMARISED * flag
            if self.drops is not None and not flag:
                content, at_the_door = self.drops.divide(content)
                dropped = left_out if at_the_door is None else at_the_door.and_more(left_out)
            if dropped is not None:
                payload, flags = encode(dropped.attached(content)), DROPPED
            left = content.num_rows
            header = Batch(self.stream_id, producer, epoch, number, here, left, now_us, flags)
        else:
            kind = Kind.BUILT
            flags = FOLLOW * flag
            header = Built(self.stream_id, producer, epoch, number, here, rows, now_us, flags)
        tenant = self.schema.tenant
        arrived = Arrived(header, content, dropped=dropped, tenant=tenant)
        parts = [header.to_bytes(), payload]
        size_bytes = sum(memoryview(part).nbytes for part in parts)
        self.queues.came(tenant, size_bytes)
        try:
            durable = self._commit.submit(kind, parts, arrived)
        except BaseException:
            self.queues.left(tenant, size_bytes)
            raise
        self._next_position = header.end_position
        _note_owed(self._owed, header)
        if producer:
            remember(self._producers, producer, progress_of(header))
            self._waiting[producer] = durable
            durable.add_done_callback(lambda done: self._arrived(producer, done))
        gone = 0 if dropped is None else dropped.rows
        receipt = Receipt(self.schema.name, header.end_position, header.rows, dropped=gone)
        return _when(durable, lambda: receipt)

    def _check_owed(self, content: pa.RecordBatch | Checked, producer: str) -> None:
        if isinstance(content, pa.RecordBatch):
            self._owed.check(producer, content.num_rows)
        else:
            self._owed.check_promise(producer)

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


def _new_rows(header: Batch | Built) -> int:
    """The rows that were not counted before, when summaries of them came."""
    return 0 if isinstance(header, Batch) and header.flags & SUMMARISED else header.rows


def _note_owed(owed: Owed, header: Batch | Built) -> None:
    if isinstance(header, Batch):
        if header.flags & SUMMARISED:
            owed.settle(header.producer, header.rows)
    elif header.flags & FOLLOW:
        owed.promise(header.producer, header.rows)


def progress_of(header: Batch | Built) -> Progress:
    """Where a producer stands after this batch, or what was built of tuples."""
    is_rest = isinstance(header, Batch) and header.flags & DROPPED
    rows = None if is_rest else header.rows
    return Progress(header.epoch, header.sequence, header.end_position, rows)


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
