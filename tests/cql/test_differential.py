"""One meaning everywhere: evaluate.py, DuckDB and Spark give the same values."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shedder.cql.evaluate import evaluate
from shedder.cql.expression import Expression
from shedder.cql.render import SqlDialect, render
from shedder.cql.text import text_of
from shedder.cql.types import ColumnType
from tests.cql.trees import batches, bound_expression, expressions

_CONNECTION = duckdb.connect(config={"threads": 1})


def plain(array: pa.Array) -> list[Any]:
    """Values that compare with ==: times as integers."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    return array.to_pylist()


def duckdb_values(batch: pa.RecordBatch, bound: list[Expression]) -> list[list[Any]]:
    _CONNECTION.register("stream", pa.Table.from_batches([batch]))
    columns = ", ".join(
        f"{render(node, SqlDialect.DUCKDB)} AS v{n}" for n, node in enumerate(bound)
    )
    table = _CONNECTION.sql(f"SELECT {columns} FROM stream").to_arrow_table()
    return [plain(column.combine_chunks()) for column in table.columns]


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(ColumnType), ids=lambda kind: kind.value)
def test_evaluate_and_duckdb_agree_on_every_value(kind: ColumnType) -> None:
    _agree(kind, examples=12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(ColumnType), ids=lambda kind: kind.value)
def test_evaluate_and_duckdb_agree_on_many_more(kind: ColumnType) -> None:
    _agree(kind, examples=250)


def _agree(kind: ColumnType, examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(batch=batches(), nodes=st.lists(expressions(kind), min_size=2, max_size=6))
    def agree(batch: pa.RecordBatch, nodes: list[Expression]) -> None:
        bound = [bound_expression(node) for node in nodes]
        theirs = duckdb_values(batch, bound)
        for node, right in zip(bound, theirs, strict=True):
            array = evaluate(node, batch)
            assert node.type is not None
            assert array.type == node.type.arrow
            left = plain(array)
            assert left == right, text_of(node)
            assert not any(isinstance(value, float) and math.isnan(value) for value in left)

    agree()
