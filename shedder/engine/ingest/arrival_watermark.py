"""The watermark of a stream in the order of arrival, which counts late rows for receipts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from shedder.streams.frame import Frame
from shedder.streams.watermark import Watermark


class ArrivalWatermark:
    """The watermark of a stream in the order of its log, ahead of the apply thread.

    Batches are applied in the order in which the door takes them, so the count of late rows is the
    one that the stream will have. For one thread.
    """

    def __init__(self, watermark: Watermark, time_column: str) -> None:
        """watermark: of the stream, as it was recovered."""
        self._durable = replace(watermark)
        self._watermark = replace(watermark)
        self._time_column = time_column

    def take(self, batch: pa.RecordBatch, arrival_us: int) -> tuple[int, int | None]:
        """Count the late rows of a batch, then let it move the watermark.

        Returns:
          The rows with an event time before the watermark, and the newest event time that is not
          too far in the future; None: there is none.
        """
        if not batch.num_rows:
            return 0, None
        frame, before = Frame(batch, self._time_column), self._watermark.value_us
        oldest_us, newest_us = frame.time_ends_us
        late = 0
        if before is not None and oldest_us < before:
            late = int(np.count_nonzero(frame.times_us < before))
        limit_us = self._watermark.limit_us(arrival_us)
        believed: int | None = newest_us
        if newest_us > limit_us:
            times = frame.times_us[frame.times_us <= limit_us]
            believed = int(times.max()) if len(times) else None
        if believed is not None:
            self._watermark.observe(believed, arrival_us)
        return late, believed

    def observe(self, newest_us: int, arrival_us: int) -> None:
        """Move the watermark by summaries of tuples up to this event time."""
        self._watermark.observe(newest_us, arrival_us)

    def promise(self, watermark_us: int, arrival_us: int) -> None:
        """Move the watermark by a heartbeat."""
        _promise(self._watermark, watermark_us, arrival_us)

    def durable(self, newest_us: int | None, arrival_us: int) -> None:
        """Note that a move is durable. newest_us: as `take` has returned it."""
        if newest_us is not None:
            self._durable.observe(newest_us, arrival_us)

    def durable_promise(self, watermark_us: int, arrival_us: int) -> None:
        """Note that a heartbeat is durable."""
        _promise(self._durable, watermark_us, arrival_us)

    def go_back(self) -> None:
        """Take back all moves that are not durable."""
        self._watermark = replace(self._durable)


def _promise(watermark: Watermark, watermark_us: int, arrival_us: int) -> None:
    watermark.raise_to(min(watermark_us, watermark.limit_us(arrival_us)))
