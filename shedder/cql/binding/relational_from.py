"""FROM: relations, windows and joins to a plan and a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from shedder.cql.binding.join_conditions import (
    JoinPart,
    conjunction,
    conjuncts,
    connected,
    filtered,
    names_in,
)
from shedder.cql.binding.relational_scope import (
    MergedColumn,
    NameScope,
    VisibleColumn,
    VisibleRelation,
)
from shedder.cql.binding.select_list import free_name
from shedder.cql.binding.stream_defaults import is_stream_by_default
from shedder.cql.binding.typed_expressions import Typer, forbid_aggregates
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op
from shedder.cql.expressions.expression_text import quoted, text_of
from shedder.cql.expressions.type_inference import typed_call
from shedder.cql.plans.logical_plan import (
    Join,
    JoinKind,
    NowWindow,
    Plan,
    RelationKind,
    RowsWindow,
    Scan,
    StreamOperator,
    ToStream,
    WindowOf,
)
from shedder.cql.plans.plan_columns import columns_of
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.relational_tree import (
    DerivedRelation,
    JoinedRelation,
    JoinSyntax,
    LandmarkClause,
    NamedRelation,
    NowClause,
    Query,
    Relation,
    RowsClause,
    WindowClause,
)
from shedder.cql.statements.statement import ColumnDefinition, RangeWindow, UnboundedWindow
from shedder.cql.text.unsupported import later
from shedder.errors import BadQuery, UnknownStream

FOREVER_US = 1 << 61
"""RANGE of a landmark window with SLIDE: 73,000 years, so that an end of it is still an int64."""


class TableColumns(Protocol):
    """A relation that is no stream: what binding asks of a table's schema."""

    @property
    def name(self) -> str:
        """Of the table."""

    @property
    def columns(self) -> tuple[ColumnDefinition, ...]:
        """In order."""

    @property
    def retroactive(self) -> bool:
        """Its changes correct earlier rows of a standing query; else tuples join its versions."""


@dataclass(frozen=True, slots=True)
class From:
    """The relations of a FROM: parts that inner joins connect, and conditions over them."""

    parts: tuple[JoinPart, ...]
    conditions: tuple[Expression, ...]
    scope: NameScope

    def joined(self, conditions: Sequence[Expression] = ()) -> JoinPart:
        """The join of all parts, under more conditions.

        Raises:
          BadQuery: a part is connected with the others by no condition.
        """
        return connected(self.parts, [*self.conditions, *conditions])


class FromBinder:
    """Binds the FROM clauses of one statement."""

    def __init__(
        self,
        schemas: Mapping[str, StreamSchema | TableColumns],
        subquery: Callable[[Query, str], Plan],
        typer: Callable[[NameScope], Typer],
    ) -> None:
        """Begin a statement.

        Args:
          schemas: of its relations, by name.
          subquery: the plan of a query whose columns get a prefix before their names.
          typer: gives types to expressions of a scope; it refuses subqueries.
        """
        self._schemas = schemas
        self._subquery = subquery
        self._typer = typer
        self._taken: set[str] = set()

    def unique(self, alias: str) -> str:
        """The alias, with a number behind it where the plan has it already.

        It has no dot, so that `alias.column` is of one alias.
        """
        found = free_name(alias.replace(".", "_"), self._taken)
        self._taken.add(found.lower())
        return found

    def bound(self, relation: Relation, outer: NameScope | None) -> From:
        """The relations of a FROM, with the scope of the query around it.

        Raises:
          UnknownStream, UnknownColumn, TypeMismatch, BadQuery.
        """
        found = self._bound(relation)
        aliases: dict[str, str] = {}
        for each in found.scope.relations:
            if each.alias.lower() in aliases:
                raise BadQuery(
                    f"two relations in FROM are named {quoted(each.alias)}; give one another "
                    f"name: {quoted(each.alias)} AS {quoted(each.alias + '_2')}"
                )
            aliases[each.alias.lower()] = each.alias
        return replace(found, scope=replace(found.scope, outer=outer))

    def _bound(self, relation: Relation) -> From:
        match relation:
            case NamedRelation():
                return self._named(relation)
            case DerivedRelation():
                return self._derived(relation)
            case JoinedRelation():
                return self._joined(relation)

    # --- one relation -------------------------------------------------------------------------

    def _named(self, relation: NamedRelation) -> From:
        schema = self._schemas.get(relation.name)
        if schema is None:
            raise UnknownStream(relation.name, sorted(self._schemas))
        if relation.sample is not None and not isinstance(schema, StreamSchema):
            raise BadQuery(f"{quoted(relation.name)} is a table, and SAMPLE is of a stream")
        as_of_us = relation.as_of_us
        if as_of_us is not None and isinstance(schema, StreamSchema):
            raise BadQuery(
                f"{quoted(relation.name)} is a stream, and AS OF is of a table; a window, as "
                "[FROM TIMESTAMP '2026-01-31' TO TIMESTAMP '2026-02-01'], reads a part of a stream"
            )
        alias = self.unique(relation.alias)
        columns = tuple(
            ColumnDefinition(f"{alias}.{column.name}", column.type, column.nullable)
            for column in schema.columns
        )
        kind, time, retroactive = RelationKind.TABLE, None, False
        if isinstance(schema, StreamSchema):
            kind, time = RelationKind.STREAM, f"{alias}.{schema.time_column}"
        elif relation.window is not None:
            raise BadQuery(
                f"{quoted(relation.name)} is a table and has no window: a window is of a stream"
            )
        else:
            retroactive = schema.retroactive
        sample = relation.sample
        keys = schema.foreign_keys if isinstance(schema, StreamSchema) else ()
        scan = Scan(relation.name, alias, kind, columns, time, sample, retroactive, as_of_us, keys)
        return self._part(scan, relation, alias)

    def _derived(self, relation: DerivedRelation) -> From:
        if relation.sample is not None:
            raise later(f"SAMPLE of the subquery {quoted(relation.alias)} (of its streams)")
        alias = self.unique(relation.alias)
        plan = self._stream(self._subquery(relation.query, f"{alias}."), relation)
        return self._part(plan, relation, alias)

    def _part(self, plan: Plan, relation: NamedRelation | DerivedRelation, alias: str) -> From:
        columns = columns_of(plan)
        visible = VisibleRelation(
            relation.alias,
            tuple(
                VisibleColumn(
                    column.name.removeprefix(f"{alias}."), Column(column.name, column.type)
                )
                for column in columns
            ),
        )
        plan = self._windowed(plan, relation.window, NameScope((visible,)), alias)
        if isinstance(plan, WindowOf):
            visible = replace(visible, window=plan)
        names = frozenset(column.name for column in columns_of(plan))
        return From((JoinPart(plan, names, quoted(relation.alias)),), (), NameScope((visible,)))

    def _windowed(
        self, plan: Plan, clause: WindowClause | None, scope: NameScope, alias: str
    ) -> Plan:
        if clause is None:
            return WindowOf(plan, UnboundedWindow()) if isinstance(plan, ToStream) else plan
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
                assert all(isinstance(key, Column) for key in keys), partition
                names = dict.fromkeys(key.name for key in keys if isinstance(key, Column))
                return WindowOf(plan, RowsWindow(rows, slide, tuple(names), alias), condition)
            case LandmarkClause(start_us=start, slide_us=slide):
                return _landmark(plan, start, slide, condition)
            case window:
                return WindowOf(plan, window, condition)

    def _stream(self, plan: Plan, relation: DerivedRelation) -> Plan:
        """The plan as a stream, where a window asks for one; that is ISTREAM by default.

        Raises:
          BadQuery: the subquery has aggregates, so that it is a relation by default.
        """
        if isinstance(plan, ToStream) or relation.window is None:
            return plan
        if not is_stream_by_default(relation.query, plan):
            raise BadQuery(
                f"{quoted(relation.alias)} is a relation, and a window is over a stream; write "
                "SELECT ISTREAM(...) in the subquery"
            )
        return ToStream(StreamOperator.ISTREAM, plan)

    # --- joins --------------------------------------------------------------------------------

    def _joined(self, join: JoinedRelation) -> From:
        left, right = self._bound(join.left), self._bound(join.right)
        scope = NameScope(
            left.scope.relations + right.scope.relations, left.scope.merged + right.scope.merged
        )
        if join.syntax is JoinSyntax.CROSS:
            crossing = tuple(replace(part, crosses=True) for part in right.parts)
            right = replace(right, parts=crossing)
        conditions = self._conditions(join, left.scope, right.scope, scope)
        scope = replace(scope, merged=_merged(join, left.scope, right.scope))
        if join.syntax in (JoinSyntax.COMMA, JoinSyntax.CROSS, JoinSyntax.INNER):
            return From(
                left.parts + right.parts,
                left.conditions + right.conditions + tuple(conditions),
                scope,
            )
        return From((_outer(join.syntax, left.joined(), right.joined(), conditions),), (), scope)

    def _conditions(
        self, join: JoinedRelation, left: NameScope, right: NameScope, both: NameScope
    ) -> list[Expression]:
        """The conditions of ON, or the equality of the columns of USING."""
        if join.condition is not None:
            condition = self._typer(both).condition("ON", join.condition)
            forbid_aggregates("ON", condition)
            return conjuncts(condition)
        equal = []
        for name in join.using:
            pair = (_of_using(name, left), _of_using(name, right))
            equal.append(typed_call(Call(Op.EQ, pair), pair))
        return list(equal)


def _landmark(plan: Plan, start_us: int, slide_us: int, condition: Expression | None) -> WindowOf:
    """All tuples since a moment, as of multiples of a slide: a range that never ends.

    Raises:
      BadQuery: it is over a subquery.
    """
    if not isinstance(plan, Scan) or plan.time_column is None:
        raise BadQuery("[FROM t SLIDE s] is over a stream, not over a subquery")
    time = Column(plan.time_column, ColumnType.TIMESTAMP)
    since = Call(Op.GE, (time, Literal(start_us, ColumnType.TIMESTAMP)), ColumnType.BOOLEAN)
    both = [since] if condition is None else [since, *conjuncts(condition)]
    return WindowOf(plan, RangeWindow(FOREVER_US, slide_us), conjunction(both))


def _of_using(name: str, scope: NameScope) -> Expression:
    return scope.required(Column(name))


def _merged(join: JoinedRelation, left: NameScope, right: NameScope) -> tuple[MergedColumn, ...]:
    """The columns of USING in a joined row: the value of the side that is always there."""
    merged = {each.name.lower(): each for each in (*left.merged, *right.merged)}
    for name in join.using:
        pair = (_of_using(name, left), _of_using(name, right))
        match join.syntax:
            case JoinSyntax.RIGHT:
                value = pair[1]
            case JoinSyntax.FULL:
                value = typed_call(Call(Op.COALESCE, pair), pair)
            case _:
                value = pair[0]
        merged[name.lower()] = MergedColumn(name, value)
    return tuple(merged.values())


def _outer(
    syntax: JoinSyntax, left: JoinPart, right: JoinPart, conditions: Sequence[Expression]
) -> JoinPart:
    """An outer join; RIGHT is LEFT with the sides exchanged.

    Raises:
      BadQuery: no condition compares the sides.
    """
    if not any(names_in(each) & left.names and names_in(each) & right.names for each in conditions):
        shown = ", ".join(map(text_of, conditions))
        raise BadQuery(
            f"{syntax.value} of {left.shown} and {right.shown}: {shown} compares no column of one "
            "with a column of the other"
        )
    kind = JoinKind.FULL if syntax is JoinSyntax.FULL else JoinKind.LEFT
    kept, other = (right, left) if syntax is JoinSyntax.RIGHT else (left, right)
    if kind is JoinKind.LEFT:  # A condition over the other side alone filters that side.
        own = [each for each in conditions if names_in(each) and names_in(each) <= other.names]
        other = replace(other, plan=filtered(other.plan, own))
        conditions = [each for each in conditions if each not in own]
    plan = Join(kind, kept.plan, other.plan, conjunction(conditions))
    return JoinPart(plan, left.names | right.names, f"{left.shown}, {right.shown}")
