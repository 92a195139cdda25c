"""Rows of a table in memory, one immutable value per version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.archive.log.table_changes import ChangeKind
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema

PIECE_ROWS_MAX = 65_536  # Rows; no piece has more. A change copies whole pieces.
PIECE_BYTES_MAX = 64 << 20  # Of pieces and changes put together; Arrow's texts end at 2 GiB.


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """All rows of a table after a change. A change makes a new value, which shares its pieces.

    Keys are compared by value, with a scan of the key columns: a change of one row takes 4 ms in a
    table of a million BIGINT keys, and one of 65,536 rows 11 ms.
    Only the newest version of a row is kept; a reader that needs an older one holds its TableRows.

    schema: of the table.
    pieces: record batches with the columns of the table; no key is twice in them.
    version: number of changes that are in the rows, lost ones included.
    lost: number of changes that damaged bytes of the log took, or may have taken.
    """

    schema: TableSchema
    pieces: tuple[pa.RecordBatch, ...] = ()
    version: int = 0
    lost: int = 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(piece.num_rows for piece in self.pieces)

    @property
    def size_bytes(self) -> int:
        """Bytes of all columns in memory."""
        return sum(piece.nbytes for piece in self.pieces)

    def table(self) -> pa.Table:
        """All rows as an Arrow table, without a copy; their order has no meaning."""
        return pa.Table.from_batches(self.pieces, schema=arrow_columns(self.schema.columns))

    def changed(
        self, kind: ChangeKind, batch: pa.RecordBatch, *, version: int, changes: int = 1
    ) -> TableRows:
        """Return the rows after one change, or after several of one kind.

        Args:
          kind: UPSERT puts rows in the place of those with their keys; DELETE removes rows.
          batch: whole rows of an UPSERT, each key once; keys of a DELETE.
          version: number of the last change; numbers up to it that are no change are lost.
          changes: number of changes that the batch has.
        """
        return self.replaced(kind, batch, version=version, changes=changes)[0]

    def replaced(
        self, kind: ChangeKind, batch: pa.RecordBatch, *, version: int, changes: int = 1
    ) -> tuple[TableRows, tuple[pa.RecordBatch, ...]]:
        """Return the rows after a change, and those of the rows before that it took out.

        The arguments are those of `changed`.
        """
        assert version >= self.version + changes, (version, self.version, changes)
        deleted = self._matches(batch)
        kept = [_without(piece, deleted[at]) for at, piece in self._placed()]
        taken = [_without(piece, ~deleted[at]) for at, piece in self._placed() if deleted[at].any()]
        if kind is ChangeKind.UPSERT:
            kept += _pieces(batch)
        lost = self.lost + version - self.version - changes
        after = replace(self, pieces=_merged(kept), version=version, lost=lost)
        return after, tuple(taken)

    def changed_by(self, changes: Iterable[tuple[ChangeKind, pa.RecordBatch, int]]) -> TableRows:
        """Return the rows after changes in their order, each with its version.

        Neighbours of one kind are one change: 300 changes of one row of a table of 300,000 take
        as long as 2 of them.
        """
        rows = self
        for kind, found in groupby(changes, lambda change: change[0]):
            neighbours = list(found)
            batch = pa.concat_batches([each for _, each, _ in neighbours])  # type: ignore[attr-defined]
            if kind is ChangeKind.UPSERT:
                batch = self.last_of_each_key(batch)
            version = neighbours[-1][2]
            rows = rows.changed(kind, batch, version=version, changes=len(neighbours))
        return rows

    def restored(self, table: pa.Table, *, version: int, lost: int) -> TableRows:
        """Return the rows of an image: a table with these columns, each key once."""
        pieces = tuple(table.to_batches(max_chunksize=PIECE_ROWS_MAX))
        return replace(self, pieces=pieces, version=version, lost=lost)

    def first_existing(self, batch: pa.RecordBatch) -> str | None:
        """Return a key of a batch that is in the table, in words; None: all are new."""
        found = self._matches(batch)
        for at, piece in self._placed():
            if found[at].any():
                return self.key_text(piece, int(np.argmax(found[at])))
        return None

    def first_repeated(self, batch: pa.RecordBatch) -> str | None:
        """Return the first key that a batch has twice, in words; None: it has each key once."""
        last = self._last_places(batch)
        repeated = last != np.arange(len(last))
        return self.key_text(batch, int(np.argmax(repeated))) if repeated.any() else None

    def last_of_each_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch without those that a later row with their key replaces."""
        last = self._last_places(batch)
        kept = last == np.arange(len(last))
        return batch if kept.all() else batch.filter(pa.array(kept))

    def key_text(self, batch: pa.RecordBatch, row: int) -> str:
        """The key of one row, as in an error: `client = 7, site = 'a'`."""
        values = ((name, batch.column(name)[row].as_py()) for name in self.schema.key)
        return ", ".join(
            f"{name} = {value!r}" if isinstance(value, str) else f"{name} = {value}"
            for name, value in values
        )

    def _placed(self) -> Iterator[tuple[slice, pa.RecordBatch]]:
        """The pieces, with their places among all rows."""
        first = 0
        for piece in self.pieces:
            yield slice(first, first + piece.num_rows), piece
            first += piece.num_rows

    def _matches(self, keys: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which of all rows have a key that is among others, bool [rows].

        A composite key is compared as a whole only where each column alone is among the others.
        """
        table = self.table().select(list(self.schema.key))
        found = np.ones(table.num_rows, np.bool_)
        for name in self.schema.key:
            found &= _is_in(table[name], keys.column(name))
        if table.num_columns > 1 and found.any():
            [candidates] = table.filter(pa.array(found)).combine_chunks().to_batches()
            found[found] = _is_in(self._key_values(candidates), self._key_values(keys))
        return found

    def _last_places(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """For each row, the place of the last row with its key, int64 [rows]."""
        codes: NDArray[np.int64] = self._key_values(batch).dictionary_encode().indices.to_numpy()
        last: NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
        last[codes] = np.arange(batch.num_rows)  # Of equal indexes numpy keeps the last one.
        return last[codes]

    def _key_values(self, batch: pa.RecordBatch) -> Any:
        """One value per row that is equal where the keys are; a text has its length before it."""
        columns = self.schema.key_columns
        if len(columns) == 1:
            return batch.column(columns[0].name)
        parts: list[Any] = [_part(batch.column(each.name), each.type) for each in columns]
        return pc.binary_join_element_wise(*parts, " ")


def arrow_columns(columns: Sequence[ColumnDefinition]) -> pa.Schema:
    """The Arrow schema of columns, without metadata."""
    return pa.schema([pa.field(each.name, each.type.arrow, each.nullable) for each in columns])


def _is_in(values: Any, among: Any) -> NDArray[np.bool_]:
    found: Any = pc.is_in(values, value_set=among)
    return np.asarray(found, np.bool_)


def _part(values: Any, kind: ColumnType) -> Any:
    match kind:
        case ColumnType.VARCHAR:
            lengths: Any = pc.cast(pc.binary_length(values), pa.string())
            return pc.binary_join_element_wise(lengths, values, ":")
        case ColumnType.TIMESTAMP:
            return pc.cast(values.cast(pa.int64()), pa.string())
        case _:
            return pc.cast(values, pa.string())


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    starts = range(0, batch.num_rows, PIECE_ROWS_MAX)
    return [batch.slice(start, PIECE_ROWS_MAX) for start in starts]


def _without(piece: pa.RecordBatch, deleted: NDArray[np.bool_]) -> pa.RecordBatch:
    return piece.filter(pa.array(~deleted)) if deleted.any() else piece


def _merged(pieces: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, ...]:
    """The pieces with rows, small ones merged like the digits of a binary counter."""
    merged: list[pa.RecordBatch] = []
    for piece in pieces:
        if piece.num_rows:
            merged.append(piece)
        while len(merged) > 1 and _merge(*merged[-2:]):
            merged[-2:] = [pa.concat_batches(merged[-2:])]  # type: ignore[attr-defined]
    return tuple(merged)


def _merge(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    rows = left.num_rows + right.num_rows
    if left.num_rows >= 2 * right.num_rows or rows > PIECE_ROWS_MAX:
        return False
    return left.nbytes + right.nbytes <= PIECE_BYTES_MAX
