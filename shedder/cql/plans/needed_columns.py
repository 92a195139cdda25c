"""Projection push-down: below joins, only the columns that are read above are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shedder.cql.expressions.conjunctions import names_in
from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    Ordered,
    Plan,
    Project,
    RowsWindow,
    Scan,
    SetOperation,
    ToStream,
    WindowOf,
)
from shedder.cql.plans.plan_columns import column_names, columns_of, expressions_of
from shedder.cql.statements.statement import Output

Names = frozenset[str]


def with_needed_columns(plan: Plan) -> Plan:
    """Return a plan with the same result, whose joins hold no column that is not read."""
    return _narrowed(plan, column_names(plan))


def _narrowed(plan: Plan, needed: Names) -> Plan:
    """A plan with at least the needed columns. A join may have more."""
    match plan:
        case Scan():
            return plan
        case Join():
            both = needed | _read(expressions_of(plan))
            return replace(plan, left=_slim(plan.left, both), right=_slim(plan.right, both))
        case SetOperation():
            left, right = (_narrowed(side, column_names(side)) for side in (plan.left, plan.right))
            return replace(plan, left=left, right=right)
        case Project(outputs=outputs):
            kept = tuple(each for each in outputs if each.name in needed) or outputs[:1]
            below = _read(each.expression for each in kept)
            return replace(plan, input=_narrowed(plan.input, below), outputs=kept)
        case Distinct() | ToStream():
            return replace(plan, input=_exactly(plan.input))
        case Aggregated():
            return replace(plan, input=_narrowed(plan.input, _read(expressions_of(plan))))
        case WindowOf(window=window):
            partition = window.partition if isinstance(window, RowsWindow) else ()
            below = needed | _read(expressions_of(plan)) | frozenset(partition)
            return replace(plan, input=_narrowed(plan.input, below))
        case Filter() | Ordered():
            below = needed | _read(expressions_of(plan))
            return replace(plan, input=_narrowed(plan.input, below))


def _exactly(plan: Plan) -> Plan:
    """A plan with all of its columns, for operators that compare whole rows."""
    return _narrowed(plan, column_names(plan))


def _slim(plan: Plan, needed: Names) -> Plan:
    """A plan with the needed ones of its columns, or the first if there are none."""
    columns = columns_of(plan)
    kept = tuple(each for each in columns if each.name in needed) or columns[:1]
    made = _narrowed(plan, frozenset(each.name for each in kept))
    if columns_of(made) == kept or not columns:
        return made
    outputs = tuple(Output(each.name, Column(each.name, each.type)) for each in kept)
    return Project(made, outputs)


def _read(expressions: Iterable[Expression]) -> Names:
    return frozenset[str]().union(*map(names_in, expressions))
