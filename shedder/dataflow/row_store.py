"""Row store: append-only rows by position; values of fixed width in numpy, text in Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.fixed_column import FixedColumn
from shedder.dataflow.text_column import TextColumn


class RowStore:
    """Rows by position, in the order of their insertion."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._columns: list[FixedColumn | TextColumn] = [
            TextColumn() if pa.types.is_string(kind) else FixedColumn(kind) for kind in schema.types
        ]
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Bytes of the values."""
        return sum(column.size_bytes for column in self._columns)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows at the end; their names may differ from those of the schema."""
        self._rows += batch.num_rows
        for column, values in zip(self._columns, batch.columns, strict=True):
            column.append(values)

    def take(self, positions: NDArray[np.integer[Any]]) -> pa.RecordBatch:
        """The rows at these positions."""
        arrays = [column.take(positions) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def take_column(self, place: int, positions: NDArray[np.integer[Any]]) -> pa.Array[Any]:
        """The values of one column at these positions."""
        return self._columns[place].take(positions)

    def words(self, place: int) -> NDArray[np.int64] | None:
        """The bits of a column's values, as `FixedColumn.words`; None: it is of text, too."""
        column = self._columns[place]
        return column.words if isinstance(column, FixedColumn) else None

    def newer(self, first: int) -> RowStore:
        """A store of the rows from a position on, with room for as many more."""
        made = RowStore(self.schema)
        made._columns = [column.newer(first) for column in self._columns]
        made._rows = self._rows - first
        return made

    def keep(self, positions: NDArray[np.integer[Any]]) -> None:
        """Forget all other rows; the kept ones get positions 0, 1, ... in this order."""
        kept = self.take(positions)
        self.__init__(self.schema)  # type: ignore[misc]
        self.append(kept)
