"""Tests of ranges and values that follow from a column's own: beside evaluating every tuple."""

from __future__ import annotations

import math
import pickle
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import CreateStream, Select
from shedder.streams.frame import Frame
from shedder.streams.monotone_expressions import monotone_of
from shedder.streams.positions import Positions

CREATE = "CREATE STREAM s (ts TIMESTAMP, x DOUBLE, n BIGINT, i INTEGER) TIMESTAMP BY ts"
CHAINS = [
    "x + 3", "3 - x", "x * -2.5", "x / 7", "-x", "x * 0", "2 * (x - 1) + 5", "n + 3", "n - 9",
    "9 - n", "-n", "n * 3", "n * -3", "n * 0", "n * 1.5", "i + 1", "(i + 1) * 2", "i / 3",
]  # fmt: skip
OTHERS = ["x * x", "n % 5", "ABS(x)", "x / n", "CAST(x AS BIGINT)", "ROUND(x)", "COALESCE(x, 0)"]
doubles = st.none() | st.floats(allow_nan=True, allow_infinity=True)
wholes = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
smalls = st.none() | st.integers(-(1 << 31), (1 << 31) - 1)
rows = st.lists(st.tuples(doubles, wholes, smalls), min_size=1, max_size=30)


@cache
def bound(text: str) -> Expression:
    """A bound expression over the stream."""
    statement = parse(CREATE)
    assert isinstance(statement, CreateStream)
    schema = StreamSchema(
        statement.name, statement.columns, statement.time_column, statement.lateness_us,
        None, statement.layout, 1,
    )  # fmt: skip
    select = parse(f"SELECT COUNT({text}) AS a FROM s")
    assert isinstance(select, Select)
    found = bind(select, schema).aggregates[0].argument
    assert found is not None
    return found


def batch_of(given_rows: list[tuple[float | None, int | None, int | None]]) -> pa.RecordBatch:
    """A batch of these values, a microsecond apart."""
    x, n, i = zip(*given_rows, strict=True)
    return pa.record_batch(
        {
            "ts": pa.array(range(len(x)), pa.int64()).cast(pa.timestamp("us")),
            "x": pa.array(x, pa.float64()),
            "n": pa.array(n, pa.int64()),
            "i": pa.array(i, pa.int32()),
        }
    )


@pytest.mark.slow
@given(text=st.sampled_from(CHAINS), given_rows=rows, cut=st.integers(0, 30))
def test_values_and_ranges_by_the_column_are_those_of_every_tuple(text, given_rows, cut):
    expression, batch = bound(text), batch_of(given_rows)
    assert monotone_of(expression) is not None
    frame = Frame(batch, "ts", positions=Positions(1, 0))
    wanted = evaluate(expression, batch).to_pylist()
    first, last = sorted((min(cut, len(batch)), len(batch)))
    for low, high in ((0, len(batch)), (first, last)):
        there = [value for value in wanted[low:high] if value is not None]
        known = frame.known(expression, low, high)
        assert known.rows == len(there)
        ends = (min(there), max(there)) if there else (None, None)
        assert (known.low, known.high) == ends
    present = frame.present(expression)
    held = range(len(batch)) if present.rows is None else present.rows.tolist()
    assert [wanted[row] for row in held] == np.asarray(present.values).tolist()
    assert len(held) == sum(value is not None for value in wanted)


@pytest.mark.parametrize("text", OTHERS)
def test_what_may_turn_the_order_around_or_is_null_elsewhere_is_no_chain(text):
    assert monotone_of(bound(text)) is None


@pytest.mark.slow
@given(text=st.sampled_from(CHAINS + OTHERS), given_rows=rows)
def test_identities_are_one_where_the_values_are_and_of_the_same_rows(text, given_rows):
    expression, batch = bound(text), batch_of(given_rows)
    frame = Frame(batch, "ts", positions=Positions(1, 0))
    identities, hashes = frame.identities(expression), frame.hashes(expression)
    size = len(hashes.first)
    assert len(identities.first) == size
    _, of_values = np.unique(hashes.first, return_inverse=True)
    _, of_identities = np.unique(identities.first, return_inverse=True)
    assert len(set(zip(of_values, of_identities, strict=True))) == of_values.max(initial=-1) + 1
    assert of_values.max(initial=-1) == of_identities.max(initial=-1)
    rows_of = [range(size) if it.rows is None else it.rows.tolist() for it in (identities, hashes)]
    assert list(rows_of[0]) == list(rows_of[1])


def test_an_overflow_on_the_way_leaves_the_range_to_those_who_evaluate():
    chain = monotone_of(bound("x * 1e300 * 1e-300"))
    assert chain is not None
    assert chain.ends(1.0, 2.0) == (1.0, 2.0)
    assert chain.ends(1.0, 1e10) is None
    assert chain.ends(1.0, math.inf) is None


def test_a_call_hashes_the_same_after_a_copy_by_bytes():
    expression = bound("2 * (x - 1)")
    copy = pickle.loads(pickle.dumps(expression))
    assert copy == expression
    assert repr(copy) == repr(expression)
