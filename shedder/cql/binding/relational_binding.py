"""A query of rows and the schemas of its relations to a logical plan with typed expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from shedder.cql.binding.relational_scope import Scope, VisibleColumn, VisibleRelation
from shedder.cql.binding.select_list import free_name
from shedder.cql.binding.typed_expressions import (
    Typer,
    aggregates_in,
    check_order,
    forbid_aggregates,
    not_too_large,
    replaced_columns,
)
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op
from shedder.cql.expressions.expression_text import quoted, text_of
from shedder.cql.plans.logical_plan import (
    BoundRelational,
    Distinct,
    Filter,
    NowWindow,
    Ordered,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    WindowOf,
)
from shedder.cql.plans.plan_columns import columns_of, with_columns_read
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.relational_select import QueryTree, RelationalSelect
from shedder.cql.statements.relational_tree import (
    NamedRelation,
    NowClause,
    Relation,
    RowsClause,
    SelectQuery,
    Star,
    WindowClause,
)
from shedder.cql.statements.statement import ColumnDefinition, OrderKey, Output, UnboundedWindow
from shedder.cql.text.unsupported import later
from shedder.errors import BadQuery, TypeMismatch


class TableColumns(Protocol):
    """A relation that is no stream: what binding asks of a table's schema."""

    @property
    def name(self) -> str:
        """Of the table."""

    @property
    def columns(self) -> tuple[ColumnDefinition, ...]:
        """In order."""


def bind_relational(
    select: RelationalSelect,
    schemas: Mapping[str, StreamSchema | TableColumns],
    now_us: int | None = None,
) -> BoundRelational:
    """Find the names, give everything a type, and make the plan.

    Args:
      select: the query.
      schemas: of its `relations`, by name.
      now_us: value of NOW(): the least watermark of all inputs, for a query that is answered once.
        None: the query is standing or an input has no watermark, and NOW() is refused.

    Raises:
      UnknownColumn, TypeMismatch, BadQuery: what is wrong and what would be right.
      Unimplemented: a clause of a later version.
    """
    plan = with_columns_read(_Binder(schemas, now_us).query(select.query))
    return BoundRelational(select.text, plan, columns_of(plan))


class _Binder:
    """One statement's way from its tree to a plan."""

    def __init__(
        self, schemas: Mapping[str, StreamSchema | TableColumns], now_us: int | None
    ) -> None:
        self._schemas = schemas
        self._now_us = now_us
        self._aliases: set[str] = set()  # Of scans, in lower case.

    def query(self, query: QueryTree) -> Plan:
        """The plan of a query."""
        if not isinstance(query, SelectQuery):
            raise later("UNION, INTERSECT and EXCEPT")
        return self._select(query)

    # --- FROM ---------------------------------------------------------------------------------

    def _from(self, relation: Relation) -> tuple[Plan, Scope]:
        if not isinstance(relation, NamedRelation):
            raise later("joins and subqueries in FROM")
        scan = self._scan(relation)
        names = [column.name for column in self._schemas[relation.name].columns]
        visible = VisibleRelation(
            relation.alias,
            tuple(
                VisibleColumn(name, Column(column.name, column.type))
                for name, column in zip(names, scan.columns, strict=True)
            ),
        )
        scope = Scope((visible,))
        return self._windowed(scan, relation.window, scope), scope

    def _scan(self, relation: NamedRelation) -> Scan:
        schema = self._schemas[relation.name]
        alias = free_name(relation.alias, self._aliases)
        self._aliases.add(alias.lower())
        columns = tuple(
            ColumnDefinition(f"{alias}.{column.name}", column.type, column.nullable)
            for column in schema.columns
        )
        if not isinstance(schema, StreamSchema):
            return Scan(schema.name, alias, RelationKind.TABLE, columns, None, relation.sample)
        time = f"{alias}.{schema.time_column}"
        return Scan(schema.name, alias, RelationKind.STREAM, columns, time, relation.sample)

    def _windowed(self, plan: Plan, clause: WindowClause | None, scope: Scope) -> Plan:
        if clause is None:
            return plan
        if isinstance(plan, Scan) and plan.kind is RelationKind.TABLE:
            raise BadQuery(
                f"{quoted(plan.relation)} is a table and has no window: a window is of a stream"
            )
        typer = self._typer(scope)
        condition = None
        if clause.condition is not None:
            condition = typer.condition("WHERE", clause.condition)
            forbid_aggregates("WHERE", condition)
        match clause.window:
            case NowClause():
                return WindowOf(plan, NowWindow(), condition)
            case RowsClause(rows=rows, slide_rows=slide, partition=partition):
                keys = tuple(map(typer.value, partition))
                names = tuple(key.name for key in keys if isinstance(key, Column))
                assert len(names) == len(keys)
                return WindowOf(plan, RowsWindow(rows, slide, names), condition)
            case UnboundedWindow() if condition is None:
                return plan
            case window:
                return WindowOf(plan, window, condition)

    # --- SELECT -------------------------------------------------------------------------------

    def _select(self, query: SelectQuery) -> Plan:
        plan, scope = self._from(query.source)
        items = _expanded(query.items, scope)
        names = _Names(self._typer(scope), scope, items)
        if query.where is not None:
            condition = names.typer.condition("WHERE", names.with_aliases(query.where))
            forbid_aggregates("WHERE", condition)
            plan = Filter(plan, condition)
        if query.groups or query.having is not None:
            raise later("GROUP BY here")
        outputs = tuple(Output(item.name, names.typer.value(item.expression)) for item in items)
        keys = tuple(
            OrderKey(names.typer.value(names.order_key(key.expression)), key.descending)
            for key in query.order
        )
        if aggregates_in(item.expression for item in outputs):
            raise later("aggregates here")
        for key in keys:
            forbid_aggregates("ORDER BY", key.expression)
        return _finished(plan, outputs, keys, query)

    def _typer(self, scope: Scope) -> Typer:
        return Typer(scope.required, self._unbound)

    def _unbound(self, node: Call) -> Expression:
        if node.op is not Op.NOW:
            raise later("a subquery in an expression")
        if self._now_us is None:
            raise BadQuery(
                "NOW() is the least watermark of all inputs, in a query that is answered once; "
                "a standing query has windows instead, and a stream without tuples no watermark"
            )
        return Literal(self._now_us, ColumnType.TIMESTAMP)


class _Names:
    """Aliases of outputs in the clauses of a SELECT."""

    def __init__(self, typer: Typer, scope: Scope, items: Iterable[Output]) -> None:
        self.typer = typer
        self._scope = scope
        self._aliases = {item.name.lower(): item.expression for item in items}

    def with_aliases(self, node: Expression) -> Expression:
        """Aliases put in where no column has the name."""
        return not_too_large(replaced_columns(node, self._is_no_column, self._aliases))

    def order_key(self, node: Expression) -> Expression:
        """An alias alone is the output; inside of an expression columns come first."""
        if isinstance(node, Column) and node.qualifier is None:
            return self._aliases.get(node.name.lower(), node)
        return self.with_aliases(node)

    def _is_no_column(self, column: Column) -> bool:
        return column.qualifier is None and self._scope.find(column) is None


def _expanded(items: Iterable[Output | Star], scope: Scope) -> tuple[Output, ...]:
    """The select list with all columns in place of stars, each output with a name of its own.

    A column of a star that has the name of an output before it gets a number behind its name.
    """
    outputs: list[Output] = []
    taken = {item.name.lower() for item in items if isinstance(item, Output) and _is_named(item)}
    for item in items:
        match item:
            case Output() if _is_named(item):
                outputs.append(item)
                continue
            case Output():
                columns: Sequence[tuple[str, Expression]] = [(item.name, item.expression)]
            case Star(qualifier=qualifier):
                columns = scope.star(qualifier)
        for name, expression in columns:
            unique = free_name(name, taken)
            taken.add(unique.lower())
            outputs.append(Output(unique, expression))
    return tuple(outputs)


def _is_named(item: Output) -> bool:
    """Return whether the name was given with AS: a column alone has its own without."""
    return not isinstance(item.expression, Column) or item.expression.name != item.name


def _finished(
    plan: Plan, outputs: tuple[Output, ...], keys: tuple[OrderKey, ...], query: SelectQuery
) -> Plan:
    """The projection, DISTINCT, ORDER BY and LIMIT of a SELECT over its rows."""
    check_order(keys)
    for item in outputs:
        if item.expression.type is None:
            raise TypeMismatch(f"{text_of(item.expression)} is a list and has no place in rows")
    taken = {item.name.lower() for item in outputs}
    columns = {item.expression: Column(item.name, item.expression.type) for item in outputs}
    hidden: list[Output] = []
    ordered: list[OrderKey] = []
    for key in keys:
        expression = key.expression
        if isinstance(expression, Literal):
            continue  # The same for all rows.
        if expression not in columns:
            if query.distinct:
                raise BadQuery(
                    f"ORDER BY {text_of(expression)}: rows of SELECT DISTINCT are in the order of "
                    "their outputs; add it to the select list"
                )
            name = free_name("order_key", taken)
            taken.add(name.lower())
            hidden.append(Output(name, expression))
            columns[expression] = Column(name, expression.type)
        ordered.append(OrderKey(columns[expression], key.descending))
    plan = Project(plan, (*outputs, *hidden))
    if query.distinct:
        plan = Distinct(plan)
    if ordered or query.limit is not None or query.offset:
        plan = Ordered(plan, tuple(ordered), query.limit, query.offset)
    if hidden:
        kept = (Output(item.name, Column(item.name, item.expression.type)) for item in outputs)
        plan = Project(plan, tuple(kept))
    return plan
