"""Source of a run's rows: a closed range of positions, all of them or those not deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from shedder.cql.sql.exact_query import POSITION

POSITION_FIELD = pa.field(POSITION, pa.int64(), nullable=False)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of the positions [first_position, end_position), in order of position.

    table: without POSITION every position is there; with it, as the last column, others were
    purged. At least one row.
    """

    table: pa.Table
    first_position: int
    end_position: int

    @classmethod
    def whole(cls, table: pa.Table, first_position: int) -> Self:
        """All rows of a stretch."""
        return cls(table, first_position, first_position + table.num_rows)

    @property
    def purged(self) -> int:
        """Positions without a row."""
        return self.end_position - self.first_position - self.table.num_rows

    @property
    def values(self) -> pa.Table:
        """The stream's own columns."""
        has = POSITION in self.table.column_names
        return self.table.drop_columns([POSITION]) if has else self.table

    def numbered(self) -> pa.Table:
        """The table with POSITION."""
        if POSITION in self.table.column_names:
            return self.table
        positions = np.arange(self.first_position, self.end_position)
        return self.table.append_column(POSITION_FIELD, pa.array(positions))
