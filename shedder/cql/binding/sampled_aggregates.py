"""Aggregates of joins that may be approximate: CONFIDENCE in a row query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import AggregateFunction, Column
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

_FUNCTIONS = (AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVG)


def with_sampling(plan: Plan, confidence: float) -> Plan:
    """Return the plan of SELECT COUNT, SUM and AVG over a join, with an interval beside each.

    Raises:
      BadQuery: it is another query.
    """
    match plan:
        case Project(input=Aggregated(groups=() | (_,)) as counted, outputs=outputs) if (
            all(isinstance(each.expression, Column) for each in outputs)
            and all(each.function in _FUNCTIONS for each in counted.aggregates)
            and _is_join(counted.input)
        ):
            approximate = frozenset(f"a{at}" for at in range(len(counted.aggregates)))
            more = tuple(it for each in outputs for it in _with_companions(each, approximate))
            _check_names(more)
            sampled = replace(counted, sampling=KeySampling(confidence))
            return Project(sampled, more)
        case _:
            raise BadQuery(
                "CONFIDENCE in a row query is for SELECT COUNT(*) AS n, SUM(x) AS s, AVG(x) AS m "
                "over an inner join of windows, without HAVING; the rows of other queries are "
                "exact: leave CONFIDENCE away"
            )


def _check_names(outputs: Sequence[Output]) -> None:
    names = Counter(each.name.lower() for each in outputs)
    for each in outputs:
        if names[each.name.lower()] > 1:
            raise BadQuery(
                f"two columns are named {each.name!r}; an approximate output n has the columns n, "
                "n_low, n_high, n_bound and n_met: give the outputs other names"
            )


def _is_join(plan: Plan) -> bool:
    source = plan.input if isinstance(plan, Filter) else plan
    return isinstance(source, Join) and source.kind is JoinKind.INNER


def _with_companions(output: Output, approximate: frozenset[str]) -> tuple[Output, ...]:
    assert isinstance(output.expression, Column)
    if output.expression.name not in approximate:
        return (output,)
    inner, outer = companions_of(output.expression.name), companions_of(output.name)
    kind = output.expression.type
    kinds = (kind, kind, ColumnType.VARCHAR, ColumnType.BOOLEAN)
    made = (Output(name, Column(of, it)) for name, of, it in zip(outer, inner, kinds, strict=True))
    return (output, *made)
