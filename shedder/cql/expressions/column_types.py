"""The column types of streams, and what they are in Arrow."""

from __future__ import annotations

from enum import Enum

import pyarrow as pa


class ColumnType(Enum):
    """A type that a stream's column can have. TIMESTAMP is microseconds, UTC, without zone."""

    __hash__ = object.__hash__  # Members are single objects; Enum's own is slow, and asked often.

    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    VARCHAR = "VARCHAR"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that batches, the log and Parquet hold."""
        return _ARROW[self]

    @property
    def is_number(self) -> bool:
        """Return whether sums and averages make sense."""
        return self in (ColumnType.INTEGER, ColumnType.BIGINT, ColumnType.DOUBLE)


_ARROW: dict[ColumnType, pa.DataType] = {
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.INTEGER: pa.int32(),
    ColumnType.BIGINT: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.VARCHAR: pa.string(),
    ColumnType.TIMESTAMP: pa.timestamp("us"),
    ColumnType.DATE: pa.date32(),
}
