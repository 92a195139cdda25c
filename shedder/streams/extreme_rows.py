"""Outlier index of a stream: the rows with the most extreme values of each numeric column.

Whether a row is held depends on values alone, never on the random keys of a sample. So the rows of
a sample that are not held here are a simple random sample of all rows that are not held here.

Source: Chaudhuri, Das, Datar, Motwani, Narasayya 2001, ICDE (outlier indexing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Column
from shedder.cql.statements.bound_query import StreamSchema
from shedder.streams.basics import ColumnBasics
from shedder.streams.batches import arrow_schema
from shedder.streams.frame import Frame
from shedder.streams.sample_payload import KeptRows
from synopses.kernels.array_inputs import as_input
from synopses.samples.admission_kernels import Rows, few_outside
from synopses.samples.bottom_k import Kept

ROWS_PER_END_MAX: Final = 128  # Twice this for each column: the smallest and the largest values.
_ROWS_SHARE: Final = 16  # All held rows are at most 1/16 of those of the sample.
_HELD_MAX: Final = 3  # Rows are cut when this many times those of all ends have gathered.
_PARTS: Final = 4  # Parts of a batch per row of an end, see `_ranks_of_parts`.
_FIRST_LOOK: Final = 1 << 15  # Rows; ends are given up from the second look on.
_LATE_ROWS_MIN: Final = 16  # Fewer rows at an end cost little and tell nothing.
_LATE_SHARE_MAX: Final = 0.875  # Of the rows at an end, from the later half of the stream.
_DOUBLE_WHOLE_MAX: Final = 2.0**53  # Doubles tell whole numbers apart up to here.
_NOTHING: Final = np.zeros(0, np.int64)

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ExtremesView:
    """All rows of a stream that lie beyond an end of some column; never changed.

    rows: in order of arrival. ends: by column; a row is among `rows` if its value is below the
      lower end or above the upper one of any column. Without a value a row is beyond none.
    """

    rows: pa.RecordBatch
    ends: Mapping[str, tuple[float, float]]

    def has(self, frame: Frame) -> NDArray[np.bool_]:
        """Return which rows of a frame are among these: bool [rows]."""
        found = np.zeros(len(frame), np.bool_)
        for name, (low, high) in self.ends.items():
            values = frame.doubles(name)
            found |= (values < low) | (values > high)
        return found

    def of_columns(self, names: Sequence[str], time_column: str) -> ExtremesView:
        """The rows that lie beyond an end of one of these columns, with no other columns."""
        ends = {name: each for name, each in self.ends.items() if name in names}
        found = ExtremesView(self.rows, ends).has(Frame(self.rows, time_column))
        return ExtremesView(self.rows.select(list(names)).take(np.flatnonzero(found)), ends)

    def of_others(self, basics: Mapping[str, ColumnBasics]) -> dict[str, ColumnBasics]:
        """The basics of all rows, with the ranges of the rows that are not among these."""
        narrowed = dict(basics)
        for name, (low, high) in self.ends.items():
            known = basics[name]
            if known.low is None or known.high is None or low > high:
                continue
            narrowed[name] = ColumnBasics(
                known.rows, known.nulls, max(known.low, _below(low)), min(known.high, _above(high))
            )
        return narrowed


class ExtremeRows:
    """The k smallest and the k largest values of each numeric column, with their whole rows.

    An end is the (k+1)-th smallest or largest value so far; rows strictly beyond it are held, so a
    value that many rows share is held of all of them or of none. Ends only move outward: a row that
    is not held lies between them for ever. Rows are cut to those beyond the ends when three times
    as many have gathered, and before they are read: then they are a function of k and of all rows.

    Of values in random order about k (1 + log(N/k)) of N are ever held at one end, half of the k
    from the later half of the stream. Where nearly all are from there, values rise or fall with
    time: that end holds no rows any more, and is the range's. This is looked at when N doubles.
    k depends on the sizes of held rows, too. Used by one thread.
    """

    def __init__(self, schema: StreamSchema, rows: int) -> None:
        """Begin empty. rows: of the sample that these rows stand beside."""
        self._time_column = schema.time_column
        self._arrow = arrow_schema(schema)
        self._columns = [Column(c.name, c.type) for c in schema.columns if c.type.is_number]
        self._k_max = min(ROWS_PER_END_MAX, rows // (_ROWS_SHARE * 2 * max(len(self._columns), 1)))
        self.k = self._k_max
        self._ends = [_ColumnEnds() for _ in self._columns]
        self._rows = KeptRows(self._arrow)
        self._held = 0
        self._earlier: int | None = None  # Held rows from before the last look; None: none was.
        self._seen = 0  # Rows offered.
        self._is_cut = True

    @property
    def columns(self) -> Sequence[Column]:
        """The numeric columns."""
        return self._columns

    @property
    def size_bytes(self) -> int:
        """Bytes held by rows."""
        return self._rows.size_bytes

    def update(self, frame: Frame, basics: Mapping[str, ColumnBasics]) -> None:
        """Offer the next rows: a whole batch. basics: of the frame, by column."""
        until = _next_look(self._seen) - self._seen
        if len(frame) < until:
            self._offer(frame, basics)
            return
        first, rest = (
            Frame(part, self._time_column)
            for part in (frame.batch.slice(0, until), frame.batch.slice(until))
        )
        self._offer(first, self._basics_of(first))
        self._look()
        self.update(rest, self._basics_of(rest))

    def _basics_of(self, frame: Frame) -> dict[str, ColumnBasics]:
        return {column.name: frame.basics(column.name) for column in self._columns}

    def _offer(self, frame: Frame, basics: Mapping[str, ColumnBasics]) -> None:
        self._seen += len(frame)
        entered: Rows | None = None
        for column, ends in zip(self._columns, self._ends, strict=True):
            known = basics[column.name]
            low, high = known.low, known.high
            if low is None or high is None or (low >= ends.low and high <= ends.high):
                continue
            ends.pass_by(float(low), float(high), self.k)
            if low >= ends.low and high <= ends.high:
                continue
            present = frame.present(column)
            found = ends.beyond(np.asarray(present.values), self.k)
            if len(found):
                found = found if present.rows is None else present.rows[found]
                entered = found if entered is None else _union(entered, found)
        if entered is None:
            return
        self._rows.move(Kept(None, entered), frame)
        self._held += len(entered)
        self._is_cut = False
        if self._held > _HELD_MAX * 2 * self.k * len(self._columns):
            self._cut()

    def _look(self) -> None:
        """Give up ends whose values rise or fall with time: nearly all rows are of the later half.

        Of k values in random order more than 7/8 are with probability below 0.0003 for k = 16.
        """
        self._cut()
        frame = Frame(self._rows.together(), self._time_column)
        if self._earlier is not None:
            for column, ends in zip(self._columns, self._ends, strict=True):
                ends.give_up(frame.doubles(column.name), self._earlier)
            self._is_cut = False
            self._cut()
        self._earlier = self._held

    def fit(self, size_bytes: float) -> None:
        """Hold at most this many bytes, with fewer rows per end where rows are wide."""
        if self._rows.content_bytes > size_bytes:
            self._cut()
        while self._rows.content_bytes > size_bytes:
            self.k //= 2
            self._is_cut = False
            self._cut()
        if self.k < self._k_max and 4 * self._rows.content_bytes <= size_bytes:
            self.k = min(2 * self.k + 1, self._k_max)

    def view(self) -> ExtremesView:
        """The rows as of now."""
        self._cut()
        ends = zip(self._columns, self._ends, strict=True)
        known = {column.name: (each.low, each.high) for column, each in ends}
        return ExtremesView(self._rows.together(), known)

    def state(self) -> tuple[dict[str, Any], pa.RecordBatch]:
        """Return k and the ends as JSON, and the rows; `restore` takes them back."""
        self._cut()
        ends = zip(self._columns, self._ends, strict=True)
        known = {column.name: asdict(each) for column, each in ends}
        counts = {"k": self.k, "seen": self._seen, "earlier": self._earlier}
        return {**counts, "ends": known}, self._rows.together()

    def restore(self, state: Mapping[str, Any], rows: KeptRows) -> None:
        """Go on from a stored state; no row was offered here yet."""
        self.k = min(state["k"], self._k_max)
        self._ends = [_ColumnEnds(**state["ends"][column.name]) for column in self._columns]
        self._seen, self._earlier = state["seen"], state["earlier"]
        self._rows, self._held = rows, rows.together().num_rows
        self._is_cut = False

    def begin_within(self, basics: Mapping[str, ColumnBasics], seen: int) -> None:
        """Go on after `seen` rows of which none was held: all lie in the range of their column."""
        self._seen = seen
        for column, ends in zip(self._columns, self._ends, strict=True):
            known = basics[column.name]
            if known.low is not None and known.high is not None:
                ends.low, ends.high = float(known.low), float(known.high)

    def _cut(self) -> None:
        """Move the ends to the (k+1)-th values, and drop the rows that are beyond none."""
        if self._is_cut:
            return
        frame = Frame(self._rows.together(), self._time_column)
        kept = np.zeros(len(frame), np.bool_)
        for column, ends in zip(self._columns, self._ends, strict=True):
            kept |= ends.moved_to_rank(frame.doubles(column.name), self.k)
        self._is_cut = True
        if not kept.all():
            rows = np.flatnonzero(kept)
            self._rows.move(Kept(rows, _NOTHING))
            self._held = len(rows)
            if self._earlier is not None:
                self._earlier = int(np.searchsorted(rows, self._earlier))


@dataclass(slots=True)
class _ColumnEnds:
    """The ends of one column's other rows, as doubles; both only move outward.

    low, high: every row of the column is held if it is beyond; at first all rows are.
    low_is_given_up, high_is_given_up: whether the end is that of the range, and holds no rows.
    """

    low: float = np.inf
    high: float = -np.inf
    low_is_given_up: bool = False
    high_is_given_up: bool = False

    def pass_by(self, low: float, high: float, k: int) -> None:
        """Move an end that holds no rows to that of a batch."""
        if not k or self.low_is_given_up:
            self.low = min(self.low, low)
        if not k or self.high_is_given_up:
            self.high = max(self.high, high)

    def beyond(self, values: Doubles | NDArray[np.int64], k: int) -> Rows:
        """Return where values beyond the ends are; where many are, the ends move first."""
        values = as_input(values, np.int64 if values.dtype.kind == "i" else np.float64)
        found = few_outside(values, self.low, self.high)
        parts = _PARTS * (k + 1)
        if len(found) <= parts or len(values) < 2 * parts:
            return found
        low, high = _ranks_of_parts(values, parts, k)
        self.low, self.high = min(self.low, low), max(self.high, high)
        return few_outside(values, self.low, self.high)

    def give_up(self, values: Doubles, earlier: int) -> None:
        """Give up an end with too few of the earlier rows beyond it. values: of the held rows."""
        below, above = values < self.low, values > self.high
        if _is_late(below, earlier):
            self.low, self.low_is_given_up = float(values[below].min()), True
        if _is_late(above, earlier):
            self.high, self.high_is_given_up = float(values[above].max()), True

    def moved_to_rank(self, values: Doubles, k: int) -> NDArray[np.bool_]:
        """Move to the (k+1)-th values of the held rows; return which rows are beyond an end."""
        below, above = values[values < self.low], values[values > self.high]
        if len(below) > k:
            self.low = float(np.partition(below, k)[k])
        if len(above) > k:
            self.high = float(np.partition(above, -k - 1)[-k - 1])
        beyond: NDArray[np.bool_] = (values < self.low) | (values > self.high)
        return beyond


def _next_look(seen: int) -> int:
    """Return how many rows have come when ends are looked at again: a power of two."""
    return max(_FIRST_LOOK, 1 << seen.bit_length())


def _is_late(rows: NDArray[np.bool_], earlier: int) -> bool:
    """Return whether nearly all of these held rows came after the `earlier` ones."""
    count = int(np.count_nonzero(rows))
    late = int(np.count_nonzero(rows[earlier:]))
    return count >= _LATE_ROWS_MIN and late > _LATE_SHARE_MAX * count


def _union(first: Rows, second: Rows) -> Rows:
    """The rows of either, ascending. Few: faster than `np.union1d`."""
    both = np.concatenate([first, second])
    both.sort()
    new = np.ones(len(both), np.bool_)
    np.not_equal(both[1:], both[:-1], out=new[1:])
    return both[new]


def _ranks_of_parts(values: Doubles | NDArray[np.int64], parts: int, k: int) -> tuple[float, float]:
    """Return ends that more than k of at least 2 * parts values reach on either side.

    The (k+1)-th largest of the maxima of parts is at most the (k+1)-th largest value, and near it.
    A part has every n-th value, so values that rise with their order are all in different parts.
    """
    length = len(values) // parts
    table = values[-length * parts :].reshape(length, parts)
    least, most = table.min(axis=0), table.max(axis=0)
    return float(np.partition(least, k)[k]), float(np.partition(most, -k - 1)[-k - 1])


def _below(end: float) -> float:
    """An end in doubles, which whole numbers beyond 2^53 are rounded to."""
    return end if abs(end) < _DOUBLE_WHOLE_MAX else float(np.nextafter(end, -np.inf))


def _above(end: float) -> float:
    return -_below(-end)
