"""Streams and tables of a few rows in DuckDB, and the rows that a query of CQL has over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from shedder.cql.binding.parse import parse
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.plans.logical_plan import (
    BoundRelational,
    NowWindow,
    Plan,
    Scan,
    WindowOf,
    inputs_of,
    scans_of,
)
from shedder.cql.sql.plan_sql import RelationSql, plan_sql
from shedder.cql.statements.archive_layout import DEFAULT_LAYOUT
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.relational_text import text_of_query
from shedder.cql.statements.relational_tree import NamedRelation, SelectQuery, WindowClause
from shedder.cql.statements.statement import (
    ColumnDefinition,
    LandmarkWindow,
    RangeWindow,
    Select,
    UnboundedWindow,
)

SECOND = 1_000_000
SEED = (1 << 64) - 12_345
"""Of every stream."""


@dataclass(frozen=True)
class Table:
    """A table's schema."""

    name: str
    columns: tuple[ColumnDefinition, ...]
    retroactive: bool = False


Schema = StreamSchema | Table


def stream(name: str, /, **columns: ColumnType) -> StreamSchema:
    """A stream with these columns and then `ts`."""
    defined = (
        *(ColumnDefinition(column, kind, True) for column, kind in columns.items()),
        ColumnDefinition("ts", ColumnType.TIMESTAMP, False),
    )
    return StreamSchema(name, defined, "ts", 0, None, DEFAULT_LAYOUT, SEED)


def table(name: str, /, **columns: ColumnType) -> Table:
    """A table with these columns."""
    return Table(name, tuple(ColumnDefinition(*each, True) for each in columns.items()))


def as_rows(select: Select) -> RelationalSelect:
    """Return the row query whose rows are the exact answer of a query of aggregates."""
    window = None if select.window == UnboundedWindow() else WindowClause(select.window)
    query = SelectQuery(
        items=select.outputs,
        source=NamedRelation(select.stream, select.stream, window),
        where=select.where,
        groups=select.groups,
        having=select.having,
        order=select.order,
        limit=select.limit,
    )
    return RelationalSelect(text_of_query(query), query, (select.stream,))


class Relations:
    """A connection of DuckDB with relations of the given rows."""

    def __init__(self, given: dict[str, tuple[Schema, list[tuple[Any, ...]]]]) -> None:
        """given: schema and rows by name; the time of a stream's row is in microseconds."""
        self.schemas = {name: schema for name, (schema, _) in given.items()}
        self.connection = duckdb.connect()
        for name, (schema, rows) in given.items():
            self.connection.register(name, _arrow(schema, rows))

    def bound(self, text: str, now_us: int | None = None) -> BoundRelational:
        """The bound query."""
        statement = parse(text)
        assert isinstance(statement, (Select, RelationalSelect)), text
        assert parse(statement.text) == statement, statement.text
        if isinstance(statement, Select):
            statement = as_rows(statement)
        return bind_relational(statement, self.schemas, now_us)

    def table(
        self,
        text: str,
        *,
        now_us: int | None = None,
        stretch: tuple[int | None, int | None] = (None, None),
        as_of_us: int | None = None,
    ) -> pa.Table:
        """The result of a query of CQL; it has the columns and types that were bound.

        stretch: of event time, of every stream. as_of_us: an instant; windows are as of it.
        """
        query = self.bound(text, now_us)
        found = {
            scan.alias: RelationSql(scan.relation, *stretch, SEED) for scan in scans_of(query.plan)
        }
        if as_of_us is not None:
            found = _as_of(query.plan, as_of_us)
        result = self.connection.sql(plan_sql(query.plan, found)).to_arrow_table()
        assert result.column_names == [column.name for column in query.columns], text
        assert result.schema.types == [column.type.arrow for column in query.columns], text
        return result

    def rows(self, text: str, **options: Any) -> list[tuple[Any, ...]]:
        """The rows of a query of CQL, in order."""
        return [tuple(row.values()) for row in self.table(text, **options).to_pylist()]

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a query of DuckDB."""
        return self.connection.sql(text).fetchall()


def _as_of(plan: Plan, end_us: int) -> dict[str, RelationSql]:
    """By alias, the tuples of each scan's window as of an instant."""
    match plan:
        case WindowOf(input=Scan() as scan, window=RangeWindow(range_us=range_us, slide_us=slide)):
            last_us = end_us // slide * slide
            return {scan.alias: RelationSql(scan.relation, last_us - range_us, last_us)}
        case WindowOf(input=Scan() as scan, window=NowWindow()):
            return {scan.alias: RelationSql(scan.relation, end_us - 1, end_us)}
        case WindowOf(input=Scan() as scan, window=LandmarkWindow(start_us)):
            return {scan.alias: RelationSql(scan.relation, start_us, end_us)}
        case Scan():
            return {plan.alias: RelationSql(plan.relation, None, end_us)}
    found: dict[str, RelationSql] = {}
    for part in inputs_of(plan):
        found |= _as_of(part, end_us)
    return found


def _arrow(schema: Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    arrays: dict[str, Any] = {}
    for at, column in enumerate(schema.columns):
        values = [row[at] for row in rows]
        if column.type is ColumnType.TIMESTAMP:
            arrays[column.name] = pa.array(values, pa.int64()).cast(column.type.arrow)
        else:
            arrays[column.name] = pa.array(values, column.type.arrow, from_pandas=False)
    if isinstance(schema, StreamSchema):
        arrays["__position"] = pa.array(range(len(rows)), pa.int64())
    return pa.table(arrays)
