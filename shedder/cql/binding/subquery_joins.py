"""Subqueries of expressions as joins: scalar subqueries, [NOT] EXISTS and [NOT] IN."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shedder.cql.binding.join_conditions import conjunction, conjuncts, names_in
from shedder.cql.binding.previous_tuples import previous_tuple
from shedder.cql.binding.relational_scope import NameScope
from shedder.cql.binding.typed_expressions import Typer
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
    Op,
    chained,
)
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.expressions.type_inference import typed_call
from shedder.cql.plans.logical_plan import Aggregated, Join, JoinKind, Plan, Project
from shedder.cql.plans.plan_columns import column_names
from shedder.cql.statements.statement import Output
from shedder.errors import BadQuery

_COUNTS = frozenset(
    {
        AggregateFunction.COUNT,
        AggregateFunction.COUNT_DISTINCT,
        AggregateFunction.DISTINCT_BOTH,
        AggregateFunction.DISTINCT_ONLY,
        AggregateFunction.SELF_JOIN_SIZE,
        AggregateFunction.JOIN_SIZE,
    }
)
"""Aggregates that are 0 over no rows; the others are NULL."""


@dataclass(frozen=True, slots=True)
class ScalarJoin:
    """A scalar subquery: a join that adds no rows, and the value in a joined row."""

    kind: JoinKind
    right: Plan
    condition: Expression | None
    value: Expression

    @property
    def names(self) -> frozenset[str]:
        """Names of the columns that the join adds."""
        return column_names(self.right)


@dataclass(frozen=True, slots=True)
class SubqueryTest:
    """An EXISTS or IN: a join of one of the kinds that keep left rows."""

    kind: JoinKind
    right: Plan
    condition: Expression | None


class Clause:
    """The expressions of a clause of one SELECT, and the subqueries in them."""

    def __init__(
        self,
        scope: NameScope,
        now: Callable[[], Expression],
        scalar: Callable[[Call, NameScope], ScalarJoin],
        test: Callable[[Call, Expression | None, bool, NameScope], SubqueryTest],
    ) -> None:
        """Begin without expressions.

        Args:
          scope: of FROM.
          now: the value of NOW().
          scalar: binds a scalar subquery.
          test: binds an EXISTS, or an IN and the value before it; true: NOT stands before it.
        """
        self._scope = scope
        self._now = now
        self._scalar = scalar
        self._test = test
        self._scalars: dict[Call, ScalarJoin] = {}
        self.typer = Typer(scope.required, self._unbound)

    def conditions(
        self, clause: str, node: Expression | None
    ) -> tuple[list[Expression], list[SubqueryTest]]:
        """The conditions of WHERE or HAVING, and the subqueries that stand between ANDs."""
        found: list[Expression] = []
        tests: list[SubqueryTest] = []
        for term in [] if node is None else chained(Op.AND, node):
            inner, negated = _without_not(term)
            if isinstance(inner, Call) and inner.op in (Op.EXISTS, Op.IN_QUERY):
                value = None if inner.op is Op.EXISTS else self.typer.bound(inner.args[0])
                tests.append(self._test(inner, value, negated, self._scope))
            else:
                found.extend(conjuncts(self.typer.condition(clause, term)))
        return found, tests

    @property
    def names(self) -> frozenset[str]:
        """Names of the columns that scalar subqueries add."""
        return frozenset().union(*(each.names for each in self._scalars.values()))

    def joined(self, plan: Plan, over: Callable[[Expression], Expression]) -> Plan:
        """The plan with the columns of scalar subqueries; over: columns of its rows."""
        for each in self._scalars.values():
            condition = None if each.condition is None else over(each.condition)
            plan = Join(each.kind, plan, each.right, condition)
        return plan

    def _unbound(self, node: Call) -> Expression:
        match node.op:
            case Op.NOW:
                return self._now()
            case Op.QUERY:
                if node not in self._scalars:
                    self._scalars[node] = self._scalar(node, self._scope)
                return self._scalars[node].value
            case Op.EXISTS | Op.IN_QUERY:
                raise misplaced(node)
            case _:
                return previous_tuple(node, self._scope)


def misplaced(node: Call) -> BadQuery:
    """The refusal of a subquery where no join can stand for it."""
    if node.op is Op.QUERY:
        return BadQuery("a scalar subquery stands in WHERE, HAVING, the select list or ORDER BY")
    word = "EXISTS" if node.op is Op.EXISTS else "IN (SELECT ...)"
    return BadQuery(
        f"{word} stands in WHERE or HAVING by itself, behind NOT or between ANDs; instead of OR, "
        "write UNION of two queries, or compare (SELECT COUNT(*) ...) with 0"
    )


def _without_not(node: Expression) -> tuple[Expression, bool]:
    negated = False
    while isinstance(node, Call) and node.op is Op.NOT:
        node, negated = node.args[0], not negated
    return node, negated


def aggregate_join(
    plan: Plan,
    correlated: Sequence[Expression],
    own: frozenset[str],
    value: Expression,
    aggregates: Sequence[Aggregate],
    prefix: str,
) -> ScalarJoin:
    """The join for a scalar subquery that selects aggregates without GROUP BY.

    Equalities with columns of the query around become groups, so that one aggregation serves all
    rows of that query (Kim, ACM TODS 7(3), 1982; a missing group counts 0: Ganski & Wong, 1987).

    Args:
      plan: the rows that are aggregated.
      correlated: conditions over them and over columns of the query around.
      own: names of the columns of the plan.
      value: the selected expression, typed.
      aggregates: those in it.
      prefix: of the new columns.

    Raises:
      BadQuery: a correlated condition is no equality of one side each.
    """
    pairs = [_sides(condition, own) for condition in correlated]
    grouped = Aggregated(plan, tuple(inner for inner, _ in pairs), tuple(aggregates))
    keys = [Column(f"{prefix}k{at}", inner.type) for at, (inner, _) in enumerate(pairs)]
    found = [Column(f"{prefix}a{at}", each.type) for at, each in enumerate(aggregates)]
    outputs = [
        *(Output(key.name, Column(f"g{at}", key.type)) for at, key in enumerate(keys)),
        *(Output(each.name, Column(f"a{at}", each.type)) for at, each in enumerate(found)),
    ]
    equal = [
        typed_call(Call(Op.EQ, pair), pair)
        for pair in ((key, outer) for key, (_, outer) in zip(keys, pairs, strict=True))
    ]
    values: dict[Expression, Expression] = {
        each: _or_zero(each, column) if pairs else column
        for each, column in zip(aggregates, found, strict=True)
    }
    return ScalarJoin(
        JoinKind.LEFT if pairs else JoinKind.INNER,
        Project(grouped, tuple(outputs)),
        conjunction(equal),
        put_in(value, values),
    )


def _sides(condition: Expression, own: frozenset[str]) -> tuple[Expression, Expression]:
    """The sides of an equality: of the subquery, and of the query around."""
    if isinstance(condition, Call) and condition.op is Op.EQ:
        for inner, outer in (condition.args, condition.args[::-1]):
            if names_in(inner) <= own and not names_in(outer) & own:
                return inner, outer
    raise BadQuery(
        f"{text_of(condition)}: a scalar subquery is connected with the query around it by "
        "equalities between a column of one and a column of the other; write a JOIN and GROUP BY "
        "for other conditions"
    )


def _or_zero(aggregate: Aggregate, column: Column) -> Expression:
    if aggregate.function not in _COUNTS:
        return column
    zero = 0.0 if column.type is ColumnType.DOUBLE else 0
    return Call(Op.COALESCE, (column, Literal(zero, column.type)), column.type)


def put_in(node: Expression, values: dict[Expression, Expression]) -> Expression:
    """The expression with values in place of some of its parts."""
    if node in values:
        return values[node]
    if isinstance(node, Call):
        return Call(node.op, tuple(put_in(arg, values) for arg in node.args), node.type)
    return node


def refuse_correlated(conditions: Iterable[Expression]) -> None:
    """Refuse conditions over columns of the query around, where they cannot be of a join.

    Raises:
      BadQuery.
    """
    for condition in conditions:
        raise BadQuery(
            f"{text_of(condition)} uses columns of the query around its subquery; that can stand "
            "in WHERE of EXISTS, of IN or of a scalar subquery of aggregates, without GROUP BY and "
            "LIMIT there"
        )
