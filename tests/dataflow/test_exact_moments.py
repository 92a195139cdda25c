"""Sums of products, centred moments, ranks and treaps against fractions, integers and lists."""

from __future__ import annotations

import bisect
import math
import sys
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from shedder.dataflow.sums.exact_moments import (
    PRODUCT_DIGITS,
    SCRATCH,
    WHOLE_PRODUCT_DIGITS,
    add_product,
    add_whole_product,
    centred_moments,
)
from shedder.dataflow.sums.exact_sums import DIGITS, WHOLE_DIGITS, WORDS, add_double
from shedder.dataflow.sums.term_kernels import rank_of
from shedder.dataflow.sums.value_trees import COLUMNS, SUM, VALUE, VALUES, add_value, nth_node
from tests.scale import scaled

EXPONENTS = {"all": (-1074, 1023), "subnormal": (-1074, -1000), "near": (-3, 60), "mean": (50, 53)}


def exact_moments(pairs, times=1):
    """Of the population, and of the sample; 0 of one pair. times: copies of each pair."""
    n = times * len(pairs)
    products = times * sum(Fraction(x) * Fraction(y) for x, y in pairs)
    xs, ys = (times * sum(Fraction(pair[side]) for pair in pairs) for side in (0, 1))
    total = n * products - xs * ys
    return total / n / n, total / n / max(n - 1, 1)


def same(found, exact):
    """The nearest double; of one that is not normal, the unit in the last place."""
    try:
        wanted = float(exact)
    except OverflowError:
        return not math.isfinite(found)
    if abs(exact) < sys.float_info.min:
        return abs(found - wanted) <= math.ulp(0.0)
    return found == wanted


def bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


@pytest.mark.parametrize("exponents", EXPONENTS)
def test_a_moment_of_doubles_is_that_of_exact_numbers(exponents):
    random = Random(exponents)
    low, high = EXPONENTS[exponents]

    def double() -> float:
        return math.ldexp(random.choice([-1, 1]) * random.random(), random.randrange(low, high))

    for _ in range(scaled(300, 10_000)):
        pairs = [(double(), double()) for _ in range(random.randrange(1, 9))]
        taken = [(double(), double()) for _ in range(random.randrange(3))]
        words = np.zeros(PRODUCT_DIGITS + 2 * WORDS, np.int64)
        for (x, y), times in [*((p, 1) for p in pairs + taken), *((p, -1) for p in taken)]:
            add_product(words, 0, bits(x), bits(y), times)
            add_double(words, PRODUCT_DIGITS, bits(x), times)
            add_double(words, PRODUCT_DIGITS + WORDS, bits(y), times)
        firsts, scratch = PRODUCT_DIGITS, np.zeros((3, SCRATCH), np.int64)
        found = centred_moments(
            words, len(pairs), 0, PRODUCT_DIGITS, firsts, firsts + WORDS, DIGITS, scratch
        )
        assert all(map(same, found, exact_moments(pairs))), pairs


def test_a_moment_of_whole_numbers_is_that_of_exact_numbers():
    random = Random(301)
    ends = [-(2**63), 2**63 - 1, 0, -1, 2**53 + 1]

    def whole() -> int:
        return random.choice([*ends, random.randrange(-(2**63), 2**63), random.randrange(9)])

    for _ in range(scaled(500, 20_000)):
        pairs = [(whole(), whole()) for _ in range(random.randrange(1, 9))]
        times = random.randrange(1, 1 << 28)
        found = moments_of_whole(pairs, times)
        assert all(map(same, found, exact_moments(pairs, times))), (times, pairs)


def test_a_moment_of_billions_of_rows_is_off_by_three_roundings_at_most():
    pairs, times = [(3, 8), (7, -5), (2**40, 11), (1, 2**33 + 1)], 1 << 30
    for found, exact in zip(
        moments_of_whole(pairs, times), exact_moments(pairs, times), strict=True
    ):
        assert abs(Fraction(found) - exact) <= 2 * Fraction(math.ulp(found))


def moments_of_whole(pairs, times):
    words = np.zeros(WHOLE_PRODUCT_DIGITS + 2 * WHOLE_DIGITS, np.int64)
    for x, y in pairs:
        add_whole_product(words, 0, x, y, times)
    for side in (0, 1):
        total = times * sum(pair[side] for pair in pairs)
        words[6 + 2 * side : 8 + 2 * side] = total & 0xFFFFFFFF, total >> 32
    scratch = np.zeros((3, SCRATCH), np.int64)
    return centred_moments(words, times * len(pairs), 0, 6, 6, 8, WHOLE_DIGITS, scratch)


def test_a_rank_is_that_of_exact_numbers():
    random = Random(302)
    for _ in range(scaled(3_000, 50_000)):
        count = random.choice([random.randrange(1, 200), random.randrange(1, 1 << 60)])
        size = 10 ** random.randrange(19)
        part = random.randrange(size + 1)
        wanted = max(1, -(-count * part // size))
        assert rank_of(count, part, size) == wanted, (count, part, size)


def test_a_tree_has_the_values_of_a_sorted_list():
    random = Random(303)
    nodes = np.zeros((3_000, COLUMNS), np.int64)
    nodes[0, VALUE] = random.randrange(1 << 63)
    free = np.concatenate([[2_999], np.arange(1, 3_000)])
    tree, values = 0, []
    for step in range(scaled(6_000, 100_000)):
        if values and random.random() < (0.35 if step % 2_000 < 1_000 else 0.65):
            value = values.pop(random.randrange(len(values)))
            tree = add_value(nodes, free, 0, tree, value, 0, -1)
        else:
            value = random.choice([random.randrange(-50, 50), random.randrange(-(2**63), 2**63)])
            bisect.insort(values, value)
            tree = add_value(nodes, free, 0, tree, value, 7, 1)
        assert (nodes[tree, SUM], nodes[tree, VALUES]) == (len(values), len(set(values)))
        assert free[0] == 2_999 - len(set(values))
        if values:
            rank = random.randrange(len(values))
            assert nodes[nth_node(nodes, tree, rank + 1), VALUE] == values[rank]


def test_copies_may_be_taken_before_they_are_added():
    nodes = np.zeros((4, COLUMNS), np.int64)
    free = np.array([3, 1, 2, 3])
    tree = add_value(nodes, free, 0, 0, 5, 0, -2)
    tree = add_value(nodes, free, 0, tree, 9, 0, 1)
    tree = add_value(nodes, free, 0, tree, 5, 0, 2)
    assert (nodes[tree, VALUE], nodes[tree, SUM], free[0]) == (9, 1, 2)
