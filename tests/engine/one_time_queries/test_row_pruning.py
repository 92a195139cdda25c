"""Pruning of the streams that a plan reads, on plans that are made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from shedder.archive.metadata.catalog_entries import Run
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op
from shedder.cql.plans.logical_plan import (
    Distinct,
    Filter,
    Join,
    JoinKind,
    NowWindow,
    Ordered,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    SetOperation,
    SetOperator,
    WindowOf,
)
from shedder.cql.statements.archive_layout import Plain
from shedder.cql.statements.statement import (
    ColumnDefinition,
    OrderKey,
    Output,
    RangeWindow,
    SnapshotWindow,
    UnboundedWindow,
)
from shedder.engine.one_time_queries.row_pruning import (
    FirstByTime,
    first_by_time,
    first_span,
    rows_needed,
    spans_of,
    windows_of,
)
from shedder.streams.windows import Span

ALL = Span(None, None)


def scan(alias: str = "s", sample: float | None = None) -> Scan:
    columns = (
        ColumnDefinition(f"{alias}.ts", ColumnType.TIMESTAMP, False),
        ColumnDefinition(f"{alias}.v", ColumnType.BIGINT, True),
    )
    return Scan(alias, alias, RelationKind.STREAM, columns, f"{alias}.ts", sample)


def column(name: str) -> Column:
    return Column(name, ColumnType.TIMESTAMP if name.endswith("ts") else ColumnType.BIGINT)


def compared(op: Op, name: str, value: int) -> Expression:
    constant = Literal(value, column(name).type)
    return Call(op, (column(name), constant), ColumnType.BOOLEAN)


def all_of(*conditions: Expression) -> Expression:
    first, *rest = conditions
    for condition in rest:
        first = Call(Op.AND, (first, condition), ColumnType.BOOLEAN)
    return first


def since(alias: str, us: int) -> Expression:
    return compared(Op.GE, f"{alias}.ts", us)


def projected(plan: Plan, **outputs: str) -> Project:
    return Project(plan, tuple(Output(name, column(of)) for name, of in outputs.items()))


def ordered(plan: Plan, key: str, limit: int | None, *, descending: bool = True) -> Ordered:
    return Ordered(plan, (OrderKey(column(key), descending),), limit)


def spans(plan: Plan, watermark_us: int | None = None) -> dict[str, Span]:
    return spans_of(plan, windows_of(plan, {"s": watermark_us, "l": watermark_us, "r": 1_000}))


def run(low_us: int, high_us: int) -> Run:
    return Run(1, low_us, low_us + 10, f"{low_us}", 1, 0, low_us, high_us, Plain(), {})


@pytest.mark.parametrize(
    ("plan", "span"),
    [
        (scan(), ALL),
        (Filter(scan(), since("s", 10)), Span(10, None)),
        (Filter(scan(), compared(Op.LE, "s.ts", 10)), Span(None, 11)),
        (Filter(scan(), compared(Op.EQ, "s.ts", 10)), Span(10, 11)),
        (Filter(scan(), compared(Op.GE, "s.v", 10)), ALL),
        (Filter(scan(), all_of(since("s", 10), compared(Op.LT, "s.ts", 20))), Span(10, 21)),
        (Filter(Filter(scan(), since("s", 10)), since("s", 15)), Span(15, None)),
        (WindowOf(scan(), SnapshotWindow(5, 50)), Span(5, 50)),
        (Filter(WindowOf(scan(), SnapshotWindow(5, 50)), since("s", 10)), Span(10, 50)),
        (WindowOf(scan(), UnboundedWindow(), since("s", 7)), Span(7, None)),
        (Filter(WindowOf(scan(), RowsWindow(5)), since("s", 10)), ALL),
        (WindowOf(scan(), RowsWindow(5), since("s", 7)), Span(7, None)),
        (Filter(projected(scan(), ts="s.v"), compared(Op.GE, "ts", 5)), ALL),
        (Filter(ordered(scan(), "s.v", 3), since("s", 10)), ALL),
    ],
)
def test_a_scan_is_pruned_to_its_window_and_to_conditions_on_its_time(plan, span):
    assert spans(plan) == {"s": span}


def test_windows_end_at_the_watermark():
    sliding = WindowOf(scan(), RangeWindow(100, 10))
    assert spans(sliding, 1_234) == {"s": Span(1_130, 1_230)}
    assert spans(sliding, None) == {"s": Span(0, 0)}
    now = WindowOf(scan(), NowWindow())
    assert spans(now, 1_234) == {"s": Span(1_233, 1_234)}
    assert spans(now, None) == {"s": Span(0, 0)}


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        (JoinKind.INNER, Span(10, None), Span(20, None)),
        (JoinKind.LEFT, Span(1, None), Span(20, None)),
        (JoinKind.FULL, ALL, ALL),
        (JoinKind.SEMI, Span(10, None), Span(20, None)),
        (JoinKind.ANTI, Span(1, None), Span(20, None)),
        (JoinKind.ANTI_NULL_AWARE, ALL, ALL),
    ],
)
def test_a_condition_prunes_the_sides_of_a_join_whose_rows_it_can_leave_out(kind, left, right):
    on = all_of(since("l", 10), since("r", 20))
    plan = Filter(Join(kind, scan("l"), scan("r"), on), since("l", 1))
    assert spans(plan) == {"l": left, "r": right}


def test_each_input_of_a_set_operation_is_pruned_by_its_own_conditions():
    sides = (Filter(scan("l"), since("l", 10)), Filter(scan("r"), since("r", 20)))
    plan = SetOperation(SetOperator.UNION, True, *sides)
    assert spans(plan) == {"l": Span(10, None), "r": Span(20, None)}


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (scan(), None),
        (Ordered(scan(), (), 5), 5),
        (Ordered(scan(), (), 5, 3), 8),
        (Ordered(scan(), (), None, 3), None),
        (Ordered(projected(Ordered(scan(), (), 2, 1), a="s.v"), (), 5, 3), 3),
        (Ordered(projected(Ordered(scan(), (), 20, 1), a="s.v"), (), 5, 3), 9),
        (Ordered(projected(WindowOf(scan(), SnapshotWindow(1, 9)), a="s.v"), (), 5), 5),
        (Ordered(WindowOf(scan(), RowsWindow(9)), (), 5), None),
        (Ordered(WindowOf(scan(), UnboundedWindow(), since("s", 1)), (), 5), None),
        (Ordered(Filter(scan(), since("s", 1)), (), 5), None),
        (Ordered(Distinct(scan()), (), 5), None),
        (Ordered(scan(sample=0.5), (), 5), None),
        (ordered(scan(), "s.v", 5), None),
    ],
)
def test_a_limit_without_order_needs_few_rows(plan, rows):
    assert rows_needed(plan) == rows


@pytest.mark.parametrize(
    ("plan", "first"),
    [
        (ordered(scan(), "s.ts", 5), FirstByTime(5, newest=True)),
        (ordered(scan(), "s.ts", 5, descending=False), FirstByTime(5, newest=False)),
        (ordered(projected(scan(), at="s.ts"), "at", 5), FirstByTime(5, newest=True)),
        (projected(ordered(scan(), "s.ts", 5), a="s.v"), FirstByTime(5, newest=True)),
        (Ordered(scan(), (OrderKey(column("s.ts"), True),), 5, 2), FirstByTime(7, newest=True)),
        (ordered(projected(scan(), ts="s.v"), "ts", 5), None),
        (ordered(scan(), "s.v", 5), None),
        (ordered(scan(), "s.ts", None), None),
        (ordered(Filter(scan(), since("s", 1)), "s.ts", 5), None),
        (ordered(Distinct(scan()), "s.ts", 5), None),
        (Ordered(scan(), (), 5), None),
    ],
)
def test_order_by_time_with_a_limit_needs_one_end_of_the_stream(plan, first):
    assert first_by_time(plan) == first


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 5, 10, 11, 25, 40, 41, 1_000])
@pytest.mark.parametrize("window", [ALL, Span(105, 350), Span(0, 0)])
def test_the_first_rows_by_time_are_in_the_span_that_is_read(newest, rows, window):
    """Against a sort of all rows; a deleted row of each run does not count."""
    rng = np.random.default_rng(rows)
    lows = [0, 100, 150, 300]
    times = {low: np.sort(rng.integers(low, low + 100, 10)) for low in lows}
    runs = [(run(int(of.min()), int(of.max())), 9) for of in times.values()]
    tail = rng.integers(280, 420, 5)
    inside = tail[window.holds(tail)]
    live = np.concatenate([inside, *(of[1:] for of in times.values())])
    live = np.sort(live[window.holds(live)])
    wanted = live[::-1][:rows] if newest else live[:rows]
    span = first_span(FirstByTime(rows, newest), window, runs, inside)
    assert span.holds(wanted).all()
    if window == ALL and 0 < rows <= 5:
        kept = sum(each.overlaps(span.start_us, span.end_us) for each, _ in runs)
        assert kept <= 2
