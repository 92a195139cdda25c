"""Progress of producers, as clients ask for it."""

from __future__ import annotations

from abc import ABC

from shedder.engine.engine_state import Core
from shedder.engine.ingest.producer_sequences import Content
from shedder.engine.ingest.stream_intake import Intake
from shedder.errors import UnknownStream


class ProducersProgress(ABC):  # a part of the engine, never made alone
    """The part of the engine that reports the progress of producers. Safe from any thread."""

    core: Core

    def last_sequence(self, stream: str, producer: str) -> tuple[int, int] | None:
        """(epoch, sequence) of the last durable push of a producer; None: it has none.

        Of a push, all batches must be durable: the sequence is -1 before the first such push.
        """
        progress = self._intake(stream).progress(producer)
        return None if progress is None else (progress.epoch, progress.last_whole)

    def next_sequence(self, stream: str, producer: str, epoch: int) -> int:
        """The number of a producer's next push, after those that are on their way.

        Raises:
          UnknownStream. SequenceGap: the rest of a push is missing.
        """
        return self._intake(stream).next_sequence(producer, epoch)

    def open_rows(self, stream: str, producer: str) -> int:
        """Durable rows of the push after the last one that is durable as a whole."""
        progress = self._intake(stream).progress(producer)
        return 0 if progress is None else progress.open_rows

    def contents(self, stream: str, producer: str) -> tuple[Content, ...]:
        """What a retry of a producer is compared with: its newest pushes."""
        progress = self._intake(stream).progress(producer)
        return () if progress is None else progress.contents

    def epoch_min(self, stream: str, producer: str) -> int:
        """The smallest epoch in which an unknown producer may begin; 0: it was not forgotten."""
        return self._intake(stream).epoch_min(producer)

    def _intake(self, stream: str) -> Intake:
        """The door of a stream, be there room behind it or not."""
        intake = self.core.intakes.get(stream)
        if intake is None:
            raise UnknownStream(stream, list(self.core.intakes))
        return intake

    def owed_rows(self, stream: str, producer: str) -> int:
        """Rows whose summaries a producer has sent, and which are to follow, durably."""
        return self._intake(stream).owed_rows(producer)
