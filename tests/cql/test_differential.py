"""One meaning everywhere: evaluate.py, DuckDB and Spark give the same values."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.sql.exact_query import SqlDialect, render
from tests.cql.exact_answers import plain
from tests.cql.trees import batches, bound_expression, expressions
from tests.scale import scaled

_CONNECTION = duckdb.connect(config={"threads": 1})


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
    @settings(max_examples=scaled(30, 250), suppress_health_check=list(HealthCheck))
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
