"""Exact sums of doubles against fractions, over all exponents, with values that are taken away."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from shedder.dataflow.sums.exact_sums import DIGITS, WORDS, add_double, rounded_sum
from tests.scale import scaled

EXPONENTS = {
    "all": (-1074, 1023),
    "subnormal": (-1074, -1000),
    "near": (-3, 60),
    "largest": (1000, 1023),
}


def rounded(values: list[float], taken: list[float]) -> float:
    words = np.zeros(WORDS, np.int64)
    for value, times in [*((v, 1) for v in values), *((v, -1) for v in taken)]:
        add_double(words, 0, int(np.float64(value).view(np.int64)), times)
    return rounded_sum(words, 0, np.zeros(DIGITS + 2, np.int64))


def nearest(total: Fraction) -> float:
    try:
        return total.numerator / total.denominator
    except OverflowError:
        return math.nan


@pytest.mark.parametrize("exponents", EXPONENTS)
def test_a_sum_is_the_nearest_double_of_the_exact_sum(exponents):
    random = Random(exponents)
    low, high = EXPONENTS[exponents]

    def double() -> float:
        mantissa = random.choice([random.random(), 1.0, 0.5, 1 - 2**-53])
        return math.ldexp(random.choice([-1, 1]) * mantissa, random.randrange(low, high))

    for _ in range(scaled(500, 20_000)):
        values = [double() for _ in range(random.randrange(12))]
        taken = [double() for _ in range(random.randrange(3))]
        exact = sum(map(Fraction, values), Fraction(0)) - sum(map(Fraction, taken), Fraction(0))
        found = rounded(values, taken)
        assert found == nearest(exact) or (math.isnan(found) and math.isnan(nearest(exact)))


def test_infinities_are_counted_apart():
    inf = math.inf
    assert rounded([inf, 1.0], []) == inf
    assert rounded([-inf, 1.0], []) == -inf
    assert math.isnan(rounded([inf, -inf], []))
    assert rounded([inf, -inf, 1.5], [inf, -inf]) == 1.5
