"""Canonical text of CREATE TABLE: parsing the text again gives the same statement."""

from __future__ import annotations

from shedder.cql.expressions.expression_text import quoted
from shedder.cql.statements.table_schema import TableSchema


def text_of_table(schema: TableSchema) -> str:
    """The statement that makes a table."""
    columns = [
        f"{quoted(column.name)} {column.type.value}{'' if column.nullable else ' NOT NULL'}"
        for column in schema.columns
    ]
    key = ", ".join(map(quoted, schema.key))
    text = f"CREATE TABLE {quoted(schema.name)} ({', '.join(columns)}, PRIMARY KEY ({key}))"
    return f"{text} RETROACTIVE" if schema.retroactive else text
