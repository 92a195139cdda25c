"""Projection: changes with computed columns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.cql.statements.statement import Output
from shedder.dataflow.changes import ChangeBatch


@dataclass(frozen=True, slots=True)
class Projection:
    """Operator of a select list; one output column per expression."""

    outputs: tuple[Output, ...]

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the outputs."""
        return pa.schema([(each.name, type_of(each.expression).arrow) for each in self.outputs])

    @property
    def size_bytes(self) -> int:
        """Nothing is held."""
        return 0

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:  # noqa: ARG002
        """The changes with the values of the outputs."""
        arrays = [evaluate(each.expression, changes.columns) for each in self.outputs]
        return changes.with_columns(pa.RecordBatch.from_arrays(arrays, schema=self.schema))


def type_of(expression: Expression) -> ColumnType:
    """The type of a bound expression; a bare NULL is VARCHAR."""
    return expression.type or ColumnType.VARCHAR
