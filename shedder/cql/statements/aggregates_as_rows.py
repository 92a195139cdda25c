"""A query of aggregates over one relation as a row query: what it is over a table."""

from __future__ import annotations

from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.relational_text import text_of_query
from shedder.cql.statements.relational_tree import NamedRelation, SelectQuery, WindowClause
from shedder.cql.statements.statement import Select, UnboundedWindow
from shedder.errors import BadQuery


def as_rows(select: Select) -> RelationalSelect:
    """The query whose rows are the exact answer, with a row per group.

    A target is met by every exact answer, so it is left out.

    Raises:
      BadQuery: the query has a clause of approximate answers.
    """
    for clause, said in (
        ("REDUCE BY", select.reduction is not None),
        ("THINNING", select.thinning > 0),
        ("COSTING", select.costing is not None),
    ):
        if said:
            raise BadQuery(f"{clause} is for approximate answers; rows of a table are exact")
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
