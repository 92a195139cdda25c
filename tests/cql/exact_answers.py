"""Rows of the schema of trees.py, and exact answers over them in DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from shedder.cql.sql.exact_query import POSITION
from tests.cql.trees import SCHEMA

_CONNECTION = duckdb.connect(config={"threads": 1})


AGGREGATES = (
    "COUNT(*), COUNT(d), SUM(l), SUM(d), AVG(i), AVG(d), MIN(s), MAX(ts2), VAR(i), STDDEV(d), "
    "COUNT(DISTINCT d), COUNT(DISTINCT s), QUANTILE(l, 0.25), MEDIAN(ts2), TOP(c, 2), TOP(l, 3), "
    "FREQUENT(l, 0.3), FREQUENT(ts2, 0.07 NO FALSE POSITIVES), FREQUENT(s, 1), "
    "CDF(d, 0.5), CDF(s, 'b'), CDF(ts2, ts), "
    "CORR(d, e), COVAR_POP(i, d), COVAR_SAMP(i, l), REGR_SLOPE(e, i), "
    "REGR_INTERCEPT(d, i), "
    "SELF_JOIN_SIZE(s), SELF_JOIN_SIZE(d), JOIN_SIZE(i, l), JOIN_SIZE(d, i), "
    "DISTINCT_BOTH(d, b, i > 0), DISTINCT_ONLY(s, b, i > 0), JACCARD(i, b, d > 0)"
)


def answers(batch: pa.RecordBatch, sql: str, **others: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a query over `stream` and over other relations by name."""
    _CONNECTION.register("stream", pa.Table.from_batches([batch]))
    for name, table in others.items():
        _CONNECTION.register(name, table)
    rows: list[dict[str, Any]] = _CONNECTION.sql(sql).to_arrow_table().to_pylist()
    return rows


def with_positions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in another order, with their positions; no time is NULL, and many are equal."""
    times = pa.array([at % 3 for at in range(batch.num_rows)], pa.timestamp("us"))
    timed = batch.set_column(0, "ts", times)
    numbered = timed.append_column(POSITION, pa.array(range(batch.num_rows), pa.int64()))
    return numbered.take(pa.array(sorted(range(batch.num_rows), key=lambda at: at * 7 % 11)))


BY_TIME = "FIRST(s), LAST(d), FIRST(b), LAST(ts2), FIRST(day), LAST(l + i), FIRST(i)"


def rows_of(**given: Any) -> pa.RecordBatch:
    """Rows of the schema; columns that are not given are NULL."""
    rows = max(len(values) for values in given.values())
    arrays = []
    for column in SCHEMA.columns:
        values = given.get(column.name, pa.nulls(rows))
        array = values if isinstance(values, pa.Array) else pa.array(values, column.type.arrow)
        arrays.append(array.cast(column.type.arrow))
    return pa.record_batch(arrays, names=[column.name for column in SCHEMA.columns])


def plain(array: pa.Array) -> list[Any]:
    """Values that compare with ==: times as integers."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    return array.to_pylist()
