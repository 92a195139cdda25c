"""Kernels of terms: what is added to the words of a term, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import Int64s
from shedder.dataflow.sums.exact_moments import (
    PRODUCT_DIGITS,
    WHOLE_PRODUCT_DIGITS,
    add_product,
    add_whole_product,
    centred_moments,
)
from shedder.dataflow.sums.exact_sums import (
    DIGITS,
    WHOLE_DIGITS,
    WORDS,
    add_double,
    bits_of,
    carry_on,
    rounded_sum,
)
from shedder.dataflow.sums.value_queues import add_newest, drop_oldest
from shedder.dataflow.sums.value_trees import (
    PAYLOAD,
    VALUE,
    VALUES,
    Nodes,
    add_value,
    copies_of,
    nth_node,
)

signed: Callable[[Any], int] = cast(Any, np.int64)  # Inside kernels, an index as int64.

RESULT_WORDS = 3  # Of a read in a result: a count, and two words more.


class TermKind(IntEnum):
    """What is kept of a term's values, behind their count."""

    COUNT = 0
    WHOLE = 1
    DOUBLE = 2
    WHOLE_PRODUCT = 3
    DOUBLE_PRODUCT = 4
    TREE = 5
    SQUARES = 6  # a tree, and the sum of the squares of its values' copies
    LEAST = 7  # a monotone queue, of rows that leave as they came
    GREATEST = 8  # another one


_WORDS = (0, WHOLE_DIGITS, WORDS, WHOLE_PRODUCT_DIGITS, PRODUCT_DIGITS, 1, 2, 2, 2)

# Their values are in nodes.
OF_NODES = (TermKind.TREE, TermKind.SQUARES, TermKind.LEAST, TermKind.GREATEST)
_LEAST, _GREATEST = int(TermKind.LEAST), int(TermKind.GREATEST)


def words_of(kept: TermKind) -> int:
    """Words of a term in the state of a group."""
    return 1 + _WORDS[kept]


class ReadKind(IntEnum):
    """What is read of terms, and its two words behind the count."""

    COUNT = 0
    WHOLE = 1  # low and high: low + high * 2^64; high is 0 if the sum fits into 64 bits
    DOUBLE = 2  # bits of the sum
    MOMENT = 3  # bits of the covariances of the population and of the sample
    SMALLEST = 4  # value and payload, and so are the next two
    LARGEST = 5
    QUANTILE = 6
    DISTINCT = 7  # different values
    SQUARES = 8  # sum of squares of copies


def cached_words_of(read: ReadKind) -> int:
    """Words of a read in the state of a group; what others give is in the words of terms."""
    return 0 if read in (ReadKind.COUNT, ReadKind.WHOLE) else 2


# Columns of `terms`: what is kept, NULLs that rule a row out, columns of the values, side, places
# of the words in a group and in a partner.
KEPT, NULLS, FIRST, SECOND, SIDE, AT, PARTNER_AT, TERM_COLUMNS = range(8)
# Columns of `reads`: what is read, and three numbers: terms, or a term and a fraction. Then the
# place in a group of the two words that were read last; COUNT and WHOLE have none.
READ, OF, BY, OR, CACHED, READ_COLUMNS = range(6)


@njit(nogil=True, cache=True)
def add_others(
    words: Int64s,
    at: int,
    kept: int,
    first: int,
    second: int,
    times: int,
    term: int,
    nodes: Nodes,
    free: Int64s,
) -> None:
    """Add copies of a value to a term that is neither COUNT nor WHOLE."""
    if kept == 2:
        add_double(words, at + 1, first, times)
    elif kept == 3:
        add_whole_product(words, at + 1, first, second, times)
    elif kept == 4:
        add_product(words, at + 1, first, second, times)
    elif kept >= _LEAST:
        if times > 0:
            is_largest = kept == _GREATEST
            add_newest(words, at + 1, nodes, free, term, first, second, times, is_largest)
        else:
            drop_oldest(words, at + 1, nodes, free, first, times)
    else:
        if kept == 6:
            copies = copies_of(nodes, words[at + 1], first)
            words[at + 2] += times * (2 * copies + times)
        words[at + 1] = add_value(nodes, free, term, words[at + 1], first, second, times)


@njit(nogil=True, cache=True)
def add_other_words(to: Int64s, at: int, words: Int64s, place: int, kept: int, times: int) -> None:
    """Add the sums of a term of a partner, multiplied; it is neither COUNT nor WHOLE."""
    size = DIGITS if kept == 2 else WHOLE_PRODUCT_DIGITS if kept == 3 else PRODUCT_DIGITS
    for digit in range(1, 1 + size):
        to[at + digit] += words[place + digit] * times
    carry_on(to, at + 1, at + 1 + size, at + size)
    if kept == 2:
        to[at + DIGITS + 1] += words[place + DIGITS + 1] * times
        to[at + DIGITS + 2] += words[place + DIGITS + 2] * times


@njit(nogil=True, cache=True, inline="always")
def _product(left: int, right: int) -> tuple[np.uint64, np.uint64]:
    """The high and the low word of a product of two numbers in [0, 2^63)."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b, c, d = np.uint64(left), np.uint64(left), np.uint64(right), np.uint64(right)
    a, b, c, d = a >> half, b & mask, c >> half, d & mask
    low = b * d
    middle = a * d + (low >> half)
    other = b * c + (middle & mask)
    return a * c + (middle >> half) + (other >> half), (other << half) | (low & mask)


@njit(nogil=True, cache=True)
def _exceeds(a: int, b: int, c: int, d: int) -> bool:
    high, low = _product(a, b)
    other_high, other_low = _product(c, d)
    return bool(high > other_high or (high == other_high and low > other_low))


@njit(nogil=True, cache=True)
def rank_of(count: int, numerator: int, denominator: int) -> int:
    """max(1, ceil(count * numerator / denominator)), without rounding."""
    rank = min(max(1, int(float(count) * numerator / denominator)), count)
    while rank > 1 and not _exceeds(count, numerator, denominator, rank - 1):
        rank -= 1
    while rank < count and _exceeds(count, numerator, denominator, rank):
        rank += 1
    return rank


@njit(nogil=True, cache=True)
def _has_infinity(words: Int64s, at: int) -> bool:
    return bool(words[at + DIGITS + 1] != 0 or words[at + DIGITS + 2] != 0)


@njit(nogil=True, cache=True)
def read_others(
    words: Int64s,
    base: int,
    terms: NDArray[np.uint64],
    reads: NDArray[np.uint64],
    which: int,
    nodes: Nodes,
    scratch: NDArray[np.int64],
) -> tuple[int, int]:
    """Two words of a read that is not COUNT or WHOLE. scratch: [3, SCRATCH]."""
    kind, of, by = reads[which, READ], reads[which, OF], reads[which, BY]
    at = base + signed(terms[of, AT])
    count = words[at]
    if kind == 8:
        return words[at + 2], 0
    if kind == 7:
        return nodes[words[at + 1], VALUES], 0
    if count <= 0:
        return 0, 0
    if kind == 2:
        return bits_of(rounded_sum(words, at + 1, scratch[0])), 0
    if kind == 3:
        first = base + signed(terms[by, AT])
        second = base + signed(terms[reads[which, OR], AT])
        of_doubles = terms[by, KEPT] == 2
        population = sample = np.nan
        if not (of_doubles and (_has_infinity(words, first) or _has_infinity(words, second))):
            products = PRODUCT_DIGITS if of_doubles else WHOLE_PRODUCT_DIGITS
            size = DIGITS if of_doubles else WHOLE_DIGITS
            population, sample = centred_moments(
                words, count, at + 1, products, first + 1, second + 1, size, scratch
            )
        return bits_of(population), bits_of(sample)
    if terms[of, KEPT] >= _LEAST:
        node = words[at + 1]
        return nodes[node, VALUE], nodes[node, PAYLOAD]
    rank = 1 if kind == 4 else count
    if kind == 6:
        rank = rank_of(count, signed(by), signed(reads[which, OR]))
    node = nth_node(nodes, words[at + 1], rank)
    return nodes[node, VALUE], nodes[node, PAYLOAD]
