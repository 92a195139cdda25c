"""Roles of the columns of approximate aggregates in the rows of a query, as in all answers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shedder.cql.plans.logical_plan import Plan, companions_of
from shedder.engine.dataflow.standing_plan import lists_values, sampling_of
from shedder.queries.answers.answer import COMPANION, ESTIMATE, ROLE


def confidence_of(plan: Plan) -> float:
    """Return the confidence of each interval in the rows; 1: they are exact."""
    sampling = sampling_of(plan)
    return 1.0 if sampling is None else sampling.confidence


def with_roles(schema: pa.Schema, plan: Plan) -> pa.Schema:
    """Return a schema whose fields say which columns are estimates, and which their companions."""
    if sampling_of(plan) is None and not lists_values(plan):
        return schema
    names = frozenset(schema.names)
    estimates = {name for name in names if names.issuperset(companions_of(name))}
    companions = {each for name in estimates for each in companions_of(name)}

    def with_role(field: pa.Field[Any]) -> pa.Field[Any]:
        if field.name in companions:
            return field.with_metadata({ROLE: COMPANION})
        return field.with_metadata({ROLE: ESTIMATE}) if field.name in estimates else field

    return pa.schema([with_role(field) for field in schema])
