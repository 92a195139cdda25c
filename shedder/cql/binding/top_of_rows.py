"""SELECT TOP(x, k) over a window of rows: a row for each value, in bounded bytes."""

from __future__ import annotations

from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column
from shedder.cql.plans.logical_plan import GUARANTEED, Aggregated, Plan, Project, companions_of
from shedder.cql.statements.relational_select import QueryTree, RelationalSelect
from shedder.cql.statements.relational_tree import (
    NamedRelation,
    RowsClause,
    SelectQuery,
    WindowClause,
)
from shedder.cql.statements.statement import Output
from shedder.errors import BadQuery


def without_top(query: QueryTree) -> tuple[QueryTree, int | None]:
    """Return SELECT x, COUNT(x) GROUP BY x for SELECT TOP(x, k) over a window of rows, and k.

    Other queries stay as they are, with None.

    Raises:
      BadQuery: the window or a clause is not for TOP.
    """
    match query:
        case SelectQuery(
            items=(
                Output(
                    name=name,
                    expression=Aggregate(
                        function=AggregateFunction.TOP, argument=value, parameter=length
                    ),
                ),
            ),
            source=NamedRelation(window=WindowClause(window=RowsClause() as rows)) as source,
        ) if value is not None and length is not None:
            plain = SelectQuery(query.items, source)
            if query != plain or source.sample is not None:
                raise BadQuery(
                    "TOP over a window of rows stands alone: SELECT TOP(x, k) AS t FROM s [ROWS "
                    "100000 SLIDE 500 WHERE c]; leave other clauses away, and write a condition "
                    "inside of the brackets"
                )
            _check(rows)
            count = Aggregate(AggregateFunction.COUNT, value)
            items = Output(name, value), Output(f"{name}_count", count)
            return replace(query, items=items, groups=(value,)), int(length)
        case _:
            return query, None


def with_top(plan: Plan, length: int) -> Plan:
    """Return the plan of TOP for that of `without_top`."""
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Aggregated)
    value, count = plan.outputs
    long = ColumnType.BIGINT
    kinds = (long, long, ColumnType.VARCHAR, ColumnType.BOOLEAN)
    names = zip(companions_of(count.name), companions_of("a0"), kinds, strict=True)
    companions = (Output(name, Column(of, kind)) for name, of, kind in names)
    sure = Output(f"{value.name}_{GUARANTEED}", Column(GUARANTEED, ColumnType.BOOLEAN))
    return Project(replace(plan.input, listed=length), (value, count, *companions, sure))


def check_lists_nothing(select: RelationalSelect) -> None:
    """Check that a query that is answered once has no TOP over a window of rows.

    Raises:
      BadQuery: it has one.
    """
    if without_top(select.query)[1] is not None:
        raise BadQuery(
            "TOP over a window of rows is for standing queries; ask once for SELECT x, COUNT(x) AS "
            "n FROM s [ROWS 100000] GROUP BY x ORDER BY n DESC LIMIT 10, which is exact"
        )


def _check(rows: RowsClause) -> None:
    if rows.partition:
        raise BadQuery(
            "TOP over [PARTITION BY ...] is not in this version; leave PARTITION BY away"
        )
    if rows.slide_rows == 1 or rows.rows % rows.slide_rows:
        raise BadQuery(
            f"TOP over [ROWS {rows.rows} SLIDE {rows.slide_rows}] keeps a list for each slide: "
            "write a SLIDE of 2 or more tuples that divides ROWS, such as [ROWS 100000 SLIDE 500]; "
            "SELECT x, COUNT(x) AS n ... GROUP BY x has all counts as of each tuple"
        )
