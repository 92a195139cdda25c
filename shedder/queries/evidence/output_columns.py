"""Output columns: every item of the select list with value, ends and bound per group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import (
    LISTS,
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
)
from shedder.cql.expressions.histograms import is_histogram
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Output
from shedder.queries.evidence.arrow_columns import typed, typed_intervals, typed_top
from shedder.queries.evidence.confidence_budget import aggregates_of, joint_confidence
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.histogram_column import histogram_column
from shedder.queries.evidence.interval_arithmetic import Reading, outcomes
from shedder.queries.evidence.output_column import OutputColumn
from shedder.queries.evidence.value_ranges import Mask, Outcomes, Range, Truth, of_array
from synopses.model.estimate import Bound, Estimates

_UNORDERED = (ColumnType.VARCHAR, ColumnType.BOOLEAN)


@dataclass(frozen=True)
class Groups:
    """A query's evidence, ready for expressions over group keys and aggregates."""

    query: BoundQuery
    evidence: Evidence

    def output(self, output: Output) -> OutputColumn:
        """One item of the select list."""
        node = output.expression
        if isinstance(node, Aggregate):
            estimates = self.evidence.estimates[node]
            if node.function in LISTS:
                return _list_column(output.name, node, estimates)
            return _column_of_estimates(output.name, node, estimates)
        if is_histogram(node):
            return histogram_column(output.name, node, self.evidence.estimates)
        if next(aggregates_of(node), None) is None:
            return OutputColumn(output.name, node.type, self.evaluate(node))
        return self._composite(output.name, node)

    def evaluate(self, node: Expression) -> pa.Array[Any]:
        """The expression's value per group, at the point estimates."""
        return evaluate(_over_columns(node, self._names), self._points)

    def outcomes(self, node: Expression) -> Outcomes | None:
        """What the expression can be in each group."""
        return outcomes(node, self._reading)

    def is_certain(self, node: Expression) -> bool:
        """Return whether the expression is known exactly in every group."""
        return not self._reading.uncertain(node)

    def _composite(self, name: str, node: Expression) -> OutputColumn:
        kind = node.type
        assert kind is not None, node
        value = self.evaluate(node)
        null = _nulls(value)
        if self.is_certain(node):
            return _exact_column(name, kind, value)
        found, certain = self.outcomes(node), self._reading.certain_rows(node)
        ranged = found.as_range() if isinstance(found, Truth) else found
        assert ranged is not None, node
        unknown = ~np.isfinite(ranged.low) & ~np.isfinite(ranged.high)
        # A value that may be NULL is in no interval; what is NULL so far may be a value in one.
        unknown |= np.where(null, ~ranged.value, ranged.null)
        bound = np.where(certain, 0, np.where(unknown, 2, 1)).astype(np.uint8)
        confidence = joint_confidence(node, self.evidence.estimates)
        if kind is ColumnType.VARCHAR:
            return _text_column(name, value, bound, confidence)
        points = of_array(value)
        point = points.as_range() if isinstance(points, Truth) else points
        assert point is not None, node
        low = np.where(certain, point.low, _nearer(np.minimum, ranged.low, point.low, null))
        high = np.where(certain, point.high, _nearer(np.maximum, ranged.high, point.high, null))
        open_ = null & certain | (bound == Bound.NONE)
        _, *ends = typed_intervals(point.low, low, high, kind, null=null, open_=open_)
        exact = bound == Bound.EXACT
        low_end, high_end = (_either(exact, value, end) for end in ends)
        known = np.where(null & ~certain, np.uint8(Bound.NONE), bound)
        size, reach = _distances(point.low, low, high, known)
        return OutputColumn(name, kind, value, low_end, high_end, bound, size, reach, confidence)

    @cached_property
    def _names(self) -> dict[Expression, Column]:
        """A column of `_points` for every group expression and aggregate that can be in one."""
        names: dict[Expression, Column] = {
            part: Column(f"a{at}", part.type)
            for at, part in enumerate(self.query.aggregates)
            if part.function not in LISTS
        }
        for at, group in enumerate(self.query.groups):
            names[group] = Column(f"k{at}", group.type)
        return names

    @cached_property
    def _points(self) -> pa.RecordBatch:
        arrays, names = [], []
        for node, column in self._names.items():
            names.append(column.name)
            if isinstance(node, Aggregate):
                estimates = self.evidence.estimates[node]
                assert node.type is not None, node
                arrays.append(typed(estimates.value, estimates.null, node.type))
            else:
                arrays.append(self.evidence.keys[self.query.groups.index(node)])
        if not arrays:  # a batch without columns has no length
            arrays, names = [pa.nulls(self.evidence.groups)], ["none"]
        return pa.RecordBatch.from_arrays(arrays, names)

    @cached_property
    def _reading(self) -> Reading:
        inexact: dict[Expression, Range | None] = {}
        certain: dict[Expression, Mask] = {}
        for part, estimates in self.evidence.estimates.items():
            if estimates.bound.any():
                numeric = estimates.value.dtype != np.dtype(object)
                inexact[part] = Range.of_estimates(estimates) if numeric else None
                certain[part] = estimates.bound == Bound.EXACT
        return Reading(self.evidence.groups, inexact, certain, self.evaluate)


def _column_of_estimates(name: str, node: Aggregate, estimates: Estimates) -> OutputColumn:
    kind = node.type
    assert kind is not None, node
    bound = estimates.bound
    if not bound.any():
        return _exact_column(name, kind, typed(estimates.value, estimates.null, kind))
    none = bound == Bound.NONE
    value, low, high = typed_intervals(
        estimates.value,
        estimates.low,
        estimates.high,
        kind,
        null=estimates.null,
        open_=none | (estimates.null & (bound == Bound.EXACT)),
    )
    if kind in _UNORDERED:
        points = np.zeros(len(bound))
        same = (estimates.low == estimates.high) & ~none
        reach = np.where(same, 0.0, np.inf)
        return OutputColumn(
            name, kind, value, low, high, bound, points, reach, estimates.confidence
        )
    hidden = np.where(estimates.null, np.uint8(Bound.NONE), bound)
    floats = [np.asarray(x, np.float64) for x in (estimates.value, estimates.low, estimates.high)]
    size, reach = _distances(floats[0], floats[1], floats[2], np.where(bound == 0, bound, hidden))
    return OutputColumn(name, kind, value, low, high, bound, size, reach, estimates.confidence)


def _exact_column(name: str, kind: ColumnType, value: pa.Array[Any]) -> OutputColumn:
    rows = len(value)
    zeros = np.zeros(rows)
    return OutputColumn(name, kind, value, value, value, np.zeros(rows, np.uint8), zeros, zeros)


def _text_column(
    name: str, value: pa.Array[Any], bound: NDArray[np.uint8], confidence: float
) -> OutputColumn:
    bound = np.where(bound == Bound.EXACT, 0, 2).astype(np.uint8)
    ends = _either(bound == Bound.EXACT, value, pa.nulls(len(value), value.type))
    size, reach = np.zeros(len(bound)), np.where(bound == Bound.EXACT, 0.0, np.inf)
    return OutputColumn(name, ColumnType.VARCHAR, value, ends, ends, bound, size, reach, confidence)


def _list_column(name: str, node: Aggregate, estimates: Estimates) -> OutputColumn:
    argument = node.argument
    assert argument is not None, node
    assert argument.type is not None, node
    value = typed_top(estimates.value, estimates.null, argument.type)
    width = _top_width if node.function is AggregateFunction.TOP else _width
    least, widest = zip(*map(width, estimates.value), strict=True) if len(value) else ((), ())
    exact, none = estimates.bound == Bound.EXACT, estimates.bound == Bound.NONE
    size, reach = np.array(least, np.float64), np.array(widest, np.float64)
    reach = np.where(exact, 0.0, np.where(none, np.inf, reach))
    return OutputColumn(
        name, None, value, None, None, estimates.bound, size, reach, estimates.confidence
    )


def _top_width(found: Any) -> tuple[float, float]:
    """The smallest count in a list and its largest half-width; inf where an outsider may belong."""
    sure = all(item.guaranteed for item in found or [])
    least, widest = _width(found)
    return least, widest if sure else np.inf


def _width(found: Any) -> tuple[float, float]:
    """The smallest count in a list and its largest half-width."""
    if not found:
        return 1.0, 0.0 if found is not None else np.inf
    widths = (max(item.high - item.count, item.count - item.low) for item in found)
    return min(item.count for item in found), float(max(widths))


def _distances(
    point: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    bound: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    with np.errstate(invalid="ignore", over="ignore"):
        reach = np.maximum(high - point, point - low)
    reach = np.where(bound == Bound.EXACT, 0.0, np.where(bound == Bound.NONE, np.inf, reach))
    return np.abs(point), np.where(np.isnan(reach), np.inf, reach)


def _either(mask: Mask, then: pa.Array[Any], other: pa.Array[Any]) -> pa.Array[Any]:
    chosen: pa.Array[Any] = pc.if_else(pa.array(mask), then, other)
    return chosen


def _nearer(
    end: Callable[..., Any], ranged: NDArray[np.float64], point: NDArray[np.float64], null: Mask
) -> NDArray[np.float64]:
    """The end of a range that holds the point, too, where there is a point."""
    found: NDArray[np.float64] = np.where(null, ranged, end(ranged, point))
    return found


def _nulls(array: pa.Array[Any]) -> Mask:
    found: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _over_columns(node: Expression, names: Mapping[Expression, Column]) -> Expression:
    """The expression with its group expressions and aggregates replaced by columns."""
    found = names.get(node)
    if found is not None:
        return found
    match node:
        case Call(op=op, args=args, type=kind):
            return Call(op, tuple(_over_columns(arg, names) for arg in args), kind)
        case Literal():
            return node
        case _:
            raise AssertionError(node)
