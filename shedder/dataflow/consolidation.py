"""Consolidation: weights of equal rows added, pairs eliminated; and an order of rows by value."""

from __future__ import annotations

from collections.abc import Sequence
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
    return _summed(changes, _row_ids(changes, *further))


def without_pairs(changes: ChangeBatch) -> ChangeBatch:
    """Leave out changes that undo each other: equal rows with equal lifetimes, of weight 0.

    No relation has such rows at any instant. The other changes stay as they are, in their order.
    """
    if not bool((changes.weight < 0).any()):
        return changes
    ids = _row_ids(changes, pa.array(changes.born_us), pa.array(changes.expires_us))
    return changes.where(_sums(changes, ids)[ids] != 0)


def ordered_by_value(changes: ChangeBatch) -> ChangeBatch:
    """The changes by birth and then by value, column by column, NULLs last."""
    return _ordered(changes, [pa.array(changes.born_us), *changes.columns.columns])


def rows_by_value(changes: ChangeBatch) -> ChangeBatch:
    """The changes by value, column by column, NULLs last; whenever they were born."""
    return _ordered(changes, changes.columns.columns)


def _ordered(changes: ChangeBatch, by: Sequence[pa.Array[Any]]) -> ChangeBatch:
    names = [str(place) for place in range(len(by))]
    batch = pa.RecordBatch.from_arrays(list(by), names=names)
    keys: Any = [(name, "ascending", "at_end") for name in names]
    return changes.take(np.asarray(pc.sort_indices(batch, sort_keys=keys)))


def _row_ids(changes: ChangeBatch, *further: pa.Array[Any]) -> NDArray[np.int64]:
    """Return a dense id for each row; equal where all columns and `further` are equal."""
    arrays = [*changes.columns.columns, *further]
    schema = pa.schema([(str(place), array.type) for place, array in enumerate(arrays)])
    return KeyDirectory(schema).assign(arrays)


def _sums(changes: ChangeBatch, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the weight of each id."""
    sums = np.zeros(int(ids.max()) + 1, np.int64)
    np.add.at(sums, ids, changes.weight)
    return sums


def _summed(changes: ChangeBatch, ids: NDArray[np.int64]) -> ChangeBatch:
    sums = _sums(changes, ids)
    last = np.zeros(len(sums), np.int64)
    last[ids] = np.arange(len(ids))
    rows = np.sort(last[np.flatnonzero(sums)])
    kept = changes.take(rows)
    return ChangeBatch(kept.columns, kept.ts_us, kept.born_us, kept.expires_us, sums[ids[rows]])
