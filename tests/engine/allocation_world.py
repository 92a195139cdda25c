"""Queries over one stream as the allocator sees them, for tests of what it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import CreateStream, Select
from shedder.engine.allocation.negotiation import negotiate
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest
from shedder.engine.synopsis_plans.synopsis_plan import plan

KIB = 1 << 10
MIB = 1 << 20
CAP = 32 * MIB


def schema() -> StreamSchema:
    """A stream of ts, k (BIGINT) and v (DOUBLE)."""
    statement = parse("CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
    assert isinstance(statement, CreateStream)
    return StreamSchema(
        name="s",
        columns=statement.columns,
        time_column="ts",
        lateness_us=0,
        retain_us=None,
        layout=statement.layout,
        seed=1,
    )


def bound(text: str) -> BoundQuery:
    """A query over that stream."""
    select = parse(text)
    assert isinstance(select, Select)
    return bind(select, schema())


def standing(
    name: str, text: str, *, budget_bytes: int = 1 << 30, **facts: Any
) -> AllocationRequest:
    """A query that was given what it wants (within the budget) and stands."""
    query = bound(text)
    granted = negotiate(query, budget_bytes, group_bytes_max=CAP)
    request = AllocationRequest.new(name, query, plan(query, granted.sizes))
    return replace(request, stands=True, group_bytes=granted.group_bytes, **facts)
