"""One side of an equi-join: its rows that can still find a partner, in chains by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.changes import ChangeBatch, Int64s
from shedder.dataflow.joins.join_kernels import (
    BORN,
    EXPIRES,
    TS,
    WEIGHT,
    Int32s,
    Links,
    insert_rows,
    probe_rows,
)
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.row_store import RowStore
from shedder.dataflow.stores.chain_walks import END, WALKS
from shedder.dataflow.update_patterns import EdgeLabel

_ROWS_MIN = 1024
_COMPACT_ROWS_MIN = 4096  # Fewer rows are not searched for those that have left.


class JoinSide:
    """Rows by position. Rows that have left are dropped when they are half of all.

    label: of the input. Only STRICT inputs have negative weights; inputs that are WEAKEST or
    MONOTONIC leave in the order of positions. eager: rows that have left are dropped at once.
    searched_rows: those that were looked at in searches for rows that have left, or that a
    negative weight deletes.
    """

    def __init__(self, schema: pa.Schema, label: EdgeLabel, *, eager: bool = False) -> None:
        self._eager = eager
        self.searched_rows = 0
        self._rows = RowStore(schema)
        self._in_order = label.leaves_in_order
        self._row_keys = KeyDirectory(schema) if label.is_strict else None
        self._links = np.empty((_ROWS_MIN, 5), np.int64)
        self._ids = np.empty(_ROWS_MIN, np.int32)
        self._row_ids = np.empty(_ROWS_MIN if label.is_strict else 0, np.int32)
        self._heads = np.full(_ROWS_MIN, END, np.int32)
        self._compact_at = _COMPACT_ROWS_MIN

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows and of the index."""
        index = self._links.nbytes + self._ids.nbytes + self._row_ids.nbytes + self._heads.nbytes
        keys = 0 if self._row_keys is None else self._row_keys.size_bytes
        return self._rows.size_bytes + index + keys

    @property
    def may_compact(self) -> bool:
        """Return whether a search for rows that have left may pay."""
        return self._eager or len(self) > self._compact_at

    def insert(self, changes: ChangeBatch, ids: Int32s, since_us: int) -> None:
        """Add rows. ids: of their keys. since_us: no row that expired before it finds a partner."""
        if not len(changes):
            return
        first, size = len(self), len(self) + len(changes)
        self._rows.append(changes.columns)
        self._reserve(size)
        self._links[first:size] = links_of(changes)
        self._ids[first:size] = ids
        if self._row_keys is not None:
            self._row_ids[first:size] = self._row_keys.assign(changes.columns.columns)
        self._link(first, size, since_us)

    def pairs(
        self, changes: ChangeBatch, ids: Int32s, pairs_max: int
    ) -> Iterator[NDArray[np.int64]]:
        """Pairs of `changes` with rows of this side, as `probe_rows` makes them.

        Each item is int64 [6, pairs]; pairs <= pairs_max.
        """
        walks = np.zeros((2, 1 + WALKS), np.int64)
        given = links_of(changes)
        heads = self._reserved_heads(ids)
        made = pairs_max
        while made == pairs_max:
            pairs = np.empty((6, pairs_max), np.int64)
            made = probe_rows(walks, ids, given, heads, self._links, self._in_order, pairs)
            if made:
                yield pairs[:, :made]

    def columns(self, places: Int64s) -> pa.RecordBatch:
        """The values of the rows at these positions."""
        return self._rows.take(places)

    def compact(self, as_of_us: int) -> None:
        """Drop the rows that leave by this instant; later rows of the other side are born later."""
        size = len(self)
        self.searched_rows += size
        born, expires = self._links[:size, BORN], self._links[:size, EXPIRES]
        kept = np.flatnonzero((expires > as_of_us) & (born <= expires))
        if 2 * len(kept) <= size or (self._eager and len(kept) < size):
            self.keep(kept)
        self._compact_at = max(_COMPACT_ROWS_MIN, 2 * len(self))

    def keep(self, kept: NDArray[np.int64]) -> None:
        """Drop all rows but those at these positions, which rise."""
        self._rows.keep(kept)
        size = len(kept)
        self._links[:size] = self._links[kept]
        self._ids[:size] = self._ids[kept]
        if self._row_keys is not None:
            self._row_keys = KeyDirectory(self._rows.schema)
            everything = self._rows.take(np.arange(size))
            self._row_ids[:size] = self._row_keys.assign(everything.columns)
        self._heads.fill(END)
        self._link(0, size, 0)

    def used(self, size: int) -> NDArray[np.bool_]:
        """Return which key ids below `size` have rows."""
        used = np.zeros(size, np.bool_)
        used[self._ids[: len(self)]] = True
        return used

    def renumber(self, new_ids: Int32s) -> None:
        """Replace each key id by new_ids[id]."""
        size = len(self)
        self._ids[:size] = new_ids[self._ids[:size]]
        self._heads = np.full(_ROWS_MIN, END, np.int32)
        self._link(0, size, 0)

    def _link(self, first: int, size: int, since_us: int) -> None:
        ids, row_ids = self._ids[:size], self._row_ids[:size]
        heads = self._reserved_heads(ids[first:])
        walked = insert_rows(first, ids, row_ids, self._links, heads, since_us)
        self.searched_rows += walked

    def _reserved_heads(self, ids: Int32s) -> Int32s:
        """The heads, with a place for each of these keys."""
        size = int(ids.max(initial=0)) + 1
        if size > len(self._heads):
            heads = np.full(max(size, 2 * len(self._heads)), END, np.int32)
            heads[: len(self._heads)] = self._heads
            self._heads = heads
        return self._heads

    def _reserve(self, size: int) -> None:
        if size <= len(self._ids):
            return
        room = max(size, 2 * len(self._ids))
        self._links, self._ids = _widened(self._links, room), _widened(self._ids, room)
        if self._row_keys is not None:
            self._row_ids = _widened(self._row_ids, room)


def links_of(changes: ChangeBatch) -> Links:
    """Changes as rows of links; OLDER is not set."""
    links = np.empty((len(changes), 5), np.int64)
    links[:, BORN], links[:, EXPIRES] = changes.born_us, changes.expires_us
    links[:, TS], links[:, WEIGHT] = changes.ts_us, changes.weight
    return links


def _widened(array: NDArray[Any], rows: int) -> NDArray[Any]:
    wide = np.empty((rows, *array.shape[1:]), array.dtype)
    wide[: len(array)] = array
    return wide
