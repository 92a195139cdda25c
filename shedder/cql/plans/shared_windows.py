"""Shared windows: windows over one stream in a query, under several aliases, read it once.

The alias with the longest window reads for the others, and a projection gives its columns the
other's names. So the waiting tuples are there once, and of equal windows the operators, too
(Motwani et al. 2003, section 3.2). Time windows of different length keep their operators.
A window below another window stays alone, as do the windows of a query with tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from shedder.cql.expressions.conjunctions import with_columns
from shedder.cql.expressions.expression import Column, Expression
from shedder.cql.plans.logical_plan import (
    Filter,
    NowWindow,
    Plan,
    Project,
    RelationKind,
    RowsWindow,
    Scan,
    WindowOf,
    inputs_of,
    scans_of,
    with_inputs,
)
from shedder.cql.plans.plan_columns import columns_of
from shedder.cql.statements.statement import ColumnDefinition, Output, RangeWindow


def with_shared_windows(plan: Plan) -> tuple[Plan, dict[str, str]]:
    """Return a plan with the same result, and the alias that reads for each alias that is gone."""
    if any(scan.kind is not RelationKind.STREAM for scan in scans_of(plan)):
        return plan, {}
    groups: dict[Plan, list[WindowOf]] = {}
    for window in _windows(plan):
        groups.setdefault(_read_by(window), []).append(window)
    made: dict[str, Plan] = {}
    readers: dict[str, str] = {}
    for windows in groups.values():
        if len(windows) > 1:
            shared, first = _widened(windows)
            for each in windows:
                scan = _scan_of(each)
                outputs = (_output(scan, first, column) for column in columns_of(each))
                is_first = scan.alias == first
                own = replace(shared, window=each.window) if _span_us(each) is not None else shared
                made[scan.alias] = own if is_first else Project(own, tuple(outputs))
                if not is_first:
                    readers[scan.alias] = first
    return _replaced(plan, made), readers


def _windows(plan: Plan) -> Iterator[WindowOf]:
    """Windows over conditions over a stream whose columns are read, none below another window."""
    if not isinstance(plan, WindowOf):
        for each in inputs_of(plan):
            yield from _windows(each)
    elif _is_simple(plan):
        yield plan


def _is_simple(plan: WindowOf) -> bool:
    source = plan.input
    while isinstance(source, Filter):
        source = source.input
    return isinstance(source, Scan) and bool(source.columns)


def _read_by(window: WindowOf) -> Plan:
    """Return a plan that is equal for windows which one alias can read."""
    plan = _renamed(window, _scan_of(window), ("", ()))
    assert isinstance(plan, WindowOf)
    return plan if _span_us(plan) is None else replace(plan, window=NowWindow())


def _span_us(plan: WindowOf) -> int | None:
    """Return how far a window reaches back in event time; None: it has no such length."""
    match plan.window:
        case RangeWindow(range_us=range_us, slide_us=slide_us, collapse=None):
            return range_us + slide_us
        case NowWindow():
            return 1
        case _:
            return None


def _scan_of(plan: Plan) -> Scan:
    (scan,) = scans_of(plan)
    return scan


def same_windows(left: WindowOf, right: WindowOf) -> bool:
    """Return whether two simple windows have equal rows, whatever their aliases and columns."""
    sides = (_renamed(each, _scan_of(each), ("", ())) for each in (left, right))
    return len(set(sides)) == 1


def _widened(windows: Sequence[WindowOf]) -> tuple[WindowOf, str]:
    """The longest window with the columns that any of them reads, and its alias."""
    longest = max(windows, key=lambda each: _span_us(each) or 0)
    first = _scan_of(longest)
    columns = {
        name: replace(column, name=name)
        for scan in map(_scan_of, windows)
        for column in scan.columns
        for name in [_under(first.alias, scan.alias, column.name)]
    }
    shared = _renamed(longest, first, (first.alias, tuple(columns.values())))
    assert isinstance(shared, WindowOf)
    if any(isinstance(each.window, RowsWindow) and each.window.added for each in windows):
        assert isinstance(shared.window, RowsWindow)
        shared = replace(shared, window=replace(shared.window, numbered=first.alias))
    return shared, first.alias


def _renamed(plan: Plan, scan: Scan, to: tuple[str, tuple[ColumnDefinition, ...]]) -> Plan:
    """Return a window with another alias and other columns of its scan, without numbers."""
    alias, columns = to
    match plan:
        case Scan(time_column=time_column):
            assert time_column is not None
            time = _under(alias, scan.alias, time_column)
            return replace(plan, alias=alias, columns=columns, time_column=time)
        case Filter():
            condition = _condition(plan.condition, scan, alias)
            return Filter(_renamed(plan.input, scan, to), condition)
        case WindowOf(window=window, condition=inner):
            if isinstance(window, RowsWindow):
                names = tuple(_under(alias, scan.alias, name) for name in window.partition)
                window = replace(window, partition=names, numbered=None)
            new = None if inner is None else _condition(inner, scan, alias)
            return WindowOf(_renamed(plan.input, scan, to), window, new)
        case _:
            raise AssertionError(plan)


def _condition(condition: Expression, scan: Scan, alias: str) -> Expression:
    by = {
        column.name: Column(_under(alias, scan.alias, column.name), column.type)
        for column in scan.columns
    }
    return with_columns(condition, by)


def _output(scan: Scan, first: str, column: ColumnDefinition) -> Output:
    return Output(column.name, Column(_under(first, scan.alias, column.name), column.type))


def _under(alias: str, before: str, name: str) -> str:
    """`before.column` as `alias.column`."""
    return alias + name[len(before) :]


def _replaced(plan: Plan, made: Mapping[str, Plan]) -> Plan:
    match plan:
        case WindowOf() if _is_simple(plan):
            return made.get(_scan_of(plan).alias, plan)
        case WindowOf():
            return plan
        case _:
            return with_inputs(plan, lambda each: _replaced(each, made))
