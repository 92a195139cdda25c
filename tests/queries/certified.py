"""Queries over one small stream, whose answers are compared with exact ones."""

from __future__ import annotations

from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import Plain
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import ColumnDefinition, Select

SCHEMA = StreamSchema(
    "r",
    (
        ColumnDefinition("ts", ColumnType.TIMESTAMP, False),
        ColumnDefinition("x", ColumnType.DOUBLE, True),
        ColumnDefinition("k", ColumnType.BIGINT, True),
    ),
    "ts",
    0,
    None,
    Plain(),
    seed=1,
)


def bound(text: str) -> BoundQuery:
    select = parse(text)
    assert isinstance(select, Select)
    return bind(select, SCHEMA)
