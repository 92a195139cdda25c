"""Progress of producers, as clients ask for it."""

from __future__ import annotations

from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.producer_sequences import Content
from shedder.engine.ingest.stream_producers import StreamProducers
from shedder.errors import UnknownStream


class ProducersProgress:
    """Reports the progress of producers. Safe from any thread."""

    def __init__(self, core: EngineState) -> None:
        self._core = core

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """Return (epoch, sequence) of a producer's last durable push; None: it has none.

        All batches of that push are durable. Before the first such push the sequence is -1.
        """
        progress = self._producers(stream).progress(producer)
        return None if progress is None else (progress.epoch, progress.last_whole)

    def next_sequence(self, stream: str, producer: str, epoch: int) -> int:
        """Return the number of a producer's next push, after the pushes that are in the queue.

        Raises:
          UnknownStream. SequenceGap: the rest of a push is missing.
        """
        return self._producers(stream).next_sequence(producer, epoch)

    def open_rows(self, stream: str, producer: str) -> int:
        """Return the durable rows of the push after the last one that is durable as a whole."""
        progress = self._producers(stream).progress(producer)
        return 0 if progress is None else progress.open_rows

    def contents(self, stream: str, producer: str) -> tuple[Content, ...]:
        """Return the contents of a producer's newest pushes, with which a retry is compared."""
        progress = self._producers(stream).progress(producer)
        return () if progress is None else progress.contents

    def epoch_min(self, stream: str, producer: str) -> int:
        """Return the smallest epoch in which an unknown producer may begin; 0: not forgotten."""
        return self._producers(stream).epoch_min(producer)

    def rows_to_follow(self, stream: str, producer: str) -> int:
        """Return the rows that a producer's durable summaries announce and that have not come."""
        return self._producers(stream).rows_to_follow(producer)

    def _producers(self, stream: str) -> StreamProducers:
        """Return a stream's producers, whether or not the queue has room."""
        intake = self._core.intakes.get(stream)
        if intake is None:
            raise UnknownStream(stream, list(self._core.intakes))
        return intake.producers
