"""Binding of CREATE TABLE, UPDATE and rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from shedder.cql.binding.bind import RowBinder
from shedder.cql.binding.clause_checks import COLUMNS_MAX
from shedder.cql.binding.expression_translation import Translator
from shedder.cql.binding.insert_checks import array_of_constants
from shedder.cql.binding.new_names import check_new_name
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Aggregate, Expression, Literal, parts_of
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.expressions.literals import Bindings
from shedder.cql.expressions.type_names import column_type
from shedder.cql.grammar.table_grammar import RawCreateTable, RawUpdate
from shedder.cql.statements.bound_query import OWN_COLUMNS
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.relational_text import text_of_query
from shedder.cql.statements.relational_tree import (
    NamedRelation,
    SelectQuery,
    Star,
    WindowClause,
)
from shedder.cql.statements.statement import (
    ColumnDefinition,
    CreateTable,
    Delete,
    Output,
    Select,
    UnboundedWindow,
    Update,
)
from shedder.cql.statements.table_schema import TableSchema
from shedder.cql.text.size_limits import Limits
from shedder.cql.text.source_text import SourceText
from shedder.errors import BadQuery, UnknownColumn


def created_table(raw: RawCreateTable, source: SourceText) -> CreateTable:
    """The table that was said.

    Raises:
      BadQuery: with the place.
    """
    columns: dict[str, ColumnDefinition] = {}
    for column in raw.columns:
        name = str(column.name.name)
        if name.lower() in columns:
            raise source.wrong(column.name, f"two columns are named {name!r}")
        if name.lower() in OWN_COLUMNS:
            raise source.wrong(
                column.name, f"a column cannot be named {name!r}: the archive has its own"
            )
        kind = column_type(column.type, source)
        columns[name.lower()] = ColumnDefinition(name, kind, column.nullable)
    if len(columns) > COLUMNS_MAX:
        raise BadQuery(f"a table has at most {COLUMNS_MAX:,} columns, not {len(columns):,}")
    key = _key(raw, columns, source)
    for name in key:
        columns[name.lower()] = replace(columns[name.lower()], nullable=False)
    return CreateTable(raw.name, tuple(columns.values()), key, raw.retroactive, raw.if_not_exists)


def _key(
    raw: RawCreateTable, columns: dict[str, ColumnDefinition], source: SourceText
) -> tuple[str, ...]:
    """The columns of the primary key, as they are written among the columns."""
    if len(raw.keys) != 1:
        raise source.error(
            f"a table has one PRIMARY KEY, not {len(raw.keys)}: write it behind a column, or "
            "PRIMARY KEY (a, b) behind all columns",
            raw.start,
        )
    found: list[str] = []
    for name in raw.keys[0]:
        column = columns.get(name.lower())
        if column is None:
            raise source.error(f"PRIMARY KEY: no column {name!r} in the table", raw.start)
        if column.name in found:
            raise source.error(f"PRIMARY KEY names {name!r} twice", raw.start)
        if column.type is ColumnType.DOUBLE:
            raise source.error(
                f"PRIMARY KEY: {name!r} is DOUBLE, which has no exact equality; "
                "a key is of another type",
                raw.start,
            )
        found.append(column.name)
    return tuple(found)


def updated(raw: RawUpdate, source: SourceText, bindings: Bindings, limits: Limits) -> Update:
    """The UPDATE that was said.

    Raises:
      BadQuery: with the place. Unimplemented.
    """
    translator = Translator(source, bindings, limits, (raw.table,))
    assignments = tuple(
        Output(name, translator.expression(value)) for name, value in raw.assignments
    )
    where = None if raw.where is None else translator.expression(raw.where)
    return Update(raw.table, assignments, where)


def rows_to_delete(
    statement: Delete, schema: TableSchema, rows: Sequence[pa.RecordBatch]
) -> list[pa.RecordBatch]:
    """The rows that DELETE FROM a table removes.

    Raises:
      UnknownColumn, TypeMismatch. BadQuery: it has a window.
    """
    if not isinstance(statement.select.window, UnboundedWindow):
        raise BadQuery(f"{schema.name!r} is a table, which has no window; use WHERE")
    where, _, _ = RowBinder.bound(statement.select.where, (), schema)
    return _kept(where, rows)


def updated_rows(
    statement: Update, schema: TableSchema, rows: Sequence[pa.RecordBatch]
) -> list[pa.RecordBatch]:
    """The rows that UPDATE changes, with their new values; types are those of the values.

    Raises:
      UnknownColumn, TypeMismatch. BadQuery: a column of the key, or one column twice.
    """
    known = {column.name.lower(): column for column in schema.columns}
    targets: dict[str, tuple[ColumnDefinition, Expression]] = {}
    bound_where, bound, _ = RowBinder.bound(statement.where, statement.assignments, schema)
    for output in bound:
        column = known.get(output.name.lower())
        if column is None:
            raise UnknownColumn(output.name, [each.name for each in schema.columns])
        if column.name in schema.key:
            raise BadQuery(
                f"{column.name!r} is of the primary key, which identifies a row; "
                "DELETE the row and INSERT another one"
            )
        for part in parts_of(output.expression):
            if isinstance(part, Aggregate):
                raise BadQuery(f"UPDATE sets values of single rows; {text_of(part)} is of many")
        if column.name in targets:
            raise BadQuery(f"UPDATE sets {column.name!r} twice")
        targets[column.name] = (column, output.expression)
    return [_assigned(batch, targets) for batch in _kept(bound_where, rows)]


def _assigned(
    batch: pa.RecordBatch, targets: dict[str, tuple[ColumnDefinition, Expression]]
) -> pa.RecordBatch:
    columns: list[pa.Array[Any]] = []
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if name not in targets:
            columns.append(values)
            continue
        column, expression = targets[name]
        if isinstance(expression, Literal):  # Read as INSERT reads a constant.
            [value] = array_of_constants([expression], name, column.type)
            columns.append(pa.repeat(value, batch.num_rows))
        else:
            columns.append(evaluate(expression, batch))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _kept(where: Expression | None, rows: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if where is None:
        return list(rows)
    kept = (batch.filter(pa.array(true_rows(evaluate(where, batch)))) for batch in rows)
    return [batch for batch in kept if batch.num_rows]


def relational(select: Select, *, is_table: bool) -> RelationalSelect:
    """A query of one relation as a query whose result is rows.

    A text does not tell tables from streams, so aggregates of one relation, and the query of an
    INSERT, are parsed as a query of a stream.

    Args:
      select: a query; without outputs it is of all columns.
      is_table: whether FROM names a table.

    Raises:
      BadQuery: a table has a window, or the query has a clause of approximate answers.
    """
    name, has_window = select.stream, not isinstance(select.window, UnboundedWindow)
    if is_table and has_window:
        raise BadQuery(f"{name!r} is a table, which has no window; use WHERE")
    if select.target is not None or select.reduction is not None or select.costing is not None:
        raise BadQuery(
            f"the rows of {name!r} are answered exactly; leave WITHIN, REDUCE BY and COSTING away"
        )
    query = SelectQuery(
        items=select.outputs or (Star(),),
        source=NamedRelation(name, name, WindowClause(select.window) if has_window else None),
        where=select.where,
        groups=select.groups,
        having=select.having,
        order=select.order,
        limit=select.limit,
    )
    return RelationalSelect(text_of_query(query), query, (name,))


def check_new_table(statement: CreateTable) -> None:
    """Check the names of a new table and of its columns.

    Raises:
      BadQuery: as `check_new_name`.
    """
    check_new_name("table", statement.name)
    for column in statement.columns:
        check_new_name("column", column.name)
