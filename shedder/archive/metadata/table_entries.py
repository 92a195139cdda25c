"""Catalog entries of tables, and their JSON form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class TableImage:
    """The file with all rows of a table as of a checkpoint.

    file: below `tables/`.
    version: number of the last change in it.
    lost: number of changes that damaged bytes of the log took before.
    crc: CRC-32C of the file.
    """

    file: str
    version: int
    rows: int
    lost: int
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table. id is never reused. image: None before the first checkpoint with rows."""

    id: int
    schema: TableSchema
    image: TableImage | None = None


def table_to_json(schema: TableSchema) -> str:
    """The definition of a table as the catalog keeps it."""
    tenant = {} if schema.tenant == DEFAULT_TENANT else {"tenant": schema.tenant}
    return json.dumps(
        {
            "name": schema.name,
            "columns": [[c.name, c.type.value, c.nullable] for c in schema.columns],
            "key": list(schema.key),
            "retroactive": schema.retroactive,
            **tenant,
        }
    )


def table_from_json(text: str) -> TableSchema:
    """Read what `table_to_json` wrote."""
    fields: dict[str, Any] = json.loads(text)
    return TableSchema(
        name=fields["name"],
        columns=tuple(
            ColumnDefinition(name, ColumnType(kind), nullable)
            for name, kind, nullable in fields["columns"]
        ),
        key=tuple(fields["key"]),
        tenant=fields.get("tenant", DEFAULT_TENANT),
        retroactive=fields["retroactive"],
    )
