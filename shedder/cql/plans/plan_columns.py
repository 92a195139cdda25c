"""Columns of logical plans: those of a node's rows, and those that expressions read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column, Expression, Literal, parts_of
from shedder.cql.plans.logical_plan import (
    GUARANTEED,
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Ordered,
    Plan,
    Project,
    RowsWindow,
    Scan,
    SetOperation,
    ToStream,
    WindowOf,
    companions_of,
    inputs_of,
)
from shedder.cql.statements.statement import ColumnDefinition

_LEFT_ALONE = frozenset({JoinKind.SEMI, JoinKind.ANTI, JoinKind.ANTI_NULL_AWARE})


def columns_of(plan: Plan) -> tuple[ColumnDefinition, ...]:
    """The columns of a node's rows, in order."""
    match plan:
        case Scan(columns=columns):
            return columns
        case Project(outputs=outputs):
            known = {column.name: column for column in columns_of(plan.input)}
            return tuple(
                ColumnDefinition(item.name, *_type_of(item.expression, known)) for item in outputs
            )
        case Aggregated():
            known = {column.name: column for column in columns_of(plan.input)}
            groups = [
                ColumnDefinition(f"g{index}", *_type_of(group, known))
                for index, group in enumerate(plan.groups)
            ]
            if plan.sampling is not None:  # NULL: of the keys that are not shown.
                groups = [replace(each, nullable=True) for each in groups]
            aggregates = (
                ColumnDefinition(f"a{index}", _known(aggregate.type), True)
                for index, aggregate in enumerate(plan.aggregates)
            )
            return (*groups, *aggregates, *_companions(plan))
        case Join(kind=kind) if kind in _LEFT_ALONE:
            return columns_of(plan.left)
        case Join(kind=kind):
            left, right = columns_of(plan.left), columns_of(plan.right)
            if kind is not JoinKind.INNER:
                right = tuple(replace(column, nullable=True) for column in right)
            if kind is JoinKind.FULL:
                left = tuple(replace(column, nullable=True) for column in left)
            return left + right
        case SetOperation():
            pairs = zip(columns_of(plan.left), columns_of(plan.right), strict=True)
            return tuple(
                replace(left, nullable=left.nullable or right.nullable) for left, right in pairs
            )
        case WindowOf(window=RowsWindow(added=added)):
            more = (
                ColumnDefinition(name, ColumnType.BIGINT, nullable=at > 0)
                for at, name in enumerate(added)
            )
            return (*columns_of(plan.input), *more)
        case WindowOf() | Filter() | Distinct() | Ordered() | ToStream():
            return columns_of(plan.input)


def _companions(plan: Aggregated) -> Iterator[ColumnDefinition]:
    """Return columns of the intervals of approximate aggregates."""
    if plan.sampling is None and plan.listed is None:
        return
    for at, aggregate in enumerate(plan.aggregates):
        kind = _known(aggregate.type)
        kinds = (kind, kind, ColumnType.VARCHAR, ColumnType.BOOLEAN)
        for name, each in zip(companions_of(f"a{at}"), kinds, strict=True):
            yield ColumnDefinition(name, each, True)
    if plan.listed is not None:
        yield ColumnDefinition(GUARANTEED, ColumnType.BOOLEAN, True)


def column_names(plan: Plan) -> frozenset[str]:
    """Return names of the columns of a node's rows."""
    return frozenset(column.name for column in columns_of(plan))


def constant_of(plan: Plan, at: int) -> Literal | None:
    """The NULL or the text in quotes that a column of a node's rows is; None: it is neither.

    Such a constant gets the type of what it is combined with. A bare NULL is a BIGINT in a plan.

    at: of the column, from 0.
    """
    match plan:
        case Project(outputs=outputs):
            said = outputs[at].expression
            if isinstance(said, Column):
                names = [column.name for column in columns_of(plan.input)]
                return (
                    constant_of(plan.input, names.index(said.name)) if said.name in names else None
                )
            if not isinstance(said, Literal):
                return None
            if said.value is None and said.type is ColumnType.BIGINT:
                return Literal(None)
            return said if said.type is ColumnType.VARCHAR else None
        case Distinct() | Ordered() | Filter():
            return constant_of(plan.input, at)
        case SetOperation():
            left, right = constant_of(plan.left, at), constant_of(plan.right, at)
            return left if left == right else None
        case _:
            return None


def _type_of(expression: Expression, known: dict[str, ColumnDefinition]) -> tuple[ColumnType, bool]:
    nullable = True
    if isinstance(expression, Column) and expression.name in known:
        nullable = known[expression.name].nullable
    return _known(expression.type), nullable


def _known(kind: ColumnType | None) -> ColumnType:
    assert kind is not None
    return kind


def expressions_of(plan: Plan) -> Iterator[Expression]:
    """The expressions of a node itself."""
    match plan:
        case WindowOf(condition=condition) | Join(condition=condition):
            if condition is not None:
                yield condition
        case Filter():
            yield plan.condition
        case Project():
            yield from (item.expression for item in plan.outputs)
        case Aggregated():
            yield from plan.groups
            yield from plan.aggregates
        case Ordered():
            yield from (key.expression for key in plan.keys)
        case Scan() | Distinct() | SetOperation() | ToStream():
            return


def reads_of(plan: Plan) -> frozenset[str]:
    """Names of all columns that the plan reads, in any node."""
    read = {
        part.name
        for expression in expressions_of(plan)
        for part in parts_of(expression)
        if isinstance(part, Column)
    }
    if isinstance(plan, WindowOf) and isinstance(plan.window, RowsWindow):
        read |= set(plan.window.partition)
    return frozenset(read.union(*map(reads_of, inputs_of(plan))))


def unknown_columns(plan: Plan) -> Iterator[str]:
    """Names of columns that an expression reads and that the node's inputs do not have."""
    known = {column.name for each in inputs_of(plan) for column in columns_of(each)}
    for expression in expressions_of(plan):
        for part in parts_of(expression):
            if isinstance(part, Column) and part.name not in known:
                yield part.name
    for each in inputs_of(plan):
        yield from unknown_columns(each)


def with_columns_read(plan: Plan) -> Plan:
    """Drop columns that a plan does not read from its scans and windows; a scan keeps one."""
    return _narrowed(plan, reads_of(plan))


def _narrowed(plan: Plan, read: frozenset[str]) -> Plan:
    match plan:
        case Scan():
            kept = tuple(column for column in plan.columns if column.name in read)
            one = tuple(column for column in plan.columns if column.name == plan.time_column)
            return replace(plan, columns=kept or one or plan.columns[:1])
        case Join() | SetOperation():
            left, right = _narrowed(plan.left, read), _narrowed(plan.right, read)
            return replace(plan, left=left, right=right)
        case WindowOf(window=RowsWindow(added=added) as window):
            if read.isdisjoint(added):
                window = replace(window, numbered=None)
            return replace(plan, input=_narrowed(plan.input, read), window=window)
        case _:
            return replace(plan, input=_narrowed(plan.input, read))
