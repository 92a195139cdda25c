"""Rows of buckets: found by two comparisons, they are those that the expression gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.histograms import counts_of
from shedder.streams.frame import Frame
from shedder.streams.histogram_rows import bucket_of
from tests.cql.trees import bound_query

EDGES = {"l": "[-3, 0, 5]", "d": "[-1.0, 0, 0.5, 2]", "ts": "['1970-01-01 00:00:00.5']", "i": "[2]"}


def frame(rows: int) -> Frame:
    rng = np.random.default_rng(rows)
    doubles = rng.normal(0, 2, rows)
    doubles[rng.random(rows) < 0.2] = np.nan
    doubles[rng.random(rows) < 0.1] = np.inf
    doubles[rng.random(rows) < 0.1] = 0.5
    holes = rng.random(rows) < 0.2
    return Frame(
        pa.record_batch(
            {
                "ts": pa.array(rng.integers(0, 10**6, rows), pa.timestamp("us")),
                "l": pa.array(rng.integers(-9, 9, rows), pa.int64(), mask=holes),
                "d": pa.array(doubles, mask=rng.random(rows) < 0.1),
                "i": pa.array(rng.integers(0, 5, rows).astype(np.int32), mask=holes),
            }
        ),
        "ts",
    )


@pytest.mark.parametrize("column", EDGES)
@pytest.mark.parametrize("rows", [0, 1, 1000])
@pytest.mark.parametrize("cut", [False, True])
def test_the_rows_are_those_of_the_expression(column: str, rows: int, cut: bool) -> None:
    query = bound_query(f"SELECT HISTOGRAM({column}, {EDGES[column]}) AS h FROM stream")
    view = frame(rows)
    if cut:
        view = view.where(bound_query("SELECT COUNT(*) FROM stream WHERE l > -5").where)
    found = []
    for count in counts_of(query.outputs[0].expression):
        assert count.argument is not None
        assert bucket_of(count.argument) is not None
        present = view.present(count.argument)
        expected = np.flatnonzero(view.evaluate(count.argument).is_valid())
        rows_found = np.arange(len(view)) if present.rows is None else present.rows
        np.testing.assert_array_equal(rows_found, expected)
        assert len(present.values) == len(expected)
        found.append(rows_found)
    counted = bound_query(f"SELECT COUNT({column}) FROM stream").aggregates[0].argument
    assert counted is not None
    everything = view.evaluate(counted)
    valid = everything.is_valid().to_numpy(zero_copy_only=False)
    if column == "d":
        valid &= ~np.isnan(everything.to_numpy(zero_copy_only=False))
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.flatnonzero(valid))


@pytest.mark.parametrize(
    "argument",
    [
        "CASE WHEN d < 1 THEN 2 END",
        "CASE WHEN d < 1 THEN 1.0 END",
        "CASE WHEN d < 1 THEN TRUE END",
        "CASE WHEN d >= 1 AND l < 2 THEN 1 END",
        "CASE WHEN d > 1 THEN 1 END",
        "CASE WHEN d < 1 THEN 1 ELSE 0 END",
        "CASE WHEN s < 'b' THEN 1 END",
        "d",
    ],
)
def test_anything_else_is_no_bucket(argument: str) -> None:
    found = bound_query(f"SELECT COUNT({argument}) FROM stream").aggregates[0].argument
    assert found is not None
    assert found.type is not ColumnType.VARCHAR
    assert bucket_of(found) is None
