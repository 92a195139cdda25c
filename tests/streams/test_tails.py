"""What lies far out: which rows these are, what is known of the others, and that both are all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shedder.cql.expression import Call, Column, Literal, Op
from shedder.cql.types import ColumnType
from shedder.streams.far_rows import far, known_near, near
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions
from shedder.streams.tails import FAR_SHARE, ROWS_MIN, middle_of, outside

X = Column("x", ColumnType.DOUBLE)
ROWS = 4_000


def frame_of(values, *, nulls=None):
    times = pa.array(np.arange(len(values)), pa.timestamp("us"))
    batch = pa.record_batch({"ts": times, "x": pa.array(values, mask=nulls)})
    return Frame(batch, "ts", positions=Positions(3, 0))


def heavy(rows=ROWS, seed=1):
    return np.random.default_rng(seed).lognormal(0, 1.5, rows)


@pytest.mark.parametrize("draw", ["uniform", "normal"])
def test_values_without_a_heavy_tail_have_none(draw):
    values = getattr(np.random.default_rng(2), draw)(size=ROWS)
    assert middle_of(values) is None
    assert far(frame_of(values), X) is None


def test_about_the_share_that_is_told_lies_far_out():
    for seed in range(20):
        middle = middle_of(heavy(seed=seed))
        assert middle is not None
        share = len(outside(heavy(seed=seed), middle.low, middle.high)) / ROWS
        assert FAR_SHARE / 3 < share < 3 * FAR_SHARE


@pytest.mark.parametrize("spoilt", [np.inf, -np.inf])
def test_a_few_values_or_infinite_ones_that_are_looked_at_have_no_tail(spoilt):
    assert middle_of(heavy(ROWS_MIN - 1)) is None
    assert middle_of(np.r_[spoilt, heavy(ROWS_MIN)]) is None


@given(
    values=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=50),
    low=st.integers(-(1 << 63), (1 << 63) - 1),
    high=st.integers(-(1 << 63), (1 << 63) - 1),
)
@settings(deadline=None)
def test_what_is_outside_is_what_numpy_says(values, low, high):
    array = np.array(values, np.int64)
    expected = np.flatnonzero((array < low) | (array > high))
    assert outside(array, low, high).tolist() == expected.tolist()


@pytest.mark.parametrize("level", [0, 2, 5])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_far_and_near_are_apart_and_what_is_known_of_the_others_is_true(level, dtype):
    kind = ColumnType.DOUBLE if dtype is np.float64 else ColumnType.BIGINT
    column = Column("x", kind)
    by = Literal(-2.0 if dtype is np.float64 else -2, kind)
    falling = Call(Op.MUL, (column, by), kind)
    values = (1_000 * heavy()).astype(dtype)
    nulls = np.random.default_rng(4).random(ROWS) < 0.1
    frame = frame_of(values, nulls=nulls)
    beyond, others = far(frame, column), near(frame, column, level)
    assert beyond is not None
    assert far(frame, falling) is beyond
    apart = np.ones(ROWS, bool)
    apart[beyond.rows] = False
    kept = frame.thinned(level).rows
    kept = np.arange(ROWS) if kept is None else kept
    assert others.rows.tolist() == kept[apart[kept]].tolist()
    for first, last in ((0, ROWS), (500, 700), (10, 10)):
        inside = np.flatnonzero(apart & ~nulls)
        inside = inside[(first <= inside) & (inside < last)]
        known = known_near(frame, column, first, last)
        assert known.rows == len(inside)
        if len(inside):
            assert known.low <= values[inside].min() <= values[inside].max() <= known.high
            turned = known_near(frame, falling, first, last)
            assert (turned.low, turned.high) == (-2 * known.high, -2 * known.low)


def test_what_is_kept_near_does_not_hang_together_with_the_values():
    """The chance of a value to be kept is the same for all that do not lie far out."""
    kept, there = np.zeros(4), np.zeros(4)
    for seed in range(60):
        values = heavy(seed=seed)
        times = pa.array(np.arange(ROWS), pa.timestamp("us"))
        batch = pa.record_batch({"ts": times, "x": pa.array(values)})
        frame = Frame(batch, "ts", positions=Positions(seed, 0))
        beyond = far(frame, X)
        assert beyond is not None
        inside = np.setdiff1d(np.arange(ROWS), beyond.rows)
        quarter = np.searchsorted(np.quantile(values[inside], [0.25, 0.5, 0.75]), values)
        there += np.bincount(quarter[inside], minlength=4)
        kept += np.bincount(quarter[near(frame, X, 3).rows], minlength=4)
    expected = there / 8
    chi2 = float(((kept - expected) ** 2 / (expected * 7 / 8)).sum())
    assert chi2 < 23.5  # Of 4 degrees of freedom, exceeded once in 10,000 times.
