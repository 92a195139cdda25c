"""Live state of one stream: applied position, watermark, sample and standing queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from shedder.archive.log.records import FOLLOW, SUMMARISED, Batch, Built
from shedder.archive.metadata.deleted_positions import Deletion
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.overload_policy import Policy
from shedder.engine.ingest.expected_rows import ExpectedRows
from shedder.engine.remote_summaries.validation import ValidatedSummaries, take_in
from shedder.engine.standing_queries.dropped_tuples import Drops
from shedder.engine.standing_queries.lost_tuples import LostTuples
from shedder.engine.standing_queries.standing_query import StandingQuery, StreamFacts
from shedder.engine.window_state.pane_sharing import share_panes
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.basics import ColumnBasics
from shedder.streams.dropped_counts import BUCKET_US, Dropped
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from shedder.streams.watermark import Watermark


class Stream:
    """Live state of one stream. Used by the apply thread only.

    position: one past the last applied tuple.
    accepted: tuples that the intake had accepted at that position.
    applied: all tuples that were applied.
    late: applied tuples with an event time before the watermark; tuples of summaries do not count.
    built: applied tuples that came as summaries. They have no position, and neither the sample nor
      the archive has them.
    deletions: returns all DELETEs.
    expected_rows: tuples of built that their producers will send; a tuple that has come is in
      neither.
    takes_summaries: at least one summary has come.
    sample_stored_bytes: size of the last stored sample.
    drops: tuples that were dropped on admission, or left out at the source.
    lost: tuples that damaged bytes of the log held, and no checkpoint.
    synopses_ns: CPU time of all synopses that can be thinned, in ns.
    """

    def __init__(
        self,
        stream_id: int,
        schema: StreamSchema,
        sample: StreamSample,
        deletions: Callable[[], Sequence[Deletion]],
        *,
        future_us_max: int,
    ) -> None:
        self.id = stream_id
        self.schema = schema
        self.sample = sample
        self.watermark = Watermark(schema.lateness_us, future_us_max)
        self.queries: dict[str, StandingQuery] = {}
        self.deletions = deletions
        self.position = 0
        self.accepted = 0
        self.applied = 0
        self.late = 0
        self.built = 0
        self.expected_rows = ExpectedRows()
        self.takes_summaries = False
        self.synopses_ns = 0
        self.drops = Drops()
        self.lost = LostTuples()
        self.sample_stored_bytes = 0
        self._stored: tuple[StreamSample, int] | None = None

    @property
    def sample_is_stored(self) -> bool:
        """Return whether the last checkpoint has the present sample: no tuple has come since."""
        return self._stored is not None and self._stored == (self.sample, self.sample.position)

    def note_stored_sample(self, sample: StreamSample, position: int, size_bytes: int) -> None:
        """A checkpoint has a sample as it was at a position."""
        self._stored, self.sample_stored_bytes = (sample, position), size_bytes

    def restore(
        self,
        *,
        position: int,
        applied: int,
        late: int,
        built: int,
        drops: Drops,
        lost: LostTuples,
        expected_rows: ExpectedRows,
        takes_summaries: bool,
        watermark_us: int | None,
    ) -> None:
        """Go on from what a checkpoint has of the stream, its sample aside."""
        self.position, self.applied, self.late, self.built = position, applied, late, built
        self.drops, self.lost, self.expected_rows = drops, lost, expected_rows
        self.takes_summaries = takes_summaries
        self.watermark.restore(watermark_us)

    def change_schema(self, schema: StreamSchema) -> None:
        """Replace the definition; its columns and its seed stay."""
        self.schema = schema

    def replace_sample(self, sample: StreamSample) -> None:
        """Go on with another sample of the same tuples."""
        self.sample = sample

    def note_accepted(self, accepted: int) -> None:
        """The intake has counted so many rows, of which the last ones are applied now."""
        self.accepted = accepted

    @property
    def watermark_us(self) -> int | None:
        """Event time before which the stream promises to be complete."""
        return self.watermark.value_us

    def apply(
        self,
        header: Batch,
        frame: Frame,
        *,
        dropped: Dropped | None = None,
        skipped: bool = False,
        late_in_batch: int = 0,
    ) -> None:
        """Read a batch into panes, then move the watermark.

        Args:
          header, frame: the batch. dropped: what else it had. skipped: no synopsis reads it, and
            it counts as too late for all of them. late_in_batch: how many tuples the watermark has
            not passed yet, but would have, had the batches of a run been read one by one.
        """
        if header.flags & SUMMARISED:
            self._followed(header)
            return
        self._note_drops(frame, dropped)
        self.late += late_in_batch
        before = self.watermark_us
        limit = self.watermark.limit_us(header.arrival_us)
        newest = self._newest_believed(frame, limit)
        if len(frame):
            first, _ = frame.time_ends_us
            after = before if newest is None else self.watermark.after(newest)
            if before is not None and first < before:
                self.late += int(np.count_nonzero(frame.times_us < before))
            for standing_query in self.queries.values():
                self._first_window(standing_query, first, limit)
                standing_query.foresee(after)
            readers = Counter(each.state.query.where for each in self.queries.values())
            for standing_query in self.queries.values():
                spent = _thinnable_ns(standing_query.state)
                if skipped:
                    standing_query.guard(partial(standing_query.state.pass_by, frame))
                else:
                    standing_query.guard(
                        partial(standing_query.read, frame, watermark_us=before, limit_us=limit)
                    )
                standing_query.note_behind()
                self.synopses_ns += _thinnable_ns(standing_query.state) - spent
                where = standing_query.state.query.where
                readers[where] -= 1
                if not readers[where]:  # Hold the columns of one filter at a time.
                    frame.forget_where(where)
        self.position = header.end_position
        self.applied += header.rows
        if newest is not None:
            self.watermark.observe(newest, header.arrival_us)

    def go_on_at(self, position: int, now_us: int, *, sample_rows: int) -> None:
        """Tuples before this position that were not applied are lost: the log was damaged.

        The sample begins anew there; of the columns it knows what it knew.
        """
        if position > self.position:
            self.lost.add((self.position, position), self.watermark.limit_us(now_us))
        self.sample = StreamSample(
            self.schema,
            rows=sample_rows,
            first=position,
            basics=self.sample.basics,
            size_bytes_max=self.sample.size_bytes_max,
        )

    def apply_built(self, header: Built, checked: ValidatedSummaries) -> None:
        """Fold what was built of tuples elsewhere into panes, then move the watermark."""
        before, made = self.watermark_us, checked.summaries
        if not made.rows:
            return  # An empty summary only advances its producer's sequence number.
        limit = self.watermark.limit_us(header.arrival_us)
        for standing_query in self.queries.values():
            if standing_query.state.feed is not None:
                standing_query.state.stop_sharing()  # Else the provider would give it twice.
        for standing_query in self.queries.values():
            self._first_window(standing_query, made.oldest_us, limit)
            standing_query.guard(partial(take_in, standing_query.state, checked, before))
            standing_query.note_behind()
        self.applied += header.rows
        self.built += header.rows
        if header.flags & FOLLOW:
            self.expected_rows.promise(header.producer, header.rows)
        self.takes_summaries = True
        self.watermark.observe(made.newest_us, header.arrival_us)

    def _followed(self, header: Batch) -> None:
        """The archive has tuples now that the panes have had since summaries of them came."""
        self.position = header.end_position
        self.built -= self.expected_rows.settle(header.producer, header.rows)

    def share_panes(self, new: QueryState | None = None) -> None:
        """Share panes among queries, so that as few queries as possible read tuples.

        new: a query that was added; only queries that read the same are compared. None: all are.
        """
        standings = (each.state for each in self.queries.values() if not each.failed)
        share_panes([it for it in standings if new is None or it.reads == new.reads])

    def heartbeat(self, watermark_us: int, arrival_us: int) -> None:
        """Raise the watermark by promise, as far as a clock is believed."""
        self.watermark.raise_to(min(watermark_us, self.watermark.limit_us(arrival_us)))
        for standing_query in self.queries.values():
            standing_query.note_behind()  # A window with a fixed end may be complete now.

    def close_panes(self) -> None:
        """Close the panes that the watermark has passed; they do not change any more."""
        for standing_query in list(self.queries.values()):
            standing_query.guard(partial(standing_query.state.close, self.watermark_us))

    def facts(self) -> StreamFacts:
        """Return what answers say about the stream now."""
        return StreamFacts(
            position=self.position,
            watermark_us=self.watermark_us,
            basics=self._basics,
            drops=self.drops,
            drops_by_chance=self.schema.on_overload.policy is not Policy.DROP_LEAST,
            lost=self.lost,
            deletions=self.deletions,
        )

    @property
    def _basics(self) -> Mapping[str, ColumnBasics]:
        """What is known of columns: nothing of tuples that only came as summaries."""
        if not self.built:
            return self.sample.basics
        unknown = ColumnBasics(self.built)
        return {name: known.merged(unknown) for name, known in self.sample.basics.items()}

    def _note_drops(self, frame: Frame, dropped: Dropped | None) -> None:
        if dropped is not None:
            self.drops.add(dropped)
            for standing_query in self.queries.values():
                standing_query.note_dropped(dropped.times[0][0] * BUCKET_US)
        if len(frame) and self.schema.on_overload.policy is not Policy.DROP_LEAST:
            self.drops.let_in(frame)

    def note_deleted(self) -> None:
        """Answer again after a DELETE, so that no newest answer counts deleted rows as exact."""
        facts = self.facts()
        for standing_query in self.queries.values():
            standing_query.guard(partial(standing_query.refresh, facts))

    @staticmethod
    def _newest_believed(frame: Frame, limit_us: int) -> int | None:
        """The largest event time that is not too far in the future; None: there is none."""
        if not len(frame):
            return None
        newest = frame.time_ends_us[1]
        if newest <= limit_us:
            return newest
        times = frame.times_us
        believed = times[times <= limit_us]
        return int(believed.max()) if len(believed) else None

    @staticmethod
    def _first_window(standing_query: StandingQuery, first_us: int, limit_us: int) -> None:
        """The first tuples of all decide which window is the first one; wrong clocks do not."""
        slide = standing_query.state.grid.slide_us
        if standing_query.emitted_to is None and slide is not None and first_us <= limit_us:
            standing_query.begin_at(first_us // slide * slide)


def _thinnable_ns(query_state: QueryState) -> int:
    """What the synopses have taken, ever, that a level can make cheaper.

    Counting rows names the groups, so it costs less when fewer are read; of one group it is part of
    a tuple's way, and so is finding the rows that a query reads.
    """
    return sum(query_state.cpu_timer.ns[0 if query_state.keys is not None else 1 :])
