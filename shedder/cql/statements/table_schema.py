"""Definition of a table: a relation with a primary key."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.cql.statements.bound_query import DEFAULT_TENANT, StreamSchema
from shedder.cql.statements.statement import ColumnDefinition


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns and key of a table.

    columns: in order; those of the key are NOT NULL.
    key: names of the columns of the primary key, in order; at least one.
    tenant: owner of the table.
    retroactive: a standing join corrects its earlier results when a row changes (Golab 3.3); if
      False, a tuple joins the rows that were valid at its place in the log.
    """

    name: str
    columns: tuple[ColumnDefinition, ...]
    key: tuple[str, ...]
    tenant: str = DEFAULT_TENANT
    retroactive: bool = False

    @property
    def key_columns(self) -> tuple[ColumnDefinition, ...]:
        """The columns of the primary key, in the order of the key."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)


RelationSchema = StreamSchema | TableSchema
"""Definition of anything that has columns and rows."""
