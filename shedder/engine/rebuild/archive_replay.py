"""Archive replay: reads a stream's past into panes while the stream goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Self

import pyarrow as pa

from shedder.archive.backfill.staged_runs import POSITION_MIN
from shedder.archive.store.scan import Live
from shedder.engine.engine_state import EngineState
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from shedder.streams.positions import Positions

LEFT_ROWS = 1 << 18  # What the apply thread may read itself: some hundredths of a second.
ROUNDS_MAX = 8  # A stream that outruns the reader is not chased for ever.


class History:
    """Past of a stream, delivered in order to a consumer that was registered later.

    position: everything before it was delivered. It begins at 0, so backfilled tuples are left out.
    scan: function that yields (position of the first row, rows, which of them are not deleted) from
      a position on.
    take: consumer; returns whether it wants more.
    """

    def __init__(
        self,
        scan: Callable[[int], Iterable[tuple[int, pa.RecordBatch, Live]]],
        take: Callable[[int, pa.RecordBatch, Live], bool],
        position: int = 0,
    ) -> None:
        self.position = position
        self._scan = scan
        self._take = take
        self._wanted = True

    @classmethod
    def of_panes(cls, core: EngineState, stream: Stream, query_state: QueryState) -> Self:
        """The tuples that a standing query's live windows need."""
        grid = query_state.grid
        start_us = grid.span.start_us
        first = grid.first_needed(stream.watermark_us)
        if first is not None:
            assert grid.width_us is not None
            start_us = first * grid.width_us
        query_state.ask_from(grid.window_end(stream.watermark_us))
        columns = sorted({stream.schema.time_column, *query_state.query.columns})
        limit_us = stream.watermark.limit_us(core.clock_us())

        def take(first_position: int, batch: pa.RecordBatch, live: Live) -> bool:
            positions = Positions(stream.schema.seed, first_position)
            frame = Frame(batch, stream.schema.time_column, positions=positions)
            if live is not None:
                frame = frame.rows_where(live)
            if start_us is not None and grid.slides:
                frame = frame.in_time_order()
                frame = frame.between(int((frame.times_us < start_us).sum()), len(frame))
            if len(frame):
                query_state.apply(frame, watermark_us=None, limit_us=limit_us)
            return True

        return cls(
            lambda position: core.store.scan_live(
                stream.id, start_us, grid.span.end_us, columns, from_position=position
            ),
            take,
            POSITION_MIN,
        )

    @classmethod
    def of_sample(cls, core: EngineState, stream: Stream, sample: StreamSample) -> Self:
        """All tuples but backfilled ones, for a sample; no more where some of them are missing."""

        def take(first: int, batch: pa.RecordBatch, live: Live) -> bool:
            if first != sample.position or live is not None:  # Some are no longer there.
                return False
            sample.update(first, Frame(batch, stream.schema.time_column))
            return True

        return cls(
            lambda position: core.store.scan_live(stream.id, from_position=position),
            take,
            sample.position,
        )

    def read_on(self) -> None:
        """Tell what has happened since the last time.

        Raises:
          CorruptData: a file of the archive is damaged.
        """
        if not self._wanted:
            return
        for first, batch, live in self._scan(self.position):
            self._wanted = self._take(first, batch, live)
            if not self._wanted:
                return
            self.position = first + batch.num_rows


def catch_up(past: Sequence[History], position: Callable[[], int]) -> None:
    """Read until little is left, so that the apply thread reads the rest quickly.

    Args:
      past: what to read; from any thread, while the stream goes on.
      position: of the stream, now.
    """
    for _ in range(ROUNDS_MAX):
        began = position()
        for history in past:
            history.read_on()
        if position() - began < LEFT_ROWS:
            return
