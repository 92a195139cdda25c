"""Binding of INSERT and DELETE: a row query, or rows of constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from shedder.cql.binding.bind import RowBinder
from shedder.cql.binding.clause_checks import selected
from shedder.cql.binding.expression_translation import Translator
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column, Expression, Literal
from shedder.cql.expressions.expression_text import literal_text
from shedder.cql.expressions.literals import Bindings, converted
from shedder.cql.grammar.parse_nodes import RawDelete, RawInsert
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import (
    Contract,
    Delete,
    Insert,
    Output,
    RangeWindow,
    Select,
    Window,
)
from shedder.cql.statements.table_schema import RelationSchema
from shedder.cql.text.size_limits import Limits
from shedder.cql.text.source_text import SourceText
from shedder.errors import BadQuery, TypeMismatch, UnknownColumn


@dataclass(frozen=True, slots=True)
class RowsQuery:
    """Rows of a stream, every expression typed: outputs for the rows that WHERE keeps.

    columns: names of the stream's columns that any expression reads.
    """

    window: Window
    where: Expression | None
    outputs: tuple[Output, ...]
    columns: tuple[str, ...]


def inserted(raw: RawInsert, source: SourceText, bindings: Bindings, limits: Limits) -> Insert:
    """The statement that was said.

    Raises:
      BadQuery: with the place. Unimplemented.
    """
    if raw.select is not None:
        select = selected(raw.select, source, bindings, limits)
        if raw.everything:
            select = replace(select, outputs=())
        return Insert(raw.stream, raw.columns, select, (), raw.producer, raw.replaces)
    translator = Translator(source, bindings, limits)
    rows = tuple(tuple(translator.constant(value) for value in row) for row in raw.rows)
    return Insert(raw.stream, raw.columns, None, rows, raw.producer, raw.replaces)


def deleted(raw: RawDelete, source: SourceText, bindings: Bindings, limits: Limits) -> Delete:
    """The DELETE that was said.

    Raises:
      BadQuery: with the place. Unimplemented.
    """
    select = selected(raw.select, source, bindings, limits)
    text = "DELETE" + select.text[select.text.index(" FROM ") :]
    return Delete(replace(select, outputs=()), text)


def wants_rows(select: Select) -> bool:
    """Return whether a query is of rows: without aggregates and groups."""
    return not select.groups and not RowBinder.has_aggregates(select)


def bind_rows(select: Select, schema: StreamSchema) -> RowsQuery:
    """Find the names and types of a row query; without outputs it is of all columns.

    Raises:
      UnknownColumn, TypeMismatch. BadQuery: it has a clause that rows have no use for.
    """
    for clause, said in (
        ("HAVING", select.having is not None),
        ("ORDER BY", bool(select.order)),
        ("LIMIT", select.limit is not None),
        ("WITHIN", select.target is not None),
        ("ELSE", select.contract is not Contract.WIDEN),
        ("REDUCE BY", select.reduction is not None),
        ("THINNING", select.thinning > 0),
        ("COSTING", select.costing is not None),
    ):
        if said:
            raise BadQuery(
                f"{clause} has no meaning for rows that are inserted: all that WHERE keeps are"
            )
    if isinstance(select.window, RangeWindow):
        raise BadQuery("rows are of a fixed stretch: [FROM t TO u], not [RANGE ...]")
    outputs = select.outputs or tuple(Output(c.name, Column(c.name)) for c in schema.columns)
    where, bound, columns = RowBinder.bound(select.where, outputs, schema)
    return RowsQuery(select.window, where, bound, columns)


def insert_columns(
    schema: RelationSchema, columns: Sequence[str] | None, width: int
) -> tuple[str, ...]:
    """The columns of the relation that get values, in the order of the values.

    A name is found as written; if that finds no column, in any case.

    Raises:
      UnknownColumn. BadQuery: there are more or fewer values, or a column has two.
    """
    known = [column.name for column in schema.columns]
    found = {name.lower(): name for name in known} | {name: name for name in known}
    names = []
    for name in known if columns is None else columns:
        column = found.get(name, found.get(name.lower()))
        if column is None:
            raise UnknownColumn(name, known)
        if column in names:
            raise BadQuery(f"a column is named twice: {', '.join(columns or known)}")
        names.append(column)
    if len(names) != width:
        raise BadQuery(f"{width} values for the {len(names)} columns {', '.join(names)}")
    return tuple(names)


def bare_nulls(outputs: Sequence[Output], names: Sequence[str]) -> frozenset[str]:
    """The columns that get NULL as it is written, which is a value of any type."""
    return frozenset(
        name
        for output, name in zip(outputs, names, strict=False)
        if isinstance(output.expression, Literal) and output.expression.value is None
    )


def filled(columns: dict[str, pa.Array[Any]], rows: int, schema: RelationSchema) -> pa.RecordBatch:
    """The values as rows of the relation; columns that were not named are NULL."""
    nothing: pa.Array[Any] = pa.nulls(rows)
    arrays = [
        columns[c.name] if c.name in columns else nothing.cast(c.type.arrow) for c in schema.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in schema.columns])


def values_batch(insert: Insert, schema: RelationSchema) -> pa.RecordBatch:
    """The rows of VALUES.

    Raises:
      BadQuery: rows of different widths. TypeMismatch: a constant does not fit its column.
    """
    widths = {len(row) for row in insert.rows}
    if len(widths) > 1:
        raise BadQuery(f"rows of {' and '.join(map(str, sorted(widths)))} values in one INSERT")
    names = insert_columns(schema, insert.columns, widths.pop())
    types = {column.name: column.type for column in schema.columns}
    columns = {
        name: array_of_constants([row[at] for row in insert.rows], name, types[name])
        for at, name in enumerate(names)
    }
    return filled(columns, len(insert.rows), schema)


def array_of_constants(values: Sequence[Literal], name: str, kind: ColumnType) -> pa.Array[Any]:
    """Constants as values of one column.

    Raises:
      TypeMismatch: a constant does not fit the column.
    """
    plain = [_value(value, name, kind) for value in values]
    stored = {ColumnType.TIMESTAMP: pa.int64(), ColumnType.DATE: pa.int32()}.get(kind, kind.arrow)
    try:
        return pa.array(plain, stored).cast(kind.arrow)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise TypeMismatch(f"column {name!r} is {kind.value}: {error}") from error


def _value(literal: Literal, name: str, kind: ColumnType) -> Any:
    """A constant as a column's value; text is read as SQL reads it, whole numbers are doubles."""
    value = literal.value
    if value is None or literal.type is kind:
        return value
    if isinstance(value, str):
        try:
            return converted(value, kind).value
        except ValueError as error:
            raise TypeMismatch(f"column {name!r} is {kind.value}: {error}") from error
    whole = kind in (ColumnType.INTEGER, ColumnType.BIGINT)
    if literal.type is ColumnType.BIGINT and (whole or kind is ColumnType.DOUBLE):
        return value
    raise TypeMismatch(f"column {name!r} is {kind.value}, not {literal_text(literal)}")
