"""Operators over counts per row value: DISTINCT and set operations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.cql.plans.logical_plan import SetOperator
from shedder.dataflow.changes import ChangeBatch, never_us
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.multiplicity_kernels import KeyCounts, Multiplicity
from shedder.dataflow.pending_events import DueEvents, PendingEvents

_PURGE_KEYS_MIN = 4096  # A directory below this size is not searched for keys without copies.

# The function of a set operation, by the operator and ALL.
COUNTED = {
    (SetOperator.UNION, False): Multiplicity.DISTINCT,
    (SetOperator.EXCEPT, True): Multiplicity.EXCEPT_ALL,
    (SetOperator.EXCEPT, False): Multiplicity.EXCEPT,
    (SetOperator.INTERSECT, True): Multiplicity.INTERSECT_ALL,
    (SetOperator.INTERSECT, False): Multiplicity.INTERSECT,
}


class Multiplicities:
    """Result of each row value as a function of its copies in one or two inputs; STRICT.

    kind: the function.

    The output has one change per value and instant at which the result differs.
    """

    def __init__(self, kind: Multiplicity, schema: pa.Schema) -> None:
        """An operator without rows. schema: of the left input, and of the output."""
        self.kind = kind
        self._counts = KeyCounts(kind)
        self._directory = KeyDirectory(schema)
        self._pending = (PendingEvents(), PendingEvents())
        self._purge_at = _PURGE_KEYS_MIN

    @property
    def size_bytes(self) -> int:
        """Bytes of the directory, the counts and the events that wait."""
        waiting = sum(pending.size_bytes for pending in self._pending)
        return self._directory.size_bytes + self._counts.size_bytes + waiting

    def apply(self, as_of_us: int, *inputs: ChangeBatch) -> ChangeBatch:
        """Count the changes, and give the results that differ up to the instant."""
        for pending, changes in zip(self._pending, inputs, strict=False):
            if len(changes):
                pending.push(changes, self._directory.assign(changes.columns.columns))
        due = DueEvents.of(self._pending, as_of_us)
        instants, ids, weight = self._counts.apply(self._directory.size, *due.merged())
        columns = self._directory.keys(ids)
        if self._directory.size > self._purge_at:
            self._purge()
        return ChangeBatch(columns, instants - 1, instants, never_us(len(ids)), weight)

    def _purge(self) -> None:
        """Forget keys without copies and without events, once they are half of all."""
        size = self._directory.size
        used = self._counts.held(size)
        for pending in self._pending:
            used |= pending.used(size)
        used[0] = False
        kept = np.flatnonzero(used)
        if 2 * len(kept) < size:
            new_ids = np.zeros(size, np.int64)
            new_ids[kept] = np.arange(1, len(kept) + 1)
            for pending in self._pending:
                pending.renumber(new_ids)
            self._directory.keep(kept)
            self._counts.keep(kept)
        self._purge_at = max(_PURGE_KEYS_MIN, 2 * self._directory.size)
