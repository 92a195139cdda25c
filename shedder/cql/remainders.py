"""Remainders of integers by one divisor, several at a time.

Processors divide integers one by one. Doubles they divide many at a time, and below 2^51 a
quotient of doubles is off by at most one from the integers' own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.cql.expression import Call, Expression, Literal, Op
from shedder.cql.types import ColumnType

_SURE = 1 << 51
_WHOLE = (ColumnType.INTEGER, ColumnType.BIGINT)


@njit(nogil=True, cache=True)
def _remainders(values: NDArray[np.int64], divisor: int, out: NDArray[np.int64]) -> bool:
    """Whether all values were small enough."""
    share = 1.0 / np.float64(divisor)
    outside = np.uint64(0)
    for row in range(values.size):
        value = values[row]
        outside |= np.uint64(value + _SURE) >> np.uint64(52)
        rest = value - np.int64(np.float64(value) * share) * divisor
        # Truncated one too far or not far enough: the sign is wrong, or there is a divisor left.
        rest += divisor if value >= 0 and rest < 0 else 0
        rest -= divisor if value >= 0 and rest >= divisor else 0
        rest -= divisor if value < 0 and rest > 0 else 0
        rest += divisor if value < 0 and rest <= -divisor else 0
        out[row] = rest
    return bool(outside == 0)


def remainders(values: NDArray[np.int64], divisor: int) -> NDArray[np.int64] | None:
    """What each value has over a multiple of the divisor, with the value's sign; shape [n].

    Args:
      values: int64 [n].
      divisor: > 0.

    Returns:
      None where a value or the divisor is too large (2^51) for doubles to tell.
    """
    if not 0 < divisor < _SURE:
        return None
    out = np.empty(len(values), np.int64)
    given = np.ascontiguousarray(values).view()
    given.setflags(write=False)
    return out if _remainders(given, divisor, out) else None


@dataclass(frozen=True, slots=True)
class Division:
    """A whole number divided by one that is known, > 0."""

    of: Expression
    by: int


@lru_cache(maxsize=4096)
def remainder_of(expression: Expression) -> Division | None:
    """The division that a bound expression is the remainder of; None: it is another expression."""
    match expression:
        case Call(Op.MOD, (of, Literal(value=int() as by))) if by > 0 and of.type in _WHOLE:
            return Division(of, by)
        case _:
            return None


def compile_remainders() -> None:
    """Compile the kernel, or load it from the cache, before the first tuple comes."""
    remainders(np.zeros(1, np.int64), 1)
