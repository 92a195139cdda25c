"""CPU prices: the worth of a nanosecond per tuple to each reader of a synopsis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from allocator.allocate import describe
from allocator.demands import Budget
from allocator.prices import Prices
from allocator.quotes import quote
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.problem import problem
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest, SynopsisSizes
from shedder.engine.synopsis_plans.synopsis_plan import with_sizes


def cpu_prices(
    requests: Sequence[AllocationRequest],
    given: Sequence[SynopsisSizes],
    *,
    group_bytes_max: int,
    drawings: DemandCache | None = None,
) -> NDArray[np.float64]:
    """By how much the error of each reader falls per ns per tuple: of the next, or the last one.

    What reads all tuples already cannot use more CPU; its price is what the last ns bought, so what
    thinning it to a half would cost.

    Args:
      requests: the queries, in the order of a problem's.
      given: what they get.
      drawings: what was drawn for prices the last time, as `problem` has it.

    Returns:
      float64 [readers], in the order of the problem's readers.
    """
    thinned = [
        replace(
            one,
            plan=with_sizes(one.plan, has.sizes),
            group_bytes=has.group_bytes,
            levels=tuple(max(level, 1) for level in one.levels),
            stands=True,
            tuples_per_s=1.0,
        )
        for one, has in zip(requests, given, strict=True)
    ]
    found = problem(
        thinned,
        group_bytes_max=group_bytes_max,
        levels=range(LEVEL_MAX + 1),
        drawings=drawings,
    )
    budget = Budget(int(found.demands.options.size_bytes.max(1, initial=0).sum()))
    present = describe(found.demands, budget, found.demands.present, Prices(0.0, 0.0, 0.0, None))
    return quote(found.demands, present).saved_per_ns
