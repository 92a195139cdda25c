"""A frame ends with its last reader: no cycle keeps its batch until a collection."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Literal, Op
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions

X = Column("x", ColumnType.DOUBLE)
ALL = Call(Op.GE, (X, Literal(0.0, ColumnType.DOUBLE)), ColumnType.BOOLEAN)
SOME = Call(Op.GE, (X, Literal(5.0, ColumnType.DOUBLE)), ColumnType.BOOLEAN)


def test_a_frame_that_was_asked_everything_ends_at_once() -> None:
    columns = {"ts": pa.array([3, 1, 2], pa.timestamp("us")), "x": pa.array(np.array([4.0, 5, 6]))}
    frame = Frame(pa.record_batch(columns), "ts", positions=Positions(1, 0))
    assert len(frame.where(ALL)) == 3
    assert len(frame.where(SOME)) == 2
    assert len(frame.in_time_order().where(ALL)) == 3
    assert frame.thinned(0).rows is None
    frame.thinned(1)
    end = weakref.ref(frame)
    gc.disable()
    try:
        del frame
        assert end() is None
    finally:
        gc.enable()


def test_what_was_derived_for_a_filter_ends_when_no_query_reads_it_any_more() -> None:
    columns = {"ts": pa.array([3, 1, 2], pa.timestamp("us")), "x": pa.array(np.array([4.0, 5, 6]))}
    frame = Frame(pa.record_batch(columns), "ts", positions=Positions(1, 0))
    ordered = frame.in_time_order()
    filtered = [each.where(SOME) for each in (frame, ordered, ordered.between(1, 3))]
    del ordered
    assert [len(each) for each in filtered] == [2, 2, 1]
    ends = [weakref.ref(each) for each in filtered]
    frame.forget_where(SOME)
    frame.forget_where(None)
    gc.disable()
    try:
        del filtered
        assert [end() for end in ends] == [None, None, None]
    finally:
        gc.enable()
    assert len(frame.where(SOME)) == 2
