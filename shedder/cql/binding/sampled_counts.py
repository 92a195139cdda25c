"""Counts of joins that may be approximate: CONFIDENCE in a row query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    Join,
    JoinKind,
    KeySampling,
    Plan,
    Project,
    companions_of,
)
from shedder.cql.statements.statement import Output
from shedder.errors import BadQuery

_KINDS = (ColumnType.BIGINT, ColumnType.BIGINT, ColumnType.VARCHAR, ColumnType.BOOLEAN)


def with_sampling(plan: Plan, confidence: float) -> Plan:
    """Return the plan of SELECT COUNT(*) over a join, with an interval beside each count.

    Raises:
      BadQuery: it is another query.
    """
    match plan:
        case Project(input=Aggregated(groups=()) as counted, outputs=outputs) if (
            all(isinstance(each.expression, Column) for each in outputs)
            and all(map(_counts_rows, counted.aggregates))
            and _is_join(counted.input)
        ):
            more = tuple(output for each in outputs for output in _with_companions(each))
            _check_names(more)
            sampled = replace(counted, sampling=KeySampling(confidence))
            return Project(sampled, more)
        case _:
            raise BadQuery(
                "CONFIDENCE in a row query is for SELECT COUNT(*) AS n over an inner join of two "
                "windows, without GROUP BY and HAVING; the rows of other queries are exact: leave "
                "CONFIDENCE away"
            )


def _check_names(outputs: Sequence[Output]) -> None:
    names = Counter(each.name.lower() for each in outputs)
    for each in outputs:
        if names[each.name.lower()] > 1:
            raise BadQuery(
                f"two columns are named {each.name!r}; an approximate count n has the columns n, "
                "n_low, n_high, n_bound and n_met: give the outputs other names"
            )


def _counts_rows(aggregate: Aggregate) -> bool:
    return aggregate.function is AggregateFunction.COUNT and aggregate.argument is None


def _is_join(plan: Plan) -> bool:
    source = plan.input if isinstance(plan, Filter) else plan
    return isinstance(source, Join) and source.kind is JoinKind.INNER


def _with_companions(output: Output) -> tuple[Output, ...]:
    assert isinstance(output.expression, Column)
    inner, outer = companions_of(output.expression.name), companions_of(output.name)
    made = (
        Output(name, Column(of, kind)) for name, of, kind in zip(outer, inner, _KINDS, strict=True)
    )
    return (output, *made)
