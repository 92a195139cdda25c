"""Rows of a stream that windows still hold: once for all windows, joins and queries over it.

A window over a stream is a stretch of its newest rows. So windows of different length read one
store, which has the rows of the longest one; where a window begins follows from its length and
from the instant that its reader has reached. A slow reader leaves the newest rows out.
Source: Motwani et al. 2003, Query processing, resource management, and approximation in a data
stream management system, section 3.2 (shared window stores); McSherry et al. 2020, Shared
arrangements.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.plans.logical_plan import NowWindow
from shedder.cql.statements.statement import RangeWindow, UnboundedWindow
from shedder.dataflow.changes import NEVER_US, ChangeBatch
from shedder.dataflow.fixed_column import room_for
from shedder.dataflow.row_store import RowStore
from shedder.dataflow.stores.key_chains import KeyChains, Keys
from shedder.dataflow.window_lifetimes import TimeWindow

_COMPACT_ROWS_MIN = 4096  # Fewer rows are not searched for those that have left.
_ROWS_MIN = 1024
BEGINNING_US = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class WindowLength:
    """Length of a window. range_us 0: rows never leave."""

    range_us: int
    slide_us: int

    @classmethod
    def of(cls, window: TimeWindow) -> WindowLength | None:
        """Return the length of a window; None: it is not a stretch of the newest rows."""
        match window:
            case RangeWindow(range_us=range_us, slide_us=slide_us, collapse=None):
                return cls(range_us, slide_us)
            case NowWindow():
                return cls(1, 1)
            case UnboundedWindow():
                return cls(0, 1)
            case _:
                return None

    def lifetimes(self, ts_us: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last instant of rows in the window."""
        slide_us = self.slide_us
        born_us = (ts_us // slide_us + 1) * slide_us
        if self.range_us == 0:
            return born_us, np.full(len(ts_us), NEVER_US)
        return born_us, ((ts_us + self.range_us) // slide_us + 1) * slide_us - 1

    def since(self, instants_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the event time of the oldest row that is in the window at each instant."""
        if self.range_us == 0:
            return np.full(len(instants_us), BEGINNING_US)
        slides = -((-(instants_us + 1)) // self.slide_us) - 1
        return slides * self.slide_us - self.range_us

    def needs_from_us(self, as_of_us: int | None) -> int:
        """Return the event time of the oldest row in the window at an instant, or later.

        None: no instant has come.
        """
        if as_of_us is None:
            return BEGINNING_US
        return int(self.since(np.array([as_of_us]))[0])


class StreamRows:
    """Rows by position, in the order of event time.

    as_of_us: rows before this event time are there; None: none has come.
    size_bytes: of the rows and of all indexes.

    Rows are added by one thread. Readers may be in another one, so both hold the lock while they
    are in an array that may grow.
    """

    def __init__(self) -> None:
        """No rows, and no columns."""
        self.lock = Lock()
        self.as_of_us: int | None = None
        self.size_bytes = 0
        self.rows = RowStore(pa.schema([]))
        self._chains: dict[Keys, KeyChains] = {}
        self._ts = np.empty(_ROWS_MIN, np.int64)
        self._size = 0
        self._readers = WeakSet[WindowReader]()
        self._known_readers = 0
        self._compact_at = _COMPACT_ROWS_MIN
        self._complete_us: dict[str, int] = {}  # By column, as far as rows were dropped.

    def __len__(self) -> int:
        return self._size

    def __deepcopy__(self, memo: dict[int, object]) -> StreamRows:
        """Return a store with the same rows; its readers are those that are copied with it."""
        made = StreamRows()
        memo[id(self)] = made
        with self.lock:
            made.as_of_us, made.size_bytes = self.as_of_us, self.size_bytes
            made._complete_us = self._complete_us.copy()
            made.rows, made._chains = copy.deepcopy((self.rows, self._chains))
            made._ts, made._size, made._compact_at = self._ts.copy(), self._size, self._compact_at
        return made

    @property
    def keys(self) -> tuple[Keys, ...]:
        """The keys by which there is an index."""
        return tuple(self._chains)

    @property
    def ts_us(self) -> NDArray[np.int64]:
        """Event times of the rows."""
        return self._ts[: self._size]

    def complete_from_us(self, name: str) -> int:
        """Return the event time from which on all rows are there, with a column.

        A new query does not read rows of the past that none of its windows needs.
        """
        known_us = self._complete_us.get(name, BEGINNING_US)
        needed = (each.needs_from_us for each in list(self._readers) if name in each.columns)
        return max(known_us, min(needed, default=BEGINNING_US))

    def between(self, from_us: int | None, until_us: int) -> NDArray[np.int64]:
        """Return positions of the rows with event time in [from_us, until_us). None: all before."""
        first = 0 if from_us is None else self.before(from_us)
        return np.arange(first, self.before(until_us))

    def before(self, instant_us: int) -> int:
        """Return how many rows have an event time before an instant."""
        return int(np.searchsorted(self.ts_us, instant_us))

    def chains(self, keys: Keys) -> KeyChains:
        """Return the index by a key."""
        return self._chains[keys]

    def include(self, schema: pa.Schema, keys: Keys) -> None:
        """Have columns and an index of the rows that come; there are none yet."""
        assert not self._size
        fields = {field.name: field for field in (*self.rows.schema, *schema)}
        self.rows = RowStore(pa.schema(list(fields.values())))
        self._chains.setdefault(keys, KeyChains(keys))

    def copied_until(self, as_of_us: int | None) -> StreamRows:
        """Return a store with the same rows, columns and indexes, and without readers.

        as_of_us: that of the rows.
        """
        made = StreamRows()
        made.as_of_us = as_of_us
        made.absorb(self)
        return made

    def append(self, as_of_us: int, changes: ChangeBatch) -> None:
        """Add the rows of the stream up to an instant; columns are named `alias.column`."""
        with self.lock:
            self.as_of_us = as_of_us
            if len(self._readers) != self._known_readers:
                self._forget_unread()
            if not self._readers:
                self._complete_us = dict.fromkeys(self.rows.schema.names, as_of_us)
            elif len(changes):
                names = [name.partition(".")[2] for name in changes.columns.schema.names]
                arrays = dict(zip(names, changes.columns.columns, strict=True))
                columns = [arrays[name] for name in self.rows.schema.names]
                batch = pa.RecordBatch.from_arrays(columns, schema=self.rows.schema)
                self._add(batch, changes.ts_us)
            self._note_size()

    def absorb(self, other: StreamRows) -> None:
        """Have the columns, indexes and older rows of a store of the same stream, too.

        Both have come to one instant, and have the same rows as far as readers of both need them.
        What a row of one of them lacks is NULL: no reader of that store asks for it.
        """
        assert self.as_of_us == other.as_of_us, (self.as_of_us, other.as_of_us)
        with self.lock, other.lock:
            ours, theirs = (
                {name: each.complete_from_us(name) for name in each.rows.schema.names}
                for each in (self, other)
            )
            is_known = all(name in ours and ours[name] <= us for name, us in theirs.items())
            needed = self._needed_rows(), other._needed_rows()
            if is_known and needed[1] <= needed[0] and self._chains.keys() >= other._chains.keys():
                return
            size = max(needed)
            newest, others = zip((self.rows, other.rows), needed, strict=True)
            fields = {it.name: it for it in (*self.rows.schema, *other.rows.schema)}
            schema = pa.schema(list(fields.values()))
            columns = [
                _ending(newest, others, name, size)
                if ours.get(name, NEVER_US) <= theirs.get(name, NEVER_US)
                else _ending(others, newest, name, size)
                for name in schema.names
            ]
            self._complete_us = {
                name: min(ours.get(name, NEVER_US), theirs.get(name, NEVER_US))
                for name in schema.names
            }
            longer = self if needed[0] == size else other
            ts_us = longer.ts_us[len(longer) - size :]
            chains = (*self._chains, *other._chains)
            self.rows = RowStore(schema)
            self._chains = {keys: KeyChains(keys) for keys in chains}
            self._ts, self._size = np.empty(max(_ROWS_MIN, size), np.int64), 0
            if size:
                self._add(pa.RecordBatch.from_arrays(columns, schema=schema), ts_us)
            self._note_size()

    def compact(self) -> None:
        """Drop the oldest rows that no reader needs, once they are half of all."""
        with self.lock:
            if self._size > self._compact_at:
                self._forget_unread()
                self._drop_oldest()
                self._note_size()

    def join(self, reader: WindowReader) -> None:
        """Keep the rows that a reader needs."""
        with self.lock:
            self._readers.add(reader)

    def leave(self, reader: WindowReader) -> None:
        """Forget a reader."""
        with self.lock:
            self._readers.discard(reader)

    def _add(self, batch: pa.RecordBatch, ts_us: NDArray[np.int64]) -> None:
        first, self._size = self._size, self._size + batch.num_rows
        if self._size > len(self._ts):
            wide = np.empty(max(self._size, 2 * len(self._ts)), np.int64)
            wide[:first] = self._ts[:first]
            self._ts = wide
        self._ts[first : self._size] = ts_us
        self.rows.append(batch)
        for chains in self._chains.values():
            chains.append(first, batch, ts_us)

    def _forget_unread(self) -> None:
        """Forget the columns and the indexes of readers that have left."""
        readers = list(self._readers)
        self._known_readers = len(readers)
        read = {each.keys for each in readers}
        self._chains = {keys: it for keys, it in self._chains.items() if keys in read}
        names = {name for each in readers for name in each.columns}
        schema = self.rows.schema
        kept = [field for field in schema if field.name in names]
        if len(kept) < len(schema):
            places, everything = map(schema.names.index, names), np.arange(self._size)
            before, self.rows = self.rows, RowStore(pa.schema(kept))
            columns = [before.take_column(place, everything) for place in sorted(places)]
            if columns:
                self.rows.append(pa.RecordBatch.from_arrays(columns, schema=self.rows.schema))
        if not readers:
            self._ts, self._size = np.empty(_ROWS_MIN, np.int64), 0

    def _needed_rows(self) -> int:
        """Return how many of the newest rows some reader needs."""
        since_us = min((each.needs_from_us for each in list(self._readers)), default=NEVER_US)
        return self._size - int(np.searchsorted(self.ts_us, since_us))

    def _drop_oldest(self) -> None:
        since_us = min((each.needs_from_us for each in list(self._readers)), default=None)
        ts_us, size = self.ts_us, self._size
        left = size if since_us is None else int(np.searchsorted(ts_us, since_us))
        if 2 * left >= size:
            if left:
                dropped_us = int(ts_us[left - 1]) + 1
                for name in self.rows.schema.names:
                    known_us = self._complete_us.get(name, BEGINNING_US)
                    self._complete_us[name] = max(known_us, dropped_us)
            wide = np.empty(room_for(size - left), np.int64)
            wide[: size - left] = ts_us[left:]
            for chains in self._chains.values():
                chains.drop(left, size)
            self.rows, self._ts, self._size = self.rows.newer(left), wide, size - left
        self._compact_at = max(_COMPACT_ROWS_MIN, 2 * self._size)

    def _note_size(self) -> None:
        indexes = sum(each.size_bytes for each in self._chains.values())
        self.size_bytes = self.rows.size_bytes + self._ts.nbytes + indexes


class WindowReader:
    """A window that an operator reads from a store, by a key.

    keys: of the index; None: it uses none. columns: that it reads, by the store's names.
    as_of_us: up to which the operator has come; None: it has read nothing.
    """

    def __init__(
        self,
        rows: StreamRows,
        length: WindowLength,
        keys: Keys | None,
        columns: Sequence[str],
        as_of_us: int | None = None,
    ) -> None:
        self.rows = rows
        self.length = length
        self.keys = keys
        self.columns = tuple(columns)
        self.as_of_us = as_of_us
        rows.join(self)

    def __deepcopy__(self, memo: dict[int, object]) -> WindowReader:
        """Return a reader of a copy of the store."""
        return self.of(copy.deepcopy(self.rows, memo))

    def of(self, rows: StreamRows) -> WindowReader:
        """Return the same reader of another store."""
        return WindowReader(rows, self.length, self.keys, self.columns, self.as_of_us)

    def come_to(self, as_of_us: int) -> None:
        """The operator has come to an instant, and needs no rows that have left by then."""
        self.as_of_us = as_of_us
        self.rows.compact()

    @property
    def needs_from_us(self) -> int:
        """Event time of the oldest row that is in the window at its instant, or later."""
        return self.length.needs_from_us(self.as_of_us)


def _ending(
    base: tuple[RowStore, int], other: tuple[RowStore, int], name: str, size: int
) -> pa.Array[Any]:
    """A column of so many rows, whose newest ones are those of one store, or of both.

    base, other: each a store's rows, and how many of the newest ones count.
    """
    (rows, count), (others, others_count) = base, other
    parts: list[Any] = []
    lacking = size - count
    place = rows.schema.names.index(name)
    if lacking and name in others.schema.names:
        oldest = np.arange(len(others) - others_count, len(others) - count)
        parts.append(others.take_column(others.schema.names.index(name), oldest))
    elif lacking:
        parts.append(pa.nulls(lacking, cast(Any, rows.schema.field(name).type)))
    parts.append(rows.take_column(place, np.arange(len(rows) - count, len(rows))))
    return pa.concat_arrays(parts)
