"""A stream to ask about, queries over it from text, and evidence made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.sql.exact_query import POSITION, SqlDialect, exact_sql, needs_positions
from shedder.cql.statements.archive_layout import Plain
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import ColumnDefinition, Select
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.from_exact import evidence_from_exact
from shedder.streams.batches import arrow_schema
from synopses.model.estimate import Bound, Estimates

SCHEMA = StreamSchema(
    name="requests",
    columns=(
        ColumnDefinition("ts", ColumnType.TIMESTAMP, False),
        ColumnDefinition("domain", ColumnType.VARCHAR, True),
        ColumnDefinition("client", ColumnType.BIGINT, True),
        ColumnDefinition("bytes", ColumnType.DOUBLE, True),
        ColumnDefinition("ok", ColumnType.BOOLEAN, True),
        ColumnDefinition("day", ColumnType.DATE, True),
    ),
    time_column="ts",
    lateness_us=0,
    retain_us=None,
    layout=Plain(),
    seed=20261121,
)
ARROW = arrow_schema(SCHEMA)


def ask(text: str) -> BoundQuery:
    """The query `SELECT {text}`; write FROM requests in it."""
    select = parse(f"SELECT {text}")
    assert isinstance(select, Select)
    return bind(select, SCHEMA)


def rows(count: int, seed: int = 0, first_us: int = 0) -> pa.RecordBatch:
    """Made-up requests, one a microsecond: skewed groups, heavy-tailed bytes, nulls and NaN."""
    rng = np.random.default_rng(seed)
    client = np.minimum(rng.zipf(1.3, count), 500)
    size = rng.lognormal(0.0, 1.0, count)
    size[rng.random(count) < 0.01] = np.nan
    columns = [
        pa.array(np.arange(first_us, first_us + count), pa.timestamp("us")),
        pa.array([f"d{c % 7}" for c in client], mask=rng.random(count) < 0.02),
        pa.array(client, pa.int64()),
        pa.array(size, mask=rng.random(count) < 0.05),
        pa.array(rng.random(count) < 0.3),
        pa.array((client % 30).astype(np.int32)).view(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def exact_rows(
    query: BoundQuery,
    data: pa.RecordBatch,
    start_us: int | None = None,
    end_us: int | None = None,
) -> pa.Table:
    """The rows of `exact_sql`, computed here by DuckDB."""
    sql = exact_sql(query, "stream", SqlDialect.DUCKDB, start_us, end_us)
    table = pa.Table.from_batches([data])
    if needs_positions(query):
        table = table.append_column(POSITION, pa.array(np.arange(table.num_rows)))
    database = _database()
    database.register("stream", table)
    try:
        return database.sql(sql).to_arrow_table()
    finally:
        database.unregister("stream")


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all queries of a process: a new one costs 30 ms."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    return database


def truth(query: BoundQuery, data: pa.RecordBatch) -> Evidence:
    """The exact evidence."""
    return evidence_from_exact(query, exact_rows(query, data))


def between(
    values: Sequence[float], low: Sequence[float], high: Sequence[float], confidence: float = 0.95
) -> Estimates:
    """Estimates with these intervals."""
    arrays = [np.array(x, np.float64) for x in (values, low, high)]
    bound = np.full(len(values), np.uint8(Bound.INTERVAL))
    return Estimates(*arrays, bound, np.zeros(len(values), np.bool_), confidence, "test")


def known(*values: Any) -> Estimates:
    """Exact estimates; None is NULL."""
    null = np.array([value is None for value in values])
    filled = np.array([0 if value is None else value for value in values])
    return Estimates.exact(filled, "test", null)


def evidence(query: BoundQuery, keys: Sequence[Sequence[Any]], *columns: Estimates) -> Evidence:
    """Evidence of a query with these estimates for its aggregates, in their order."""
    arrays = tuple(
        pa.array(values, group.type.arrow)
        for values, group in zip(keys, query.groups, strict=True)
        if group.type is not None
    )
    return Evidence(arrays, dict(zip(query.aggregates, columns, strict=True)), sources=("test",))
