"""Defaults of CQL for results: a row query over a stream is the stream of its insertions.

Source: Arasu, Babu, Widom, The CQL continuous query language, VLDB Journal 15(2), 2006, sec. 7.
"""

from __future__ import annotations

from shedder.cql.expressions.expression import Aggregate, Expression, parts_of
from shedder.cql.plans.logical_plan import (
    Plan,
    RelationKind,
    scans_of,
)
from shedder.cql.statements.relational_select import QueryTree
from shedder.cql.statements.relational_tree import SelectQuery, SetQuery
from shedder.cql.statements.statement import Output


def is_stream_by_default(query: QueryTree, plan: Plan) -> bool:
    """Return whether a result is ISTREAM where the query does not say what it is.

    It is for a query that reads a stream, without aggregates, GROUP BY, ORDER BY and LIMIT of its
    own; those of subqueries in FROM do not count.
    """
    reads = any(scan.kind is RelationKind.STREAM for scan in scans_of(plan))
    return reads and not is_relation(query)


def is_relation(query: QueryTree) -> bool:
    """Return whether a query has aggregates, GROUP BY, ORDER BY or LIMIT of its own."""
    assert isinstance(query, SelectQuery | SetQuery)
    if query.order or query.limit is not None or query.offset:
        return True
    if isinstance(query, SetQuery):
        return is_relation(query.left) or is_relation(query.right)
    values = [item.expression for item in query.items if isinstance(item, Output)]
    return bool(query.groups) or query.having is not None or any(map(_has_aggregate, values))


def _has_aggregate(expression: Expression) -> bool:
    return any(isinstance(part, Aggregate) for part in parts_of(expression))
