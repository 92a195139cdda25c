"""Changes: rows with lifetimes and weights, the only data that flows between operators.

The relation at an instant e is the bag R(e) = the sum over all changes of weight copies of the row,
for those with born_us <= e <= expires_us. A row that leaves earlier than its expiry is followed by
the same row with negative weight. An answer as of e reflects the tuples with event time < e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.batch_rows import concat_rows, take_rows

NEVER_US = int(np.iinfo(np.int64).max)  # Expiry of a row that no instant removes.

Int64s = NDArray[np.int64]

_NEVERS = np.full(1 << 18, NEVER_US)  # Shared by batches, most of which are smaller.
_NEVERS.setflags(write=False)


def never_us(size: int) -> Int64s:
    """Return expiries of so many rows that no instant removes; read-only."""
    return _NEVERS[:size] if size <= len(_NEVERS) else np.full(size, NEVER_US)


@dataclass(frozen=True, slots=True, eq=False)
class ChangeBatch:
    """A batch of changes; all arrays have one entry per row.

    columns: the values, in the columns of the plan node; at least one column.
    ts_us: event time. born_us, expires_us: first and last instant in the relation.
    weight: copies inserted; negative: deleted.
    """

    columns: pa.RecordBatch
    ts_us: Int64s
    born_us: Int64s
    expires_us: Int64s
    weight: Int64s

    @classmethod
    def empty(cls, schema: pa.Schema) -> ChangeBatch:
        """No changes of rows with this schema."""
        none = np.empty(0, np.int64)
        columns = pa.RecordBatch.from_pylist([], schema=schema)
        return cls(columns, none, none, none, none)

    @classmethod
    def of_tuples(cls, columns: pa.RecordBatch, ts_us: Int64s) -> ChangeBatch:
        """Tuples of a stream: each is in the relation after its event time, and stays."""
        ones = np.ones(len(ts_us), np.int64)
        return cls(columns, ts_us, ts_us + 1, never_us(len(ts_us)), ones)

    @classmethod
    def concat(cls, parts: Sequence[ChangeBatch]) -> ChangeBatch:
        """The changes of all parts, in order; at least one part, all with one schema."""
        filled = [part for part in parts if len(part)] or [parts[0]]
        if len(filled) == 1:
            return filled[0]
        return cls(
            concat_rows([part.columns for part in filled]),
            np.concatenate([part.ts_us for part in filled]),
            np.concatenate([part.born_us for part in filled]),
            np.concatenate([part.expires_us for part in filled]),
            np.concatenate([part.weight for part in filled]),
        )

    def __len__(self) -> int:
        return len(self.ts_us)

    @property
    def size_bytes(self) -> int:
        """Bytes of the values and of the four arrays."""
        return int(self.columns.nbytes) + 4 * self.ts_us.nbytes

    def take(self, rows: NDArray[np.integer[Any]]) -> ChangeBatch:
        """The changes at these rows, in this order."""
        return ChangeBatch(
            take_rows(self.columns, rows),
            self.ts_us[rows],
            self.born_us[rows],
            self.expires_us[rows],
            self.weight[rows],
        )

    def where(self, kept: NDArray[np.bool_]) -> ChangeBatch:
        """The changes in rows for which `kept` is true."""
        return self if kept.all() else self.take(np.flatnonzero(kept))

    def with_columns(self, columns: pa.RecordBatch) -> ChangeBatch:
        """The same lifetimes and weights with other values."""
        assert columns.num_rows == len(self)
        return ChangeBatch(columns, self.ts_us, self.born_us, self.expires_us, self.weight)

    def with_lifetimes(self, born_us: Int64s, expires_us: Int64s) -> ChangeBatch:
        """The same rows with other lifetimes; a row without an instant is left out."""
        changes = ChangeBatch(self.columns, self.ts_us, born_us, expires_us, self.weight)
        return changes.where(born_us <= expires_us)

    def negated(self) -> ChangeBatch:
        """The changes that undo these."""
        return ChangeBatch(self.columns, self.ts_us, self.born_us, self.expires_us, -self.weight)
