"""Variances and functions of pairs of whole numbers in SQL, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.sql.aggregate_sql import DuckDbAggregates
from shedder.cql.sql.integer_moments import integer_pairs, integer_variance
from tests.fractions_of_columns import of_pairs, variance

PAIRS = (
    AggregateFunction.COVAR_POP,
    AggregateFunction.COVAR_SAMP,
    AggregateFunction.CORR,
    AggregateFunction.REGR_SLOPE,
    AggregateFunction.REGR_INTERCEPT,
)
Integers = NDArray[np.int64]


def columns() -> dict[str, tuple[Integers, Integers]]:
    rng = np.random.default_rng(1)
    near = 2**62 + rng.integers(0, 1000, (2, 900))
    around = np.where(np.arange(600) % 2 == 0, 2**62 - 1, 2**62)
    ends = np.array([2**63 - 1, -(2**63)] * 300)
    return {
        "near 2^62": (near[0], near[1]),
        "on both sides of a word": (around, np.where(np.arange(600) % 3 == 0, -1, 0)),
        "the ends of BIGINT": (ends, ends),
        "all of BIGINT": tuple(rng.integers(-(2**62), 2**62, (2, 700))),
        "0 and 1": tuple(rng.integers(0, 2, (2, 100))),
        "far below 0": (-(2**61) + rng.integers(0, 5000, 300), rng.integers(-5, 5, 300)),
    }


def answers(table: pa.Table, *parts: str) -> tuple[float | None, ...]:
    connection = duckdb.connect()
    connection.register("numbers", table)
    [row] = connection.sql(f"SELECT {', '.join(parts)} FROM numbers").fetchall()
    return row


@pytest.mark.parametrize("name", list(columns()))
def test_whole_numbers_are_exact_wherever_they_lie(name: str) -> None:
    x, y = (np.asarray(column, np.int64) for column in columns()[name])
    parts = [integer_pairs(each, "x", "y", whole=(True, True)) for each in PAIRS]
    found = answers(pa.table({"x": x, "y": y}), integer_variance("x"), *parts)
    expected = [variance(x), *(of_pairs(each, x, y) for each in PAIRS)]
    assert found == pytest.approx(expected, rel=1e-14, abs=1e-14)


def test_fewer_values_than_a_variance_needs_are_null() -> None:
    table = pa.table({"x": pa.array([5], pa.int64()), "y": pa.array([7], pa.int64())})
    parts = [integer_pairs(each, "x", "y", whole=(True, True)) for each in PAIRS]
    assert answers(table, integer_variance("x"), *parts) == (None, 0.0, None, None, None, None)
    assert answers(table.slice(0, 0), integer_variance("x"), *parts) == (None,) * 6


@pytest.mark.parametrize("first", ["x", "d"])
def test_a_whole_number_beside_a_double_costs_digits_by_its_spread(first: str) -> None:
    """The words are 2^32 apart, so a spread of 290 leaves 1e-9 at the very least."""
    rng = np.random.default_rng(4)
    x, d = 2**62 + rng.integers(0, 1000, 900), 1e3 + 5.0 * rng.random(900)
    table, other = pa.table({"x": x, "d": d}), "d" if first == "x" else "x"
    whole = (first == "x", first == "d")
    parts = [DuckDbAggregates().pairs(each, first, other, whole=whole) for each in PAIRS]
    ordered = (x, d) if first == "x" else (d, x)
    expected = [of_pairs(each, *ordered) for each in PAIRS]
    assert answers(table, *parts) == pytest.approx(expected, rel=1e-9)


def test_pairs_are_of_rows_that_have_both_values() -> None:
    x = pa.array([2**62 + 1, None, 2**62 + 5, 2**62 + 7, 3], pa.int64())
    y = pa.array([1, 10, 2, 4, None], pa.int64())
    parts = [DuckDbAggregates().pairs(each, "x", "y", whole=(True, True)) for each in PAIRS]
    both = np.array([2**62 + 1, 2**62 + 5, 2**62 + 7]), np.array([1, 2, 4])
    expected = [of_pairs(each, *both) for each in PAIRS]
    assert answers(pa.table({"x": x, "y": y}), *parts) == pytest.approx(expected, rel=1e-14)


def test_fractions_agree_with_hand() -> None:
    """x = 1, 3; y = 2, 6: both deviations are 1 and 2 to either side."""
    x, y = np.array([1, 3]), np.array([2, 6])
    assert variance(x) == 2.0
    assert [of_pairs(each, x, y) for each in PAIRS] == pytest.approx([2.0, 4.0, 1.0, 0.5, 0.0])
    assert math.isclose(variance(np.array([Fraction(1, 2), Fraction(3, 2)])), 0.5)
