"""Current relation: the rows of a standing query as of an instant, within a limit of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.plans.logical_plan import Ordered
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.consolidation import consolidated
from shedder.errors import BudgetExceeded

_COMPACT_ROWS_MIN = 1024  # Fewer rows are not searched for those that have left.


class CurrentRelation:
    """Changes whose rows can still be in the relation.

    ordered: ORDER BY and LIMIT of an answer; its keys are over the columns of the changes.
    """

    def __init__(self, schema: pa.Schema, bytes_max: int, ordered: Ordered | None = None) -> None:
        self._schema = schema
        self._bytes_max = bytes_max
        self._ordered = ordered
        self._parts: list[ChangeBatch] = []
        self._rows = 0
        self._size_bytes = 0
        self._compact_at = _COMPACT_ROWS_MIN
        self._as_of_us: int | None = None

    def set_bytes_max(self, bytes_max: int) -> None:
        """Have another limit of the rows."""
        self._bytes_max = bytes_max

    @property
    def size_bytes(self) -> int:
        """Bytes of the changes held."""
        return self._size_bytes

    def add(self, as_of_us: int, changes: ChangeBatch) -> None:
        """Take the changes up to an instant; answers as of earlier instants end.

        Raises:
          BudgetExceeded: the rows need more bytes than the limit.
        """
        self._as_of_us = as_of_us
        if len(changes):
            self._parts.append(changes)
            self._rows += len(changes)
            self._size_bytes += changes.size_bytes
        over = self.size_bytes > self._bytes_max
        if over or self._rows > self._compact_at:
            self._compact(as_of_us)
        if over and self.size_bytes > self._bytes_max:
            raise BudgetExceeded(
                f"the relation of {self._rows:,} rows needs {self.size_bytes:,} bytes; the limit "
                f"is {self._bytes_max:,}; a shorter window or a WHERE makes it smaller"
            )

    def table(self, as_of_us: int) -> pa.Table:
        """The rows as of an instant, the last one added or later; each copy is a row."""
        assert self._as_of_us is None or as_of_us >= self._as_of_us, (as_of_us, self._as_of_us)
        if not self._parts:
            return self._schema.empty_table()
        held = ChangeBatch.concat(self._parts)
        live = held.where((held.born_us <= as_of_us) & (as_of_us <= held.expires_us))
        net = consolidated(live)
        rows = np.repeat(np.arange(len(net)), np.maximum(net.weight, 0))
        order = rows[np.argsort(net.ts_us[rows], kind="stable")]
        return self._stretch(pa.Table.from_batches([net.take(order).columns], self._schema))

    def _stretch(self, table: pa.Table) -> pa.Table:
        """The rows in the order, and within the limit, that the query asks for."""
        if self._ordered is None:
            return table
        if table.num_rows and self._ordered.keys:
            (batch,) = table.combine_chunks().to_batches()
            keys = [evaluate(key.expression, batch) for key in self._ordered.keys]
            names = [str(place) for place in range(len(keys))]
            by: Any = [
                (name, "descending" if key.descending else "ascending", "at_end")
                for name, key in zip(names, self._ordered.keys, strict=True)
            ]
            columns = pa.RecordBatch.from_arrays(keys, names=names)
            order = pc.sort_indices(columns, sort_keys=by)
            table = table.take(order)
        return table.slice(self._ordered.offset, self._ordered.limit)

    def _compact(self, as_of_us: int) -> None:
        """Drop rows that have left, and rows that a negative weight has removed."""
        held = ChangeBatch.concat(self._parts)
        live = held.where(held.expires_us >= as_of_us)
        born_us = np.maximum(live.born_us, as_of_us)
        kept = consolidated(live, pa.array(live.expires_us), pa.array(born_us))
        self._parts = [kept] if len(kept) else []
        self._rows = len(kept)
        self._size_bytes = kept.size_bytes
        self._compact_at = max(_COMPACT_ROWS_MIN, 2 * self._rows)
