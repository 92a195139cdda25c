"""Producers of one stream: how far each is, durably and with what is on its way to the disk."""

from __future__ import annotations

import threading

from shedder.engine.ingest.durable_progress import DurableProgress
from shedder.engine.ingest.known_producers import ProducerState
from shedder.engine.ingest.producer_sequences import Arrival, PushProgress, judge
from shedder.engine.ingest.producers_in_flight import ProducersInFlight
from shedder.errors import SequenceGap
from shedder.streams.push_parts import WHOLE, Part


class StreamProducers:
    """Progress of the producers of one stream. Safe to call from any thread.

    in_flight: records that are on their way. The caller holds the lock.
    """

    def __init__(self, lock: threading.RLock, durable: DurableProgress) -> None:
        """lock: of the intake. durable: has the producers that are known durably."""
        self.in_flight = ProducersInFlight(lock)
        self._lock = lock
        self._durable = durable

    def known(self, producer: str) -> PushProgress | None:
        """Return a producer's progress with pushes on their way. The caller holds the lock."""
        return self.in_flight.progress(producer) or self._durable.producers.get(producer)

    def has(
        self, producer: str, epoch: int, sequence: int | None, *, rows: int, part: Part = WHOLE
    ) -> bool:
        """Return whether these rows of a producer's push have come before.

        Raises:
          SequenceGap, StaleEpoch.
        """
        if not producer:
            return False
        with self._lock:
            known = self.known(producer)
            arrival, _ = judge(
                producer, known, epoch=epoch, sequence=sequence, part=part, rows=rows
            )
        return arrival is Arrival.DUPLICATE

    def progress(self, producer: str) -> PushProgress | None:
        """Return how far a producer is, durably."""
        with self._lock:
            return self._durable.producers.get(producer)

    def next_sequence(self, producer: str, epoch: int) -> int:
        """Return the number of a producer's next push, after all that are on their way.

        Raises:
          SequenceGap: the rest of a push is missing, and it must be pushed again as it was.
        """
        with self._lock:
            known = self.known(producer)
        if known is None or known.epoch != epoch:
            return 0
        if not known.is_whole:
            number = known.sequence
            raise SequenceGap(producer, number, number + 1, rows=known.open_rows)
        return known.sequence + 1

    def epoch_min(self, producer: str) -> int:
        """The smallest epoch in which an unknown producer may begin; 0: it was not forgotten."""
        with self._lock:
            return self._durable.producers.epoch_min(producer)

    def rows_to_follow(self, producer: str) -> int:
        """Rows of a producer's summaries that are to follow, durably."""
        with self._lock:
            return self._durable.expected_rows.of(producer)

    def state(self) -> ProducerState:
        """Return the durable progress of all producers."""
        with self._lock:
            return self._durable.producers.state()
