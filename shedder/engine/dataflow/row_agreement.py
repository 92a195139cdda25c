"""Agreement of two row queries: the parts of their states that depend on the same tuples."""

from __future__ import annotations

from collections.abc import Sequence

from shedder.cql.plans.logical_plan import Plan
from shedder.dataflow.sharing.source_graph import Agrees
from shedder.engine.dataflow.lookback import lookbacks_us
from shedder.engine.dataflow.row_input import RowInput


def are_in_step(left: Sequence[RowInput], right: Sequence[RowInput]) -> bool:
    """Return whether two queries read the same streams with the same progress, now and later."""
    progress = [
        {each.stream_id: (each.watermark.value_us, each.is_idle) for each in inputs}
        for inputs in (left, right)
    ]
    return progress[0] == progress[1]


def agreement(
    inputs: Sequence[RowInput], others: Sequence[RowInput], instants: Sequence[int | None]
) -> Agrees:
    """Return how a dataflow asks which inputs of its query agree with those of another one.

    Streams have the same progress in both, until one of them counts as idle: its watermark then
    depends on the other streams of a query.

    inputs, others: of the two queries. instants: up to which both have made steps.
    """
    ours, theirs = ({it.alias: it for it in each} for each in (inputs, others))
    known = [us for us in instants if us is not None]
    as_of_us = min(known) if len(known) == len(instants) else None
    in_step = are_in_step(inputs, others)

    def agrees(alias: str, other_alias: str, plan: Plan) -> bool:
        mine, its = ours[alias], theirs[other_alias]
        span_us = lookbacks_us(plan)[alias]
        return (in_step or not mine.is_idle) and mine.agrees_with(its, as_of_us, span_us)

    return agrees
