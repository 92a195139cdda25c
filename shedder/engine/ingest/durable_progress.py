"""Durable progress of one stream's intake: its positions, rows and producers on disk."""

from __future__ import annotations

import threading

from shedder.archive.log.records import SUMMARISED, Batch, Built, Heartbeat
from shedder.engine.ingest.arrival_watermark import ArrivalWatermark
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.ingest.expected_rows import ExpectedRows
from shedder.engine.ingest.known_producers import KnownProducers
from shedder.engine.ingest.producer_sequences import progress_after
from shedder.streams.watermark import Watermark


class DurableProgress:
    """Progress that the disk thread has made durable, in the order of the log.

    position: one past the last durable tuple.
    accepted: durable rows. Rows that follow their summaries do not count again.
    producers: the durable progress of each producer.
    expected_rows: durable rows of summaries whose tuples are still to come.
    watermark: the watermark in the order of arrival.
    """

    def __init__(
        self, lock: threading.RLock, producers: KnownProducers, watermark: ArrivalWatermark
    ) -> None:
        """lock: of the intake, which reads and writes the same producers and watermark."""
        self.position = 0
        self.accepted = 0
        self.producers = producers
        self.expected_rows = ExpectedRows()
        self.watermark = watermark
        self._lock = lock

    def restore(
        self,
        position: int,
        producers: KnownProducers,
        expected_rows: ExpectedRows,
        watermark: Watermark,
        *,
        accepted: int,
        time_column: str,
    ) -> None:
        """Go on from what was recovered."""
        with self._lock:
            self.position, self.accepted = position, accepted
            self.producers.close()
            self.producers, self.expected_rows = producers, expected_rows.copy()
            self.watermark = ArrivalWatermark(watermark, time_column)

    def note(self, arrived: PendingRecord) -> None:
        """Note that a batch, or summaries, are on disk. Called by the disk thread."""
        header = arrived.header
        with self._lock:
            self.position = header.end_position
            self.accepted += _new_rows(header)
            arrived.number(self.accepted)
            if header.producer:
                progress = progress_after(self.producers.get(header.producer), header)
                self.producers.note(header.producer, progress, header.arrival_us)
            self.watermark.durable(arrived.newest_us, header.arrival_us)
            self.expected_rows.note(header)

    def note_promise(self, header: Heartbeat) -> None:
        """Note that a heartbeat is on disk. Called by the disk thread."""
        with self._lock:
            self.watermark.durable_promise(header.watermark_us, header.arrival_us)


def _new_rows(header: Batch | Built) -> int:
    """The rows that were not counted before, when summaries of them came."""
    return 0 if isinstance(header, Batch) and header.flags & SUMMARISED else header.rows
