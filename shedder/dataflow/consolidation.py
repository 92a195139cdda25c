"""Consolidation: the weights of equal rows added; and an order of rows by their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.key_directory import KeyDirectory


def consolidated(changes: ChangeBatch, *further: pa.Array[Any]) -> ChangeBatch:
    """One change for all equal rows, the last of them; those with a sum of 0 are left out.

    further: values that must be equal, too. Without negative weights the changes stay as they are.
    """
    if not bool((changes.weight < 0).any()):
        return changes
    arrays = [*changes.columns.columns, *further]
    schema = pa.schema([(str(place), array.type) for place, array in enumerate(arrays)])
    return _summed(changes, KeyDirectory(schema).assign(arrays))


def ordered_by_value(changes: ChangeBatch) -> ChangeBatch:
    """The changes by birth and then by value, column by column, NULLs last."""
    arrays = [pa.array(changes.born_us), *changes.columns.columns]
    names = [str(place) for place in range(len(arrays))]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    keys: Any = [(name, "ascending", "at_end") for name in names]
    return changes.take(np.asarray(pc.sort_indices(batch, sort_keys=keys)))


def _summed(changes: ChangeBatch, ids: NDArray[np.int64]) -> ChangeBatch:
    sums = np.zeros(int(ids.max()) + 1, np.int64)
    np.add.at(sums, ids, changes.weight)
    last = np.zeros(len(sums), np.int64)
    last[ids] = np.arange(len(ids))
    rows = np.sort(last[np.flatnonzero(sums)])
    kept = changes.take(rows)
    return ChangeBatch(kept.columns, kept.ts_us, kept.born_us, kept.expires_us, sums[ids[rows]])
