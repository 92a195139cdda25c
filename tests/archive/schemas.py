"""A stream of every column type, and batches for it, for the tests of the archive."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import Hybrid, Plain
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition

SCHEMA = StreamSchema(
    name="readings",
    columns=(
        ColumnDefinition("ts", ColumnType.TIMESTAMP, False),
        ColumnDefinition("sensor", ColumnType.INTEGER, True),
        ColumnDefinition("serial", ColumnType.BIGINT, True),
        ColumnDefinition("value", ColumnType.DOUBLE, True),
        ColumnDefinition("site", ColumnType.VARCHAR, True),
        ColumnDefinition("ok", ColumnType.BOOLEAN, True),
        ColumnDefinition("day", ColumnType.DATE, True),
    ),
    time_column="ts",
    lateness_us=0,
    retain_us=None,
    layout=Hybrid(blocks=4, block_rows=3),
    seed=2**64 - 3,
)

PLAIN = replace(SCHEMA, layout=Plain())

ARROW = pa.schema([pa.field(c.name, c.type.arrow, c.nullable) for c in SCHEMA.columns])


def batch(first_position: int, rows: int, seed: int = 0) -> pa.RecordBatch:
    """Rows whose serial is their position and whose time is their position in milliseconds."""
    random = np.random.default_rng(seed + first_position)
    positions = np.arange(first_position, first_position + rows)
    value = random.lognormal(size=rows)
    value[random.random(rows) < 0.05] = np.nan
    return pa.record_batch(
        [
            pa.array(positions * 1000, pa.timestamp("us")),
            pa.array(random.integers(0, 50, rows).astype(np.int32), mask=random.random(rows) < 0.1),
            pa.array(positions),
            pa.array(value, mask=random.random(rows) < 0.05),
            pa.array([None if n == 7 else f"site{n}" for n in random.integers(0, 9, rows)]),
            pa.array(random.random(rows) < 0.5),
            pa.array((positions // 10).astype(np.int32)).cast(pa.date32()),
        ],
        schema=ARROW,
    )
