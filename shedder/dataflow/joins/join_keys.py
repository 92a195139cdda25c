"""Keys of a join: rows that can match, and what is looked up of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.dataflow.batch_rows import take_rows
from shedder.dataflow.changes import ChangeBatch, Int64s
from shedder.dataflow.joins.join_kernels import Int32s
from shedder.dataflow.key_directory import KeyDirectory, canonical
from shedder.dataflow.stores.key_chains import hashes_of


def directory_of(keys: Sequence[Expression]) -> KeyDirectory:
    """An empty directory of keys with the types of these expressions."""
    fields = []
    for place, key in enumerate(keys):
        assert key.type is not None, key
        fields.append((str(place), key.type.arrow))
    return KeyDirectory(pa.schema(fields))


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """Changes of one side whose keys can match. keys: their columns, canonical; (): all match."""

    changes: ChangeBatch
    keys: tuple[pa.Array[Any], ...]

    @classmethod
    def of(
        cls, changes: ChangeBatch, keys: Sequence[Expression], *, nulls_are_equal: bool = False
    ) -> KeyedRows:
        """Evaluate keys over the columns of changes.

        nulls_are_equal: else a row with a NULL among its keys is left out.
        """
        columns = [canonical(evaluate(key, changes.columns)) for key in keys]
        if not nulls_are_equal and any(column.null_count for column in columns):
            valid = np.ones(len(changes), np.bool_)
            for column in columns:
                valid &= np.asarray(column.is_valid())
            rows = np.flatnonzero(valid)
            names = [str(place) for place in range(len(columns))]
            batch = pa.RecordBatch.from_arrays(columns, names=names)
            changes, columns = changes.take(rows), take_rows(batch, rows).columns
        return cls(changes, tuple(columns))

    def ids(self, directory: KeyDirectory | None) -> Int32s:
        """The ids of the keys. directory: None: there are no keys."""
        if directory is None or not len(self.changes):
            return np.ones(len(self.changes), np.int32)
        return directory.assign(self.keys).astype(np.int32)

    def hashes(self) -> Int64s:
        """The hashes of the keys, as those of a store."""
        return hashes_of(self.keys, len(self.changes))
