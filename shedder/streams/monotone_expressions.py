"""Expressions that rise or fall with one column: their ends, and values, follow from its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op

Number = int | float
Step = Callable[[Any], Any]  # Of a Python number or of an array: the same arithmetic in both.

_WHOLE = (ColumnType.INTEGER, ColumnType.BIGINT)
_INT64_END = 1 << 63


@dataclass(frozen=True, slots=True)
class Monotone:
    """A chain of steps from one column, none of which turns an order of values around in part.

    Doubles are rounded to the nearest in each step, which keeps their order; so the ends of the
    expression are exactly its values at the column's ends. injective: no two values become one.
    """

    column: Column
    steps: tuple[Step, ...]
    injective: bool

    def ends(self, low: Number, high: Number) -> tuple[Number, Number] | None:
        """The range of the expression where that of the column is low to high.

        None: some value on the way might overflow, which would make it NULL or infinite.
        """
        if not (isfinite(low) and isfinite(high)):
            return None
        for step in self.steps:
            low, high = step(low), step(high)
            if not (_fits(low) and _fits(high)):
                return None
        return (low, high) if low <= high else (high, low)

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """The expression at values of the column of which `ends` has found that none overflows."""
        for step in self.steps:
            values = step(values)
        return values


@cache
def monotone_of(expression: Expression) -> Monotone | None:
    """The chain that an expression is; None: it is none, or is not known to be."""
    if isinstance(expression, Column):
        numbers = expression.type in (*_WHOLE, ColumnType.DOUBLE)
        return Monotone(expression, (), injective=True) if numbers else None
    if not isinstance(expression, Call) or expression.type not in _STEPS_OF_TYPE:
        return None
    inner = [arg for arg in expression.args if not isinstance(arg, Literal)]
    below = monotone_of(inner[0]) if len(inner) == 1 else None
    step = None if below is None else _step(expression)
    if below is None or step is None:
        return None
    return Monotone(below.column, (*below.steps, step[0]), below.injective and step[1])


def _step(call: Call) -> tuple[Step, bool] | None:
    """What one operator makes of a number, and whether two numbers never become one."""
    whole = call.type is not ColumnType.DOUBLE
    match call.op, call.args:
        case Op.NEG, (_,):
            return _negated, True
        case Op.CAST, (inner,) if not whole and inner.type in _WHOLE:
            return _as_double, False
        case Op.CAST, (inner,) if whole and inner.type in _WHOLE:
            return _as_it_is, True  # Values are 64 bits wide from the first.
        case Op.ADD, (_, Literal(value=int() | float() as by)) | (
            Literal(value=int() | float() as by),
            _,
        ) if _same(call, by):
            return lambda x: x + by, whole
        case Op.SUB, (_, Literal(value=int() | float() as by)) if _same(call, by):
            return lambda x: x - by, whole
        case Op.SUB, (Literal(value=int() | float() as by), _) if _same(call, by):
            return lambda x: by - x, whole
        case Op.MUL, (_, Literal(value=int() | float() as by)) | (
            Literal(value=int() | float() as by),
            _,
        ) if _same(call, by):
            return lambda x: x * by, whole and by != 0
        case Op.DIV, (_, Literal(value=float() as by)) if by and isfinite(by):
            return lambda x: x / by, False
        case _:
            return None


_STEPS_OF_TYPE = (ColumnType.BIGINT, ColumnType.DOUBLE)


def _same(call: Call, by: Number) -> bool:
    """Return whether all arguments of an operator have its own type: no conversion."""
    if isinstance(by, bool) or not isfinite(by):
        return False
    whole = call.type is not ColumnType.DOUBLE
    kinds = _WHOLE if whole else (ColumnType.DOUBLE,)
    return isinstance(by, int) == whole and all(arg.type in kinds for arg in call.args)


def _negated(x: Any) -> Any:
    return -x


def _as_it_is(x: Any) -> Any:
    return x


def _as_double(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) else float(x)


def _fits(value: Number) -> bool:
    if isinstance(value, int):
        return -_INT64_END <= value < _INT64_END
    return isfinite(value)
