"""Relation of an exact query: a stream's rows in run files and in the tail behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.sql.exact_query import POSITION


@dataclass(frozen=True, slots=True, eq=False)
class Without:
    """Rows that are in files and deleted: the files, and the rows' positions, int64."""

    files: Sequence[Path] = ()
    positions: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class ExactRelation:
    """Rows by the name under which SQL reads them.

    schema: the columns that can be read, without POSITION.
    files: Parquet files with at least these columns, in order of position.
    dealt: further files, which have POSITION as a column, rows in any order.
    tail: record batches of the schema, the rows that are in no file yet.
    tail_positions: of the first row of each batch of the tail; if given, the relation has the
      column POSITION, too, and each file's name begins with its first row's position.
    more: further rows, of the schema; if tail_positions is given, with POSITION.
    without: rows of some of the files that are not part of the relation.
    is_shared: several scans of the query read it.
    tail_of: name of an earlier relation of the query, with these columns at least. Its rows that
      are in no file are those of this relation, too, which has none of its own. None: no relation.
    """

    name: str
    schema: pa.Schema
    files: Sequence[Path] = ()
    dealt: Sequence[Path] = ()
    tail: Sequence[pa.RecordBatch] = ()
    tail_positions: Sequence[int] | None = None
    more: Sequence[pa.RecordBatch] = ()
    without: Without = field(default_factory=Without)
    is_shared: bool = False
    tail_of: str | None = None

    @property
    def position(self) -> str | None:
        """The name of the column of positions; None: there is none."""
        return None if self.tail_positions is None else POSITION

    @property
    def rows_schema(self) -> pa.Schema:
        """The schema of the rows that are in no file."""
        if self.position is None:
            return self.schema
        return self.schema.append(pa.field(self.position, pa.int64()))

    def rows(self) -> list[pa.RecordBatch]:
        """The rows that are in no file."""
        if self.tail_positions is None:
            return [*self.tail, *self.more]
        numbered = zip(self.tail_positions, self.tail, strict=True)
        return [*(_numbered(batch, first) for first, batch in numbered), *self.more]


def _numbered(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The batch with the position of each row."""
    positions = pa.array(np.arange(first, first + batch.num_rows))
    return batch.append_column(POSITION, positions)
