"""Results of grouped sums as columns, and the arguments of aggregates as words for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Expression
from shedder.dataflow.changes import ChangeBatch, Int64s
from shedder.dataflow.fixed_column import plain_values
from shedder.dataflow.key_directory import canonical
from shedder.dataflow.sums.sum_kernels import RESULT_WORDS, Summed, words_of

SUPPORTED = (AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVG)

_WHOLE_MAX = 2.0**63


class SummedArguments:
    """The different arguments of aggregates. kinds: what is kept of each, int64 [arguments]."""

    def __init__(self, arguments: Sequence[Expression]) -> None:
        self.arguments = tuple(dict.fromkeys(arguments))
        self.kinds = np.array([_kind(each) for each in self.arguments], np.int64)

    @property
    def state_words(self) -> int:
        """Words of the state of a group."""
        return 1 + sum(words_of(Summed(kind)) for kind in self.kinds)

    @property
    def result_words(self) -> int:
        """Words of the result of a group."""
        return 1 + RESULT_WORDS * len(self.arguments)

    def values(self, changes: ChangeBatch) -> Int64s:
        """The values of the arguments in each row, int64 [rows, 1 + arguments].

        Bit i of the first word is set where argument i is NULL. A double is given by its bits.
        """
        values = np.zeros((len(changes), 1 + len(self.arguments)), np.int64)
        for place, argument in enumerate(self.arguments):
            column = canonical(evaluate(argument, changes.columns))
            if column.null_count:
                values[:, 0] |= np.asarray(column.is_null()).astype(np.int64) << place
            match self.kinds[place]:
                case Summed.WHOLE:
                    values[:, 1 + place] = plain_values(column)
                case Summed.DOUBLE:
                    values[:, 1 + place] = plain_values(column).view(np.int64)
        return values

    def column(self, aggregate: Aggregate, results: NDArray[np.int64]) -> Any:
        """The values of an aggregate. results: int64 [rows, result_words], as the kernels write."""
        if aggregate.argument is None:
            return pa.array(np.ascontiguousarray(results[:, 0]))
        place = self.arguments.index(aggregate.argument)
        count, first, second = results[:, 1 + RESULT_WORDS * place :][:, :RESULT_WORDS].T
        if aggregate.function is AggregateFunction.COUNT:
            return pa.array(np.ascontiguousarray(count))
        nulls = count == 0
        if self.kinds[place] == Summed.DOUBLE:
            sums = np.ascontiguousarray(first).view(np.float64)
            nulls = nulls | np.isnan(sums)
        elif aggregate.function is AggregateFunction.SUM:
            # An 80-bit double holds every number of 64 bits, so the comparison is exact.
            exact = first.astype(np.longdouble) * 2.0**32 + second
            nulls = nulls | (exact >= _WHOLE_MAX) | (exact < -_WHOLE_MAX)
            return pa.array((first << 32) + second, mask=nulls)
        else:
            sums = first.astype(np.longdouble) * 2.0**32 + second
        if aggregate.function is AggregateFunction.AVG:
            sums = sums / np.maximum(count, 1)
        return pa.array(sums.astype(np.float64), mask=nulls)


def _kind(argument: Expression) -> Summed:
    match argument.type:
        case ColumnType.INTEGER | ColumnType.BIGINT:
            return Summed.WHOLE
        case ColumnType.DOUBLE:
            return Summed.DOUBLE
        case _:
            return Summed.COUNT


def arguments_of(aggregates: Sequence[Aggregate]) -> list[Expression]:
    """The arguments of aggregates; COUNT(*) has none."""
    return [each.argument for each in aggregates if each.argument is not None]


def output_schema(groups: Sequence[Expression], aggregates: Sequence[Aggregate]) -> pa.Schema:
    """Columns g0, g1, ... and a0, a1, ... of an aggregation."""
    named = [(f"g{at}", each.type) for at, each in enumerate(groups)]
    named += [(f"a{at}", each.type) for at, each in enumerate(aggregates)]
    fields = []
    for name, kind in named:
        assert kind is not None, name
        fields.append((name, kind.arrow))
    return pa.schema(fields)
