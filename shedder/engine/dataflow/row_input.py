"""Input of a row query: the tuples of one stream, in the order of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.store.scan import Live
from shedder.cql.text.durations import timestamp_text
from shedder.engine.dataflow.lookback import HISTORY
from shedder.engine.dataflow.row_output import InputFrontier
from shedder.queries.answers.answer import InputProgress
from shedder.streams.dropped_counts import Dropped
from shedder.streams.frame import Frame
from shedder.streams.watermark import Watermark

Scan = Callable[[int, int | None, tuple[str, ...]], Iterable[tuple[int, pa.RecordBatch, Live]]]
"""Reads a stream: (from position, from event time, columns) to batches as `Store.scan_live`."""


@dataclass(frozen=True, slots=True, eq=False)
class LateRows:
    """Tuples that a query left out because they were late, and that a restart must leave out.

    positions, times_us: int64 [rows], by rising position.
    """

    positions: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    times_us: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def since(self, from_us: int | None) -> LateRows:
        """Return those with an event time at or after an instant; None: all."""
        if from_us is None:
            return self
        kept = self.times_us >= from_us
        return LateRows(self.positions[kept], self.times_us[kept])


@dataclass(frozen=True, slots=True, eq=False)
class ReadBatch:
    """A batch of the log that row queries read.

    stream_id: of its stream. rows: with the columns of the stream. times_us: int64 [rows].
    dropped: tuples that came with it and were dropped; None: none were.
    """

    stream_id: int
    rows: pa.RecordBatch
    times_us: NDArray[np.int64]
    first_position: int
    arrival_us: int
    dropped: Dropped | None


class RowInput:
    """Progress of one alias of a row query in its stream. Used by the apply thread.

    It depends on the log's records alone, and not on how many are read together: a replay makes
    the same decisions about late tuples.

    from_position: tuples before it are not read. position: tuples before it have been read.
    lookback_us: as of `lookbacks_us`. reads_past: a new query reads what windows need of the past.
    newest_us: largest event time of tuples that were read, in time; None: none has come.
    unread_us: no tuple that came before registration, and was left out of a window, has a later
      event time; None: no such tuple was left out.
    is_idle: its watermark follows those of the other inputs, until the next record of the stream.
    late, dropped, lost: tuples that the query lacks: too late; dropped at the door or left out at
      the source; lost with damaged bytes of the log.
    """

    def __init__(
        self,
        alias: str,
        stream: str,
        stream_id: int,
        time_column: str,
        columns: tuple[str, ...],
        *,
        lookback_us: int,
        reads_past: bool,
        watermark: Watermark,
        from_position: int,
        position: int,
    ) -> None:
        self.alias = alias
        self.stream = stream
        self.stream_id = stream_id
        self.time_column = time_column
        self.columns = columns
        self.lookback_us = lookback_us
        self.reads_past = reads_past
        self.newest_us: int | None = None
        self.unread_us: int | None = None
        self.is_idle = False
        self.watermark = watermark
        self.from_position = from_position
        self.position = position
        self.late = 0
        self.dropped = 0
        self.lost = 0
        self._late_parts = [LateRows()]

    @property
    def late_rows(self) -> LateRows:
        """Late tuples that a restart must leave out."""
        if len(self._late_parts) > 1:
            self._late_parts = [
                LateRows(
                    np.concatenate([part.positions for part in self._late_parts]),
                    np.concatenate([part.times_us for part in self._late_parts]),
                )
            ]
        return self._late_parts[0]

    @property
    def late_bytes(self) -> int:
        """Bytes of what is known of late tuples."""
        return sum(part.positions.nbytes + part.times_us.nbytes for part in self._late_parts)

    @property
    def frontier(self) -> InputFrontier:
        """The present progress."""
        return InputFrontier(self.position, self.watermark.value_us)

    @property
    def progress(self) -> InputProgress:
        """The present progress, for answers."""
        return InputProgress(
            self.stream,
            self.alias,
            self.position,
            self.watermark.value_us,
            late=self.late,
            dropped=self.dropped,
            lost=self.lost,
        )

    def agrees_with(self, other: RowInput, as_of_us: int | None, span_us: int) -> bool:
        """Return whether a state of both queries depends on the same tuples of the stream.

        Args:
          other: input of another query.
          as_of_us: the earlier of the instants of both queries.
          span_us: event time before an instant whose tuples the state needs, as of `lookbacks_us`.
        """
        needs_all = as_of_us is None or span_us >= HISTORY
        from_us = None if as_of_us is None or needs_all else as_of_us - span_us
        mine, its = (
            (each.stream_id, each.position, each.watermark.value_us, each.is_idle)
            for each in (self, other)
        )
        if mine != its:
            return False
        if not span_us:  # Of the past, nothing is needed.
            ours, theirs = (each.late_rows.since(from_us) for each in (self, other))
            return np.array_equal(ours.positions, theirs.positions)
        return self.has_rows_of(other, from_us)

    def has_rows_of(self, other: RowInput, from_us: int | None) -> bool:
        """Return whether both read the same tuples with event times from an instant on.

        from_us: None: all tuples.
        """
        misses_past = any(each._needs_unread(from_us) for each in (self, other))
        if misses_past and self.from_position != other.from_position:
            return False
        ours, theirs = (each.late_rows.since(from_us) for each in (self, other))
        return np.array_equal(ours.positions, theirs.positions)

    def _needs_unread(self, from_us: int | None) -> bool:
        """Return whether a tuple from before registration is needed, and was left out."""
        return self.unread_us is not None and (from_us is None or from_us <= self.unread_us)

    def read_columns(self, columns: tuple[str, ...]) -> None:
        """Give these columns to the dataflow from now on."""
        self.columns = columns

    @property
    def holds_rows(self) -> bool:
        """Return whether the state holds tuples of any age: those of ROWS windows."""
        return self.lookback_us >= HISTORY

    def needs_from_us(self, as_of_us: int | None) -> int | None:
        """Return the event time from which a state as of an instant needs tuples; None: all."""
        if as_of_us is None or self.holds_rows:
            return None
        return as_of_us - self.lookback_us

    def may_miss_past(self, as_of_us: int | None) -> bool:
        """Return whether windows as of an instant may lack tuples from before registration.

        as_of_us: None: nothing is known yet.
        """
        return self._needs_unread(self.needs_from_us(as_of_us))

    @property
    def past_text(self) -> str:
        """What windows lack of the tuples from before registration."""
        if self.holds_rows:
            return (
                f"ROWS windows of {self.alias} begin at position {self.from_position:,}; versions "
                "of the tables from before it are not kept"
            )
        return (
            f"windows of {self.alias} begin at position {self.from_position:,}; versions of the "
            "tables from before it are not kept; windows may reach back to earlier tuples until "
            f"{self._past_ends_text}"
        )

    @property
    def _past_ends_text(self) -> str:
        assert self.unread_us is not None
        ends_us = self.unread_us + self.lookback_us
        return timestamp_text(ends_us) or f"{ends_us} us"

    def forget_late(self, before_us: int | None) -> None:
        """Forget late tuples with an event time before an instant; None: none."""
        self._late_parts = [self.late_rows.since(before_us)]

    def timely(
        self, batch: pa.RecordBatch, first_position: int, times_us: NDArray[np.int64]
    ) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Return a batch's columns that the query reads, of tuples that are not late.

        Returns:
          the rows, and their positions.
        """
        self.is_idle = False
        positions = np.arange(first_position, first_position + batch.num_rows, dtype=np.int64)
        rows = batch.select(list(self.columns))
        self.lost += max(0, first_position - self.position)
        self.position = first_position + batch.num_rows
        passed_us = self.watermark.value_us
        late = None if passed_us is None else times_us < passed_us
        timely_us = times_us if late is None else times_us[~late]
        self._note_newest(timely_us)
        return self._without(late, rows, positions, times_us)

    def take(self, batch: ReadBatch) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Read a batch of the stream, as `timely`, and move the watermark."""
        rows, positions = self.timely(batch.rows, batch.first_position, batch.times_us)
        if batch.dropped is not None:
            self.note_dropped(batch.dropped)
        self.observe(batch.times_us, batch.arrival_us)
        return rows, positions

    def _note_newest(self, times_us: NDArray[np.int64]) -> None:
        self.newest_us = _newest(self.newest_us, times_us)

    def without_late(
        self, rows: pa.RecordBatch, positions: NDArray[np.int64], passed_us: int | None
    ) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Leave out rows that an earlier watermark has passed, and note them."""
        times_us = times_of(rows, self.time_column)
        late = None if passed_us is None else times_us < passed_us
        return self._without(late, rows, positions, times_us)

    def _without(
        self,
        late: NDArray[np.bool_] | None,
        rows: pa.RecordBatch,
        positions: NDArray[np.int64],
        times_us: NDArray[np.int64],
    ) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        if late is None or not late.any():
            return rows, positions
        self.late += int(np.count_nonzero(late))
        self._late_parts.append(LateRows(positions[late], times_us[late]))
        kept = np.flatnonzero(~late)
        return rows.take(pa.array(kept, pa.int64())), positions[kept]

    def note_dropped(self, dropped: Dropped) -> None:
        """Note tuples that were dropped, or left out at the source, of a batch."""
        self.dropped += dropped.rows

    def observe(self, times_us: NDArray[np.int64], arrival_us: int) -> None:
        """Move the watermark by the newest event time that is believed."""
        believed = times_us[times_us <= self.watermark.limit_us(arrival_us)]
        if believed.size:
            self.watermark.observe(int(believed.max()), arrival_us)

    def promise(self, watermark_us: int, arrival_us: int) -> None:
        """Raise the watermark by a heartbeat, as far as a clock is believed."""
        self.is_idle = False
        self.watermark.raise_to(min(watermark_us, self.watermark.limit_us(arrival_us)))

    def count_idle(self) -> None:
        """Follow the other inputs from now on."""
        self.is_idle = True

    def read_past_from(self, position: int, scan: Scan, from_us: int | None) -> None:
        """Leave out the tuples before a position: it is not known what they join.

        scan: reads the archive and the tail. from_us: tuples before it are not needed; None: all
          are.
        """
        if not self.holds_rows:  # Answers of the others have the note for ever.
            columns = (self.time_column,)
            for rows, _ in self.past(scan, 0, position, from_us, columns=columns):
                self.unread_us = _newest(self.unread_us, times_of(rows, self.time_column))
            self.newest_us = None  # Of those that are read.
        self.from_position = position

    def begin_at(self, position: int, watermark_us: int | None) -> None:
        """Read what comes from now on; what windows need of the past has been read.

        Without a window, nothing of the past is read.
        """
        if not self.reads_past:
            self.from_position = position
        elif self.holds_rows and self.from_position and watermark_us is not None:
            self.unread_us = watermark_us + self.watermark.lateness_us
        self.position = position
        self.watermark.restore(watermark_us)

    def restore(
        self,
        *,
        from_position: int,
        position: int,
        watermark_us: int | None,
        late: int,
        dropped: int,
        lost: int,
        late_rows: LateRows,
        newest_us: int | None,
        unread_us: int | None,
        is_idle: bool,
    ) -> None:
        """Go on from stored progress."""
        self.from_position, self.position = from_position, position
        self.late, self.dropped, self.lost = late, dropped, lost
        self._late_parts = [late_rows]
        self.newest_us, self.unread_us, self.is_idle = newest_us, unread_us, is_idle
        self.watermark.restore(watermark_us)

    def past(
        self,
        scan: Scan,
        first_position: int,
        end_position: int,
        from_us: int | None,
        *,
        columns: tuple[str, ...] | None = None,
    ) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
        """Read tuples [first_position, end_position) again, without those that were late.

        Args:
          scan: reads the archive and the tail. first_position, end_position: of the stretch.
          from_us: tuples before this event time are not needed; None: all are.
          columns: with the event time; None: those that the query reads.

        Yields:
          rows and their positions; never nothing.
        """
        first_position = max(first_position, self.from_position)
        if first_position >= end_position:
            return
        for first, batch, live in scan(first_position, from_us, columns or self.columns):
            if first >= end_position:
                return
            rows = batch.slice(0, end_position - first)
            positions = np.arange(first, first + rows.num_rows, dtype=np.int64)
            wanted = np.isin(positions, self.late_rows.positions, invert=True)
            if live is not None:
                wanted &= live[: rows.num_rows]
            if from_us is not None:
                wanted &= times_of(rows, self.time_column) >= from_us
            kept = np.flatnonzero(wanted)
            if kept.size:
                found = rows.take(pa.array(kept, pa.int64()))
                self._note_newest(times_of(found, self.time_column))
                yield found, positions[kept]


def _newest(known_us: int | None, times_us: NDArray[np.int64]) -> int | None:
    """Return the largest of these event times and of one that is known; None: there is none."""
    if not len(times_us):
        return known_us
    newest_us = int(times_us.max())
    return newest_us if known_us is None else max(known_us, newest_us)


def holding_up(inputs: Sequence[RowInput]) -> set[int]:
    """Return the ids of streams whose watermarks hold up those of other inputs of a query."""
    active = [each for each in inputs if not each.is_idle]
    marks = [each.watermark.value_us for each in active]
    newest_us = max((us for us in marks if us is not None), default=None)
    return {
        each.stream_id
        for each, us in zip(active, marks, strict=True)
        if newest_us is not None and (us is None or us < newest_us)
    }


def follow_others(inputs: Sequence[RowInput]) -> None:
    """Raise the watermarks of idle inputs of a query to the least of the others."""
    marks = [each.watermark.value_us for each in inputs if not each.is_idle]
    known = [us for us in marks if us is not None]
    if known and len(known) == len(marks) < len(inputs):
        for each in inputs:
            if each.is_idle:
                each.watermark.raise_to(min(known))


def times_of(batch: pa.RecordBatch, time_column: str) -> NDArray[np.int64]:
    """Return the event times of a batch, in us."""
    return Frame(batch, time_column).times_us


def missing_texts(inputs: Sequence[InputProgress]) -> tuple[str, ...]:
    """Say for each input which tuples are not in the rows."""
    return tuple(_missing_text(each) for each in inputs if each.late + each.dropped + each.lost)


def unread_texts(inputs: Iterable[RowInput], as_of_us: int | None) -> tuple[str, ...]:
    """Say which tuples from before registration windows lack. as_of_us: None: at any time."""
    return tuple(
        f"tuples of {each.stream} that came before the query was registered are not in the rows: "
        f"{each.past_text}"
        for each in inputs
        if each.may_miss_past(as_of_us)
    )


def _missing_text(each: InputProgress) -> str:
    parts = [
        f"{count:,} {what}"
        for count, what in (
            (each.late, "came too late"),
            (each.dropped, "were dropped under overload"),
            (each.lost, "were lost with damaged bytes of the log"),
        )
        if count
    ]
    return f"tuples of {each.stream} that are not in the rows: {', '.join(parts)}"
