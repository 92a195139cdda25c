"""DISTINCT over rows whose expiry is known at birth: one entry for each value of the output.

The operator is delta* of Golab 2006, section 3.5.2, with its misprint corrected: the spare of a
value is the row that expires latest. A spare takes the place of the present row without a change
of the output. So a value leaves by a negative weight, and operators above see it once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s, never_us
from shedder.dataflow.expiry.distinct_kernels import (
    ABSENT,
    END,
    SEQUENCE,
    UNTIL,
    enter_rows,
    leave_values,
    list_all,
    merge_changes,
    needed_rows,
    sort_by_instant,
)
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.pending_events import DueEvents, Events, PendingEvents

_VALUES_MIN = 64
_VALUES_PER_BUCKET = 8
_COUNTS_PER_VALUE = 8  # Instants of a step, by the values that leave: more are not counted.
_PURGE_VALUES_MIN = 4096  # A directory below this size is not searched for values that have left.


class DistinctRows:
    """Each value of an input that is not STRICT, once; the output is STRICT.

    Changes are those that counting the rows of each value makes, in the same order. The state has
    no row of the input but those that are not born.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """An operator without rows. schema: of the input, and of the output."""
        self._directory = KeyDirectory(schema)
        self._latest = _absent(_VALUES_MIN, 3)
        self._heads = np.full(_VALUES_MIN // _VALUES_PER_BUCKET, END, np.int32)
        self._width_us = 1  # Of a bucket.
        self._list_all()
        self._coming = PendingEvents(2)
        self._newest = np.empty((0, 2), np.int64)  # Of the rows that are not born, by value.
        self._sequence = 0
        self._since_us: int | None = None
        self._purge_at = _PURGE_VALUES_MIN

    @property
    def size_bytes(self) -> int:
        """Bytes of the values, the calendar and the rows that are not born."""
        entries = self._latest.nbytes + self._heads.nbytes + self._newest.nbytes
        return self._directory.size_bytes + entries + self._coming.size_bytes

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:
        """Take rows of positive weight, and give the values that enter and leave."""
        if len(changes):
            self._take(as_of_us, changes)
        entered, left = self._born(as_of_us)
        left = self._by_instant(as_of_us, np.concatenate([left, self._left(as_of_us)]))
        self._since_us = as_of_us
        instants, ids, weight = made = np.empty((3, len(left) + len(entered)), np.int64)
        merge_changes(left, entered, made)
        columns = self._directory.keys(ids)
        if self._directory.size > self._purge_at:
            self._purge()
        return ChangeBatch(columns, instants - 1, instants, never_us(len(ids)), weight)

    def _take(self, as_of_us: int, changes: ChangeBatch) -> None:
        ids = self._directory.assign(changes.columns.columns)
        self._reserve(self._directory.size)
        last = self._sequence + len(ids)
        ends = np.empty((len(ids), 2), np.int64)
        ends[:, UNTIL], ends[:, SEQUENCE] = changes.expires_us, np.arange(self._sequence, last)
        self._sequence = last
        births = Events(changes.born_us, ids, changes.weight, ends)
        if int(changes.born_us.max()) > as_of_us:
            if len(self._newest) < len(self._latest):
                self._newest = _absent(len(self._latest))
            places = np.empty(len(ids), np.int64)
            kept = needed_rows(ids, changes.born_us, ends, self._newest, places)
            births = births.take(places[:kept]) if kept < len(ids) else births
        self._coming.push_births(births)

    def _born(self, as_of_us: int) -> tuple[Int64s, Int64s]:
        """Return the values that enter, and those that left before they entered again."""
        events, _ = DueEvents.of((self._coming,), as_of_us).merged()
        instants, ids, _, ends = events.arrays
        if not len(ids):
            return np.empty((0, 2), np.int64), np.empty((0, 3), np.int64)
        self._widen(instants, ends[:, UNTIL])
        if self._since_us is None:
            self._since_us = int(instants[0]) - 1
        entered, left = np.empty((len(ids), 2), np.int64), np.empty((len(ids), 3), np.int64)
        lists = (self._latest, self._heads, self._width_us)
        some, others = enter_rows(ids, instants, ends, *lists, entered, left)
        return entered[:some], left[:others]

    def _left(self, as_of_us: int) -> Int64s:
        if self._since_us is None:
            return np.empty((0, 3), np.int64)
        left = np.empty((self._directory.size, 3), np.int64)
        lists = (self._latest, self._heads, self._width_us)
        return left[: leave_values(self._since_us, as_of_us, *lists, left)]

    def _by_instant(self, as_of_us: int, left: Int64s) -> Int64s:
        """Order values that leave by instant, and those of one instant by number."""
        if self._since_us is None or len(left) < 2:
            return left
        counts = as_of_us - self._since_us + 1
        if counts <= _COUNTS_PER_VALUE * len(left):
            ordered = np.empty_like(left)
            if sort_by_instant(left, self._since_us, np.zeros(counts, np.int32), ordered):
                return ordered
        return left[np.lexsort((left[:, 2], left[:, 0]))]

    def _widen(self, born_us: Int64s, expires_us: Int64s) -> None:
        """Make buckets so wide that the calendar holds the longest life."""
        lives_us = expires_us - born_us
        if int(expires_us.max()) == NEVER_US:
            lives_us = lives_us[expires_us != NEVER_US]
        longest_us = int(lives_us.max(initial=0))
        if longest_us >= self._width_us * (len(self._heads) - 1):
            self._width_us = 1 + 2 * longest_us // (len(self._heads) - 1)
            self._list_all()

    def _list_all(self) -> None:
        self._heads.fill(END)
        list_all(self._latest, self._heads, self._width_us)

    def _reserve(self, size: int) -> None:
        if size <= len(self._latest):
            return
        self._resize(max(size, 3 * len(self._latest) // 2), self._latest)

    def _resize(self, room: int, latest: Int64s) -> None:
        """Make room for values with their latest expiries."""
        before = len(self._heads)
        self._latest = _absent(room, 3)
        self._latest[: len(latest)] = latest
        self._heads = np.full(1 << (room // _VALUES_PER_BUCKET).bit_length(), END, np.int32)
        self._width_us = max(1, self._width_us * before // len(self._heads))
        self._list_all()
        if len(self._newest):
            self._newest = _absent(room)

    def _purge(self) -> None:
        """Forget values that are absent and do not come, once they are half of all."""
        size = self._directory.size
        used = self._coming.used(size) | (self._latest[:size, UNTIL] != ABSENT)
        used[0] = False
        kept = np.flatnonzero(used)
        if 2 * len(kept) < size:
            new_ids = np.zeros(size, np.int64)
            new_ids[kept] = np.arange(1, len(kept) + 1)
            self._coming.renumber(new_ids)
            self._directory.keep(kept)
            latest = self._latest[np.concatenate([[0], kept])]
            self._resize(max(_VALUES_MIN, 3 * len(latest) // 2), latest)
            self._purge_at = max(_PURGE_VALUES_MIN, 2 * self._directory.size)
        else:
            self._purge_at = max(_PURGE_VALUES_MIN, size + size // 4)


def _absent(values: int, columns: int = 2) -> Int64s:
    return np.full((values, columns), ABSENT, np.int64)
