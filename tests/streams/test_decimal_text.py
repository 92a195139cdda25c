"""A double holds decimal text if the text comes back from it."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.streams.decimal_text import doubles_of, integers_held


@pytest.mark.parametrize(
    ("text", "value", "held"),
    [
        ("0.1", 0.1, True),
        ("-0", 0.0, True),
        ("9007199254740992", 2.0**53, True),
        ("9007199254740993", 2.0**53, False),
        ("00009007199254740993.000", 2.0**53, False),
        ("1234567890123456.78", 1234567890123456.75, False),
        ("0.30000000000000004", 0.30000000000000004, True),
        ("1.0000000000000000000000", 1.0, True),
        ("3.14159265358979323846", 3.141592653589793, False),
        ("100000000000000000000", 1e20, True),
        ("1.7976931348623157e308", 1.7976931348623157e308, True),
        ("1.79769313486231571234e308", 1.7976931348623157e308, False),
        ("1e999", float("inf"), False),
        ("inf", float("inf"), True),
    ],
)
def test_digits_that_a_double_loses_are_found(text, value, held):
    values, mask = doubles_of(pa.array([text, None]))
    assert values.to_pylist() == [value, None]
    assert mask.tolist() == [held, True]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_holds_its_own_text(value):
    texts = [repr(value), f"{value:.20f}", f"{value:.17g}"]
    values, held = doubles_of(pa.array(texts))
    assert held.all()
    assert values[0].as_py() == value


@given(st.integers(-(10**25), 10**25), st.integers(0, 10))
def test_decimal_text_is_held_if_the_double_rounds_to_it(digits, scale):
    decimal = Decimal(digits).scaleb(-scale)
    (held,) = doubles_of(pa.array([f"{decimal:.{scale}f}"]))[1]
    assert bool(held) == (round(Decimal(float(decimal)), scale) == decimal)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.integers(0, 2**64 - 1)))
def test_integers_are_held_if_they_come_back(signed, unsigned):
    for numbers, kind in ((signed, pa.int64()), (unsigned, pa.uint64())):
        held = integers_held(pa.array(numbers, kind))
        assert held.tolist() == [int(float(number)) == number for number in numbers]
    assert integers_held(pa.array([None], pa.int64())).tolist() == [True]
    assert integers_held(pa.array([127], pa.int8())).dtype == np.bool_
