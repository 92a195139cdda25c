"""Exact second moments that can be subtracted: sums of products, and centred moments of them.

A product of doubles is m * 2^(p - 2148) with |m| < 2^106 and 0 <= p <= 4090, so a sum of products
has 4,224 bits, in words as those of `exact_sums`. The centred moment n * sum(x y) - sum(x) * sum(y)
is computed without rounding, so digits that cancel are not lost. It is rounded once.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from shedder.dataflow.changes import Int64s
from shedder.dataflow.sums.exact_sums import (
    LOWEST,
    MASK,
    carry_on,
    is_finite,
    magnitude,
    parts_of,
    rounded,
)

WHOLE_PRODUCT_DIGITS = 6  # Of a sum of products of whole numbers: 126 bits, and room for carries.
PRODUCT_DIGITS = 132  # Of a sum of products of doubles.
SCRATCH = 160  # Digits of a product of two sums, and of a sum of products times a count.


@njit(nogil=True, cache=True, inline="always")
def _add_at(words: Int64s, at: int, product: np.uint64, times: int) -> None:
    words[at] += np.int64(product & np.uint64(MASK)) * times
    words[at + 1] += np.int64(product >> np.uint64(32)) * times


@njit(nogil=True, cache=True)
def add_whole_product(words: Int64s, at: int, left: int, right: int, times: int) -> None:
    """Add a product of two whole numbers of 64 bits, |times| <= TIMES_MAX times."""
    if (left < 0) != (right < 0):
        times = -times
    x = np.uint64(-left if left < 0 else left)  # -2^63 is its own negative, and 2^63 unsigned.
    y = np.uint64(-right if right < 0 else right)
    mask, half = np.uint64(MASK), np.uint64(32)
    _add_at(words, at, (x & mask) * (y & mask), times)
    _add_at(words, at + 1, (x >> half) * (y & mask), times)
    _add_at(words, at + 1, (x & mask) * (y >> half), times)
    _add_at(words, at + 2, (x >> half) * (y >> half), times)
    carry_on(words, at, at + 4, at + WHOLE_PRODUCT_DIGITS - 1)


@njit(nogil=True, cache=True)
def add_product(words: Int64s, at: int, left: int, right: int, times: int) -> None:
    """Add a product of two doubles, given by their bits; of infinities nothing is added."""
    if not (is_finite(left) and is_finite(right)):
        return
    x, p = parts_of(left)
    y, q = parts_of(right)
    if (x < 0) != (y < 0):
        times = -times
    x, y = abs(x), abs(y)
    first, shift = at + ((p + q) >> 5), np.uint64((p + q) & 31)
    mask, half = np.uint64(MASK), np.uint64(32)
    a, b = np.uint64(x) & mask, np.uint64(x) >> half
    # Shifted, y has 84 bits.
    low = (np.uint64(y) & mask) << shift
    high = ((np.uint64(y) >> half) << shift) + (low >> half)
    parts = (low & mask, high & mask, high >> half)
    for place in range(3):
        _add_at(words, first + place, a * parts[place], times)
        _add_at(words, first + place + 1, b * parts[place], times)
    carry_on(words, first, first + 5, at + PRODUCT_DIGITS - 1)


@njit(nogil=True, cache=True)
def _add_multiplied(
    total: Int64s, left: Int64s, left_size: int, right: Int64s, right_size: int, sign: int
) -> None:
    for i in range(left_size):
        if left[i] != 0:
            for j in range(right_size):
                _add_at(total, i + j, np.uint64(left[i]) * np.uint64(right[j]), sign)


@njit(nogil=True, cache=True)
def population_moment(
    words: Int64s,
    count: int,
    products: int,
    products_size: int,
    firsts: int,
    seconds: int,
    size: int,
    scratch: Int64s,
) -> float:
    """(n * sum(x y) - sum(x) * sum(y)) / n^2, rounded once before the division.

    Args:
      words: where the sums are. count: n > 0.
      products, products_size: place and digits of sum(x y).
      firsts, seconds, size: places and digits of sum(x) and sum(y).
      scratch: [3, SCRATCH].
    """
    x, y, total = scratch[0], scratch[1], scratch[2]
    total[:] = 0
    negative, digits = magnitude(words, products, products_size, x)
    y[0], y[1] = count & MASK, count >> 32
    _add_multiplied(total, x, digits, y, 2, -1 if negative else 1)
    negative, digits = magnitude(words, firsts, size, x)
    other, others = magnitude(words, seconds, size, y)
    _add_multiplied(total, x, digits, y, others, 1 if negative != other else -1)
    negative, digits = magnitude(total, 0, products_size + 12, x)
    mantissa, exponent = rounded(x, digits)
    if size > 2:  # Of doubles.
        exponent += 2 * LOWEST
    value = math.ldexp(mantissa / count / count, exponent)
    return -value if negative else value
