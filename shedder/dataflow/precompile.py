"""Precompilation of the operators' kernels, before the first tuple comes.

Kernels are compiled for the types they are called with, and kept on disk. Here each operator that
has a kernel takes one row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column
from shedder.cql.plans.logical_plan import JoinKind, RelationKind, RowsWindow, Scan
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import TableSchema
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.expiry.distinct_rows import DistinctRows
from shedder.dataflow.joins.equi_join import EquiJoin, EquiJoinSpec
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.multiplicity_kernels import Multiplicity
from shedder.dataflow.rows_window import NewestRows
from shedder.dataflow.sums.grouped_aggregates import (
    AggregateSpec,
    GroupedAggregates,
    output_schema,
)
from shedder.dataflow.tables.table_join import TableJoin, TableJoinSpec
from shedder.dataflow.tables.table_versions import TableVersions
from shedder.dataflow.update_patterns import STRICT


def compile_operators() -> None:
    """Compile the kernels, or load them from the cache, before the first tuple comes."""
    key, value = (Column(name, ColumnType.DOUBLE) for name in ("key", "value"))
    sums = (Aggregate(AggregateFunction.SUM, value, type=ColumnType.DOUBLE),)
    fields: list[pa.Field[pa.DataType]] = [
        pa.field(each, pa.float64()) for each in ("key", "value")
    ]
    others = pa.schema([pa.field("other", pa.float64())])
    left, right = pa.schema(fields), others
    keys = ((key, Column("other", ColumnType.DOUBLE)),)
    summed = output_schema((), sums)
    one, other = _one_row(left), _one_row(right)
    NewestRows(RowsWindow(1, numbered="left"), left).apply(1, one)
    Multiplicities(Multiplicity.DISTINCT, left).apply(1, one)
    DistinctRows(left).apply(1, one)
    GroupedAggregates(AggregateSpec.of_rows((), sums), summed).apply(1, one)
    join = EquiJoin(EquiJoinSpec(keys), (left, right), (STRICT, STRICT), bytes_max=1 << 20)
    join.apply(1, one, other)
    columns = (ColumnDefinition("t.other", ColumnType.DOUBLE, False),)
    schema = TableSchema("t", (ColumnDefinition("other", ColumnType.DOUBLE, False),), ("other",))
    versions = TableVersions(Scan("t", "t", RelationKind.TABLE, columns, None), schema)
    versions.upsert(pa.RecordBatch.from_pylist([{"other": 0.0}], schema=others), 0)
    matches = ((key, Column("t.other", ColumnType.DOUBLE)),)
    of_table = TableJoinSpec(
        JoinKind.INNER, matches, None, None, ("place",), ("place",), ("key",), ()
    )
    placed = pa.schema([left.field("key"), pa.field("place", pa.int64())])
    TableJoin(of_table, placed, versions, 1 << 20).apply(1, _one_row(placed))


def _one_row(schema: pa.Schema) -> ChangeBatch:
    columns = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names, 0.0)], schema=schema)
    return ChangeBatch.of_tuples(columns, np.zeros(1, np.int64))
