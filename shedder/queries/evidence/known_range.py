"""The range that an expression over columns can have, from the basics of the columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Column, Expression, walk
from shedder.queries.evidence.interval_arithmetic import Reading, outcomes
from shedder.queries.evidence.value_ranges import Range, Truth
from shedder.streams.basics import ColumnBasics


def known_range(expression: Expression, basics: Mapping[str, ColumnBasics]) -> tuple[float, float]:
    """Ends that no value of the expression lies outside of, for certain; infinite when unknown.

    A column's range is taken from all tuples; an expression's by interval arithmetic over it.
    """
    if isinstance(expression, Column):
        return basics[expression.name].ends
    columns = {node: basics[node.name] for node in walk(expression) if isinstance(node, Column)}
    return _range_over(expression, tuple(columns.items()))


@lru_cache(maxsize=64)  # Every aggregate of a query asks, and once for each class of its groups.
def _range_over(
    expression: Expression, columns: tuple[tuple[Column, ColumnBasics], ...]
) -> tuple[float, float]:
    inexact: dict[Expression, Range | None] = {node: _range(node, of) for node, of in columns}
    one_row = pa.RecordBatch.from_arrays([pa.nulls(1)], ["none"])
    certain = {node: np.zeros(1, np.bool_) for node in inexact}
    reading = Reading(1, inexact, certain, lambda node: evaluate(node, one_row))
    found = outcomes(expression, reading)
    if found is None:
        return -np.inf, np.inf
    ranged = found.as_range() if isinstance(found, Truth) else found
    return float(ranged.low[0]), float(ranged.high[0])


def _range(column: Column, basics: ColumnBasics) -> Range | None:
    if column.type is ColumnType.VARCHAR:
        return None
    low, high = (np.array([end]) for end in basics.ends)
    value, null = np.array([basics.rows > 0]), np.array([basics.nulls > 0])
    return Range(low, high, value, null)
