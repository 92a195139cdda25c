"""Exact sums of doubles, which can be subtracted: a fixed-point number of 2,112 bits per sum.

A finite double is m * 2^(p - 1074) with |m| < 2^53 and 0 <= p < 2046. The sum is kept in words of
32 bits, each in an int64 of its own, so that 2^30 values need no carry. It is rounded once, when
it is read. So it does not depend on the order of values, and 1e16 + 1 - 1e16 is 1.
Source: Kulisch 1971, the long accumulator; Neal 2015, Fast exact summation using small and large
superaccumulators, arXiv:1505.05571.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from synopses.kernels.hashing import leading_zeros

DIGITS = 68  # 2,046 + 53 bits, and 32 or more for carries: words of 32 bits.
WORDS = DIGITS + 2  # And how many values are +infinity and -infinity.
_MASK = 0xFFFFFFFF
_MANTISSA = (1 << 52) - 1


@njit(nogil=True, cache=True, inline="always")
def add_double(words: Int64s, bits: int, times: int) -> None:
    """Add a double, given by its bits, so many times; negative: subtract it. NaN is not one."""
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & _MANTISSA
    if exponent == 0x7FF:
        words[DIGITS + (1 if bits < 0 else 0)] += times
        return
    if exponent > 0:
        mantissa |= 1 << 52
        exponent -= 1
    times = -times if bits < 0 else times
    word, shift = exponent >> 5, exponent & 31
    low = (mantissa & _MASK) << shift  # Below 2^63.
    high = (mantissa >> 32) << shift  # Below 2^52.
    words[word] += (low & _MASK) * times
    words[word + 1] += ((low >> 32) + (high & _MASK)) * times
    words[word + 2] += (high >> 32) * times


@njit(nogil=True, cache=True)
def carry(words: Int64s) -> None:
    """Bring all words but the last into [0, 2^32) without a change of the sum."""
    over = 0
    for at in range(DIGITS - 1):
        word = words[at] + over
        words[at] = word & _MASK
        over = word >> 32
    words[DIGITS - 1] += over


@njit(nogil=True, cache=True)
def rounded_sum(words: Int64s, digits: NDArray[np.int64]) -> float:
    """The sum as the nearest double, ties to even.

    It is NaN if it is beyond the range of doubles, or has infinities of both signs.

    digits: scratch, [DIGITS].
    """
    up, down = words[DIGITS], words[DIGITS + 1]
    if up > 0 or down > 0:
        if up > 0 and down > 0:
            return np.nan
        return np.inf if up > 0 else -np.inf
    digits[:] = words[:DIGITS]
    carry(digits)
    negative = digits[DIGITS - 1] < 0
    if negative:
        for at in range(DIGITS):
            digits[at] = -digits[at]
        carry(digits)
    top = DIGITS - 1
    while top >= 0 and digits[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
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
    exponent = 32 * (top - 1) - int(free) + 11 - 1074
    if exponent > 971 or (exponent == 971 and mantissa == np.uint64(1) << np.uint64(53)):
        return np.nan
    value = math.ldexp(float(mantissa), exponent)
    return -value if negative else value
