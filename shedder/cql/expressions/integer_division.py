"""Remainders of integers by one divisor, several at a time.

Processors divide integers one by one. Numbers of 31 bits are multiplied by the divisor's inverse,
many at a time; so are doubles, and below 2^51 a quotient of doubles is off by at most one from the
integers' own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Expression, Literal, Op

_SURE = 1 << 51
_BESIDE = 1.5 * 2.0**52
_BESIDE_BITS = int(np.float64(_BESIDE).view(np.int64))
_BLOCK = 512
_SMALL = np.uint64((1 << 31) - 1)
_LOW = np.uint64((1 << 32) - 1)
_WHOLE = (ColumnType.INTEGER, ColumnType.BIGINT)


@njit(nogil=True, cache=True)
def _small_remainders(values: NDArray[np.int64], divisor: int, out: NDArray[np.int64]) -> bool:
    """Return whether all values, like the divisor, were of 31 bits; up to the first that is not.

    With the inverse of the divisor rounded up to 32 bits their quotients are exact (Granlund &
    Montgomery 1994, PLDI, Thm 4.2 for N = 31), and no product has more than 64.
    """
    by, digits = np.uint64(divisor), np.uint64(0)
    while np.uint64(1) << digits < by:
        digits += np.uint64(1)
    shift = np.uint64(31) + digits
    inverse = ((np.uint64(1) << shift) + by - np.uint64(1)) // by
    for first in range(0, values.size, _BLOCK):
        part, into = values[first : first + _BLOCK], out[first : first + _BLOCK]
        bits = np.uint64(0)
        for at in range(part.size):
            bits |= np.uint64(part[at])
            value = np.uint64(part[at]) & _LOW  # That these are 32 bits makes it one product.
            quotient = value * (inverse & _LOW) >> shift
            into[at] = np.int64(value - (quotient & _LOW) * (by & _LOW))
        if bits > _SMALL:
            return False
    return True


@njit(nogil=True, cache=True)
def _remainders(values: NDArray[np.int64], divisor: int, out: NDArray[np.int64]) -> bool:
    """Return whether all values were small enough.

    Few processors turn many integers into doubles at a time, or back. Beside 1.5 * 2^52 a double's
    low bits are a whole number: to add its bits, or itself, is to turn one into the other, and
    rounds quotients on the way.
    """
    by = np.float64(divisor)
    share = 1.0 / by
    outside = np.uint64(0)
    words = np.empty(_BLOCK, np.int64)
    numbers = words.view(np.float64)
    for first in range(0, values.size, _BLOCK):
        part, into = values[first : first + _BLOCK], out[first : first + _BLOCK]
        for at in range(part.size):
            outside |= np.uint64(part[at] + _SURE) >> np.uint64(52)
            words[at] = part[at] + _BESIDE_BITS
        for at in range(part.size):
            value = numbers[at] - _BESIDE
            rest = value - ((value * share + _BESIDE) - _BESIDE) * by
            # Rounded one too far or not far enough: the sign is wrong, or there is a divisor left.
            above = rest + by if rest < 0.0 else rest
            above = above - by if above >= by else above
            below = rest - by if rest > 0.0 else rest
            below = below + by if below <= -by else below
            numbers[at] = (above if value >= 0.0 else below) + _BESIDE
        for at in range(part.size):
            into[at] = words[at] - _BESIDE_BITS
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
    if divisor <= _SMALL and _small_remainders(given, divisor, out):
        return out
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
    """Compile the kernels, or load them from the cache, before the first tuple comes."""
    remainders(np.full(1, -1), 1)
