"""Row queries as the grammar found them, to trees of `RelationalSelect`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlglot import exp

from shedder.cql.binding.clause_checks import confidence_of, hundredth, number_of
from shedder.cql.binding.expression_translation import Translator
from shedder.cql.binding.select_list import Item, groups_of, items_of, limit_of, order_of
from shedder.cql.binding.window_checks import moment_us, window_clause
from shedder.cql.expressions.expression import Column
from shedder.cql.expressions.literals import Bindings
from shedder.cql.grammar.parse_nodes import RawNumber, RawRelational
from shedder.cql.grammar.query_grammar import AS_OF, COMMA, DISTINCT, SAMPLE, WINDOW
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.relational_text import text_of_query
from shedder.cql.statements.relational_tree import (
    DerivedRelation,
    JoinedRelation,
    JoinSyntax,
    NamedRelation,
    Query,
    Relation,
    SelectQuery,
    SetQuery,
    SetSyntax,
    Star,
    StreamSyntax,
    named_relations,
)
from shedder.cql.statements.statement import Output
from shedder.cql.text.size_limits import Limits
from shedder.cql.text.source_text import SourceText, start_of
from shedder.cql.text.unsupported import later
from shedder.errors import BadQuery

RELATIONS_MAX = 64
"""Streams and tables in FROM of a query and its subqueries; a name of WITH counts as its query."""

_SELECT = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "distinct",
    "with_",
}
_SET = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}
_BRACKETS = {"this", "order", "limit", "offset", "with_"}
_JOIN = {"this", "on", "using", "side", "kind"}
_CLAUSES = {
    "method": "NATURAL and ASOF JOIN",
    "laterals": "LATERAL",
    "windows": "WINDOW",
    "into": "SELECT INTO",
    "hint": "hints",
}
_SETS: dict[type[exp.Expr], SetSyntax] = {
    exp.Union: SetSyntax.UNION,
    exp.Except: SetSyntax.EXCEPT,
    exp.Intersect: SetSyntax.INTERSECT,
}
_SIDES = {"LEFT": JoinSyntax.LEFT, "RIGHT": JoinSyntax.RIGHT, "FULL": JoinSyntax.FULL}

_Q = TypeVar("_Q", SelectQuery, SetQuery)
_Known = Mapping[str, Query]
"""Queries of WITH by their names in lower case."""


def relational_select(
    raw: RawRelational, source: SourceText, bindings: Bindings, limits: Limits
) -> RelationalSelect:
    """The query that was said.

    Raises:
      BadQuery: with the place. Unimplemented: a clause of a later version.
    """
    query = _QueryReader(source, bindings, limits).query(raw.query, {})
    confidence = None
    if raw.confidence is not None:
        translator = Translator(source, bindings, limits)
        confidence = confidence_of(raw.confidence, translator, source)
    text = text_of_query(query, confidence, sheds=raw.sheds)
    if len(text.encode()) > limits.text_bytes_max:
        raise BadQuery(
            f"with the queries of WITH written out, the query has {len(text.encode()):,} bytes; at "
            f"most {limits.text_bytes_max:,} are read"
        )
    names = tuple(dict.fromkeys(relation.name for relation in named_relations(query)))
    return RelationalSelect(text, query, names, confidence, raw.sheds)


@dataclass(frozen=True, slots=True)
class _Size:
    """Of a query: relations in FROM at any depth, and levels of queries in queries."""

    relations: int
    levels: int


class _QueryReader:
    """One statement's way from sqlglot's tree to ours. Names of WITH are written out."""

    def __init__(self, source: SourceText, bindings: Bindings, limits: Limits) -> None:
        self._source = source
        self._bindings = bindings
        self._limits = limits
        # By identity, with the query: one of WITH that is used twice is measured once.
        self._sizes: dict[int, tuple[Query, _Size]] = {}

    def query(self, node: exp.Expr, known: _Known) -> Query:
        """The query that a tree means."""
        known = self._with(node, known)
        match node:
            case exp.Select():
                return self._measured(self._select(node, known))
            case exp.SetOperation():
                return self._measured(self._set(node, known))
            case exp.Subquery():
                return self._in_brackets(node, known)
        raise later(f"{type(node).__name__} as a query")

    def _with(self, node: exp.Expr, known: _Known) -> _Known:
        clause = node.args.get("with_")
        if clause is None:
            return known
        more = dict(known)
        own: set[str] = set()
        for cte in clause.expressions:
            name = cte.alias
            if name.lower() in own:
                raise self._source.wrong(cte, f"two queries of WITH are named {name!r}")
            own.add(name.lower())
            more[name.lower()] = self.query(cte.this, more)
        return more

    def _in_brackets(self, node: exp.Subquery, known: _Known) -> Query:
        """A query in brackets, with ORDER BY and LIMIT behind them."""
        _check_known(node, _BRACKETS)
        inner = self.query(node.this, known)
        if not any(map(node.args.get, ("order", "limit", "offset"))):
            return inner
        outer = SelectQuery((Star(),), DerivedRelation(inner, "q"))
        return self._measured(self._ordered(outer, (Star(),), node, self._translator({})))

    # --- set operations -----------------------------------------------------------------------

    def _set(self, node: exp.SetOperation, known: _Known) -> SetQuery:
        _check_known(node, _SET)
        query = SetQuery(
            operator=_SETS[type(node)],
            all=not node.args.get("distinct"),
            left=self.query(node.this, known),
            right=self.query(node.expression, known),
        )
        names = tuple(
            item if isinstance(item, Star) else Output(item.name, Column(item.name))
            for item in _first_items(query)
        )
        return self._ordered(query, names, node, self._translator({}))

    def _ordered(
        self, query: _Q, items: tuple[Item, ...], node: exp.Expr, translator: Translator
    ) -> _Q:
        return replace(
            query,
            order=order_of(node.args.get("order"), items, translator, self._source),
            limit=limit_of(node.args.get("limit"), translator, self._source),
            offset=limit_of(node.args.get("offset"), translator, self._source) or 0,
        )

    # --- SELECT -------------------------------------------------------------------------------

    def _select(self, select: exp.Select, known: _Known) -> SelectQuery:
        _check_known(select, _SELECT)
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise later("DISTINCT ON")
        subqueries: dict[str, Query] = {}
        translator = self._translator(known, subqueries)
        relation = self._from(select, known, translator)
        stream, nodes = self._stream(select)
        items = items_of(nodes, translator, self._source)
        where, having = select.args.get("where"), select.args.get("having")
        query = SelectQuery(
            items=items,
            source=relation,
            distinct=distinct is not None or _is_distinct(select),
            stream=stream,
            where=translator.expression(where.this) if where else None,
            groups=groups_of(select.args.get("group"), items, translator, self._source),
            having=translator.expression(having.this) if having else None,
        )
        query = self._ordered(query, items, select, translator)
        return replace(query, subqueries=tuple(subqueries.items()))

    def _stream(self, select: exp.Select) -> tuple[StreamSyntax | None, list[exp.Expr]]:
        """ISTREAM, DSTREAM or RSTREAM around the select list, and the items of the list."""
        words = [each.value for each in StreamSyntax]
        for node in select.expressions:
            inner = node.unalias()
            if not isinstance(inner, exp.Anonymous) or inner.name.upper() not in words:
                continue
            word = inner.name.upper()
            if node is not inner or len(select.expressions) > 1:
                raise self._source.wrong(
                    inner,
                    f"{word} stands around the whole select list: {word}(a AS x, b)",
                )
            return StreamSyntax(word), list(inner.expressions)
        return None, list(select.expressions)

    def _translator(self, known: _Known, found: dict[str, Query] | None = None) -> Translator:
        def subquery(node: exp.Expr) -> str:
            if found is None:
                raise later("a subquery in ORDER BY of a set operation")
            query = self.query(node, known)
            text = text_of_query(query)
            found[text] = query
            return text

        return Translator(self._source, self._bindings, self._limits, subquery=subquery)

    # --- FROM ---------------------------------------------------------------------------------

    def _from(self, select: exp.Select, known: _Known, translator: Translator) -> Relation:
        """The relations of FROM; a comma binds less than JOIN."""
        clause = select.args.get("from_")
        if clause is None:
            raise self._source.error("expected FROM and the name of a stream", start_of(select))
        whole: Relation | None = None
        part = self._relation(clause.this, known, translator)
        for join in select.args.get("joins") or ():
            if join.args.get("kind") == COMMA:
                whole = part if whole is None else JoinedRelation(JoinSyntax.COMMA, whole, part)
                part = self._relation(join.this, known, translator)
            else:
                part = self._join(part, join, known, translator)
        return part if whole is None else JoinedRelation(JoinSyntax.COMMA, whole, part)

    def _join(
        self, left: Relation, join: exp.Join, known: _Known, translator: Translator
    ) -> JoinedRelation:
        _check_known(join, _JOIN)
        side, kind = join.args.get("side") or "", join.args.get("kind") or ""
        if kind not in ("", "INNER", "OUTER", "CROSS") or (kind == "OUTER" and not side):
            raise later(f"{kind} JOIN")
        syntax = JoinSyntax.CROSS if kind == "CROSS" else _SIDES.get(side, JoinSyntax.INNER)
        condition, using = join.args.get("on"), join.args.get("using") or ()
        said = condition is not None or bool(using)
        if said is (syntax is JoinSyntax.CROSS):
            raise self._source.wrong(
                join.this,
                "CROSS JOIN has no condition"
                if said
                else f"{syntax.value} needs ON and a condition, or USING and columns; CROSS JOIN "
                "has all pairs",
            )
        right = self._relation(join.this, known, translator)
        return JoinedRelation(
            syntax,
            left,
            right,
            None if condition is None else translator.expression(condition),
            tuple(dict.fromkeys(each.name for each in using)),
        )

    def _relation(self, node: exp.Expr, known: _Known, translator: Translator) -> Relation:
        if node.args.get("joins"):
            raise self._source.wrong(node, "every JOIN needs its ON before the next JOIN")
        window = window_clause(node.meta.get(WINDOW), translator, self._source, self._limits)
        sample = self._sample(node.meta.get(SAMPLE), translator)
        if isinstance(node, exp.Subquery):
            if not node.alias:
                raise self._source.wrong(
                    node.this, "a subquery in FROM needs a name: FROM (SELECT ...) t"
                )
            return DerivedRelation(self.query(node.this, known), node.alias, window, sample)
        assert isinstance(node, exp.Table)
        query, moment = known.get(node.name.lower()), node.meta.get(AS_OF)
        if query is not None:
            if moment is not None:
                raise self._source.wrong(moment, "AS OF is of a table, not of a query in WITH")
            return DerivedRelation(query, node.alias or node.name, window, sample)
        as_of_us = None if moment is None else moment_us(moment, "AS OF", translator, self._source)
        return NamedRelation(node.name, node.alias or node.name, window, sample, as_of_us)

    def _sample(self, raw: RawNumber | None, translator: Translator) -> float | None:
        """The share that SAMPLE keeps."""
        if raw is None:
            return None
        percent = number_of(raw, "SAMPLE", translator, self._source)
        if not 0 < percent <= 100:
            raise self._source.error(
                f"SAMPLE takes a percentage over 0, at most 100, not {percent:g}", raw.start
            )
        return hundredth(percent)

    # --- sizes --------------------------------------------------------------------------------

    def _measured(self, query: _Q) -> _Q:
        """The query, unless it has too many relations or levels."""
        parts = [self._sizes[id(part)][1] for part in _parts(query)]
        named = len(_relations(query)) if isinstance(query, SelectQuery) else 0
        size = _Size(
            named + sum(part.relations for part in parts),
            1 + max((part.levels for part in parts), default=0),
        )
        if size.relations > RELATIONS_MAX:
            raise BadQuery(
                f"the query has {size.relations} streams and tables in FROM; at most "
                f"{RELATIONS_MAX} are joined"
            )
        if size.levels > self._limits.depth_max:
            raise BadQuery(
                f"queries in queries are nested too deeply; at most {self._limits.depth_max} "
                "levels are read"
            )
        self._sizes[id(query)] = (query, size)
        return query


def _check_known(node: exp.Expr, known: set[str]) -> None:
    """Refuse a node that says more than is read, so that nothing is silently left away."""
    for key, value in node.args.items():
        if value and key not in known:
            raise later(_CLAUSES.get(key, key.strip("_").upper().replace("_", " ")))


def _is_distinct(select: exp.Select) -> bool:
    """Return whether DISTINCT stands in ISTREAM(DISTINCT ...)."""
    return any(node.meta.get(DISTINCT) for node in select.expressions)


def _first_items(query: Query) -> tuple[Item, ...]:
    """The select list that names the columns of a query."""
    return query.items if isinstance(query, SelectQuery) else _first_items(query.left)


def _parts(query: Query) -> list[Query]:
    """The queries directly in a query."""
    if isinstance(query, SetQuery):
        return [query.left, query.right]
    return [subquery for _, subquery in query.subqueries] + _derived(query.source)


def _derived(relation: Relation) -> list[Query]:
    match relation:
        case DerivedRelation(query=query):
            return [query]
        case JoinedRelation(left=left, right=right):
            return _derived(left) + _derived(right)
        case _:
            return []


def _relations(query: SelectQuery) -> list[NamedRelation]:
    def named(relation: Relation) -> list[NamedRelation]:
        match relation:
            case NamedRelation():
                return [relation]
            case JoinedRelation(left=left, right=right):
                return named(left) + named(right)
            case _:
                return []

    return named(query.source)
