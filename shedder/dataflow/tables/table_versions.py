"""Versions of a table's rows, each valid at the places [from, to) of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.plans.logical_plan import Scan
from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.batch_rows import take_rows
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.row_store import RowStore

NEVER = int(np.iinfo(np.int64).max)  # `to` of a version that is still valid.
_NONE = -1  # The key has no valid version.
_ROWS_MIN = 1024  # Fewer versions are not searched for those that no tuple can join.

Int64s = NDArray[np.int64]


class TableVersions:
    """Versions by position, in the order of their arrival; those that no tuple needs are dropped.

    schema: the columns that the query reads, as the plan names them.
    generation: grows when positions change.
    settled_at: from this place on, the last version of each primary key is valid, and no other;
      NEVER: a key is deleted.
    """

    def __init__(self, scan: Scan, table: TableSchema) -> None:
        """No versions. scan: of the plan. table: its definition."""
        self.schema = pa.schema([(column.name, column.type.arrow) for column in scan.columns])
        self.key = table.key
        self.generation = 0
        self._names = [column.name[len(scan.alias) + 1 :] for column in scan.columns]
        self._key_schema = pa.schema([(each.name, each.type.arrow) for each in table.key_columns])
        self._clear()

    def _clear(self) -> None:
        self._rows = RowStore(self.schema)
        self._keys = KeyDirectory(self._key_schema)
        self._spans = np.empty((_ROWS_MIN, 2), np.int64)
        self._key_ids = np.empty(_ROWS_MIN, np.int64)
        self._newest = np.full(_ROWS_MIN, _NONE, np.int64)
        self._changed: list[Int64s] | None = None  # None: all.
        self._compact_at = _ROWS_MIN
        self.settled_at = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def spans(self) -> Int64s:
        """(from, to) of each version; int64 [rows, 2]."""
        return self._spans[: len(self)]

    @property
    def size_bytes(self) -> int:
        """Bytes of the versions and of the index of primary keys."""
        arrays = self._spans.nbytes + self._key_ids.nbytes + self._newest.nbytes
        return self._rows.size_bytes + self._keys.size_bytes + arrays

    def changed(self) -> Int64s:
        """Return positions, at least of versions that began or ended since the last call."""
        changed, self._changed = self._changed, []
        if changed is None:
            return np.arange(len(self))
        return np.unique(np.concatenate([np.empty(0, np.int64), *changed]))

    def take(self, positions: Int64s) -> pa.RecordBatch:
        """The values at these positions."""
        return self._rows.take(positions)

    def take_column(self, name: str, positions: Int64s) -> pa.Array[Any]:
        """The values of one column at these positions."""
        return self._rows.take_column(self.schema.get_field_index(name), positions)

    def clear(self) -> None:
        """Drop all versions."""
        self._clear()
        self.generation += 1
        self.settled_at = 0

    def upsert(self, rows: pa.RecordBatch, place: int) -> None:
        """Put rows in the place of those with their keys. rows: of the table, each key once."""
        ids = self._end(rows, place)
        values = [rows.column(name) for name in self._names]
        self._newest[ids] = self._append(values, ids, place, NEVER)
        self.settled_at = max(self.settled_at, place)

    def delete(self, keys: pa.RecordBatch, place: int) -> None:
        """End the versions with these keys."""
        ids = self._end(keys, place)
        self._newest[ids] = _NONE
        self.settled_at = NEVER

    def forget(self, place: int) -> None:
        """Drop versions that no tuple at this place or later joins, once they are half of all."""
        if len(self) <= self._compact_at:
            return
        spans, settled_at = self.spans, self.settled_at
        kept = np.flatnonzero(spans[:, 1] > np.maximum(spans[:, 0], place))
        if 2 * len(kept) <= len(self):
            rows, key_ids, spans = self.take(kept), self._key_ids[kept], spans[kept]
            keys = self._keys.keys(key_ids)
            self._clear()
            self.generation += 1
            self._restore(rows.columns, keys, spans)
            if bool((spans[:, 1] == NEVER).all()):
                settled_at = int(spans[:, 0].max(initial=0))
            self.settled_at = settled_at
        self._compact_at = max(_ROWS_MIN, 2 * len(self))

    def history(self, place: int) -> pa.Table:
        """The versions of which [from, to) is not all places from `place` on.

        Returns:
          the columns of the query, the primary key as "#0", "#1", ..., "#from" and "#to"; there
          `place` is 0.
        """
        spans = self.spans
        past = (spans[:, 1] > np.maximum(spans[:, 0], place)) & (
            (spans[:, 0] > place) | (spans[:, 1] != NEVER)
        )
        kept = np.flatnonzero(past)
        keys = self._keys.keys(self._key_ids[kept])
        columns = dict(zip(self._names, self.take(kept).columns, strict=True))
        columns |= {f"#{at}": column for at, column in enumerate(keys.columns)}
        begins, ends = np.maximum(spans[kept, 0] - place, 0), spans[kept, 1]
        ends = np.where(ends == NEVER, NEVER, ends - place)
        columns |= {"#from": pa.array(begins), "#to": pa.array(ends)}
        return pa.table(columns)

    def restore(self, history: pa.Table, place: int = 0) -> None:
        """Add what `history` gave to the rows that were valid then, all upserted at `place`."""
        self._changed = None
        for rows in history.combine_chunks().to_batches():
            begins, ends = (rows.column(name).to_numpy() for name in ("#from", "#to"))
            begins, ends = begins + place, np.where(ends == NEVER, NEVER, ends + place)
            ids = self._keys.assign([rows.column(f"#{at}") for at in range(len(self.key))])
            self._reserve_keys()
            valid, ended = ends == NEVER, np.flatnonzero(ends != NEVER)
            newest_at = int(begins.max(initial=0))
            self.settled_at = NEVER if len(ended) else max(self.settled_at, newest_at)
            self._spans[self._newest[ids[valid]], 0] = begins[valid]
            values = take_rows(rows.select(self._names), ended).columns
            positions = self._append(values, ids[ended], 0, 0)
            self._spans[positions, 0], self._spans[positions, 1] = begins[ended], ends[ended]

    def _end(self, keys: pa.RecordBatch, place: int) -> Int64s:
        """End the valid versions with some primary keys; return the ids of the keys."""
        ids = self._keys.assign([keys.column(name) for name in self.key])
        self._reserve_keys()
        before = self._newest[ids]
        ended = before[before != _NONE]
        self._spans[ended, 1] = place
        self._note(ended)
        return ids

    def _append(self, values: Sequence[pa.Array[Any]], ids: Int64s, begin: int, end: int) -> Int64s:
        first, size = len(self), len(self) + len(ids)
        self._rows.append(pa.RecordBatch.from_arrays(list(values), schema=self.schema))
        self._reserve(size)
        self._key_ids[first:size] = ids
        self._spans[first:size, 0], self._spans[first:size, 1] = begin, end
        added = np.arange(first, size)
        self._note(added)
        return added

    def _note(self, positions: Int64s) -> None:
        if self._changed is not None:
            self._changed.append(positions)

    def _restore(
        self, values: Sequence[pa.Array[Any]], keys: pa.RecordBatch, spans: Int64s
    ) -> None:
        """Add versions to none; each key has one valid version at most."""
        ids = self._keys.assign(keys.columns)
        self._reserve_keys()
        positions = self._append(values, ids, 0, 0)
        self._spans[positions] = spans
        valid = spans[:, 1] == NEVER
        self._newest[ids[valid]] = positions[valid]

    def _reserve(self, size: int) -> None:
        if size > len(self._key_ids):
            room = max(size, 2 * len(self._key_ids))
            self._spans = _widened(self._spans, room)
            self._key_ids = _widened(self._key_ids, room)

    def _reserve_keys(self) -> None:
        if self._keys.size > len(self._newest):
            before = len(self._newest)
            self._newest = _widened(self._newest, max(self._keys.size, 2 * before))
            self._newest[before:] = _NONE


def _widened(array: NDArray[Any], rows: int) -> NDArray[Any]:
    wide = np.empty((rows, *array.shape[1:]), array.dtype)
    wide[: len(array)] = array
    return wide
