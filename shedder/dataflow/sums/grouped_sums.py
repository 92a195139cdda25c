"""GROUP BY with COUNT, SUM and AVG over a relation whose rows may leave at any instant; STRICT.

Sums of whole numbers and of doubles are exact, so a row that leaves is subtracted. A result does
not depend on the order of rows. Without groups there is one row, also over an empty relation.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.pending_events import PendingEvents
from shedder.dataflow.sums.sum_kernels import sum_groups
from shedder.dataflow.sums.sum_results import SummedArguments, arguments_of
from shedder.streams.batches import TIME_MIN_US

_GROUPS_MIN = 64
_PURGE_GROUPS_MIN = 4096  # A directory below this size is not searched for groups without rows.


class GroupedSums:
    """Counts and sums per group.

    The output has columns g0, g1, ... and a0, a1, ... of `schema`. At an instant at which the
    result of a group differs, the old row gets weight -1 and the new row 1.
    """

    def __init__(
        self, groups: tuple[Expression, ...], aggregates: tuple[Aggregate, ...], schema: pa.Schema
    ) -> None:
        """An operator over an empty relation.

        Args:
          groups: of GROUP BY; (): all rows are one group.
          aggregates: with functions of `sum_results.SUPPORTED`.
          schema: of the output.
        """
        self._groups, self._aggregates, self._schema = groups, aggregates, schema
        self._summed = SummedArguments(arguments_of(aggregates))
        self._directory = KeyDirectory(pa.schema(list(schema)[: len(groups)])) if groups else None
        self._pending = PendingEvents(1 + len(self._summed.arguments))
        self._allocate(_GROUPS_MIN)
        self._purge_at = _PURGE_GROUPS_MIN
        self._is_new = True

    @property
    def groups(self) -> tuple[Expression, ...]:
        """The expressions of GROUP BY."""
        return self._groups

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """What is computed of each group."""
        return self._aggregates

    @property
    def size_bytes(self) -> int:
        """Bytes of the groups, their sums and the rows that will leave."""
        keys = 0 if self._directory is None else self._directory.size_bytes
        return keys + self._states.nbytes + self._results.nbytes + self._pending.size_bytes

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:
        """The rows of the groups whose results differ up to the instant."""
        if len(changes):
            self._pending.push(changes, self._ids(changes), self._summed.values(changes))
        due = self._pending.due(as_of_us)
        if len(due):
            self._reserve(int(due.ids.max()) + 1)
        instants, ids, weight = (np.empty(2 * len(due), np.int64) for _ in range(3))
        results = np.empty((2 * len(due), self._results.shape[1]), np.int64)
        made = sum_groups(
            np.ascontiguousarray(due.instant_us),
            np.ascontiguousarray(due.ids),
            np.ascontiguousarray(due.weight),
            np.ascontiguousarray(due.values),
            self._summed.kinds,
            not self._groups,
            self._states,
            self._results,
            self._is_touched,
            instants,
            ids,
            weight,
            results,
        )
        made_rows = self._rows(instants[:made], ids[:made], weight[:made], results[:made])
        if self._directory is not None and self._directory.size > self._purge_at:
            self._purge(self._directory)
        if not self._is_new or self._groups:
            return made_rows
        self._is_new = False
        return ChangeBatch.concat([self._empty_row(), made_rows])

    def _ids(self, changes: ChangeBatch) -> Int64s:
        if self._directory is None:
            return np.zeros(len(changes), np.int64)
        return self._directory.assign([evaluate(each, changes.columns) for each in self._groups])

    def _rows(
        self, instants: Int64s, ids: Int64s, weight: Int64s, results: NDArray[np.int64]
    ) -> ChangeBatch:
        keys = [] if self._directory is None else self._directory.keys(ids).columns
        values = [self._summed.column(each, results) for each in self._aggregates]
        columns = pa.RecordBatch.from_arrays([*keys, *values], schema=self._schema)
        never = np.full(len(ids), NEVER_US)
        return ChangeBatch(columns, instants - 1, instants, never, weight)

    def _empty_row(self) -> ChangeBatch:
        """The row of no tuples, which is in the relation from the beginning of time."""
        one = np.ones(1, np.int64)
        results = np.zeros((1, self._results.shape[1]), np.int64)
        return self._rows(one * (TIME_MIN_US + 1), one * 0, one, results)

    def _allocate(self, groups: int) -> None:
        self._states = np.zeros((groups, self._summed.state_words), np.int64)
        self._results = np.zeros((groups, self._summed.result_words), np.int64)
        self._is_touched = np.zeros(groups, np.bool_)

    def _reserve(self, groups: int) -> None:
        if groups > len(self._states):
            states, results = self._states, self._results
            self._allocate(2 * groups)
            self._states[: len(states)], self._results[: len(results)] = states, results

    def _purge(self, directory: KeyDirectory) -> None:
        """Forget groups without rows and without events, once they are half of all."""
        size = directory.size
        used = self._pending.used(size)
        used[: len(self._states)] |= self._states[:size, 0] != 0
        used[0] = False
        kept = np.flatnonzero(used)
        if 2 * len(kept) < size:
            new_ids = np.zeros(size, np.int64)
            new_ids[kept] = np.arange(1, len(kept) + 1)
            self._pending.renumber(new_ids)
            directory.keep(kept)
            self._reserve(size)
            rows = np.concatenate([[0], kept])
            states, results = self._states[rows], self._results[rows]
            self._allocate(max(_GROUPS_MIN, len(rows)))
            self._states[: len(rows)], self._results[: len(rows)] = states, results
        self._purge_at = max(_PURGE_GROUPS_MIN, 2 * directory.size)
