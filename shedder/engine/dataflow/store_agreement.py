"""Agreement of the stores of two row queries: rows that windows of both keep once."""

from __future__ import annotations

from shedder.cql.plans.logical_plan import Plan, RowsWindow, WindowOf, scans_of
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.standing_plan import nodes_of


def stores_agree(query: RowQuery, other: RowQuery) -> bool:
    """Return whether time windows of two queries have the same rows, as far as both have them.

    Windows of different length are stretches of one store, so late tuples must be late in both.
    """
    timed = [_in_time_windows(each.query.plan) for each in (query, other)]
    for mine in query.inputs:
        for its in other.inputs:
            if mine.stream_id == its.stream_id and mine.alias in timed[0] and its.alias in timed[1]:
                needed = (
                    mine.needs_from_us(query.frontier.as_of_us),
                    its.needs_from_us(other.frontier.as_of_us),
                )
                from_us = max((us for us in needed if us is not None), default=None)
                if not mine.has_rows_of(its, from_us):
                    return False
    return True


def _in_time_windows(plan: Plan) -> frozenset[str]:
    """Return the aliases of streams that time windows of a plan are over."""
    return frozenset(
        scan.alias
        for node in nodes_of(plan)
        if isinstance(node, WindowOf) and not isinstance(node.window, RowsWindow)
        for scan in scans_of(node)
    )
