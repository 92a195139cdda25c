"""Shapes of logical plans, as the planner reads them: joins below WHERE, slides, columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from shedder.cql.expressions.conjunctions import conjunction, conjuncts
from shedder.cql.expressions.expression import Expression
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    Scan,
    ToStream,
    WindowOf,
    inputs_of,
)
from shedder.cql.statements.statement import RangeWindow
from shedder.dataflow.joins.match_condition import MatchCondition
from shedder.dataflow.tables.table_side import reads_tables_alone

_OF_BOTH = (JoinKind.INNER, JoinKind.LEFT, JoinKind.FULL)


def scan_schema(scan: Scan) -> pa.Schema:
    """Columns of a scan; the event time alone where the plan reads no column."""
    fields = [(column.name, column.type.arrow) for column in scan.columns]
    if not fields:
        assert scan.time_column is not None
        fields = [(scan.time_column, pa.timestamp("us"))]
    return pa.schema(fields)


def with_condition(join: Join, condition: Expression) -> Join:
    """An inner join whose pairs also meet a condition."""
    both = conjunction([*conjuncts(join.condition), *conjuncts(condition)])
    return replace(join, condition=both)


def filtered_join(plan: Plan) -> Join | None:
    """An inner join, with the condition of a WHERE above it; None: the plan is another one."""
    match plan:
        case Join(kind=JoinKind.INNER):
            return plan
        case Filter(input=Join(kind=JoinKind.INNER) as join, condition=condition):
            return with_condition(join, condition)
        case _:
            return None


def split_join(join: Join) -> tuple[MatchCondition, Plan, Plan]:
    """What makes a pair, and both sides with the conditions on one side applied."""
    matches = MatchCondition.of(join.condition, names_of(join.left), names_of(join.right))
    left = join.left if matches.left is None else Filter(join.left, matches.left)
    right = join.right if matches.right is None else Filter(join.right, matches.right)
    return replace(matches, left=None, right=None), left, right


def common_slide_us(plan: Plan) -> int:
    """The slide of all windows over streams; 1: they have none in common."""
    match plan:
        case WindowOf(window=RangeWindow(slide_us=slide_us)):
            return slide_us
        case WindowOf() | Scan() | ToStream():
            return 1
        case _:
            parts = [part for part in inputs_of(plan) if not reads_tables_alone(part)]
            slides = {common_slide_us(part) for part in parts}
            return slides.pop() if len(slides) == 1 else 1


def names_of(plan: Plan) -> frozenset[str]:
    """Names of the columns of a plan's rows."""
    match plan:
        case Scan():
            return frozenset(scan_schema(plan).names)
        case Project(outputs=outputs):
            return frozenset(output.name for output in outputs)
        case Join(left=left, right=right) if plan.kind in _OF_BOTH:
            return names_of(left) | names_of(right)
        case Aggregated(groups=groups, aggregates=aggregates):
            names = [f"g{at}" for at in range(len(groups))]
            return frozenset([*names, *(f"a{at}" for at in range(len(aggregates)))])
        case _:
            return names_of(inputs_of(plan)[0])


def is_ordered(plan: Plan) -> bool:
    """Return whether tuples of one event time have an order: that of their positions."""
    while isinstance(plan, Filter | Project):
        plan = plan.input
    return isinstance(plan, Scan)
