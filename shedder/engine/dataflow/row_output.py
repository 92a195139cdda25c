"""Output of a row query: numbered rows, of which the newest are kept for subscribers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import structlog

from shedder.errors import BadSetting, OutputDiscarded, ShedderError
from shedder.queries.answers.answer import InputProgress
from shedder.streams.batches import TIME_MIN_US

SEGMENT_BYTES = 4096  # Memory of a segment beside its values, measured with one row and one input.
COLUMN_BYTES = 1024  # And of each of its columns.
BEGINNING_US = TIME_MIN_US + 1  # Rows before the first watermark have the least event time.
_TOKEN_DIGITS_MAX = 19  # Of a number of rows, at most the largest int64.

_log = structlog.get_logger("shedder.engine")


@dataclass(frozen=True, slots=True)
class InputFrontier:
    """Progress of an input: tuples below `position` were read, up to a watermark."""

    position: int
    watermark_us: int | None

    def is_before(self, other: InputFrontier) -> bool:
        """Return whether this is `other`, or an earlier frontier of the same input."""
        us, other_us = self.watermark_us, other.watermark_us
        passed = us is None or (other_us is not None and us <= other_us)
        return passed and self.position <= other.position


@dataclass(frozen=True, slots=True)
class Frontier:
    """State of a row query between two records of the log.

    rows: output rows that were made before. inputs: by alias. read_bytes: of tuples, read before.
    """

    rows: int
    inputs: Mapping[str, InputFrontier]
    read_bytes: int

    @property
    def as_of_us(self) -> int | None:
        """The least watermark of all inputs; None: an input has none yet."""
        marks = [each.watermark_us for each in self.inputs.values()]
        known = [us for us in marks if us is not None]
        return min(known) if len(known) == len(marks) else None

    def is_before(self, other: Frontier) -> bool:
        """Return whether this is `other`, or an earlier frontier of the same query."""
        return all(each.is_before(other.inputs[alias]) for alias, each in self.inputs.items())

    @property
    def begin_us(self) -> int:
        """The first instant of the rows that follow: `as_of_us`, whose relation is known."""
        return BEGINNING_US if self.as_of_us is None else self.as_of_us


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    """Rows that one record of the log led to. before: the frontier from which they follow."""

    before: Frontier
    table: pa.Table
    size_bytes: int

    @property
    def end(self) -> int:
        """The number after the last row."""
        return self.before.rows + self.table.num_rows


class RowOutput:
    """Rows in the order in which they were made; row n has number n, from 0.

    Only the apply thread appends; any thread reads. Readers hold a number and no rows, so a slow
    reader costs no memory: it reads what is kept, or learns where the kept rows begin.
    """

    def __init__(
        self,
        name: str,
        incarnation: str,
        schema: pa.Schema,
        *,
        bytes_max: int,
        segment_bytes: int = SEGMENT_BYTES,
        column_bytes: int = COLUMN_BYTES,
    ) -> None:
        """An output without rows.

        Args:
          name, schema: of the query. incarnation: distinguishes queries that had the same name.
          bytes_max: of kept rows. segment_bytes, column_bytes: counted for each record that led to
            rows, and for each column of it, beside the values.
        """
        self.schema = schema
        self._segment_bytes = segment_bytes + column_bytes * len(schema)
        self.size_bytes = 0
        self._name = name
        self._incarnation = incarnation
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._segments: deque[_Segment] = deque()
        self._end = 0
        self._keep_from: int | None = None
        self._ended: ShedderError | None = None
        self._closed = False
        self._progress: tuple[InputProgress, ...] = ()
        self._wakes: dict[int, Callable[[], None]] = {}
        self._next = 0

    # --- apply thread ----------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """The number of rows that were made."""
        return self._end

    @property
    def kept_from(self) -> int | None:
        """As `keep_from` was called; None: it was not."""
        return self._keep_from

    def begin_at(self, rows: int) -> None:
        """Count on from a number of rows that are not kept."""
        assert not self._segments
        self._end = rows

    def publish(
        self, table: pa.Table | None, before: Frontier, progress: tuple[InputProgress, ...]
    ) -> None:
        """Append the rows that a record led to; None: there are none. Then wake the readers."""
        with self._lock:
            self._progress = progress
            if table is None or not table.num_rows:
                return
            assert before.rows == self._end
            size_bytes = self._segment_bytes + table.get_total_buffer_size()
            segment = _Segment(before, table, size_bytes)
            self._segments.append(segment)
            self._end = segment.end
            self.size_bytes += segment.size_bytes
            self._drop_oldest()
        self._wake()

    def keep_from(self, rows: int) -> None:
        """Keep the rows from a number on, however many bytes they have, and drop older ones."""
        with self._lock:
            self._keep_from = rows
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        keep_from = self._end if self._keep_from is None else self._keep_from
        while self.size_bytes > self._bytes_max and len(self._segments) > 1:
            if self._segments[0].end > keep_from:
                return
            self.size_bytes -= self._segments.popleft().size_bytes

    @property
    def counted_bytes(self) -> int:
        """Bytes of kept rows; those on their way to the log count in its queue."""
        return self.size_bytes if self._keep_from is None else min(self.size_bytes, self._bytes_max)

    def after(self, at: int, rows_max: int, bytes_max: int) -> pa.Table | None:
        """Return kept rows from a number on, of several records of the log; None: there are none.

        rows_max: limit of the rows. bytes_max: about; one row may have more.
        """
        tables: list[pa.Table] = []
        for segment in self._segments:
            if segment.end > at and rows_max and bytes_max > 0:
                first = max(at - segment.before.rows, 0)
                tables.append(_within(segment.table.slice(first, rows_max), bytes_max))
                rows_max -= tables[-1].num_rows
                bytes_max -= tables[-1].nbytes
                if first + tables[-1].num_rows < segment.table.num_rows:
                    break
        return pa.concat_tables(tables) if tables else None

    def restart_point(
        self, now: Frontier, *, read_bytes_max: int, floor_us: int | None
    ) -> Frontier:
        """Return the earliest frontier from which a restart can make kept rows again.

        Rows that must be kept (`keep_from`) are always among them.

        Args:
          now: the present frontier.
          read_bytes_max: bytes of tuples that a restart may read; of the newest segment, all.
          floor_us: the least `as_of_us` for which a restart finds all tuples that it needs; None:
            it always does.
        """
        found = now
        keep_from = self._end if self._keep_from is None else self._keep_from
        for segment in reversed(self._segments):
            before = segment.before
            if found.rows > keep_from:
                found = before
                continue
            if found is not now and now.read_bytes - before.read_bytes > read_bytes_max:
                break
            if floor_us is not None and (before.as_of_us is None or before.as_of_us < floor_us):
                break
            found = before
        return found

    def end(self, error: ShedderError | None) -> None:
        """Nothing more comes: readers get the kept rows and then the error. None: they end."""
        with self._lock:
            if self._closed:
                return
            self._closed, self._ended = True, error
        self._wake()

    def _wake(self) -> None:
        """Wake all readers on this thread. A reader whose wake-up raises is removed."""
        with self._lock:
            wakes = list(self._wakes.items())
        for number, wake in wakes:
            try:
                wake()
            except Exception as error:
                _log.error("subscriber_removed", query=self._name, exc_info=error)
                with self._lock:
                    self._wakes.pop(number, None)

    # --- readers ---------------------------------------------------------------------------------

    def wake_by(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each change; return what ends that."""
        with self._lock:
            number = self._next
            self._next += 1
            self._wakes[number] = wake

        def remove() -> None:
            with self._lock:
                self._wakes.pop(number, None)

        return remove

    def token(self, rows: int) -> str:
        """Return the text that stands for the place after so many rows."""
        return f"{self._incarnation}.{rows}"

    def place(self, token: str | None) -> int:
        """Return the number of the first row after a token; None: of the next row to be made.

        Raises:
          BadSetting: the token is not one of this query. OutputDiscarded: the row is not kept.
        """
        with self._lock:
            if token is None:
                return self._end
            incarnation, _, number = token.partition(".")
            is_number = number.isascii() and number.isdecimal() and len(number) <= _TOKEN_DIGITS_MAX
            if incarnation != self._incarnation or not is_number:
                raise BadSetting(
                    f"{token[:80]!r} is no token of the present query {self._name!r}; subscribe "
                    "without one, or with `resume` of a batch that this query has sent"
                )
            if int(number) > self._end:
                raise BadSetting(
                    f"token {token[:80]!r} is behind row {self._end:,}, the last of query "
                    f"{self._name!r}; a backup or a copy of the data may be older than the token"
                )
            self._check_kept(int(number))
            return int(number)

    def take(
        self, at: int, bytes_max: int
    ) -> tuple[pa.Table, int, tuple[InputProgress, ...]] | None:
        """Return kept rows from a number on, and the number after them; None: none yet.

        Args:
          at: of the first row. bytes_max: of the rows, about; one row may have more.

        Raises:
          OutputDiscarded: the row is not kept. EOFError: the engine closes.
          ShedderError: the query has ended.
        """
        with self._lock:
            if at < self._end:
                self._check_kept(at)
                segment = next(it for it in self._segments if at < it.end)
                some = _within(segment.table.slice(at - segment.before.rows), bytes_max)
                return some, at + some.num_rows, self._progress
            if self._ended is not None:
                raise type(self._ended).from_message(str(self._ended))
            if self._closed:
                raise EOFError
            return None

    def newest(self, bytes_max: int) -> tuple[pa.Table, int, tuple[InputProgress, ...]]:
        """Return the newest kept rows, about so many bytes, and the number after them."""
        with self._lock:
            tables: deque[pa.Table] = deque()
            left = bytes_max
            for segment in reversed(self._segments):
                some = _within(segment.table, left, newest=True)
                tables.appendleft(some)
                left -= some.nbytes
                if left <= 0 or some.num_rows < segment.table.num_rows:
                    break
            table = pa.concat_tables(tables) if tables else self.schema.empty_table()
            return table, self._end, self._progress

    def _check_kept(self, at: int) -> None:
        first = self._segments[0].before.rows if self._segments else self._end
        if at < first:
            raise OutputDiscarded(
                f"rows {at:,} to {first:,} (excluded) of query {self._name!r} are not kept any "
                f"more; subscribe after {self.token(first)!r} to go on with row {first:,}"
            )


def _within(table: pa.Table, bytes_max: int, *, newest: bool = False) -> pa.Table:
    """Return the first or the newest rows of a table, about so many bytes, and one at least."""
    per_row = max(table.nbytes / max(table.num_rows, 1), 1.0)
    rows = min(table.num_rows, max(1, int(bytes_max / per_row)))
    return table.slice(table.num_rows - rows if newest else 0, rows)
