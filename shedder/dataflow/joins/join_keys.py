"""Keys of a join: dense ids of key values, shared by both sides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.dataflow.batch_rows import take_rows
from shedder.dataflow.changes import ChangeBatch, Int64s
from shedder.dataflow.key_directory import KeyDirectory


def directory_of(keys: Sequence[Expression]) -> KeyDirectory:
    """An empty directory of keys with the types of these expressions."""
    fields = []
    for place, key in enumerate(keys):
        assert key.type is not None, key
        fields.append((str(place), key.type.arrow))
    return KeyDirectory(pa.schema(fields))


def keyed(
    changes: ChangeBatch,
    keys: Sequence[Expression],
    directory: KeyDirectory | None,
    *,
    nulls_are_equal: bool = False,
) -> tuple[ChangeBatch, Int64s]:
    """The changes whose keys can match, and the ids of their keys.

    Args:
      changes: of one side. keys: over its columns.
      directory: None: there are no keys, and all rows match.
      nulls_are_equal: else a row with a NULL among its keys is left out.
    """
    if directory is None or not len(changes):
        return changes, np.ones(len(changes), np.int64)
    columns = [evaluate(key, changes.columns) for key in keys]
    if not nulls_are_equal and any(column.null_count for column in columns):
        valid = np.ones(len(changes), np.bool_)
        for column in columns:
            valid &= np.asarray(column.is_valid())
        rows = np.flatnonzero(valid)
        names = [str(place) for place in range(len(columns))]
        batch = pa.RecordBatch.from_arrays(columns, names=names)
        changes, columns = changes.take(rows), take_rows(batch, rows).columns
    return changes, directory.assign(columns)
