"""Streams that tests are about, and batches that fit them."""

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import Plain
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition
from shedder.streams.batches import arrow_schema


def stream(name: str, **columns: ColumnType) -> StreamSchema:
    """A stream whose first column is its NOT NULL event time."""
    time_column = next(iter(columns))
    definitions = tuple(
        ColumnDefinition(column, kind, column != time_column) for column, kind in columns.items()
    )
    return StreamSchema(name, definitions, time_column, 0, None, Plain(), seed=7)


TRADES = stream("trades", ts=ColumnType.TIMESTAMP, key=ColumnType.BIGINT, value=ColumnType.DOUBLE)
EVERY_TYPE = stream(
    "every_type",
    ts=ColumnType.TIMESTAMP,
    flag=ColumnType.BOOLEAN,
    small=ColumnType.INTEGER,
    big=ColumnType.BIGINT,
    real=ColumnType.DOUBLE,
    text=ColumnType.VARCHAR,
    moment=ColumnType.TIMESTAMP,
    day=ColumnType.DATE,
)


def trades(rows: int, seed: int = 1) -> pa.RecordBatch:
    """Seeded trades, a millisecond apart."""
    draw = np.random.default_rng(seed)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(rows) * 1000, pa.int64()).cast(pa.timestamp("us")),
            pa.array(draw.integers(0, 1000, rows), pa.int64()),
            pa.array(draw.normal(100, 10, rows), pa.float64()),
        ],
        schema=arrow_schema(TRADES),
    )


def every_type(rows: int, seed: int = 1) -> pa.RecordBatch:
    """Seeded values of every column type, one in five of them null."""
    draw = np.random.default_rng(seed)
    numbers = draw.integers(-1000, 1000, rows)
    columns = [pa.array(np.arange(rows), pa.int64()).cast(pa.timestamp("us"))]
    for field in list(arrow_schema(EVERY_TYPE))[1:]:
        nulls = draw.random(rows) < 0.2
        if field.type == pa.string():
            values = pa.array([f"v{n}é" for n in numbers.tolist()], mask=nulls)
        elif field.type == pa.bool_():
            values = pa.array(numbers % 2 == 0, mask=nulls)
        elif field.type == pa.timestamp("us"):
            values = pa.array(numbers, pa.int64(), mask=nulls).cast(field.type)
        elif field.type == pa.date32():
            values = pa.array(numbers.astype(np.int32), pa.int32(), mask=nulls).cast(field.type)
        else:
            values = pa.array(numbers.astype(field.type.to_pandas_dtype()), field.type, mask=nulls)
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(EVERY_TYPE))
