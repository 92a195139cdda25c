"""Interval arithmetic: what an expression can be when its aggregates are only known by intervals.

Every operator maps the outcomes that its arguments can have (a range, perhaps NULL) to a set that
holds every outcome it can have, rounded outward (Moore, Kearfott and Cloud, Introduction to
Interval Analysis, 2009, chapters 2 and 5). Arguments are taken as unrelated, so `x - x` is wider
than it need be; it is never too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Expression, Op, walk
from shedder.queries.evidence.value_ranges import Floats, Mask, Outcomes, Range, Truth, of_array

_INT64_END = float(2**63)
_WHOLE = frozenset({ColumnType.INTEGER, ColumnType.BIGINT})
_DAY_US = 86_400_000_000.0
_ARITHMETIC = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD})
_COMPARISONS = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE})


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What is known about the leaves of expressions, for `outcomes`.

    rows: how many groups. inexact: aggregates (or columns) that are not known exactly in some
    group, with what they can be; None for text. certain: for those, bool [rows], the groups where
    they are known all the same. evaluate: an expression's value per group at the point estimates.
    """

    rows: int
    inexact: Mapping[Expression, Range | None]
    certain: Mapping[Expression, Mask]
    evaluate: Callable[[Expression], pa.Array[Any]]

    def uncertain(self, node: Expression) -> list[Expression]:
        """The inexact leaves that the expression is built of."""
        return [part for part in walk(node) if part in self.inexact]

    def certain_rows(self, node: Expression) -> Mask:
        """Groups in which everything that the expression is built of is exact."""
        rows = np.ones(self.rows, np.bool_)
        for part in self.uncertain(node):
            rows &= self.certain[part]
        return rows


def outcomes(node: Expression, reading: Reading) -> Outcomes | None:
    """What the expression can be in each group; None for text that is known.

    Where text is not known the outcome is an unknown Range.
    """
    if not reading.uncertain(node):
        return of_array(reading.evaluate(node))
    if node in reading.inexact:
        known = reading.inexact[node]
        return _opaque(node, reading) if known is None else known
    assert isinstance(node, Call), node
    match node.op:
        case Op.AND | Op.OR | Op.NOT | Op.IS_NULL | Op.IN:
            return _logical(node, reading)
        case op if op in _COMPARISONS:
            return _compared(node, reading)
        case Op.CASE | Op.COALESCE:
            return _chosen(node, reading)
        case op if op in _ARITHMETIC:
            left, right = (_range(arg, reading) for arg in node.args)
            return _arithmetic(op, left, right, node.type)
        case _:
            return _function(node, reading)


def _range(node: Expression, reading: Reading) -> Range:
    found = outcomes(node, reading)
    if found is None:
        return Range.unknown(reading.rows)
    return found.as_range() if isinstance(found, Truth) else found


def _truth(node: Expression, reading: Reading) -> Truth:
    found = outcomes(node, reading)
    if isinstance(found, Truth):
        return found
    if found is None:
        return Truth.unknown(reading.rows)
    return Truth(  # a BOOLEAN estimate: 0 or 1
        found.value & (found.high >= 1), found.value & (found.low <= 0), found.null
    )


def _opaque(node: Expression, reading: Reading) -> Outcomes:
    """Nothing is known where an argument is not; elsewhere the value itself."""
    if not reading.certain_rows(node).any():
        unknown = Truth if node.type is ColumnType.BOOLEAN else Range
        return unknown.unknown(reading.rows)
    known = of_array(reading.evaluate(node))
    certain = reading.certain_rows(node)
    if isinstance(known, Truth):
        return known.where(certain, Truth.unknown(reading.rows))
    if known is None:
        return Range.unknown(reading.rows)
    return known.where(certain, Range.unknown(reading.rows))


# --- conditions -------------------------------------------------------------------------------


def _logical(node: Call, reading: Reading) -> Outcomes:
    match node.op:
        case Op.NOT:
            return _truth(node.args[0], reading).negated()
        case Op.IS_NULL:
            return _is_null(node, reading)
        case Op.IN:
            return _contained(node, reading)
    truth = _truth(node.args[0], reading)
    for arg in node.args[1:]:
        other = _truth(arg, reading)
        truth = truth.both(other) if node.op is Op.AND else truth.any_of(other)
    return truth


def _is_null(node: Call, reading: Reading) -> Truth:
    found = outcomes(node.args[0], reading)
    no = np.zeros(reading.rows, np.bool_)
    match found:
        case Range():
            return Truth(found.null, found.value, no)
        case Truth():
            return Truth(found.null, found.true | found.false, no)
        case None:
            return Truth(~no, ~no, no)


def _contained(node: Call, reading: Reading) -> Outcomes:
    if node.args[0].type is ColumnType.VARCHAR:
        return _opaque(node, reading)
    found = _range(node.args[0], reading)
    no = np.zeros(reading.rows, np.bool_)
    truth = Truth(no, ~no, no)
    for arg in node.args[1:]:
        truth = truth.any_of(_ordered(Op.EQ, found, _range(arg, reading)))
    return truth


def _compared(node: Call, reading: Reading) -> Outcomes:
    if node.args[0].type is ColumnType.VARCHAR:
        return _opaque(node, reading)
    left, right = (_range(arg, reading) for arg in node.args)
    return _ordered(node.op, left, right)


def _ordered(op: Op, left: Range, right: Range) -> Truth:
    comparable = left.value & right.value
    match op:
        case Op.LT:
            true, false = left.low < right.high, left.high >= right.low
        case Op.LE:
            true, false = left.low <= right.high, left.high > right.low
        case Op.GT:
            true, false = left.high > right.low, left.low <= right.high
        case Op.GE:
            true, false = left.high >= right.low, left.low < right.high
        case _:
            true = (left.low <= right.high) & (right.low <= left.high)
            points = (left.low == left.high) & (right.low == right.high)
            false = ~(points & (left.low == right.low))
            if op is Op.NE:
                true, false = false, true
    return Truth(true & comparable, false & comparable, left.null | right.null)


# --- numbers ----------------------------------------------------------------------------------


def _arithmetic(op: Op, left: Range, right: Range, kind: ColumnType | None) -> Range:
    null = left.null | right.null
    value = left.value & right.value
    with np.errstate(all="ignore"):
        match op:
            case Op.ADD:
                low, high = left.low + right.low, left.high + right.high
            case Op.SUB:
                low, high = left.low - right.high, left.high - right.low
            case Op.MUL:
                low, high = _product(left, right)
            case Op.DIV:
                low, high, null = _quotient(left, right, null)
            case _:
                low, high, null = _remainder(left, right, null)
    low, high = _widened(low, -np.inf), _widened(high, np.inf)
    if kind in _WHOLE:
        over = (np.isfinite(high) & (high >= _INT64_END)) | (np.isfinite(low) & (low < -_INT64_END))
        null = null | over
    return Range(low, high, value, null)


def _product(left: Range, right: Range) -> tuple[Floats, Floats]:
    corners = np.stack([x * y for x in (left.low, left.high) for y in (right.low, right.high)])
    lost = np.isnan(corners).any(axis=0)  # zero times an open end
    return (
        np.where(lost, -np.inf, corners.min(axis=0)),
        np.where(lost, np.inf, corners.max(axis=0)),
    )


def _quotient(left: Range, right: Range, null: Mask) -> tuple[Floats, Floats, Mask]:
    zero = (right.low <= 0) & (right.high >= 0)  # NULL, or as large as one likes
    corners = np.stack([x / y for x in (left.low, left.high) for y in (right.low, right.high)])
    lost = zero | np.isnan(corners).any(axis=0)
    low = np.where(lost, -np.inf, corners.min(axis=0))
    high = np.where(lost, np.inf, corners.max(axis=0))
    return low, high, null | zero


def _remainder(left: Range, right: Range, null: Mask) -> tuple[Floats, Floats, Mask]:
    """The sign is the dividend's and the size is below the divisor's and not above its own."""
    zero = (right.low <= 0) & (right.high >= 0)
    most = np.maximum(np.abs(right.low), np.abs(right.high))
    high = np.where(left.high > 0, np.minimum(most, left.high), 0.0)
    low = np.where(left.low < 0, np.maximum(-most, left.low), 0.0)
    return low, high, null | zero


def _widened(ends: Floats, towards: float) -> Floats:
    """One rounding step outward; an end that is no number is open."""
    return np.where(np.isnan(ends), towards, np.nextafter(ends, towards))


def _chosen(node: Call, reading: Reading) -> Outcomes:
    if node.type is ColumnType.VARCHAR:
        return _opaque(node, reading)
    rows = reading.rows
    found, reached = Range.never(rows), np.ones(rows, np.bool_)
    if node.op is Op.COALESCE:
        for arg in node.args:
            part = _range(arg, reading)
            here = Range(part.low, part.high, part.value, np.zeros(rows, np.bool_))
            found = found.either(here.when(reached))
            reached = reached & part.null
        return _as_typed(Range(found.low, found.high, found.value, reached), node.type)
    for condition, arg in zip(node.args[:-1:2], node.args[1::2], strict=True):
        truth = _truth(condition, reading)
        found = found.either(_range(arg, reading).when(reached & truth.true))
        reached = reached & (truth.false | truth.null)
    found = found.either(_range(node.args[-1], reading).when(reached))
    return _as_typed(found, node.type)


def _as_typed(found: Range, kind: ColumnType | None) -> Outcomes:
    if kind is not ColumnType.BOOLEAN:
        return found
    return Truth(found.value & (found.high >= 1), found.value & (found.low <= 0), found.null)


def _function(node: Call, reading: Reading) -> Outcomes:
    if node.op not in _MONOTONE or node.args[0].type is ColumnType.VARCHAR:
        return _opaque(node, reading)
    if any(reading.uncertain(arg) for arg in node.args[1:]):
        return _opaque(node, reading)
    arg = _range(node.args[0], reading)
    ends = _MONOTONE[node.op](arg, node)
    if ends is None:
        return _opaque(node, reading)
    return Range(_plus_zero(ends[0]), _plus_zero(ends[1]), arg.value, arg.null)


def _plus_zero(ends: Floats) -> Floats:
    return ends + 0.0


def _negated(arg: Range, _: Call) -> tuple[Floats, Floats]:
    return -arg.high, -arg.low


def _absolute(arg: Range, _: Call) -> tuple[Floats, Floats]:
    low = np.where((arg.low <= 0) & (arg.high >= 0), 0.0, np.minimum(abs(arg.low), abs(arg.high)))
    return low, np.maximum(abs(arg.low), abs(arg.high))


def _whole(arg: Range, node: Call) -> tuple[Floats, Floats] | None:
    """FLOOR, CEIL and ROUND to units: monotone. With digits: at most one last digit away."""
    if len(node.args) > 1:
        digits = getattr(node.args[1], "value", None)
        if not isinstance(digits, int):
            return None
        step = 10.0**-digits
        return _widened(arg.low - step, -np.inf), _widened(arg.high + step, np.inf)
    return np.floor(arg.low), np.ceil(arg.high)


def _cast(arg: Range, node: Call) -> tuple[Floats, Floats] | None:
    source = node.args[0].type
    if source is node.type:
        return arg.low, arg.high
    match node.type:
        case ColumnType.DOUBLE if source in _WHOLE:
            return arg.low, arg.high
        case ColumnType.BIGINT if source is ColumnType.INTEGER:
            return arg.low, arg.high
        case ColumnType.TIMESTAMP if source is ColumnType.DATE:
            return arg.low * _DAY_US, arg.high * _DAY_US
        case ColumnType.BIGINT if source is ColumnType.DOUBLE:
            inside = bool(((arg.low > -_INT64_END) & (arg.high < _INT64_END)).all())
            return (np.floor(arg.low), np.ceil(arg.high)) if inside else None
        case _:
            return None


_MONOTONE: dict[Op, Callable[[Range, Call], tuple[Floats, Floats] | None]] = {
    Op.NEG: _negated,
    Op.ABS: _absolute,
    Op.FLOOR: _whole,
    Op.CEIL: _whole,
    Op.ROUND: _whole,
    Op.CAST: _cast,
}
