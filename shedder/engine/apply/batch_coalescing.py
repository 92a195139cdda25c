"""Coalescing of batches: consecutive queued batches of a stream are read as one frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shedder.archive.log.records import DROPPED, Batch
from shedder.cql.statements.overload_policy import Policy
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.standing_queries.stream_state import Stream
from shedder.streams.dropped_counts import Dropped
from shedder.streams.frame import Frame

BYTES_MAX = 32 << 20  # Of a run, which is copied together.


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """Consecutive batches of one stream.

    Batches are coalesced only if the set of late tuples stays the same. So no batch has tuples of
    a pane that earlier batches of the run have closed. The arrival time of the run is the arrival
    time of its first batch.

    ends_us: of the event times of several; None: not computed yet. size_bytes: of several.
    late_in_batch: how many tuples the watermark had passed, but not yet when the run began.
    """

    arrived: tuple[PendingRecord, ...]
    ends_us: tuple[int, int] | None = None
    size_bytes: int = 0
    late_in_batch: int = 0

    @property
    def header(self) -> Batch:
        """As of one batch."""
        first, last = _header(self.arrived[0]), _header(self.arrived[-1])
        if len(self.arrived) == 1:
            return first
        rows = last.end_position - first.first_position
        return Batch(first.stream, "", 0, 0, first.first_position, rows, last.arrival_us)

    @property
    def batch(self) -> pa.RecordBatch:
        """All rows."""
        batches = [batch_of(each) for each in self.arrived]
        if len(batches) == 1:
            return batches[0]
        [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return batch

    @property
    def dropped(self) -> Dropped | None:
        """What was dropped of them, or left out."""
        whole = None
        for each in self.arrived:
            if each.dropped is not None:
                whole = each.dropped.and_more(whole)
        return whole

    def with_next(self, stream: Stream, token: object, rows_max: float) -> BatchGroup | None:
        """The run with one more batch; None: what comes next does not belong to it.

        stream: whose batches they are; none of them has been read. token: of the next record.
        rows_max: of a run.
        """
        if not isinstance(token, PendingRecord) or not isinstance(token.header, Batch):
            return None
        first, last, own = _header(self.arrived[0]), _header(self.arrived[-1]), token.header
        follows = own.stream == last.stream and own.first_position == last.end_position
        size_bytes = (self.size_bytes or batch_of(self.arrived[0]).nbytes) + batch_of(token).nbytes
        too_large = size_bytes > BYTES_MAX or own.end_position - first.first_position > rows_max
        if not follows or too_large:
            return None
        known = self.ends_us or _believed(stream, self.arrived[0], first.arrival_us)
        more = _believed(stream, token, first.arrival_us)
        before = stream.watermark_us  # None: the first batch of all decides which window is first.
        if known is None or more is None or before is None:
            return None
        after = stream.watermark.after(known[1])
        if any(_has_closed(width, before, after, more[0]) for width in _pane_widths(stream)):
            return None
        late_in_batch = self.late_in_batch
        if more[0] < after:
            times = Frame(batch_of(token), stream.schema.time_column).times_us
            late_in_batch += int(np.count_nonzero((before <= times) & (times < after)))
        ends_us = min(known[0], more[0]), max(known[1], more[1])
        return BatchGroup((*self.arrived, token), ends_us, size_bytes, late_in_batch)


def _has_closed(width_us: int, before_us: int, after_us: int, oldest_us: int) -> bool:
    """Return whether panes of such tuples may have closed while the watermark rose."""
    first_open = after_us // width_us
    return before_us // width_us < first_open and oldest_us < first_open * width_us


def _pane_widths(stream: Stream) -> set[int]:
    """Of its queries, where panes close."""
    widths = {each.state.grid.width_us for each in stream.queries.values()}
    return {width for width in widths if width is not None}


def batch_of(arrived: PendingRecord) -> pa.RecordBatch:
    """Its rows."""
    assert isinstance(arrived.content, pa.RecordBatch)
    return arrived.content


def _header(arrived: PendingRecord) -> Batch:
    assert isinstance(arrived.header, Batch)
    return arrived.header


def _believed(stream: Stream, arrived: PendingRecord, arrival_us: int) -> tuple[int, int] | None:
    """The oldest and the newest event time; None: it is no batch that is read with others.

    arrival_us: as of when it is to be believed.
    """
    batch, thins = batch_of(arrived), stream.schema.on_overload.policy is Policy.THIN
    if not thins or _header(arrived).flags & ~DROPPED or not batch.num_rows:
        return None
    oldest, newest = Frame(batch, stream.schema.time_column).time_ends_us
    return (oldest, newest) if newest <= stream.watermark.limit_us(arrival_us) else None
