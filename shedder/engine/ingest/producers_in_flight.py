"""Progress of producers whose records are on their way to the disk."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import AbstractContextManager

from shedder.engine.ingest.producer_sequences import PushProgress


class ProducersInFlight:
    """The newest record of each producer, until it is durable. The caller holds the lock.

    lock: of the stream. A record that becomes durable takes it, too.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self._progress: dict[str, PushProgress] = {}
        self._records: dict[str, Future[int]] = {}

    def note(self, producer: str, progress: PushProgress, durable: Future[int]) -> None:
        """Note a record, and how far its producer is once the record is durable."""
        self._progress[producer] = progress
        self._records[producer] = durable
        durable.add_done_callback(lambda done: self._arrived(producer, done))

    def progress(self, producer: str) -> PushProgress | None:
        """Return how far a producer will be; None: nothing of it is on its way."""
        return self._progress.get(producer)

    def newest(self, producer: str) -> Future[int]:
        """Return the future of a producer's newest record, which is done if it is durable."""
        record = self._records.get(producer)
        if record is None:
            record = Future()
            record.set_result(-1)
        return record

    def clear(self) -> None:
        """Forget all records: they are lost."""
        self._progress.clear()
        self._records.clear()

    def _arrived(self, producer: str, done: Future[int]) -> None:
        with self._lock:
            if self._records.get(producer) is done:
                del self._records[producer], self._progress[producer]
