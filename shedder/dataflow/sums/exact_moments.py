"""Exact second moments that can be subtracted: sums of products, and centred moments of them.

A product of doubles is m * 2^(p - 2148) with |m| < 2^106 and 0 <= p <= 4090, so a sum of products
has 4,224 bits, in words as those of `exact_sums`. The centred moment n * sum(x y) - sum(x) * sum(y)
is computed without rounding, so digits that cancel are not lost. What it is divided by is divided
in whole numbers, too: the quotient is rounded once.
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
_MORE_DIGITS = (
    4  # Below the point: a quotient by two counts has 65 bits at least, of which 54 decide.
)
_COUNTS = 1 << 32  # One digit, that is divided by.
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
def _divide(digits: Int64s, size: int, by: int) -> tuple[int, bool]:
    """Divide a number by one digit, in place; return its size, and whether something is left."""
    rest, divisor = np.uint64(0), np.uint64(by)
    for at in range(size - 1, -1, -1):
        part = (rest << np.uint64(32)) | np.uint64(digits[at])
        digits[at] = np.int64(part // divisor)
        rest = part % divisor
    while size > 0 and digits[size - 1] == 0:
        size -= 1
    return size, rest != np.uint64(0)


@njit(nogil=True, cache=True)
def centred_moments(
    words: Int64s,
    count: int,
    products: int,
    products_size: int,
    firsts: int,
    seconds: int,
    size: int,
    scratch: Int64s,
) -> tuple[float, float]:
    """(n * sum(x y) - sum(x) * sum(y)) / n^2, and the same over n (n - 1); of n = 1 this is 0.

    Each is the nearest double, ties to even, if it is a normal one and n is below 2^32. For larger
    n the numerator is rounded, and so are both divisions.

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
    if digits == 0 or count == 1:
        return 0.0, 0.0
    sign = -1.0 if negative else 1.0
    lowest = 2 * LOWEST if size > 2 else 0  # Of doubles.
    if count >= _COUNTS:
        mantissa, exponent = rounded(x, digits)
        mantissa *= sign / count
        exponent += lowest
        return math.ldexp(mantissa / count, exponent), math.ldexp(mantissa / (count - 1), exponent)
    for at in range(digits - 1, -1, -1):
        x[at + _MORE_DIGITS] = x[at]
    x[:_MORE_DIGITS] = 0
    digits, is_more = _divide(x, digits + _MORE_DIGITS, count)
    y[:digits] = x[:digits]
    lowest -= 32 * _MORE_DIGITS
    population = _quotient(y, digits, count, is_more)
    sample = _quotient(x, digits, count - 1, is_more)
    return (
        sign * math.ldexp(population[0], population[1] + lowest),
        sign * math.ldexp(sample[0], sample[1] + lowest),
    )


@njit(nogil=True, cache=True)
def _quotient(digits: Int64s, size: int, by: int, is_more: bool) -> tuple[float, int]:
    """A number over one digit as m * 2^e, rounded to nearest; is_more: it has a fraction, too."""
    size, is_left = _divide(digits, size, by)
    if is_left or is_more:
        digits[0] |= 1
    return rounded(digits, size)
