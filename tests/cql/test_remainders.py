"""Remainders by doubles are those of the integers themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shedder.cql.remainders import remainders

SURE = (1 << 51) - 1
NEAR = st.tuples(st.integers(-(1 << 26), 1 << 26), st.integers(1, SURE), st.integers(-2, 2)).map(
    lambda t: (max(-SURE, min(SURE, t[0] * t[1] + t[2])), t[1])
)
ANY = st.tuples(st.integers(-SURE, SURE), st.integers(1, SURE))


@pytest.mark.slow
@given(pairs=st.lists(NEAR | ANY, min_size=1, max_size=20))
@example(pairs=[(SURE, 1), (-SURE, SURE), (SURE - 1, SURE), (0, 7), (-21, 7), (-22, 7)])
def test_a_remainder_is_what_truncated_division_leaves(pairs: list[tuple[int, int]]) -> None:
    for value, divisor in pairs:
        rest = remainders(np.array([value, value], np.int64), divisor)
        assert rest is not None
        assert rest.tolist() == [int(math.copysign(abs(value) % divisor, value))] * 2


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
