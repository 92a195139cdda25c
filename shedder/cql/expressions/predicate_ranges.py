"""Ranges of single columns outside of which a WHERE keeps no row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op

VALUES_MAX = 1_000  # Of IN: longer lists are no lookups.

_MIRRORED = {Op.GT: Op.LT, Op.LT: Op.GT, Op.GE: Op.LE, Op.LE: Op.GE, Op.EQ: Op.EQ}


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Values between two ends, both of them inside; None is open on that side."""

    low: int | float | str | None
    high: int | float | str | None


def value_ranges_of(where: Expression | None) -> dict[str, list[ValueRange]]:
    """By column, value ranges that hold every value of rows that a condition keeps.

    Only what is joined by AND counts, and only columns beside constants of their own type; what is
    said several times of a column is not combined: the first equality, or else the first condition.
    """
    found: dict[str, list[ValueRange]] = {}
    for term in _terms(where):
        said = _said(term)
        if said is None:
            continue
        name, ranges = said
        if name not in found or (_is_narrow(ranges) and not _is_narrow(found[name])):
            found[name] = ranges
        elif not _is_narrow(found[name]) and len(ranges) == 1:
            found[name] = [_both(found[name][0], ranges[0])]
    return found


def _terms(where: Expression | None) -> Iterator[Expression]:
    rest = [] if where is None else [where]
    while rest:
        node = rest.pop()
        if isinstance(node, Call) and node.op is Op.AND:
            rest.extend(node.args)
        else:
            yield node


def _said(term: Expression) -> tuple[str, list[ValueRange]] | None:
    if not isinstance(term, Call) or len(term.args) < 2:
        return None
    first, *rest = term.args
    op = term.op
    if isinstance(first, Literal) and len(rest) == 1 and op in _MIRRORED:
        first, rest, op = rest[0], [first], _MIRRORED[op]
    column = _column(first)
    if column is None:
        return None
    values = [_value(node, column) for node in rest]
    if any(value is None for value in values) or len(values) > VALUES_MAX:
        return None
    (value, *_) = values
    is_text = column.type is ColumnType.VARCHAR
    match op:
        case Op.EQ | Op.IN:
            return column.name, [ValueRange(each, each) for each in values]
        case Op.GT | Op.GE if not is_text:
            return column.name, [ValueRange(value, None)]
        case Op.LT | Op.LE if not is_text:
            return column.name, [ValueRange(None, value)]
        case _:
            return None


def _column(node: Expression) -> Column | None:
    """A column, also where it is only made wider."""
    if isinstance(node, Call) and node.op is Op.CAST and node.type is ColumnType.BIGINT:
        (node,) = node.args
        return node if isinstance(node, Column) and node.type is ColumnType.INTEGER else None
    if isinstance(node, Column) and node.type is not ColumnType.BOOLEAN:
        return node
    return None


def _value(node: Expression, column: Column) -> int | float | str | None:
    """A constant that can be compared with the column as it is; None: it is none, or NULL."""
    if not isinstance(node, Literal) or isinstance(node.value, bool):
        return None
    value = node.value
    if column.type is ColumnType.DOUBLE:
        return value if isinstance(value, float) and not math.isnan(value) else None
    if column.type is ColumnType.VARCHAR:
        return value if isinstance(value, str) else None
    return value if isinstance(value, int) else None


def _is_narrow(ranges: list[ValueRange]) -> bool:
    return all(each.low == each.high for each in ranges)


def _both(left: ValueRange, right: ValueRange) -> ValueRange:
    """What is in both."""
    lows = [end for end in (left.low, right.low) if end is not None]
    highs = [end for end in (left.high, right.high) if end is not None]
    return ValueRange(max(lows, default=None), min(highs, default=None))
