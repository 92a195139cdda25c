"""Queries of rows as the grammar found them, to trees of `RelationalSelect`."""

from __future__ import annotations

from sqlglot import exp

from shedder.cql.binding.expression_translation import Translator
from shedder.cql.binding.select_list import groups_of, items_of, limit_of, order_of
from shedder.cql.binding.window_checks import window_clause
from shedder.cql.expressions.literals import Bindings
from shedder.cql.grammar.query_grammar import WINDOW
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.relational_text import text_of_query
from shedder.cql.statements.relational_tree import (
    NamedRelation,
    Query,
    Relation,
    SelectQuery,
    named_relations,
)
from shedder.cql.text.size_limits import Limits
from shedder.cql.text.source_text import SourceText, start_of
from shedder.cql.text.unsupported import later

_KNOWN = {
    "expressions",
    "from_",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "distinct",
}
_CLAUSES = {"laterals": "LATERAL", "windows": "WINDOW", "into": "SELECT INTO", "hint": "hints"}


def relational_select(
    node: exp.Expr, source: SourceText, bindings: Bindings, limits: Limits
) -> RelationalSelect:
    """The query that was said.

    Raises:
      BadQuery: with the place. Unimplemented: a clause of a later version.
    """
    query = _Reader(source, bindings, limits).query(node)
    text = text_of_query(query)
    names = tuple(dict.fromkeys(relation.name for relation in named_relations(query)))
    return RelationalSelect(text, query, names)


class _Reader:
    """One statement's way from sqlglot's tree to ours."""

    def __init__(self, source: SourceText, bindings: Bindings, limits: Limits) -> None:
        self._source = source
        self._bindings = bindings
        self._limits = limits

    def query(self, node: exp.Expr) -> Query:
        """The query that a tree means."""
        if not isinstance(node, exp.Select):
            raise later("UNION, INTERSECT and EXCEPT")
        return self._select(node)

    def _select(self, select: exp.Select) -> SelectQuery:
        for key, value in select.args.items():
            if value and key not in _KNOWN:
                raise later(_CLAUSES.get(key, key.strip("_").upper()))
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise later("DISTINCT ON")
        subqueries: dict[str, Query] = {}

        def subquery(_: exp.Expr) -> str:
            raise later("a subquery in an expression")

        translator = Translator(self._source, self._bindings, self._limits, subquery=subquery)
        relation = self._from(select, translator)
        items = items_of(select.expressions, translator, self._source)
        where, having = select.args.get("where"), select.args.get("having")
        return SelectQuery(
            items=items,
            source=relation,
            distinct=distinct is not None,
            where=translator.expression(where.this) if where else None,
            groups=groups_of(select.args.get("group"), items, translator, self._source),
            having=translator.expression(having.this) if having else None,
            order=order_of(select.args.get("order"), items, translator, self._source),
            limit=limit_of(select.args.get("limit"), translator, self._source),
            offset=limit_of(select.args.get("offset"), translator, self._source) or 0,
            subqueries=tuple(subqueries.items()),
        )

    def _from(self, select: exp.Select, translator: Translator) -> Relation:
        clause = select.args.get("from_")
        if clause is None:
            raise self._source.error("expected FROM and the name of a stream", start_of(select))
        return self._relation(clause.this, translator)

    def _relation(self, node: exp.Expr, translator: Translator) -> Relation:
        if not isinstance(node, exp.Table):
            raise later("a subquery in FROM")
        clause = window_clause(node.meta.get(WINDOW), translator, self._source, self._limits)
        return NamedRelation(node.name, node.alias or node.name, clause)
