"""Plan of a standing row query: ISTREAM where it is the default, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shedder.cql.plans.logical_plan import (
    BoundRelational,
    Ordered,
    Plan,
    StreamOperator,
    ToStream,
    inputs_of,
    scans_of,
)
from shedder.engine.dataflow.lookback import ALL, lookbacks_us
from shedder.errors import BadQuery


def standing_plan(bound: BoundRelational) -> BoundRelational:
    """Return the query as it stands. Without windows it is a stream: ISTREAM is the default.

    Source: Arasu, Babu, Widom 2006, The CQL continuous query language, section 6.3.

    Raises:
      BadQuery: it has ORDER BY or LIMIT, or its state would grow for ever.
    """
    plan = bound.plan
    if any(isinstance(each, Ordered) for each in nodes_of(plan)):
        raise BadQuery(
            "ORDER BY, LIMIT and OFFSET are for rows that are asked once; a standing query has its "
            "rows in the order of event time"
        )
    spans = lookbacks_us(plan)
    if not isinstance(plan, ToStream) and not any(spans.values()):
        return replace(bound, plan=ToStream(StreamOperator.ISTREAM, plan))
    for scan in scans_of(plan):
        span_us = spans[scan.alias]
        if span_us >= ALL or (not span_us and not isinstance(plan, ToStream)):
            raise BadQuery(
                f"the query would have to keep every tuple of {scan.relation} for ever; give it a "
                f"window, such as {scan.relation} [RANGE 1 HOUR]"
            )
    return bound


def nodes_of(plan: Plan) -> Iterator[Plan]:
    """The nodes of a plan, each before its inputs."""
    yield plan
    for each in inputs_of(plan):
        yield from nodes_of(each)
