"""Properties of logical plans that the planner reads: schema, slide and order."""

from __future__ import annotations

import pyarrow as pa

from shedder.cql.expressions.expression import BY_TIME
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    KeySampling,
    Plan,
    Project,
    RelationKind,
    Scan,
    StreamOperator,
    ToStream,
    WindowOf,
    inputs_of,
)
from shedder.cql.statements.statement import RangeWindow
from shedder.dataflow.tables.table_side import reads_tables_alone


def scan_schema(scan: Scan) -> pa.Schema:
    """Columns of a scan; the event time alone where the plan reads no column."""
    fields = [(column.name, column.type.arrow) for column in scan.columns]
    if not fields:
        assert scan.time_column is not None
        fields = [(scan.time_column, pa.timestamp("us"))]
    return pa.schema(fields)


def common_slide_us(plan: Plan) -> int:
    """Return the slide of all windows over streams; 1: they have none in common."""
    match plan:
        case WindowOf(window=RangeWindow(slide_us=slide_us)):
            return slide_us
        case WindowOf() | Scan() | ToStream():
            return 1
        case _:
            parts = [part for part in inputs_of(plan) if not reads_tables_alone(part)]
            slides = {common_slide_us(part) for part in parts}
            return slides.pop() if len(slides) == 1 else 1


def is_ordered(plan: Plan) -> bool:
    """Return whether tuples of one event time have an order.

    That of a stream is the order of positions, and its ISTREAM has the same tuples. A stream of a
    relation with one row at any instant has one tuple of each event time.
    """
    source = _selected(plan)
    if not isinstance(source, ToStream):
        return isinstance(source, Scan)
    relation = _selected(source.input)
    if source.operator is StreamOperator.RSTREAM:
        return isinstance(relation, Aggregated) and relation.groups == ()
    if source.operator is StreamOperator.DSTREAM:
        return False
    if isinstance(relation, Scan):
        return relation.kind is RelationKind.STREAM
    return isinstance(relation, ToStream) and is_ordered(relation)


def _selected(plan: Plan) -> Plan:
    """Return what WHERE and the select list of a query read."""
    while isinstance(plan, Filter | Project):
        plan = plan.input
    return plan


def reads_panes_or_arrival(plan: Plan) -> bool:
    """Return whether rows must leave windows in the order they came, without negative weights.

    FIRST and LAST need that, and counts of a sample of a join's keys, pane by pane.
    """
    match plan:
        case Aggregated(aggregates=aggregates) if any(it.function in BY_TIME for it in aggregates):
            return True
        case Aggregated(sampling=KeySampling()):
            return True
    return any(map(reads_panes_or_arrival, inputs_of(plan)))
