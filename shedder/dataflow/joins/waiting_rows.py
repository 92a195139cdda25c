"""Rows of one side of a join that wait for their partner: FOREIGN KEY … WITHIN k TUPLES, k > 0.

A row waits until the first row of the other side with its key, and is joined with that row alone.
It leaves unmatched once k rows of the other side have passed, or once its window has passed it.
All of this follows from the order of event time, not from steps. Rows come in that order, so the
waits end in the order of positions.
Source: Babu, Srivastava, Widom 2004, Exploiting k-constraints to reduce memory overhead in
continuous queries over data streams, ACM TODS 29(3): referential integrity RI(k).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.changes import ChangeBatch, Int64s
from shedder.dataflow.joins.join_kernels import Int32s
from shedder.dataflow.joins.join_side import JoinSide
from shedder.dataflow.update_patterns import EdgeLabel

_ROWS_MIN = 1024  # Fewer rows are not searched for those that have left.
_UNTIL, _EXPIRES, _FIRST = range(3)
_WAITS = int(np.iinfo(np.int64).max)
_JOINED = -1


class WaitingRows:
    """Rows of one side, in the order of event time, until they are joined or their wait ends.

    side: the rows, with those that have left and are not dropped yet.
    """

    def __init__(self, schema: pa.Schema, label: EdgeLabel, within: int) -> None:
        """No rows.

        schema, label: of the input, whose rows leave in the order of positions.
        within: k; > 0, rows of the other side.
        """
        assert label.leaves_in_order, label
        self.side = JoinSide(schema, label)
        self._within = within
        self._passed = 0  # Rows of the other side before this step.
        self._begin = 0  # Rows before this position have left.
        self._joined = 0  # Rows from `_begin` on that have left, too.
        # _UNTIL: number of the last row of the other side that may be the partner. _EXPIRES: of the
        # row. _FIRST: place of the partner in the step, _WAITS or _JOINED.
        self._waits = np.empty((3, _ROWS_MIN), np.int64)

    def __len__(self) -> int:
        """Return how many rows wait."""
        return len(self.side) - self._begin - self._joined

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows, of their index and of their waits."""
        return self.side.size_bytes + self._waits.nbytes

    def insert(self, changes: ChangeBatch, ids: Int32s, since_us: int, others_us: Int64s) -> None:
        """Add rows of the step that have found no partner.

        ids, since_us: as of `JoinSide.insert`. others_us: event times of the step's rows of the
        other side, rising.
        """
        if not len(changes):
            return
        first = len(self.side)
        self.side.insert(changes, ids, since_us)
        end = len(self.side)
        if end > self._waits.shape[1]:
            self._waits = _with_room(self._waits[:, :first], 2 * end)
        new = self._waits[:, first:end]
        new[_UNTIL] = self._passed + np.searchsorted(others_us, changes.ts_us, side="right")
        new[_UNTIL] += self._within
        new[_EXPIRES], new[_FIRST] = changes.expires_us, _WAITS

    def pairs(
        self, others: ChangeBatch, ids: Int32s, pairs_max: int
    ) -> Iterator[NDArray[np.int64]]:
        """Pairs of the step's rows of the other side with rows that wait, as of `JoinSide.pairs`.

        Each row that waits has one pair at most, with the first partner in the order of `others`.
        """
        if not len(self) or not len(others):
            return
        first, touched = self._waits[_FIRST], [np.empty(0, np.int64)]
        for made in self.side.pairs(others, ids, pairs_max):
            np.minimum.at(first, made[1], made[0])
            touched.append(np.unique(made[1]))
        places = np.unique(np.concatenate(touched))
        places = places[first[places] != _JOINED]
        in_time = self._passed + first[places] < self._waits[_UNTIL, places]
        first[places[~in_time]] = _WAITS
        for made in self.side.pairs(others, ids, pairs_max):
            yield made[:, first[made[1]] == made[0]]
        first[places[in_time]] = _JOINED
        self._joined += int(np.count_nonzero(in_time))

    def end_step(self, as_of_us: int, others_us: Int64s) -> Int64s:
        """End the waits that are over; return from which instants on that is known, unordered.

        others_us: as of `insert`.
        """
        waits, passed = self._waits[:, : len(self.side)], self._passed + len(others_us)
        begin = max(
            int(np.searchsorted(waits[_UNTIL], passed, side="right")),
            int(np.searchsorted(waits[_EXPIRES], as_of_us, side="right")),
            self._begin,
        )
        left = waits[:, self._begin : begin]
        waited = left[_FIRST] == _WAITS
        known_us: Int64s = left[_EXPIRES][waited]
        last = left[_UNTIL][waited] - self._passed
        is_over = last <= len(others_us)
        known_us[is_over] = np.minimum(known_us[is_over], others_us[last[is_over] - 1] + 1)
        self._joined -= int(np.count_nonzero(~waited))
        self._begin, self._passed = begin, passed
        if len(self.side) > _ROWS_MIN and 2 * len(self) <= len(self.side):
            self._drop()
        return known_us

    def _drop(self) -> None:
        """Drop the rows that have left."""
        states = self._waits[_FIRST, : len(self.side)]
        kept = self._begin + np.flatnonzero(states[self._begin :] == _WAITS)
        self.side.keep(kept)
        self._waits = _with_room(self._waits[:, kept], max(_ROWS_MIN, 2 * len(kept)))
        self._begin = self._joined = 0


def _with_room(waits: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    wide = np.empty((3, room), np.int64)
    wide[:, : waits.shape[1]] = waits
    return wide
