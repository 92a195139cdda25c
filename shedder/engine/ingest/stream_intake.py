"""Intake of one stream: batches are checked, numbered and handed to the log, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pyarrow as pa

from shedder.archive.log.log_queue import LogQueue
from shedder.archive.log.records import (
    DROPPED,
    FOLLOW,
    SUMMARISED,
    Batch,
    Built,
    Heartbeat,
    Idle,
    PushEnd,
    RecordType,
)
from shedder.cql.statements.bound_query import StreamSchema
from shedder.engine.ingest.arrival_watermark import ArrivalWatermark
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.ingest.batch_checks import check_batch
from shedder.engine.ingest.drop_policy import DropPolicy
from shedder.engine.ingest.durable_progress import DurableProgress
from shedder.engine.ingest.expected_rows import ExpectedRows
from shedder.engine.ingest.following_receipt import following
from shedder.engine.ingest.known_producers import KnownProducers
from shedder.engine.ingest.numbered_part import ANONYMOUS, NumberedPart
from shedder.engine.ingest.producer_memory import ProducerLimits, ProducerMemory
from shedder.engine.ingest.producer_sequences import Arrival, PushProgress, judge, progress_after
from shedder.engine.ingest.replays import Replays
from shedder.engine.ingest.stream_producers import StreamProducers
from shedder.engine.ingest.tenant_queues import TenantQueues
from shedder.engine.remote_summaries.validation import ValidatedSummaries
from shedder.errors import (
    FailedPrecondition,
    Overloaded,
    QuotaExceeded,
    ShedderError,
)
from shedder.queries.answers.database_api import Receipt
from shedder.streams.batches import BatchLimits, decode, encode
from shedder.streams.content_fingerprint import fingerprint
from shedder.streams.dropped_counts import Dropped
from shedder.streams.push_parts import WHOLE, Part
from shedder.streams.watermark import Watermark


class Intake:
    """Gives out positions and sequence numbers of one stream. Safe to call from any thread.

    durable: what the disk thread has made durable.
    producers: how far each producer is.
    duplicate: rows of replays that were acknowledged again.
    refused_batches, refused_rows: what was turned away, and the rows of it that could be counted.
    drops: says which tuples are dropped, of a stream that drops; they are acknowledged, too.
    losses: how often records on their way to the disk were lost.
    submitted: batches, summaries and heartbeats that were handed to the log since the start.
    """

    def __init__(
        self,
        stream_id: int,
        schema: StreamSchema,
        log_queue: LogQueue,
        limits: BatchLimits,
        clock_us: Callable[[], int],
        queues: TenantQueues | None = None,
        *,
        memory: ProducerMemory | None = None,
        future_us_max: int = 0,
    ) -> None:
        """memory: of producers, of all streams. future_us_max: as of the stream's watermark."""
        self.stream_id = stream_id
        self.schema = schema
        self.duplicate = 0
        self.refused_batches = 0
        self.refused_rows = 0
        self.losses = 0
        self.submitted = 0
        self.drops: DropPolicy | None = None
        self._log_queue = log_queue
        self._limits = limits
        self._clock_us = clock_us
        self.queues = TenantQueues() if queues is None else queues
        self._lock = threading.RLock()  # A future that is done calls back at once.
        self._next_position = 0
        memory = ProducerMemory(ProducerLimits()) if memory is None else memory
        watermark = Watermark(schema.lateness_us, future_us_max)
        self.durable = DurableProgress(
            self._lock,
            KnownProducers(memory, tenant=schema.tenant),
            ArrivalWatermark(watermark, schema.time_column),
        )
        self.producers = StreamProducers(self._lock, self.durable)
        self._expected_rows = ExpectedRows()
        self._replays = Replays()

    def restore(
        self,
        position: int,
        producers: KnownProducers,
        expected_rows: ExpectedRows,
        watermark: Watermark,
        *,
        accepted: int,
    ) -> None:
        """Go on from what was recovered."""
        with self._lock:
            self.durable.restore(
                position,
                producers,
                expected_rows,
                watermark,
                accepted=accepted,
                time_column=self.schema.time_column,
            )
            self._next_position = position
            self._expected_rows = expected_rows.copy()

    def drop_by(self, drops: DropPolicy | None) -> None:
        """From the next batch on, drop tuples as these say; None: none."""
        self.drops = drops

    def close(self) -> None:
        """Forget the producers of a dropped stream."""
        with self._lock:
            self.durable.producers.close()

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
        part: Part = WHOLE,
    ) -> Future[Receipt]:
        """Check a batch and hand it to the log; the receipt comes when it is durable.

        Args:
          payload: an Arrow IPC stream from an untrusted sender.
          producer: whose batch it is; "" is anonymous and has no numbers.
          epoch: the producer's incarnation.
          sequence: the number of its push; None goes on from the last one.
          rows: that it declares, by which it was let in; None: it does not say.
          summarised: summaries of it came before; it is for the archive. Its producer's name is
            `rows_name` of theirs.
          left_out: what the producer has left out of it, by chance.
          part: its place in its push; without a name, a push has no parts.

        Raises:
          BadBatch, SchemaMismatch, BadTimestamp, BatchTooLarge, SequenceGap, SequenceReused,
          StaleEpoch, ProducerForgotten, QuotaExceeded, Overloaded, DiskFull, StorageFailed,
          Draining: and nothing of the batch is kept.
        """
        found = 0
        try:
            batch = decode(payload, self.schema, self._limits)
            found = batch.num_rows
            check_batch(found, rows=rows, summarised=summarised, left_out=left_out, part=part)
            is_whole = left_out is None and not part.skipped
            hashed = fingerprint(batch, part.first_row) if producer and is_whole else None
            with self._lock:
                return self._take(
                    batch,
                    payload,
                    producer,
                    epoch,
                    sequence,
                    summarised,
                    part=part,
                    hashed=hashed,
                    left_out=left_out,
                )
        except (Overloaded, QuotaExceeded):
            raise  # `Admission.counted` counts the refusal.
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
        checked: ValidatedSummaries,
        payload: bytes,
        *,
        producer: str,
        epoch: int,
        sequence: int | None,
        tuples_follow: bool = False,
        part: Part = WHOLE,
    ) -> Future[Receipt]:
        """Hand what was built of tuples elsewhere to the log; it takes no positions.

        tuples_follow: they will come later, for the archive. part: its place in its push.

        Raises:
          BadBatch: they cannot follow.
          SequenceGap, SequenceReused, StaleEpoch, ProducerForgotten, QuotaExceeded, Overloaded,
          DiskFull, StorageFailed, Draining: nothing is kept.
        """
        with self._lock:
            return self._take(
                checked, payload, producer, epoch, sequence, tuples_follow, part=part, hashed=None
            )

    def append_made(
        self, rows: pa.RecordBatch, producer: str, *, end_row: int, losses: int
    ) -> Future[int] | None:
        """Append rows that a standing query has made; their log sequence when they are durable.

        None: records were lost since `losses` was read, and rows before these may be missing.

        producer: name of the query's records. end_row: number behind the last row.

        Raises:
          DiskFull, StorageFailed, Draining: nothing is kept.
        """
        push = PushEnd(end_row, None, is_last=False)
        with self._lock:
            if losses != self.losses:
                return None
            at, count, now_us = self._next_position, rows.num_rows, self._clock_us()
            header = Batch(self.stream_id, producer, 0, 0, at, count, now_us, push=push)
            arrived = PendingRecord(header, rows, tenant=self.schema.tenant)
            durable = self._submit(RecordType.BATCH, arrived, encode(rows), urgent=True)
            self._note_times(arrived)
            return durable

    def heartbeat(self, watermark_us: int, *, urgent: bool = False) -> Future[int]:
        """Log a promise that nothing earlier will come; its log sequence when it is durable.

        urgent: as of `LogQueue.submit`.
        """
        header = Heartbeat(self.stream_id, watermark_us, self._clock_us())
        with self._lock:
            parts = [header.to_bytes()]
            durable = self._log_queue.submit(RecordType.HEARTBEAT, parts, header, urgent=urgent)
            self.submitted += 1
            self.durable.watermark.promise(watermark_us, header.arrival_us)
        return durable

    def count_idle(self, submitted: int) -> bool:
        """Log that the stream counts as idle; False: it has handed more records to the log.

        So no record that came before this one is on its way to the disk.

        submitted: what `submitted` was when the stream was found to be silent.

        Raises:
          DiskFull, StorageFailed, Draining.
        """
        header = Idle(self.stream_id, self._clock_us())
        with self._lock:
            if submitted != self.submitted:
                return False
            self._log_queue.submit(RecordType.IDLE, [header.to_bytes()], header, urgent=True)
        return True

    def lost_in_flight(self) -> None:
        """The disk thread says that nothing which is not durable ever will be."""
        with self._lock:
            self.losses += 1
            self._next_position = self.durable.position
            self.producers.in_flight.clear()
            self._expected_rows = self.durable.expected_rows.copy()
            self.durable.watermark.go_back()

    def _take(
        self,
        content: pa.RecordBatch | ValidatedSummaries,
        payload: bytes | memoryview,
        producer: str,
        epoch: int,
        sequence: int | None,
        flag: bool,
        *,
        part: Part,
        hashed: int | None,
        left_out: Dropped | None = None,
    ) -> Future[Receipt]:
        """Store a batch, acknowledge it again, or store the rows of it that are not stored."""
        if not producer:
            return self._admit(content, payload, ANONYMOUS, flag, left_out)
        rows = content.num_rows + part.skipped
        rows += 0 if left_out is None else left_out.rows
        known = self.producers.known(producer)
        self.durable.producers.check_epoch(producer, known, epoch)
        arrival, number = judge(
            producer, known, epoch=epoch, sequence=sequence, part=part, rows=rows
        )
        numbered = NumberedPart(producer, epoch, number, part, rows, hashed, known)
        self.durable.producers.check_room(producer, known, self._clock_us())
        if arrival is Arrival.NEXT:
            return self._admit(content, payload, numbered, flag, left_out)
        assert known is not None
        if arrival is Arrival.DUPLICATE:
            self._replays.check(
                producer, known, sequence=number, part=part, rows=rows, fingerprint=hashed
            )
            return self._reacknowledge(content.num_rows, producer, known)
        if not isinstance(content, pa.RecordBatch) or hashed is None:
            raise FailedPrecondition(
                f"{known.open_rows:,} rows of sequence {number} of producer {producer!r} are "
                f"stored, and {rows:,} come from row {part.first_row:,} on as something that "
                "cannot be divided; send this push in the batches that it was in"
            )
        return self._admit_rest(content, numbered, known, flag)

    def _admit_rest(
        self, batch: pa.RecordBatch, numbered: NumberedPart, known: PushProgress, flag: bool
    ) -> Future[Receipt]:
        """Compare the rows of a batch that are stored, and store the others."""
        producer, number, part = numbered.producer, numbered.number, numbered.part
        here = known.open_rows - part.first_row
        stored, rest = batch.slice(0, here), batch.slice(here)
        self._replays.check(
            producer,
            known,
            sequence=number,
            part=Part(part.first_row, is_last=False),
            rows=here,
            fingerprint=fingerprint(stored, part.first_row),
        )
        place = Part(known.open_rows, is_last=part.is_last)
        new = NumberedPart(
            producer,
            numbered.epoch,
            number,
            place,
            rest.num_rows,
            fingerprint(rest, place.first_row),
            known,
            stored_before=here,
        )
        return self._admit(rest, encode(rest), new, flag, None)

    def _admit(
        self,
        content: pa.RecordBatch | ValidatedSummaries,
        payload: bytes | memoryview,
        numbered: NumberedPart,
        flag: bool,
        left_out: Dropped | None,
    ) -> Future[Receipt]:
        rows, producer, push = content.num_rows, numbered.producer, numbered.push
        epoch, number = numbered.epoch, numbered.number
        if flag:
            self._check_expected(content, producer)
        here, now_us = self._next_position, self._clock_us()
        header: Batch | Built
        dropped = left_out
        if isinstance(content, pa.RecordBatch):
            kind, flags = RecordType.BATCH, SUMMARISED * flag
            if self.drops is not None and not flag:
                content, at_the_door = self.drops.divide(content)
                dropped = left_out if at_the_door is None else at_the_door.and_more(left_out)
            if dropped is not None:
                payload, flags = encode(dropped.attached(content)), DROPPED
            left = content.num_rows
            header = Batch(self.stream_id, producer, epoch, number, here, left, now_us, flags, push)
        else:
            kind = RecordType.BUILT
            flags = FOLLOW * flag
            header = Built(self.stream_id, producer, epoch, number, here, rows, now_us, flags, push)
        arrived = PendingRecord(header, content, dropped=dropped, tenant=self.schema.tenant)
        durable = self._submit(kind, arrived, payload)
        self._expected_rows.note(header)
        late = self._note_times(arrived)
        if producer:
            self.producers.in_flight.note(
                producer, progress_after(numbered.progress, header), durable
            )
        receipt = Receipt(
            self.schema.name,
            header.end_position,
            header.rows + numbered.stored_before,
            dropped=0 if dropped is None else dropped.rows,
            late=late,
        )
        return following(durable, lambda: receipt)

    def _submit(
        self,
        kind: RecordType,
        arrived: PendingRecord,
        payload: bytes | memoryview,
        *,
        urgent: bool = False,
    ) -> Future[int]:
        """Hand a record to the log, and count its positions."""
        parts = [arrived.header.to_bytes(), payload]
        size_bytes = sum(memoryview(part).nbytes for part in parts)
        self.queues.came(arrived.tenant, size_bytes)
        try:
            durable = self._log_queue.submit(kind, parts, arrived, urgent=urgent)
        except BaseException:
            self.queues.left(arrived.tenant, size_bytes)
            raise
        self._next_position = arrived.header.end_position
        self.submitted += 1
        return durable

    def _note_times(self, arrived: PendingRecord) -> int:
        """Move the watermark of arrivals; return the number of late rows."""
        header, content = arrived.header, arrived.content
        if isinstance(content, ValidatedSummaries):
            if content.summaries.rows:
                arrived.believe(content.summaries.newest_us)
                self.durable.watermark.observe(content.summaries.newest_us, header.arrival_us)
            return 0
        if header.flags & SUMMARISED:
            return 0
        late, newest_us = self.durable.watermark.take(content, header.arrival_us)
        arrived.believe(newest_us)
        return late

    def _check_expected(self, content: pa.RecordBatch | ValidatedSummaries, producer: str) -> None:
        if isinstance(content, pa.RecordBatch):
            self._expected_rows.check(producer, content.num_rows)
        else:
            self._expected_rows.check_promise(producer)

    def _reacknowledge(self, rows: int, producer: str, progress: PushProgress) -> Future[Receipt]:
        """A replay's receipt, given only when the first copy is durable."""
        again = Receipt(self.schema.name, progress.position, rows, duplicate=True)

        def count() -> Receipt:
            with self._lock:
                self.duplicate += rows
            return again

        return following(self.producers.in_flight.newest(producer), count)
