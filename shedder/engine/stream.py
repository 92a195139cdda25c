"""A stream inside the engine: what was applied, its watermark, its sample, its queries."""

from __future__ import annotations

from functools import partial

import numpy as np

from shedder.archive.records import Batch
from shedder.cql.query import StreamSchema
from shedder.engine.published import Published
from shedder.engine.standing import Standing
from shedder.queries.evidence import Evidence
from shedder.queries.widen_late import widen_late
from shedder.streams.frame import Frame
from shedder.streams.sample import StreamSample
from shedder.streams.watermark import Watermark


class Stream:
    """Live state of one stream. Used by the apply thread only.

    position: one past the last applied tuple. accepted: tuples that the
    door counted, as of there. applied: tuples applied, ever. late: those of them
    that came after the watermark had passed their event time.
    """

    def __init__(
        self, stream_id: int, schema: StreamSchema, sample: StreamSample, *, future_us_max: int
    ) -> None:
        self.id = stream_id
        self.schema = schema
        self.sample = sample
        self.watermark = Watermark(schema.lateness_us, future_us_max)
        self.queries: dict[str, Published] = {}
        self.position = 0
        self.accepted = 0
        self.applied = 0
        self.late = 0

    @property
    def watermark_us(self) -> int | None:
        """Event time before which the stream promises to be complete."""
        return self.watermark.value_us

    def apply(self, header: Batch, frame: Frame) -> None:
        """Read a batch into sample and panes, then move the watermark."""
        before = self.watermark_us
        limit = self.watermark.limit_us(header.arrival_us)
        times = frame.times_us
        newest = self._newest_believed(times, limit)
        if len(frame):
            after = before if newest is None else self.watermark.after(newest)
            if before is not None:
                self.late += int(np.count_nonzero(times < before))
            for published in self.queries.values():
                self._first_window(published, times, limit)
                published.guard(
                    partial(
                        published.read, frame, watermark_us=before, limit_us=limit, after_us=after
                    )
                )
                published.behind = True
        self.position = header.end_position
        self.applied += header.rows
        if newest is not None:
            self.watermark.observe(newest, header.arrival_us)

    def heartbeat(self, watermark_us: int, arrival_us: int) -> None:
        """Raise the watermark by promise, as far as a clock is believed."""
        self.watermark.raise_to(min(watermark_us, self.watermark.limit_us(arrival_us)))
        for published in self.queries.values():
            published.behind = True  # A window with a fixed end may be complete now.

    def widen(self, evidence: Evidence, standing: Standing) -> Evidence:
        """Account for tuples that came too late for their panes (estimators: late tuples)."""
        if not evidence.late:
            return evidence
        return widen_late(standing.query, evidence, self.sample.basics)

    @staticmethod
    def _newest_believed(times: np.ndarray, limit_us: int) -> int | None:
        """The largest event time that is not too far in the future; None: there is none."""
        if not len(times):
            return None
        newest = int(times.max())
        if newest <= limit_us:
            return newest
        believed = times[times <= limit_us]
        return int(believed.max()) if len(believed) else None

    @staticmethod
    def _first_window(published: Published, times: np.ndarray, limit_us: int) -> None:
        """The first tuples of all decide which window is the first one; wrong clocks do not."""
        slide = published.standing.grid.slide_us
        if published.emitted_to is None and slide is not None:
            first = int(times.min())
            if first <= limit_us:
                published.emitted_to = first // slide * slide
