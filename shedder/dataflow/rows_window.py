"""ROWS window: the n newest tuples of a stream, or of each partition, by event time and position.

NULL is a partition. A tuple that leaves does so when a newer one comes, so the output is STRICT.
With SLIDE m the window changes after every m-th tuple of the stream.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.plans.logical_plan import RowsWindow
from shedder.dataflow.changes import ChangeBatch, Int64s
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.row_store import RowStore
from shedder.dataflow.rows_kernels import (
    NEWEST,
    OLDEST,
    QUEUE_COLUMNS,
    enqueue_rows,
    merge_rows,
    number_rows,
)

_ROWS_MIN = 1024
_COMPACT_ROWS_MIN = 4096  # Fewer rows are not searched for those that have left.


class NewestRows:
    """Operator of [ROWS n] and [PARTITION BY ... ROWS n]; its input is a stream, in order.

    schema: of the output; the columns that PREV needs are behind those of the stream.
    """

    def __init__(self, window: RowsWindow, schema: pa.Schema) -> None:
        """A window without tuples. schema: of the stream."""
        self._window = window
        self.schema = pa.schema([*schema, *(pa.field(name, pa.int64()) for name in window.added)])
        self._rows = RowStore(self.schema)
        self._numbered = 0
        self._newest = np.empty(0, np.int64)  # Number of the newest tuple of each partition.
        keys = pa.schema([schema.field(name) for name in window.partition])
        self._directory = KeyDirectory(keys) if window.partition else None
        self._queues = np.zeros((_ROWS_MIN, QUEUE_COLUMNS), np.int32)
        self._newer = np.zeros(_ROWS_MIN, np.int32)
        self._has_left = np.zeros(_ROWS_MIN, np.bool_)
        self._waiting = ChangeBatch.empty(schema)  # Fewer tuples than a slide.
        self._compact_at = _COMPACT_ROWS_MIN

    @property
    def window(self) -> RowsWindow:
        """The window that it holds."""
        return self._window

    @property
    def size_bytes(self) -> int:
        """Bytes of the tuples, of the queues and of the partitions' keys."""
        keys = 0 if self._directory is None else self._directory.size_bytes
        links = self._queues.nbytes + self._newer.nbytes + self._has_left.nbytes
        links += self._newest.nbytes
        return self._rows.size_bytes + keys + links + self._waiting.size_bytes

    def least(self, name: str) -> int | None:
        """Return the least value of a column in the window and before it; None: no tuple."""
        held = self._rows.take(np.flatnonzero(~self._has_left[: len(self._rows)]))
        columns = (held.column(name), self._waiting.columns.column(name))
        return min((int(each.to_numpy().min()) for each in columns if len(each)), default=None)

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:  # noqa: ARG002
        """The tuples that enter the window, and with weight -1 those that leave it."""
        changes, entered_us = self._slid(changes)
        if not len(changes):
            return ChangeBatch.empty(self.schema)
        first = len(self._rows)
        ids = self._partitions(changes)
        if self._window.added:
            changes = self._with_numbers(changes, ids)
        self._rows.append(changes.columns)
        self._reserve(len(self._rows), int(ids.max()) + 1)
        evicted, evicting = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        made = enqueue_rows(
            first, ids, self._window.rows, self._queues, self._newer, evicted, evicting
        )
        left, left_us = evicted[:made], entered_us[evicting[:made]]
        self._has_left[left] = True
        found = ChangeBatch.of_tuples(changes.columns, entered_us)
        if made:
            positions, times_us, weight = (np.empty(len(ids) + made, np.int64) for _ in range(3))
            merge_rows(first, entered_us, left, left_us, positions, times_us, weight)
            found = ChangeBatch.of_tuples(self._rows.take(positions), times_us)
            found = replace(found, weight=weight)
        if len(self._rows) > self._compact_at:
            self._compact()
        return found

    def _slid(self, changes: ChangeBatch) -> tuple[ChangeBatch, Int64s]:
        """The tuples of whole slides, and the event time of the last tuple of each one's slide."""
        slide = self._window.slide_rows
        if slide == 1:
            return changes, changes.ts_us
        both = ChangeBatch.concat([self._waiting, changes])
        whole = len(both) // slide * slide
        self._waiting = both.take(np.arange(whole, len(both)))
        slides = np.arange(whole) // slide
        return both.take(np.arange(whole)), both.ts_us[(slides + 1) * slide - 1]

    def _partitions(self, changes: ChangeBatch) -> Int64s:
        if self._directory is None:
            return np.zeros(len(changes), np.int64)
        return self._directory.assign([changes.columns[name] for name in self._window.partition])

    def _with_numbers(self, changes: ChangeBatch, ids: Int64s) -> ChangeBatch:
        """Return the tuples with their numbers, and those of the tuples before them."""
        lacking = int(ids.max()) + 1 - len(self._newest)
        if lacking > 0:
            more = np.full(lacking + len(self._newest), -1, np.int64)
            self._newest = np.concatenate([self._newest, more])
        first, size = self._numbered, len(ids)
        previous = np.empty(size, np.int64)
        number_rows(first, ids, self._newest, previous)
        self._numbered += size
        numbers = pa.array(np.arange(first, first + size)), pa.array(previous, mask=previous < 0)
        arrays = [*changes.columns.columns, *numbers]
        return changes.with_columns(pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def _reserve(self, rows: int, partitions: int) -> None:
        if rows > len(self._newer):
            room = 2 * rows
            newer, has_left = np.zeros(room, np.int32), np.zeros(room, np.bool_)
            newer[: len(self._newer)], has_left[: len(self._newer)] = self._newer, self._has_left
            self._newer, self._has_left = newer, has_left
        if partitions > len(self._queues):
            queues = np.zeros((2 * partitions, QUEUE_COLUMNS), np.int32)
            queues[: len(self._queues)] = self._queues
            self._queues = queues

    def _compact(self) -> None:
        """Drop the tuples that have left, once they are half of all."""
        size = len(self._rows)
        held: NDArray[np.bool_] = ~self._has_left[:size]
        kept = np.flatnonzero(held)
        if 2 * len(kept) <= size:
            new = np.cumsum(held) - 1
            self._rows.keep(kept)
            # The entry of a newest row may be any number: it is set before it is read.
            self._newer[: len(kept)] = new.take(self._newer[kept], mode="clip")
            self._has_left[:size] = False
            for column in (OLDEST, NEWEST):
                self._queues[:, column] = new[self._queues[:, column]]
        self._compact_at = max(_COMPACT_ROWS_MIN, 2 * len(self._rows))
