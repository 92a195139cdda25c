"""Inputs of a join whose keys are equal in all of them, and aggregates of one input each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.conjunctions import names_in
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column, Expression
from shedder.cql.plans.logical_plan import Join, Plan, Project
from shedder.cql.plans.plan_columns import column_names
from shedder.dataflow.joins.join_conditions import filtered_join, split_join
from shedder.dataflow.tables.table_side import reads_versions

_WHOLE = (ColumnType.INTEGER, ColumnType.BIGINT)
_FUNCTIONS = (AggregateFunction.COUNT, AggregateFunction.SUM, AggregateFunction.AVG)


@dataclass(frozen=True, slots=True)
class JoinedInput:
    """An input of a join. keys: its expressions that equal those of the other inputs, in order."""

    plan: Plan
    keys: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class InputAggregate:
    """An aggregate over the pairs of a join.

    input: place of the input whose values it reads. value: place among `values_of` this input;
    None: it is COUNT(*).
    """

    aggregate: Aggregate
    input: int = 0
    value: int | None = None


def joined_inputs(join: Join) -> tuple[JoinedInput, ...] | None:
    """Return the inputs of a join, and of the joins below it, in the order of the query.

    None: a table is joined, or keys are not equal in all inputs, or other conditions compare
    inputs.
    """
    if any(map(reads_versions, (join.left, join.right))):
        return None
    matches, *plans = split_join(join)
    if matches.rest is not None or not matches.keys:
        return None
    sides = []
    for plan, keys in zip(plans, zip(*matches.keys, strict=True), strict=True):
        inner = filtered_join(_unprojected(plan))
        inputs = (JoinedInput(plan, keys),) if inner is None else joined_inputs(inner)
        found = None if inputs is None else _in_order(inputs, keys)
        if found is None:
            return None
        sides += found
    return tuple(sides)


def _unprojected(plan: Plan) -> Plan:
    """Return the input of a projection that leaves columns out, and makes none."""
    match plan:
        case Project(input=source, outputs=outputs) if all(
            isinstance(each.expression, Column) and each.expression.name == each.name
            for each in outputs
        ):
            return source
        case _:
            return plan


def _in_order(
    inputs: Sequence[JoinedInput], wanted: tuple[Expression, ...]
) -> list[JoinedInput] | None:
    """Return inputs with their keys in the order of these expressions of some inputs.

    None: the expressions are not the keys of the inputs.
    """
    places = [
        next((at for it in inputs for at, key in enumerate(it.keys) if key == each), None)
        for each in wanted
    ]
    order = [at for at in places if at is not None]
    if sorted(order) != list(range(len(wanted))) or any(
        len(each.keys) != len(wanted) for each in inputs
    ):
        return None
    return [JoinedInput(each.plan, tuple(each.keys[at] for at in order)) for each in inputs]


def values_of(
    inputs: Sequence[JoinedInput], aggregates: Sequence[Aggregate]
) -> tuple[tuple[tuple[Expression, ...], ...], tuple[InputAggregate, ...]] | None:
    """Return the different values that aggregates read of each input, and their places.

    None: an aggregate is not COUNT, SUM or AVG, or reads more than one input.
    """
    names = [column_names(each.plan) for each in inputs]
    values: list[list[Expression]] = [[] for _ in inputs]
    found = []
    for each in aggregates:
        if each.function not in _FUNCTIONS:
            return None
        if each.argument is None:
            found.append(InputAggregate(each))
            continue
        read = names_in(each.argument)
        at = next((at for at, known in enumerate(names) if read <= known), None)
        if at is None:
            return None
        if each.argument not in values[at]:
            values[at].append(each.argument)
        found.append(InputAggregate(each, at, values[at].index(each.argument)))
    return tuple(map(tuple, values)), tuple(found)


def are_whole(values: Sequence[Expression]) -> tuple[bool, ...]:
    """Return which expressions have whole numbers."""
    return tuple(each.type in _WHOLE for each in values)
