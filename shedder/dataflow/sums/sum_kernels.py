"""Kernel of grouped aggregates with retraction: each changed group gives its old and new row.

A group has words for its rows and for each term: how many values the term has, and their sum or
the root of their tree. The rows are those of one input, or the pairs of an equi-join, which are
not made: a key with n rows on the left and m on the right has n * m pairs, and the sum of a left
term over them is m times its sum over the left rows. So a row costs one product per term, whatever
the number of its partners.
Source: Yan, Larson 1995, Eager aggregation and lazy aggregation; Nikolic, Olteanu 2018, F-IVM.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shedder.dataflow.changes import NEVER_US, Int64s
from shedder.dataflow.sums.exact_moments import (
    PRODUCT_DIGITS,
    SCRATCH,
    WHOLE_PRODUCT_DIGITS,
    add_product,
    add_whole_product,
    population_moment,
)
from shedder.dataflow.sums.exact_sums import (
    DIGITS,
    MASK,
    TIMES_MAX,
    WHOLE_DIGITS,
    WORDS,
    add_double,
    carry_on,
    rounded_sum,
)
from shedder.dataflow.sums.value_trees import (
    PAYLOAD,
    VALUE,
    VALUES,
    Nodes,
    add_value,
    copies_of,
    nth_node,
)
from synopses.kernels.prefetch import prefetch

_AHEAD = 16  # Events between bringing a group near and reading it.

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


_WORDS = (0, WHOLE_DIGITS, WORDS, WHOLE_PRODUCT_DIGITS, PRODUCT_DIGITS, 1, 2)


TREES = (TermKind.TREE, TermKind.SQUARES)


def words_of(kept: TermKind) -> int:
    """Words of a term in the state of a group."""
    return 1 + _WORDS[kept]


class ReadKind(IntEnum):
    """What is read of terms, and its two words behind the count."""

    COUNT = 0
    WHOLE = 1  # high and low: high * 2^32 + low
    DOUBLE = 2  # bits of the sum
    MOMENT = 3  # bits of the covariance of the population
    SMALLEST = 4  # value and payload, and so are the next two
    LARGEST = 5
    QUANTILE = 6
    DISTINCT = 7  # different values
    SQUARES = 8  # sum of squares of copies


# Columns of `terms`: what is kept, NULLs that rule a row out, columns of the values, side, places
# of the words in a group and in a partner.
KEPT, NULLS, FIRST, SECOND, SIDE, AT, PARTNER_AT, TERM_COLUMNS = range(8)
# Columns of `reads`: what is read, and three numbers: terms, or a term and a fraction.
READ, OF, BY, OR, READ_COLUMNS = range(5)


# A call costs 20 ns: it passes arrays by all their fields, and counts references. So the kernel has
# no calls for counts and sums of whole numbers.


@njit(nogil=True, cache=True)
def _add_others(
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
    if kept == 2:
        add_double(words, at + 1, first, times)
    elif kept == 3:
        add_whole_product(words, at + 1, first, second, times)
    elif kept == 4:
        add_product(words, at + 1, first, second, times)
    else:
        if kept == 6:
            copies = copies_of(nodes, words[at + 1], first)
            words[at + 2] += times * (2 * copies + times)
        words[at + 1] = add_value(nodes, free, term, words[at + 1], first, second, times)


@njit(nogil=True, cache=True)
def _add_other_words(to: Int64s, at: int, words: Int64s, place: int, kept: int, times: int) -> None:
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
def _read_others(
    words: Int64s,
    base: int,
    terms: NDArray[np.int64],
    reads: NDArray[np.int64],
    which: int,
    nodes: Nodes,
    scratch: NDArray[np.int64],
    total: NDArray[np.float64],
) -> tuple[int, int]:
    """Two words of a read that is not COUNT or WHOLE."""
    read = reads[which]
    at = base + terms[read[OF], AT]
    count = words[at]
    kind = read[READ]
    if kind == 8:
        return words[at + 2], 0
    if kind == 7:
        return nodes[words[at + 1], VALUES], 0
    if count <= 0:
        return 0, 0
    if kind == 2:
        total[0] = rounded_sum(words, at + 1, scratch[0])
        return total.view(np.int64)[0], 0
    if kind == 3:
        first, second = base + terms[read[BY], AT], base + terms[read[OR], AT]
        of_doubles = terms[read[BY], KEPT] == 2
        total[0] = np.nan
        if not (of_doubles and (_has_infinity(words, first) or _has_infinity(words, second))):
            products = PRODUCT_DIGITS if of_doubles else WHOLE_PRODUCT_DIGITS
            size = DIGITS if of_doubles else WHOLE_DIGITS
            total[0] = population_moment(
                words, count, at + 1, products, first + 1, second + 1, size, scratch
            )
        return total.view(np.int64)[0], 0
    rank = 1 if kind == 4 else count if kind == 5 else rank_of(count, read[BY], read[OR])
    node = nth_node(nodes, words[at + 1], rank)
    return nodes[node, VALUE], nodes[node, PAYLOAD]


@njit(nogil=True, cache=True)
def aggregate_events(
    instants: Int64s,
    ids: Int64s,
    weight: Int64s,
    values: NDArray[np.int64],
    starts: Int64s,
    sides: Int64s,
    terms: NDArray[np.int64],
    reads: NDArray[np.int64],
    is_scalar: bool,
    words: Int64s,
    width: int,
    result_at: int,
    partners: Int64s,
    partner_words: int,
    right_at: int,
    nodes: Nodes,
    free: Int64s,
    out_instants: Int64s,
    out_ids: Int64s,
    out_weight: Int64s,
    out_results: NDArray[np.int64],
) -> int:
    """Apply events by instant; returns how many rows were emitted, at most two an event.

    Args:
      instants: ascending from each of `starts` to the next. ids, weight: key and copies.
      values: [events, 1 + columns]: bit i of the first is set where column i is NULL; then the
        columns, doubles by their bits; or [events, 0] if no term reads one.
      starts: of the runs of events, and their end. sides: of the runs, 0 or 1.
      terms, reads: [.., columns], as above.
      is_scalar: all keys are group 0, which has a row even if it is empty; else each key is one.
      words: of the groups. width: words of one: the state, the result, which is at `result_at`,
        and one that is 0.
      partners: words of the keys; empty: the rows are those of one input. partner_words: of one.
      right_at: place of the right side's count in a partner.
      nodes, free: of the trees, with a node for each event and tree.

    Returns:
      -1: an event has more than TIMES_MAX copies.
    """
    made = 0
    runs = sides.size
    heads = starts[:runs].copy()
    touched = np.empty(ids.size, np.int64)
    scratch = np.empty((3, SCRATCH), np.int64)
    total = np.empty(1, np.float64)
    old = np.empty(out_results.shape[1], np.int64)
    is_join = partner_words > 0
    while True:
        instant = NEVER_US
        for run in range(runs):
            if heads[run] < starts[run + 1]:
                instant = min(instant, instants[heads[run]])
        if instant == NEVER_US:
            break
        some = 0
        for run in range(runs):
            row, end, side = heads[run], starts[run + 1], sides[run]
            own_at = right_at if side == 1 else 0
            other_at = 0 if side == 1 else right_at
            while row < end and instants[row] == instant:
                soon = ids[min(row + _AHEAD, end - 1)]
                if is_join:
                    prefetch(partners, soon * partner_words)
                    prefetch(partners, soon * partner_words + partner_words - 1)
                if not is_scalar:
                    prefetch(words, soon * width)
                    prefetch(words, soon * width + width - 1)
                key = ids[row]
                group = 0 if is_scalar else key
                base = group * width
                if words[base + width - 1] == 0:
                    words[base + width - 1] = 1
                    touched[some] = group
                    some += 1
                copies = times = weight[row]
                partner = key * partner_words
                if is_join:
                    times *= partners[partner + other_at]
                    partners[partner + own_at] += copies
                if abs(times) > TIMES_MAX or abs(copies) > TIMES_MAX:
                    return -1
                words[base] += times
                for term in range(terms.shape[0]):
                    kept, at = terms[term, KEPT], base + terms[term, AT]
                    place = partner + terms[term, PARTNER_AT]
                    if is_join and terms[term, SIDE] != side:
                        words[at] += partners[place] * copies
                        if kept == 1:
                            low = words[at + 1] + partners[place + 1] * copies
                            words[at + 1] = low & MASK
                            words[at + 2] += partners[place + 2] * copies + (low >> 32)
                        elif kept > 1:
                            _add_other_words(words, at, partners, place, kept, copies)
                    elif values[row, 0] & terms[term, NULLS] == 0:
                        words[at] += times
                        if is_join:
                            partners[place] += copies
                        if kept == 0:
                            continue
                        first = values[row, terms[term, FIRST]]
                        second = values[row, terms[term, SECOND]]
                        if kept == 1:
                            low = words[at + 1] + (first & MASK) * times
                            words[at + 1] = low & MASK
                            words[at + 2] += (first >> 32) * times + (low >> 32)
                            if is_join:
                                low = partners[place + 1] + (first & MASK) * copies
                                partners[place + 1] = low & MASK
                                partners[place + 2] += (first >> 32) * copies + (low >> 32)
                            continue
                        if times != 0:
                            _add_others(words, at, kept, first, second, times, term, nodes, free)
                        if is_join:
                            _add_others(
                                partners, place, kept, first, second, copies, term, nodes, free
                            )
                row += 1
            heads[run] = row
        for which in range(some):
            group = touched[which]
            base = group * width
            result = base + result_at
            words[base + width - 1] = 0
            old[0] = words[result]
            changed = old[0] != words[base]
            words[result] = words[base]
            for which_read in range(reads.shape[0]):
                at = base + terms[reads[which_read, OF], AT]
                kind = reads[which_read, READ]
                count, first, second = words[at], 0, 0
                if kind == 1:
                    first, second = words[at + 2], words[at + 1]
                elif kind > 1:
                    first, second = _read_others(
                        words, base, terms, reads, which_read, nodes, scratch, total
                    )
                to = 1 + RESULT_WORDS * which_read
                place = result + to
                old[to], old[to + 1], old[to + 2] = words[place], words[place + 1], words[place + 2]
                changed = changed or old[to] != count or old[to + 1] != first
                changed = changed or old[to + 2] != second
                words[place], words[place + 1], words[place + 2] = count, first, second
            if not changed:
                continue
            if old[0] > 0 or is_scalar:
                out_instants[made], out_ids[made], out_weight[made] = instant, group, -1
                for place in range(old.size):
                    out_results[made, place] = old[place]
                made += 1
            if words[result] > 0 or is_scalar:
                out_instants[made], out_ids[made], out_weight[made] = instant, group, 1
                for place in range(old.size):
                    out_results[made, place] = words[result + place]
                made += 1
    return made
