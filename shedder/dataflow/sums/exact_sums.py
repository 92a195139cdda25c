"""Exact sums that can be subtracted: fixed-point numbers in words of 32 bits.

A finite double is m * 2^(p - 1074) with |m| < 2^53 and 0 <= p < 2046, so a sum of doubles has
2,112 bits. Each word is in an int64 of its own; all but the last are in [0, 2^32), and the last has
the sign. A sum is rounded once, when it is read. So it does not depend on the order of values, and
1e16 + 1 - 1e16 is 1.
Source: Kulisch 1971, the long accumulator; Neal 2015, Fast exact summation using small and large
superaccumulators, arXiv:1505.05571.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from synopses.kernels.hashing import leading_zeros

WHOLE_DIGITS = 2  # Of a sum of whole numbers.
DIGITS = 68  # Of a sum of doubles: 2,046 + 53 bits, and room for carries.
WORDS = DIGITS + 2  # And how many values are +infinity and -infinity.
LOWEST = -1074  # Exponent of the lowest bit of a sum of doubles.
TIMES_MAX = 1 << 28  # Copies that one call adds without overflow of a word.
MASK = 0xFFFFFFFF
_MANTISSA = (1 << 52) - 1


@intrinsic
def _bits_of_double(typing_context, value):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), codegen


# The bits of a double as a whole number; only inside kernels.
bits_of: Callable[[float], int] = cast(Any, _bits_of_double)


@njit(nogil=True, cache=True, inline="always")
def carry_on(words: Int64s, first: int, end: int, last: int) -> None:
    """Bring words into [0, 2^32) without a change of the sum.

    first, end: the words that may be outside. last: has the sign.
    """
    over = 0
    at = first
    while at < last and (at < end or over != 0):
        word = words[at] + over
        words[at] = word & MASK
        over = word >> 32
        at += 1
    words[at] += over


@njit(nogil=True, cache=True)
def parts_of(bits: int) -> tuple[int, int]:
    """Mantissa with the sign, and p, of a finite double given by its bits."""
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & _MANTISSA
    if exponent > 0:
        mantissa |= 1 << 52
        exponent -= 1
    return -mantissa if bits < 0 else mantissa, exponent


@njit(nogil=True, cache=True)
def is_finite(bits: int) -> bool:
    """Return whether a double, given by its bits, is neither an infinity nor NaN."""
    return bool((bits >> 52) & 0x7FF != 0x7FF)


@njit(nogil=True, cache=True)
def add_double(words: Int64s, at: int, bits: int, times: int) -> None:
    """Add a double, given by its bits, |times| <= TIMES_MAX times. NaN is not one."""
    if not is_finite(bits):
        words[at + DIGITS + (1 if bits < 0 else 0)] += times
        return
    mantissa, exponent = parts_of(bits)
    if mantissa < 0:
        mantissa, times = -mantissa, -times
    first, shift = at + (exponent >> 5), exponent & 31
    low = (mantissa & MASK) << shift  # Below 2^63.
    high = (mantissa >> 32) << shift  # Below 2^52.
    words[first] += (low & MASK) * times
    words[first + 1] += ((low >> 32) + (high & MASK)) * times
    words[first + 2] += (high >> 32) * times
    carry_on(words, first, first + 3, at + DIGITS - 1)


@njit(nogil=True, cache=True)
def magnitude(words: Int64s, at: int, size: int, digits: Int64s) -> tuple[bool, int]:
    """Write |sum| into digits in [0, 2^32).

    Args:
      at, size: of the words; the last has the sign, and may have any size.
      digits: output, with room for size + 2.

    Returns:
      whether the sum is negative, and how many digits it has, without zeros at the top.
    """
    for place in range(size):
        digits[place] = words[at + place]
    digits[size], digits[size + 1] = 0, 0
    top = size + 1
    carry_on(digits, 0, top, top)
    negative = digits[top] < 0
    if negative:
        for place in range(size + 2):
            digits[place] = -digits[place]
        carry_on(digits, 0, top, top)
    while top >= 0 and digits[top] == 0:
        top -= 1
    return negative, top + 1


@njit(nogil=True, cache=True)
def rounded(digits: Int64s, size: int) -> tuple[float, int]:
    """The number in the digits as m * 2^e, rounded to nearest, ties to even; 2^52 <= m <= 2^53.

    size: without zeros at the top; 0 gives (0, 0).
    """
    if size == 0:
        return 0.0, 0
    top = size - 1
    first = np.uint64(digits[top])
    second = np.uint64(digits[top - 1]) if top > 0 else np.uint64(0)
    third = np.uint64(digits[top - 2]) if top > 1 else np.uint64(0)
    head = (first << np.uint64(32)) | second  # The top digit is below 2^32.
    free = leading_zeros(head)
    head = (head << free) | (third >> (np.uint64(32) - free))
    sticky = (third << (np.uint64(32) + free)) != np.uint64(0)
    for at in range(top - 2):
        sticky = sticky or digits[at] != 0
    mantissa = head >> np.uint64(11)
    rest = head & np.uint64(0x7FF)
    half = np.uint64(0x400)
    if rest > half or (rest == half and (sticky or mantissa & np.uint64(1) == np.uint64(1))):
        mantissa += np.uint64(1)
    return float(mantissa), 32 * (top - 1) - int(free) + 11


@njit(nogil=True, cache=True)
def rounded_sum(words: Int64s, at: int, digits: NDArray[np.int64]) -> float:
    """The sum of doubles as the nearest double, ties to even.

    It is NaN if it is beyond the range of doubles, or has infinities of both signs.

    digits: scratch, [DIGITS + 2].
    """
    up, down = words[at + DIGITS], words[at + DIGITS + 1]
    if up > 0 or down > 0:
        if up > 0 and down > 0:
            return np.nan
        return np.inf if up > 0 else -np.inf
    negative, size = magnitude(words, at, DIGITS, digits)
    mantissa, exponent = rounded(digits, size)
    exponent += LOWEST
    if exponent > 971 or (exponent == 971 and mantissa == 2.0**53):
        return np.nan
    value = math.ldexp(mantissa, exponent)
    return -value if negative else value
