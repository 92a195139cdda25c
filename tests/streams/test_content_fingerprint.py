"""The fingerprint of rows: the same in whatever batches they come, another for other rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.streams.batches import arrow_schema, decode, encode
from shedder.streams.content_fingerprint import fingerprint, joined
from tests.streams.streams import EVERY_TYPE, every_type

ROWS = 60


@given(cuts=st.sets(st.integers(1, ROWS - 1)), seed=st.integers(0, 9))
def test_it_is_the_sum_of_those_of_any_batches(cuts, seed):
    whole = every_type(ROWS, seed)
    total = 0
    ends = [*sorted(cuts), ROWS]
    for first, end in zip([0, *ends], ends, strict=False):
        total = joined(total, fingerprint(whole.slice(first, end - first), first))
    assert total == fingerprint(whole)


def test_it_survives_the_wire():
    batch = every_type(ROWS)
    assert fingerprint(decode(encode(batch.slice(7, 20)), EVERY_TYPE), 7) == fingerprint(
        batch.slice(7, 20), 7
    )


@pytest.mark.parametrize("place", range(8))
def test_one_other_value_or_null_in_any_column_is_another_fingerprint(place):
    batch = every_type(ROWS)
    schema = arrow_schema(EVERY_TYPE)
    found = {fingerprint(batch)}
    for row in range(ROWS):
        values = batch.column(place).to_pylist()
        other = values[row] is None
        values[row] = batch.column(place).drop_null()[0].as_py() if other else None
        if not schema.field(place).nullable:
            values[row] = batch.column(place)[row].as_py().replace(year=2001)
        columns = list(batch.columns)
        columns[place] = pa.array(values, schema.field(place).type)
        found.add(fingerprint(pa.RecordBatch.from_arrays(columns, schema=schema)))
    assert len(found) == ROWS + 1


def test_the_same_rows_in_another_order_are_another_fingerprint():
    batch = every_type(ROWS)
    swapped = np.arange(ROWS)
    swapped[[3, 4]] = [4, 3]
    assert fingerprint(batch.take(pa.array(swapped))) != fingerprint(batch)


def test_a_value_under_a_null_counts_for_nothing():
    schema = pa.schema([pa.field("x", pa.int64())])
    valid = pa.py_buffer(b"\x05")
    one, two = (
        pa.RecordBatch.from_arrays(
            [pa.Array.from_buffers(pa.int64(), 3, [valid, pa.py_buffer(np.array(values))])],
            schema=schema,
        )
        for values in ([1, 2, 3], [1, 9, 3])
    )
    assert fingerprint(one) == fingerprint(two)


def test_no_rows_have_the_fingerprint_zero():
    assert fingerprint(every_type(0), 5) == 0
    assert joined(None, 5) is None
