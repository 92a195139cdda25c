"""Writer of a row query: appends each of its rows once to the log of another stream.

The rows of a query have numbers that depend on its tuples alone. A record in the log of the target
has the number behind its last row. When the record is applied, also by a replay, the writer knows
that the rows up to this number are stored. A checkpoint keeps that number, and the query keeps the
rows behind it, or makes them again after a restart. So each row is stored once, over kills, too.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa
import structlog

from shedder.archive.log.records import MADE_PREFIX
from shedder.engine.dataflow.row_output import RowOutput
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_target import RowTarget
from shedder.errors import Unavailable
from shedder.streams.batches import BatchLimits

_log = structlog.get_logger("shedder.engine")

Conversion = Callable[[pa.Table], pa.RecordBatch]
"""Makes rows of the target of rows of the query."""


class RowSink(Protocol):
    """Log of the target stream, as a writer uses it. `Intake` is one."""

    @property
    def stream_id(self) -> int:
        """Id of the stream."""

    @property
    def losses(self) -> int:
        """The number of times that records on their way to the disk were lost."""

    def append_made(
        self, rows: pa.RecordBatch, producer: str, *, end_row: int, losses: int
    ) -> Future[int] | None:
        """Append rows of a query; None: records were lost since."""

    def heartbeat(self, watermark_us: int, *, urgent: bool = False) -> Future[int]:
        """Log a watermark."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Place in the rows of a query. as_of_us: None: rows alone count."""

    rows: int
    as_of_us: int | None

    def is_reached(self, rows: int, watermark_us: int | None) -> bool:
        """Return whether the target has got to it."""
        if self.as_of_us is not None and (watermark_us is None or watermark_us < self.as_of_us):
            return False
        return rows >= self.rows


class RowWriter:
    """Inserts the rows of one query into its target. Used by the apply thread.

    The records are taken however much is on its way to the log. Senders from outside wait instead,
    because they are refused while the log and the apply queue are full.

    stored: rows below this number are in records that are applied.
    """

    def __init__(
        self,
        query: RowQuery,
        target: RowTarget,
        sink: RowSink,
        convert: Conversion,
        limits: BatchLimits,
        *,
        stored: int = 0,
        begins: bool = True,
    ) -> None:
        """A writer that has sent nothing since the start.

        Args:
          query: whose rows it inserts. target, sink: into what.
          convert: see `Conversion`. limits: of one record.
          stored: as of a checkpoint.
          begins: it sends rows from now on; else from `begin` on, once the query is durable.
        """
        self.query = query
        self.target = target
        self.producer = f"{MADE_PREFIX}{query.incarnation}"
        self.stored = stored
        self._sink = sink
        self._convert = convert
        self._limits = limits
        self._begun = begins
        self._refused = False  # The target cannot have a row of a query that has failed.
        self._losses = sink.losses
        self._sent = stored
        self._durable = stored  # Set by the disk thread, which counts no record twice.
        self._as_of_us: int | None = None  # Of the newest heartbeat.
        self._passed_us: int | None = None  # Of the newest heartbeat that is applied.
        self._beat: Future[int] | None = None
        self._waits: list[tuple[_Place, Future[None]]] = []
        query.output.keep_from(stored)

    @property
    def stream_id(self) -> int:
        """Id of the target stream."""
        return self._sink.stream_id

    @property
    def _output(self) -> RowOutput:
        return self.query.output

    def begin(self) -> None:
        """Send rows: a restart would find the query."""
        self._begun = True
        self.send()

    def send(self) -> None:
        """Append the rows that are not on their way, and the watermark behind them.

        While the log takes no records, the rows wait for the next call.

        Raises:
          SchemaMismatch, BadTimestamp: the target cannot have a row.
        """
        if not self._begun:
            return
        try:
            if self._send_rows() and self.target.is_view and not self.query.failed:
                self._send_watermark()
        except Unavailable:
            self.end_waits()

    def send_last(self) -> None:
        """Append the rows that the query made before it failed; the watermark stays.

        A row that the target cannot have ends this.
        """
        if not self._refused:
            try:
                self.send()
            except Exception as error:
                self._refused = True
                _log.error("last_rows_refused", query=self.query.name, exc_info=error)
        self.end_waits()

    def note_stored(self, end_row: int) -> None:
        """Rows below a number are in a record that is applied now."""
        self.stored = max(self.stored, end_row)
        self._sent = max(self._sent, self.stored)
        self._output.keep_from(self.stored)
        self._end_reached()

    def note_watermark(self, stream_id: int, watermark_us: int) -> None:
        """A heartbeat of a stream is applied now."""
        if stream_id == self._sink.stream_id:
            self._passed_us = watermark_us
            self._end_reached()

    def when_stored(self) -> Future[None]:
        """Return a future that is done when the rows made until now are stored, or cannot be.

        The watermark of a view then is as it was, too.
        """
        as_of_us = self.query.frontier.as_of_us if self.target.is_view else None
        place, done = _Place(self._output.rows, as_of_us), Future[None]()
        if self.query.failed or place.is_reached(self.stored, self._passed_us):
            done.set_result(None)
        else:
            self._waits.append((place, done))
        return done

    def end_waits(self) -> None:
        """The query may write no more: nothing waits for it."""
        waits, self._waits = self._waits, []
        for _, done in waits:
            done.set_result(None)

    def _send_rows(self) -> bool:
        """Send all rows; False: records were lost, and the next call sends them again."""
        if self._losses != self._sink.losses:
            self._losses = self._sink.losses
            self._sent = max(self.stored, self._durable)
            self._as_of_us = None
        limits = self._limits
        bytes_max = limits.bytes_max // 2  # The target's types may be wider.
        while (rows := self._output.after(self._sent, limits.rows_max, bytes_max)) is not None:
            end = self._sent + rows.num_rows
            durable = self._sink.append_made(
                self._convert(rows), self.producer, end_row=end, losses=self._losses
            )
            if durable is None:
                return False
            durable.add_done_callback(partial(self._note_durable, end))
            self._sent = end
        return True

    def _send_watermark(self) -> None:
        """Send the newest watermark unless an older one is on its way."""
        as_of_us = self.query.frontier.as_of_us
        is_on_its_way = self._beat is not None and not self._beat.done()
        if as_of_us is not None and as_of_us != self._as_of_us and not is_on_its_way:
            self._beat = self._sink.heartbeat(as_of_us, urgent=True)
            self._as_of_us = as_of_us

    def _note_durable(self, end: int, durable: Future[int]) -> None:
        if durable.exception() is None:
            self._durable = end

    def _end_reached(self) -> None:
        waits, self._waits = self._waits, []
        for place, done in waits:
            if place.is_reached(self.stored, self._passed_us):
                done.set_result(None)
            else:
                self._waits.append((place, done))
