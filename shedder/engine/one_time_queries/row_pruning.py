"""Pruning of the streams that a plan reads: by time, and to as few rows as a LIMIT needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.metadata.catalog_entries import Run
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.conjunctions import (
    conjunction,
    conjuncts,
    names_in,
    with_columns,
)
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import (
    Aggregate,
    Call,
    Column,
    Expression,
    Literal,
    Op,
    parts_of,
)
from shedder.cql.expressions.predicate_ranges import value_ranges_of
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    NowWindow,
    Ordered,
    Plan,
    Project,
    RowsWindow,
    Scan,
    SetOperation,
    ToStream,
    WindowOf,
    inputs_of,
)
from shedder.cql.statements.statement import Window
from shedder.streams.windows import Span, span_of

_EVERYTHING = Span(None, None)
_ONE_ROW = pa.record_batch([pa.nulls(1)], ["none"])


@dataclass(frozen=True, slots=True)
class FirstByTime:
    """The first rows by event time are all that a plan needs of its only scan."""

    rows: int
    newest: bool


def windows_of(plan: Plan, watermarks_us: Mapping[str, int | None]) -> dict[str, Span]:
    """By alias of a scan, the event times of the window over it.

    watermarks_us: by name of a stream.
    """
    match plan:
        case Scan():
            return {plan.alias: _EVERYTHING}
        case WindowOf(input=Scan() as scan, window=window) if _is_of_time(plan):
            assert not isinstance(window, RowsWindow)
            return {scan.alias: _span_of(window, watermarks_us.get(scan.relation))}
        case _:
            found: dict[str, Span] = {}
            for part in inputs_of(plan):
                found |= windows_of(part, watermarks_us)
            return found


def _span_of(window: Window | NowWindow, watermark_us: int | None) -> Span:
    if not isinstance(window, NowWindow):
        return span_of(window, watermark_us)
    # A tuple is in the relation from the microsecond after its event time on.
    return Span(0, 0) if watermark_us is None else Span(watermark_us - 1, watermark_us)


def spans_of(plan: Plan, windows: Mapping[str, Span]) -> dict[str, Span]:
    """By alias of a scan, the event times outside of which the plan needs no row.

    windows: of `windows_of`.
    """
    found: dict[str, Span] = {}
    for scan, conditions in _scans(plan, ()):
        said = [_span_said(condition, scan.time_column) for condition in conditions]
        found[scan.alias] = reduce(both, said, windows[scan.alias])
    return found


def conditions_of(plan: Plan) -> dict[str, Expression | None]:
    """By alias of a scan, a condition that all rows of it that the plan needs meet; None: unknown.

    It compares single columns with constants, by the stream's own names.
    """
    found: dict[str, Expression | None] = {}
    for scan, conditions in _scans(plan, ()):
        prefix = f"{scan.alias}."
        own: dict[str, Expression] = {
            each.name: Column(each.name.removeprefix(prefix), each.type) for each in scan.columns
        }
        terms = [
            with_columns(term, own)
            for condition in conditions
            for term in conjuncts(condition)
            if value_ranges_of(term) and names_in(term) <= own.keys()
        ]
        found[scan.alias] = conjunction(terms)
    return found


def _scans(
    plan: Plan, conditions: tuple[Expression, ...]
) -> Iterator[tuple[Scan, tuple[Expression, ...]]]:
    """Each scan with the conditions that all of its useful rows meet."""
    match plan:
        case Scan():
            yield plan, conditions
        case Filter():
            yield from _scans(plan.input, (*conditions, plan.condition))
        case WindowOf(condition=condition):
            inside = () if condition is None else (condition,)
            # The newest rows are chosen before a condition above the window is looked at.
            above = () if isinstance(plan.window, RowsWindow) else conditions
            yield from _scans(plan.input, (*above, *inside))
        case Join():
            left, right = _of_sides(plan, conditions)
            yield from _scans(plan.left, left)
            yield from _scans(plan.right, right)
        case Project() | Distinct() | SetOperation() | Aggregated() | Ordered() | ToStream():
            for part in inputs_of(plan):
                yield from _scans(part, ())
        case _:
            assert_never(plan)


def _of_sides(
    join: Join, above: tuple[Expression, ...]
) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """The conditions that useful rows of each side meet; a condition may name either side."""
    on = () if join.condition is None else (join.condition,)
    match join.kind:
        case JoinKind.INNER:
            return (*above, *on), (*above, *on)
        case JoinKind.SEMI:
            return (*above, *on), on
        case JoinKind.LEFT | JoinKind.ANTI:
            return above, on
        case JoinKind.FULL | JoinKind.ANTI_NULL_AWARE:
            return (), ()
        case _:
            assert_never(join.kind)


def _span_said(condition: Expression, time_column: str | None) -> Span:
    """The event times that a condition keeps of a scan."""
    span, rest = _EVERYTHING, [condition]
    while rest:
        term = rest.pop()
        if isinstance(term, Call) and term.op is Op.AND:
            rest.extend(term.args)
            continue
        ranges = value_ranges_of(_folded(term)).get(time_column or "", [])
        lows, highs = [each.low for each in ranges], [each.high for each in ranges]
        start_us = min(low for low in lows if isinstance(low, int)) if _is_bounded(lows) else None
        end_us = (
            max(high for high in highs if isinstance(high, int)) if _is_bounded(highs) else None
        )
        span = both(span, Span(start_us, None if end_us is None else end_us + 1))
    return span


def _folded(term: Expression) -> Expression:
    """A comparison with a constant in place of a moment that is computed, as NOW() - INTERVAL."""
    if not isinstance(term, Call):
        return term
    return replace(term, args=tuple(map(_constant, term.args)))


def _constant(node: Expression) -> Expression:
    if not isinstance(node, Call) or node.type is not ColumnType.TIMESTAMP:
        return node
    if any(isinstance(part, Column | Aggregate) for part in parts_of(node)):
        return node
    (moment,) = evaluate(node, _ONE_ROW).cast(pa.int64()).to_pylist()
    return Literal(moment, ColumnType.TIMESTAMP)


def _is_bounded(ends: Sequence[int | float | str | None]) -> bool:
    return bool(ends) and all(isinstance(end, int) for end in ends)


def both(left: Span, right: Span) -> Span:
    """The event times that are in both."""
    starts = [each.start_us for each in (left, right) if each.start_us is not None]
    ends = [each.end_us for each in (left, right) if each.end_us is not None]
    return Span(max(starts, default=None), min(ends, default=None))


def rows_needed(plan: Plan) -> int | None:
    """Return how many rows of its only scan, any of them, a plan needs; None: all."""
    needed: int | None = None
    while not isinstance(plan, Scan):
        match plan:
            case Ordered(keys=(), limit=int(limit), offset=offset):
                needed = limit + offset if needed is None else min(limit, needed) + offset
            case Ordered(keys=(), offset=offset):
                needed = None if needed is None else needed + offset
            case Project():
                pass
            case WindowOf(condition=None) if _is_of_time(plan):
                pass
            case _:
                return None
        plan = plan.input
    return needed if plan.sample is None else None


def first_by_time(plan: Plan) -> FirstByTime | None:
    """The rows by event time that a plan needs of its only scan; None: it needs others, too."""
    while isinstance(plan, Project):  # Above ORDER BY.
        plan = plan.input
    if not isinstance(plan, Ordered) or plan.limit is None or not plan.keys:
        return None
    key, rows, below = plan.keys[0], plan.limit + plan.offset, plan.input
    said = key.expression
    while not isinstance(below, Scan):
        match below:
            case Project():
                named = {output.name: output.expression for output in below.outputs}
                said = named.get(said.name, said) if isinstance(said, Column) else said
            case WindowOf(condition=None) if _is_of_time(below):
                pass
            case _:
                return None
        below = below.input
    is_time = isinstance(said, Column) and said.name == below.time_column
    return FirstByTime(rows, key.descending) if is_time and below.sample is None else None


def _is_of_time(window: WindowOf) -> bool:
    return not isinstance(window.window, RowsWindow)


def first_span(
    first: FirstByTime,
    span: Span,
    runs: Iterable[tuple[Run, int]],
    times_us: NDArray[np.int64],
) -> Span:
    """The part of a span that holds the first rows by event time.

    Args:
      first: rows, and from which end.
      span: that all of them are in.
      runs: with the number of rows of each that are not deleted.
      times_us: of the tail, shape [tuples], inside of the span.
    """
    if first.rows == 0:
        return Span(0, 0)
    sign = -1 if first.newest else 1
    # Rows of a run come before its farther end; tuples of the tail are runs of one row.
    ends = [
        (sign * (run.low_us if first.newest else run.high_us), rows)
        for run, rows in _inside(span, runs)
    ]
    near = np.sort(sign * times_us)[: first.rows]
    ends += [(int(time), 1) for time in near]
    ends.sort()
    counted = np.cumsum([rows for _, rows in ends])
    at = int(np.searchsorted(counted, first.rows))
    if at == len(ends):
        return span
    farthest_us = sign * ends[at][0]
    return both(span, Span(farthest_us, None) if first.newest else Span(None, farthest_us + 1))


def _inside(span: Span, runs: Iterable[tuple[Run, int]]) -> Iterator[tuple[Run, int]]:
    """The runs of which every row is in a span."""
    for run, rows in runs:
        if (span.start_us is None or span.start_us <= run.low_us) and (
            span.end_us is None or run.high_us < span.end_us
        ):
            yield run, rows
