"""Columns of 64-bit values: their bits, their ends, and what follows from them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Literal, Op
from shedder.engine.panes.pane_slices import first_at
from shedder.streams.column_bits import ascend, double_ends_of, ends_of, words_of
from shedder.streams.frame import Frame
from shedder.streams.sample_payload import KeptRows
from synopses.samples.bottom_k import Kept

INT64 = st.integers(-(2**63), 2**63 - 1)
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("x", pa.float64())])


def batch_of(keys: list[int | None], first: int = 0) -> pa.RecordBatch:
    times = pa.array(range(first, first + len(keys)), pa.int64()).cast(pa.timestamp("us"))
    values = pa.array([None if k is None else k / 3 for k in keys], pa.float64())
    return pa.RecordBatch.from_arrays([times, pa.array(keys, pa.int64()), values], schema=SCHEMA)


@pytest.mark.parametrize(
    ("column", "bits"),
    [
        (pa.array([1, -2, 3], pa.int64()), [1, -2, 3]),
        (pa.array([9, 1, -2, 3, 9], pa.int64()).slice(1, 3), [1, -2, 3]),
        (pa.array([7], pa.timestamp("us")), [7]),
        (pa.array([], pa.float64()), []),
        (pa.array([0.5, -0.0]), np.array([0.5, -0.0]).view(np.int64).tolist()),
        (pa.array([1, None], pa.int64()), None),
        (pa.array([1, None], pa.int64()).slice(0, 1), [1]),
        (pa.array([1], pa.int32()), None),
        (pa.array(["a"]), None),
    ],
)
def test_words_are_the_bits_of_whole_columns(column: pa.Array, bits: list[int] | None) -> None:
    words = words_of(column)
    assert (None if words is None else words.tolist()) == bits
    assert words is None or not words.flags.writeable


@pytest.mark.slow
@given(st.lists(INT64, min_size=1))
def test_ends_and_order_are_those_of_the_values(values: list[int]) -> None:
    column = words_of(pa.array(values, pa.int64()))
    assert column is not None
    assert ends_of(column) == (min(values), max(values))
    assert ascend(column) == (values == sorted(values))


@pytest.mark.slow
@given(st.lists(st.floats(), min_size=1))
def test_ends_of_doubles_are_those_of_the_values(values: list[float]) -> None:
    column = words_of(pa.array(values, pa.float64()))
    assert column is not None
    ends = double_ends_of(column)
    if any(map(math.isnan, values)):
        assert ends is None
    else:
        assert ends == (min(values), max(values))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, 5e-324, 1.7976931348623157e308])
def test_the_outermost_doubles_are_ends(value: float, sign: float) -> None:
    values = np.array([1.5, math.copysign(value, sign), -1.5])
    ends = double_ends_of(values.view(np.int64))
    expected = (float(values.min()), float(values.max()))
    assert ends == (None if math.isnan(value) else expected)


@given(st.lists(INT64), st.integers(-(2**65), 2**65))
def test_the_first_at_a_time_is_where_a_search_finds_it(times: list[int], time_us: int) -> None:
    ascending = np.array(sorted(times), np.int64)
    assert first_at(ascending, time_us) == sum(time < time_us for time in times)


@pytest.mark.slow
@given(st.lists(st.none() | INT64 | st.integers(-5_000, 5_000)), st.integers(1, 2**63 - 1))
def test_remainders_are_those_of_the_expression(keys: list[int | None], by: int) -> None:
    column = Column("k", ColumnType.BIGINT)
    rest = Call(Op.MOD, (column, Literal(by, ColumnType.BIGINT)), ColumnType.BIGINT)
    frame = Frame(batch_of(keys), "ts")
    present = frame.present(rest)
    rows = range(len(keys)) if present.rows is None else present.rows.tolist()
    found = dict(zip(rows, np.asarray(present.values).tolist(), strict=True))
    wanted = frame.evaluate(rest).to_pylist()
    assert found == {row: value for row, value in enumerate(wanted) if value is not None}


@pytest.mark.slow
@given(st.data())
def test_kept_rows_are_those_that_were_moved(data: st.DataObject) -> None:
    kept, model = KeptRows(SCHEMA), batch_of([]).to_pylist()
    for step in range(data.draw(st.integers(0, 6))):
        keys = data.draw(st.lists(st.none() | INT64 if step % 2 else INT64, max_size=20))
        batch = batch_of(keys, first=100 * step)
        new = [row for row in range(len(keys)) if data.draw(st.booleans())]
        stay = None
        if data.draw(st.booleans()):
            stay = [row for row in range(len(model)) if data.draw(st.booleans())]
            model = [model[row] for row in stay]
        old = None if stay is None else np.array(stay, np.int64)
        kept.move(Kept(old, np.array(new, np.int64)), Frame(batch, "ts"))
        rows = batch.to_pylist()
        model += [rows[row] for row in new]
        if data.draw(st.booleans()):
            assert kept.together().to_pylist() == model
    assert kept.together().to_pylist() == model
    assert kept.size_bytes >= 24 * len(model)
