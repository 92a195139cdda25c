"""A row query and the schemas of its relations to a logical plan with typed expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shedder.cql.binding.join_conditions import conjunction, filtered, names_in
from shedder.cql.binding.output_names import Aliases, expanded
from shedder.cql.binding.previous_tuples import previous_tuple
from shedder.cql.binding.relational_from import FromBinder, TableColumns
from shedder.cql.binding.relational_scope import NameScope, VisibleColumn, VisibleRelation
from shedder.cql.binding.row_clauses import check_rows, cut, finished, over_groups
from shedder.cql.binding.sampled_aggregates import with_sampling
from shedder.cql.binding.subquery_joins import (
    Clause,
    ScalarJoin,
    SubqueryTest,
    aggregate_join,
    misplaced,
    refuse_correlated,
)
from shedder.cql.binding.top_of_rows import with_top, without_top
from shedder.cql.binding.typed_expressions import Typer, aggregates_in, forbid_aggregates
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    Call,
    Column,
    Expression,
    Literal,
    Op,
    parts_of,
)
from shedder.cql.expressions.expression_text import query_text, text_of
from shedder.cql.expressions.type_inference import alike, typed_call
from shedder.cql.plans.logical_plan import (
    Aggregated,
    BoundRelational,
    Join,
    JoinKind,
    Plan,
    Project,
    SetOperation,
    SetOperator,
    StreamOperator,
    ToStream,
)
from shedder.cql.plans.plan_columns import (
    columns_of,
    constant_of,
    unknown_columns,
    with_columns_read,
)
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.relational_select import QueryTree, RelationalSelect
from shedder.cql.statements.relational_tree import Query, SelectQuery, SetQuery
from shedder.cql.statements.statement import OrderKey, Output
from shedder.errors import BadQuery

_FALSE = Literal(False, ColumnType.BOOLEAN)


def bind_relational(
    select: RelationalSelect,
    schemas: Mapping[str, StreamSchema | TableColumns],
    now_us: int | None = None,
) -> BoundRelational:
    """Find the names, give everything a type, and make the plan.

    Subqueries of expressions become joins: EXISTS and IN semi-joins, NOT EXISTS anti-joins, scalar
    subqueries outer joins with their aggregates by group.

    Args:
      select: the query.
      schemas: of its `relations`, by name.
      now_us: value of NOW(): the least watermark of all inputs, for a query that is answered once.
        None: the query is standing or an input has no watermark, and NOW() is refused.

    Raises:
      UnknownStream, UnknownColumn, TypeMismatch, BadQuery: what is wrong and what would be right.
      Unimplemented: a clause of a later version.
    """
    query, listed = without_top(select.query)
    plan = _QueryBinder(schemas, now_us).query(query)
    for name in unknown_columns(plan):
        raise BadQuery(
            f"{name} is a column of a query around a subquery; it can stand in WHERE of EXISTS, IN "
            "or a scalar subquery of aggregates, directly in that query"
        )
    plan = with_columns_read(plan)
    if select.confidence is not None:
        plan = with_sampling(plan, select.confidence)
    if listed is not None:
        plan = with_top(plan, listed)
    return BoundRelational(select.text, plan, columns_of(plan))


@dataclass(frozen=True, slots=True)
class _Rows:
    """FROM and WHERE of a SELECT.

    names: of the columns of `plan`. correlated: conditions that use columns of the query around.
    """

    plan: Plan
    scope: NameScope
    items: tuple[Output, ...]
    aliases: Aliases
    names: frozenset[str]
    correlated: tuple[Expression, ...]


class _QueryBinder:
    """One statement's way from its tree to a plan."""

    def __init__(
        self, schemas: Mapping[str, StreamSchema | TableColumns], now_us: int | None
    ) -> None:
        self._now_us = now_us
        self._from = FromBinder(schemas, self.query, self._without_subqueries)

    def query(self, query: QueryTree, prefix: str = "", outer: NameScope | None = None) -> Plan:
        """The plan of a query.

        Args:
          query: its tree.
          prefix: before the names of its columns.
          outer: the scope around a subquery of an expression.
        """
        if isinstance(query, SetQuery):
            return self._set(query, prefix, outer)
        assert isinstance(query, SelectQuery)
        plan = self._select(query, prefix, outer)
        if query.stream is None:
            return plan
        word = query.stream.value
        if outer is not None:
            raise BadQuery(f"{word} stands in a subquery of FROM, not of an expression")
        if query.order or query.limit is not None or query.offset:
            raise BadQuery(f"{word} has no order and no end: leave ORDER BY and LIMIT away")
        return ToStream(StreamOperator(word), plan)

    # --- set operations -----------------------------------------------------------------------

    def _set(self, query: SetQuery, prefix: str, outer: NameScope | None) -> Plan:
        word = query.operator.value
        left = self.query(query.left, prefix, outer)
        right = self.query(query.right, prefix, outer)
        if isinstance(left, ToStream) or isinstance(right, ToStream):
            raise BadQuery(
                f"{word} is of relations: put {word} into a subquery of FROM, and ISTREAM around it"
            )
        widths = len(columns_of(left)), len(columns_of(right))
        if widths[0] != widths[1]:
            raise BadQuery(
                f"{word} takes queries of equally many columns; the left has {widths[0]}, the "
                f"right {widths[1]}"
            )
        operator = SetOperator(word)
        plan: Plan = SetOperation(operator, query.all, *_of_one_type(word, left, right))
        visible = VisibleRelation(
            "",
            tuple(
                VisibleColumn(column.name.removeprefix(prefix), Column(column.name, column.type))
                for column in columns_of(plan)
            ),
        )
        typer = self._without_subqueries(NameScope((visible,)))
        keys = [OrderKey(typer.value(key.expression), key.descending) for key in query.order]
        for key in keys:
            forbid_aggregates("ORDER BY of a set operation", key.expression)
        return cut(plan, keys, query.limit, query.offset)

    # --- SELECT -------------------------------------------------------------------------------

    def _select(self, query: SelectQuery, prefix: str, outer: NameScope | None) -> Plan:
        rows = self._rows(query, outer)
        refuse_correlated(rows.correlated)
        clause = self._clause(query, rows.scope)
        value, aliases = clause.typer.value, rows.aliases
        groups = tuple(dict.fromkeys(value(aliases.in_where(group)) for group in query.groups))
        outputs = [Output(item.name, value(item.expression)) for item in rows.items]
        having = query.having
        if having is not None:
            having = aliases.after_groups(having, groups)
        conditions, tests = clause.conditions("HAVING", having)
        keys = [
            OrderKey(value(aliases.in_order(key.expression, groups or None)), key.descending)
            for key in query.order
        ]
        check_rows(outputs, keys)
        for group in groups:
            forbid_aggregates("GROUP BY", group)
        aggregates = aggregates_in(
            [item.expression for item in outputs]
            + [key.expression for key in keys]
            + conditions
            + _tested_values(tests)
        )
        if not groups and not aggregates:
            if having is not None:
                raise BadQuery("HAVING is a condition on groups; write WHERE, or add GROUP BY")
            plan = clause.joined(rows.plan, _as_it_is)
            return finished(plan, outputs, keys, query, prefix)
        _check_own((*groups, *aggregates), clause.names)
        beside = clause.names.union(
            *(frozenset(column.name for column in columns_of(test.right)) for test in tests)
        )
        over = over_groups(groups, aggregates, beside)
        plan = clause.joined(Aggregated(rows.plan, groups, aggregates), over)
        plan = _tested(filtered(plan, [over(each) for each in conditions]), tests, over)
        outputs = [Output(item.name, over(item.expression)) for item in outputs]
        keys = [OrderKey(over(key.expression), key.descending) for key in keys]
        return finished(plan, outputs, keys, query, prefix)

    def _rows(self, query: SelectQuery, outer: NameScope | None) -> _Rows:
        found = self._from.bound(query.source, outer)
        items = expanded(query.items, found.scope)
        aliases = Aliases(found.scope, items)
        clause = self._clause(query, found.scope)
        where = None if query.where is None else aliases.in_where(query.where)
        conditions, tests = clause.conditions("WHERE", where)
        for condition in [*conditions, *_tested_values(tests)]:
            forbid_aggregates("WHERE", condition)
        names = frozenset[str]().union(*(part.names for part in found.parts))
        early = [each for each in conditions if names_in(each) <= names]
        plan = clause.joined(found.joined(early).plan, _as_it_is)
        names |= clause.names
        late = [each for each in conditions if each not in early and names_in(each) <= names]
        plan = _tested(filtered(plan, late), tests)
        correlated = tuple(each for each in conditions if not names_in(each) <= names)
        return _Rows(plan, found.scope, items, aliases, names, correlated)

    def _clause(self, query: SelectQuery, scope: NameScope) -> Clause:
        subqueries = dict(query.subqueries)

        def scalar(node: Call, around: NameScope) -> ScalarJoin:
            return self._scalar(subqueries[query_text(node)], around)

        def test(
            node: Call, value: Expression | None, negated: bool, around: NameScope
        ) -> SubqueryTest:
            return self._test(subqueries[query_text(node)], value, negated, around)

        return Clause(scope, self._now, scalar, test)

    # --- subqueries of expressions ------------------------------------------------------------

    def _test(
        self, query: Query, value: Expression | None, negated: bool, around: NameScope
    ) -> SubqueryTest:
        """EXISTS (value None) or IN."""
        plan, conditions, outputs = self._matching(query, around)
        if value is None:
            kind = JoinKind.ANTI if negated else JoinKind.SEMI
            return SubqueryTest(kind, plan, conjunction(conditions))
        if len(outputs) != 1:
            raise BadQuery(f"IN takes a subquery of one column, not of {len(outputs)}")
        pair = (value, outputs[0])
        equal = typed_call(Call(Op.EQ, pair), pair)
        if not negated:
            return SubqueryTest(JoinKind.SEMI, plan, conjunction([equal, *conditions]))
        certain = [Call(Op.COALESCE, (each, _FALSE), ColumnType.BOOLEAN) for each in conditions]
        return SubqueryTest(JoinKind.ANTI_NULL_AWARE, plan, conjunction([equal, *certain]))

    def _matching(
        self, query: Query, around: NameScope
    ) -> tuple[Plan, tuple[Expression, ...], list[Expression]]:
        """The rows of a subquery, its conditions over the query around, and its outputs."""
        if isinstance(query, SelectQuery) and _is_plain(query):
            rows = self._rows(query, around)
            clause = self._clause(query, rows.scope)
            outputs = [clause.typer.bound(item.expression) for item in rows.items]
            return clause.joined(rows.plan, _as_it_is), rows.correlated, outputs
        plan = self.query(query, f"{self._from.unique('subquery')}.", around)
        return plan, (), [Column(column.name, column.type) for column in columns_of(plan)]

    def _scalar(self, query: Query, around: NameScope) -> ScalarJoin:
        """A subquery that is a value."""
        prefix = f"{self._from.unique('subquery')}."
        if isinstance(query, SelectQuery) and _is_one_row(query):
            rows = self._rows(query, around)
            typer = self._without_subqueries(rows.scope)
            _check_one([item.name for item in rows.items])
            value = typer.value(rows.items[0].expression)
            aggregates = aggregates_in([value])
            return aggregate_join(rows.plan, rows.correlated, rows.names, value, aggregates, prefix)
        if query.limit != 1:
            raise BadQuery(
                "a scalar subquery has at most one row: select an aggregate without GROUP BY, or "
                "add LIMIT 1"
            )
        plan = self.query(query, prefix, around)
        columns = columns_of(plan)
        _check_one([column.name for column in columns])
        return ScalarJoin(JoinKind.LEFT, plan, None, Column(columns[0].name, columns[0].type))

    # --- values -------------------------------------------------------------------------------

    def _without_subqueries(self, scope: NameScope) -> Typer:
        def unbound(node: Call) -> Expression:
            match node.op:
                case Op.NOW:
                    return self._now()
                case Op.QUERY | Op.EXISTS | Op.IN_QUERY:
                    raise misplaced(node)
                case _:
                    return previous_tuple(node, scope)

        return Typer(scope.required, unbound)

    def _now(self) -> Expression:
        if self._now_us is None:
            raise BadQuery(
                "NOW() is the least watermark of the streams of a query that is answered once; a "
                "standing query has none, nor have tables, nor a stream without tuples"
            )
        return Literal(self._now_us, ColumnType.TIMESTAMP)


def _as_it_is(node: Expression) -> Expression:
    return node


def _tested(
    plan: Plan,
    tests: list[SubqueryTest],
    over: Callable[[Expression], Expression] = _as_it_is,
) -> Plan:
    """The rows that pass the EXISTS and IN; over: columns of the rows."""
    for test in tests:
        condition = None if test.condition is None else over(test.condition)
        plan = Join(test.kind, plan, test.right, condition)
    return plan


def _tested_values(tests: list[SubqueryTest]) -> list[Expression]:
    return [test.condition for test in tests if test.condition is not None]


def _has_aggregates(query: SelectQuery) -> bool:
    return any(
        isinstance(part, Aggregate)
        for item in query.items
        if isinstance(item, Output)
        for part in parts_of(item.expression)
    )


def _is_plain(query: SelectQuery) -> bool:
    """Return whether each row of FROM and WHERE is one row of the query; order is no matter."""
    grouped = query.groups or query.having is not None or _has_aggregates(query)
    return not grouped and query.limit is None and not query.offset and query.stream is None


def _is_one_row(query: SelectQuery) -> bool:
    """Return whether the query selects aggregates over all of its rows."""
    grouped = query.groups or query.having is not None
    stretch = query.limit == 0 or query.offset or query.stream is not None
    return _has_aggregates(query) and not grouped and not stretch


def _check_one(names: list[str]) -> None:
    if len(names) != 1:
        raise BadQuery(f"a scalar subquery has one column, not {len(names)}: {', '.join(names)}")


def _check_own(nodes: tuple[Expression, ...], of_subqueries: frozenset[str]) -> None:
    """Refuse scalar subqueries inside of groups and aggregates.

    Raises:
      BadQuery.
    """
    for node in nodes:
        if names_in(node) & of_subqueries:
            raise BadQuery(
                f"{text_of(node)}: a scalar subquery cannot stand in GROUP BY or inside of an "
                "aggregate; put it into the select list of a subquery in FROM"
            )


def _of_one_type(word: str, left: Plan, right: Plan) -> tuple[Plan, Plan]:
    """Both sides with columns of equal types.

    Raises:
      TypeMismatch: a pair of columns has no common type.
    """
    pairs = []
    columns = zip(columns_of(left), columns_of(right), strict=True)
    for at, (one, other) in enumerate(columns):
        pair: tuple[Expression, ...] = (Column(one.name, one.type), Column(other.name, other.type))
        if one.type is not other.type:
            constants = constant_of(left, at), constant_of(right, at)
            pair = tuple(
                constant or column for constant, column in zip(constants, pair, strict=True)
            )
        pairs.append(alike(word, pair))
    return _cast(left, [pair[0] for pair in pairs]), _cast(right, [pair[1] for pair in pairs])


def _cast(plan: Plan, values: list[Expression]) -> Plan:
    if all(isinstance(value, Column) for value in values):
        return plan
    names = [column.name for column in columns_of(plan)]
    return Project(plan, tuple(map(Output, names, values)))
