"""Window predicate: the WHERE of a standing query, and the range of a window that stands."""

from __future__ import annotations

from functools import reduce

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op
from shedder.cql.statements.bound_query import BoundQuery
from shedder.streams.windows import PaneGrid


def with_time_range(query: BoundQuery) -> Expression | None:
    """WHERE, and the window's own range where the window does not slide."""
    grid = PaneGrid.of(query.window)
    column = Column(query.schema.time_column, ColumnType.TIMESTAMP)
    conditions = [query.where] if query.where is not None else []
    for edge, op in ((grid.span.start_us, Op.GE), (grid.span.end_us, Op.LT)):
        if edge is not None:
            literal = Literal(edge, ColumnType.TIMESTAMP)
            conditions.append(Call(op, (column, literal), ColumnType.BOOLEAN))
    if not conditions:
        return None
    return reduce(lambda left, right: Call(Op.AND, (left, right), ColumnType.BOOLEAN), conditions)
