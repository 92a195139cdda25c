"""The rows of a histogram's bucket, without a pass of expressions over each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Expression, Literal, Op

_ORDERED = (ColumnType.DOUBLE, ColumnType.BIGINT, ColumnType.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Bucket:
    """1 where low <= x < high, else NULL; None: there is no such edge."""

    x: Expression
    low: int | float | None
    high: int | float | None

    def among(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return which of these values are in the bucket; shape [inside], ascending."""
        inside: NDArray[np.bool_] = np.ones(len(values), np.bool_)
        if self.low is not None:
            np.greater_equal(values, self.low, out=inside)
        if self.high is not None:
            inside &= values < self.high
        return np.flatnonzero(inside)


@lru_cache(maxsize=4096)
def bucket_of(expression: Expression) -> Bucket | None:
    """The bucket that a bound expression asks for, as HISTOGRAM writes it; None: it is another."""
    match expression:
        case Call(
            Op.CASE, (Call() as condition, Literal(value=1), Literal(value=None)), ColumnType.BIGINT
        ):
            pass
        case _:
            return None
    match condition:
        case Call(Op.LT, (x, Literal(value=int() | float() as high))):
            found = Bucket(x, None, high)
        case Call(Op.GE, (x, Literal(value=int() | float() as low))):
            found = Bucket(x, low, None)
        case Call(
            Op.AND,
            (
                Call(Op.GE, (x, Literal(value=int() | float() as low))),
                Call(Op.LT, (other, Literal(value=int() | float() as high))),
            ),
        ) if x == other:
            found = Bucket(x, low, high)
        case _:
            return None
    return found if found.x.type in _ORDERED else None
