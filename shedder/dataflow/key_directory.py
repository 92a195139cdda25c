"""Key directory: dense ids of keys of one or several columns, equal by value and not by hash.

NULLs are equal to each other here, NaN is NULL, and -0.0 is 0.0. A join leaves its NULL keys out
before it asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.expressions.arithmetic import without_nan
from shedder.dataflow.batch_rows import take_rows
from shedder.dataflow.fixed_column import plain_values, values_of_numbers
from shedder.dataflow.row_store import RowStore
from shedder.streams.value_hashes import hash_values
from synopses.kernels.group_table import GroupTable
from synopses.kernels.growable_array import appended
from synopses.kernels.hashing import combine, salted, unsalted

Hashes = NDArray[np.uint64]
HashColumns = Callable[[Sequence["pa.Array[Any]"]], Hashes]

_KEYS_MAX = (1 << 30) - 1  # Ids of a GroupTable.
_SALT = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD1B54A32D192ED03)  # Hash of NULL among others; equality is tested by value.


def hash_columns(columns: Sequence[pa.Array[Any]]) -> Hashes:
    """One 64-bit hash per row. For one column of fixed width it is injective on its values."""
    hashes = _hash(columns[0])
    for column in columns[1:]:
        hashes = combine(hashes, _hash(column))
    return hashes


def keys_of_hashes(hashes: Hashes, kind: pa.DataType, nulls: NDArray[np.bool_]) -> pa.Array[Any]:
    """Return the values of one column of fixed width from their hashes (`hash_columns`).

    nulls: bool [hashes], rows that have no value.
    """
    words = unsalted(hashes, _SALT)
    values = words.view(np.float64) if pa.types.is_floating(kind) else words.view(np.int64)
    return values_of_numbers(values, kind, nulls)


def _hash(column: Any) -> Hashes:
    if pa.types.is_string(column.type):
        hashes = hash_values(pc.fill_null(column, "") if column.null_count else column)[0]
    else:
        hashes = salted(_words(column), _SALT)  # A bijection of 64-bit words.
    if column.null_count:
        hashes[np.asarray(column.is_null())] = _NULL
    return hashes


def _words(column: pa.Array[Any]) -> Hashes:
    """Fixed-width values as 64-bit words; equal words are equal values."""
    values = plain_values(column)
    if pa.types.is_floating(column.type):
        return values.view(np.uint64)
    return values.astype(np.int64, copy=False).view(np.uint64)


def canonical(column: pa.Array[Any]) -> pa.Array[Any]:
    """The column with NULL for NaN and 0.0 for -0.0."""
    if pa.types.is_floating(column.type):
        column = pc.add(without_nan(column), 0.0)
    return column


class KeyDirectory:
    """Ids 1, 2, 3 ... of keys in the order of their first sight; 0 is the key NULL of one column.

    Rows with one hash are compared by value. Rows whose value differs from that of their id get
    an id of a further table with another salt, until all values agree.
    """

    def __init__(self, schema: pa.Schema, hashed: HashColumns = hash_columns) -> None:
        """An empty directory of keys with these columns. hashed: any function of the values."""
        self._schema = schema
        self._hashed = hashed
        fixed = not any(pa.types.is_string(kind) for kind in schema.types)
        self._injective = fixed and len(schema) == 1 and hashed is hash_columns
        self._has_null = False  # Of one column: whether its id 0 was given.
        self._reset()

    def _reset(self) -> None:
        self._keys = RowStore(self._schema)
        self._keys.append(pa.RecordBatch.from_pylist([{}], schema=self._schema))
        self._tables: list[GroupTable] = []
        self._ids: list[NDArray[np.int64]] = []  # Id of each id of a table.
        self._rooms: list[NDArray[np.int64]] = []

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        """Bytes of the keys and of the tables."""
        tables = sum(table.size_bytes for table in self._tables)
        return self._keys.size_bytes + tables + sum(room.nbytes for room in self._rooms)

    def assign(self, columns: Sequence[pa.Array[Any]]) -> NDArray[np.int64]:
        """The id of each row's key; new keys get new ids. shape [rows]."""
        batch = pa.RecordBatch.from_arrays([canonical(c) for c in columns], schema=self._schema)
        if self._injective and not batch.column(0).null_count:
            return self._assign_in(0, batch)
        ids = np.zeros(batch.num_rows, np.int64)
        rows = np.arange(batch.num_rows)
        if len(columns) == 1 and batch.column(0).null_count:
            self._has_null = True
            rows = np.flatnonzero(np.asarray(batch.column(0).is_valid()))
        depth = 0
        while len(rows):
            part = batch if len(rows) == batch.num_rows else take_rows(batch, rows)
            ids[rows] = self._assign_in(depth, part)
            if self._injective:
                break
            differs = ~equal_rows(self._keys.take(ids[rows]), part)
            rows = rows[differs]
            depth += 1
        return ids

    def _assign_in(self, depth: int, part: pa.RecordBatch) -> NDArray[np.int64]:
        if depth == len(self._tables):
            self._tables.append(GroupTable(_KEYS_MAX))
            self._ids.append(np.zeros(1, np.int64))
            self._rooms.append(np.empty(0, np.int64))
        hashes = self._hashed(part.columns)
        local, fresh = self._tables[depth].assign(hashes)
        first = self.size
        if len(fresh):
            self._keys.append(take_rows(part, fresh))
        if self._injective:  # There is one table, and its ids are those of the directory.
            return local.astype(np.int64)
        new, room = np.arange(first, self.size), self._rooms[depth]
        if len(new):
            self._ids[depth], self._rooms[depth] = appended(self._ids[depth], new, room)
        return self._ids[depth][local]

    def find(self, columns: Sequence[pa.Array[Any]]) -> NDArray[np.int64]:
        """The id of each row's key; 0: it has none, or is the key NULL of one column."""
        batch = pa.RecordBatch.from_arrays([canonical(c) for c in columns], schema=self._schema)
        if self._injective and self._tables and not batch.column(0).null_count:
            return self._tables[0].find(self._hashed(batch.columns))
        ids = np.zeros(batch.num_rows, np.int64)
        rows = np.arange(batch.num_rows)
        if len(columns) == 1 and batch.column(0).null_count:
            rows = np.flatnonzero(np.asarray(batch.column(0).is_valid()))
        for table, of_table in zip(self._tables, self._ids, strict=True):
            part = batch if len(rows) == batch.num_rows else take_rows(batch, rows)
            local = table.find(self._hashed(part.columns))
            if self._injective:
                ids[rows] = local
                return ids
            found = of_table[local]
            equal = (local != 0) & equal_rows(self._keys.take(found), part)
            ids[rows[equal]] = found[equal]
            rows = rows[(local != 0) & ~equal]
        return ids

    def keys(self, ids: NDArray[np.integer[Any]]) -> pa.RecordBatch:
        """The key of each id."""
        return self._keys.take(ids)

    @property
    def words(self) -> NDArray[np.int64] | None:
        """The bits of each id's key; None: keys are not of one column of 64 bits, or are NULL."""
        if len(self._schema) > 1 or self._has_null:
            return None
        return self._keys.words(0)

    def keys_of(self, words: NDArray[np.int64]) -> pa.RecordBatch:
        """The keys with these bits, as of `words`."""
        column: Any = pa.array(words)
        return pa.RecordBatch.from_arrays([column.view(self._schema.types[0])], schema=self._schema)

    def keep(self, ids: NDArray[np.integer[Any]]) -> None:
        """Forget all other keys; the kept ones, not 0, get ids 1, 2, ... in this order."""
        kept = self.keys(ids)
        self._reset()
        again = self.assign(kept.columns)
        assert bool((again == np.arange(1, len(ids) + 1)).all())


def equal_rows(left: pa.RecordBatch, right: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return in which rows all columns are equal, or both NULL."""
    equal = np.ones(left.num_rows, np.bool_)
    for ours, theirs in zip(left.columns, right.columns, strict=True):
        compared: Any = pc.equal(ours, theirs)
        both_null: Any = pc.and_(ours.is_null(), theirs.is_null())
        equal &= np.asarray(pc.or_(pc.fill_null(compared, False), both_null))
    return equal
