"""Remainders by doubles are those of the integers themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shedder.cql.expressions.integer_division import remainders

SURE = (1 << 51) - 1
NEAR = st.tuples(st.integers(-(1 << 26), 1 << 26), st.integers(1, SURE), st.integers(-2, 2)).map(
    lambda t: (max(-SURE, min(SURE, t[0] * t[1] + t[2])), t[1])
)
WHOLE = (1 << 31) - 1
SMALL = st.tuples(st.integers(1, WHOLE), st.integers(0, WHOLE), st.integers(-1, 1)).map(
    lambda t: (max(0, min(WHOLE, t[1] // t[0] * t[0] + t[2])), t[0])
)
ANY = st.tuples(st.integers(-SURE, SURE), st.integers(1, SURE))


@pytest.mark.slow
@given(pairs=st.lists(NEAR | SMALL | ANY, min_size=1, max_size=20))
@example(pairs=[(SURE, 1), (-SURE, SURE), (SURE - 1, SURE), (0, 7), (-21, 7), (-22, 7)])
def test_a_remainder_is_what_truncated_division_leaves(pairs: list[tuple[int, int]]) -> None:
    for value, divisor in pairs:
        rest = remainders(np.array([value, value], np.int64), divisor)
        assert rest is not None
        assert rest.tolist() == [int(math.copysign(abs(value) % divisor, value))] * 2


@pytest.mark.parametrize("divisor", [1, 2, 3, 1000, 1 << 30, (1 << 30) + 1, WHOLE - 1, WHOLE])
def test_small_numbers_have_the_remainders_of_the_integers(divisor: int) -> None:
    near = np.arange(0, WHOLE, max(divisor, WHOLE // 2000 + 1))
    values = np.concatenate([near, near + 1, near + divisor - 1, [WHOLE - 1, WHOLE]])
    values = values[values <= WHOLE]
    rest = remainders(values, divisor)
    assert rest is not None
    np.testing.assert_array_equal(rest, values % divisor)


@pytest.mark.parametrize("odd", [-5, 1 << 31, -(1 << 40)])
def test_one_number_that_is_not_small_is_not_taken_for_one(odd: int) -> None:
    values = np.append(np.arange(5000), odd)
    rest = remainders(values, 7)
    assert rest is not None
    np.testing.assert_array_equal(rest, np.fmod(values, 7))


def test_what_doubles_cannot_tell_is_left_to_others() -> None:
    for values, divisor in (
        ([1, 1 << 52], 7),
        ([-(1 << 63)], 7),
        ([1], 0),
        ([1], -3),
        ([1], 1 << 51),
    ):
        assert remainders(np.array(values, np.int64), divisor) is None
    rest = remainders(np.zeros(0, np.int64), 5)
    assert rest is not None
    assert rest.tolist() == []
