"""Cache of the demands built for each query; an entry is rebuilt when its inputs change."""

from __future__ import annotations

from collections.abc import Sequence

from shedder.engine.allocation.query_demands import QueryDemands, draw
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest


class DemandCache:
    """The demands of queries, each kept for as long as nothing that it rests on has changed.

    What is not kept is what a problem puts in anew each time: weights and activity.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[object, ...], QueryDemands]] = {}

    def of(
        self,
        requests: Sequence[AllocationRequest],
        *,
        group_bytes_max: int,
        levels: Sequence[int] | None,
    ) -> list[QueryDemands]:
        """The demands of these queries, in their order; what others demanded is forgotten."""
        before, kept = self._kept, dict[str, tuple[tuple[object, ...], QueryDemands]]()
        found = []
        for number, one in enumerate(requests):
            rests_on = (group_bytes_max, levels, *_rests_on(one))
            known = before.get(one.name)
            if known is not None and known[0] == rests_on:
                drawn = known[1].numbered(number)
            else:
                drawn = draw(one, number, group_bytes_max=group_bytes_max, levels=levels)
            kept[one.name] = rests_on, drawn
            found.append(drawn)
        self._kept = kept
        return found


def _rests_on(request: AllocationRequest) -> tuple[object, ...]:
    """All that the demands of a query follow from; compared by identity first."""
    return (
        request.query,
        request.plan,
        request.levels,
        request.stands,
        request.group_bytes,
        request.held_bytes,
        request.needed_bytes,
        request.grown_bytes,
        request.foreseen,
        request.halved,
        request.tuples_per_s,
        request.tuples,
        request.factors,
        request.skipping,
        request.limits,
    )
