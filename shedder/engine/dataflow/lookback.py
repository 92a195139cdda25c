"""Lookback of a plan: how far before the watermark the tuples lie that its state depends on."""

from __future__ import annotations

from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    Join,
    KeySampling,
    NowWindow,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    SetOperation,
    SetOperator,
    ToStream,
    WindowOf,
    inputs_of,
    scans_of,
)
from shedder.cql.statements.statement import RangeWindow
from shedder.dataflow.plan_properties import common_slide_us
from shedder.dataflow.tables.table_side import reads_versions

HISTORY = 1 << 61  # The newest tuples by number, however old; event times span less, in us.
ALL = 1 << 62  # Every tuple.


def lookbacks_us(plan: Plan) -> dict[str, int]:
    """Return the event time before the watermark whose tuples the state needs, in us, by alias.

    0: only tuples that wait for the watermark. At least HISTORY: tuples of any age, of which the
    state holds some. At least ALL: the state holds every tuple.
    """
    match plan:
        case Scan(alias=alias, kind=kind):
            return {alias: 0} if kind is RelationKind.STREAM else {}
        case Join(left=left, right=right) if any(map(reads_versions, (left, right))):
            return _of_inputs(plan)  # The state has no tuple of the stream.
        case WindowOf(input=source, window=window):
            spans, span_us = lookbacks_us(source), _span_us(window)
            return {
                alias: us if us >= ALL else min(us + span_us, HISTORY)
                for alias, us in spans.items()
            }
        case Filter() | Project() | ToStream() | SetOperation(operator=SetOperator.UNION, all=True):
            return _of_inputs(plan)
        case Aggregated(sampling=KeySampling()):  # The pane before a window has its heavy keys.
            slide_us = common_slide_us(plan)
            return {alias: us + slide_us if us else ALL for alias, us in _of_inputs(plan).items()}
        case _:
            return {alias: us or ALL for alias, us in _with_partners(plan).items()}


def _with_partners(plan: Plan) -> dict[str, int]:
    """Return the lookbacks of the inputs, with the partners of rows that wait in a join.

    Whether a row of a window waits for the partner of its FOREIGN KEY depends on the rows that were
    in the other window when it came.
    """
    found = _of_inputs(plan)
    if not isinstance(plan, Join):
        return found
    spans, scans = dict(found), scans_of(plan)
    for scan in scans:
        waits_for = {key.relation for key in scan.foreign_keys if key.within}
        for other in scans:
            if other.relation in waits_for and spans.get(other.alias) and spans[scan.alias]:
                both_us = spans[other.alias] + spans[scan.alias]
                found[other.alias] = max(found[other.alias], min(both_us, HISTORY))
    return found


def _of_inputs(plan: Plan) -> dict[str, int]:
    """Return the longest lookback of each alias, which may stand in several inputs."""
    found: dict[str, int] = {}
    for each in inputs_of(plan):
        for alias, us in lookbacks_us(each).items():
            found[alias] = max(us, found.get(alias, 0))
    return found


def _span_us(window: object) -> int:
    match window:
        case RangeWindow(range_us=range_us, slide_us=slide_us):
            return range_us + (slide_us or 1)
        case NowWindow():
            return 1
        case RowsWindow():
            return HISTORY
        case _:  # Tuples never leave; what holds them above needs all of them.
            return 0
