"""What the synopses of a plan cost in CPU at every level: what an overload controller weighs."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.shares import LEVEL_MAX
from shedder.engine.plan import ENDS_IN_TIME, Kind, Part
from synopses.count_min import GroupedCountMin
from synopses.counts import GroupedCount
from synopses.cross_moments import GroupedCrossMoments
from synopses.distinct import GroupedDistinct
from synopses.first_last import GroupedFirstLast
from synopses.frequent import GroupedFrequent
from synopses.kll import GroupedKll
from synopses.log_buckets import GroupedLogBuckets
from synopses.moments import GroupedMoments
from synopses.profile import Cost
from synopses.req import GroupedReq
from synopses.theta import GroupedTheta

_COSTS: Final[dict[Kind, Cost | None]] = {
    Kind.COUNT: GroupedCount.profile.cost,
    Kind.MOMENTS: GroupedMoments.profile.cost,
    Kind.CROSS: GroupedCrossMoments.profile.cost,
    Kind.FIRST_LAST: GroupedFirstLast.profile.cost,
    Kind.DISTINCT: GroupedTheta.profile.cost,  # When thinned; see below.
    Kind.THETA: GroupedTheta.profile.cost,
    Kind.BUCKETS: GroupedLogBuckets.profile.cost,
    Kind.KLL: GroupedKll.profile.cost,
    Kind.REQ_HIGH: GroupedReq.profile.cost,
    Kind.REQ_LOW: GroupedReq.profile.cost,
    Kind.FREQUENT: GroupedFrequent.profile.cost,
    Kind.COUNTERS: GroupedCountMin.profile.cost,
    # Texts of some dozen letters, measured as the others.
    Kind.EXTREMES: Cost(read=3.0, read_grouped=5.9, kept=6.0, kept_grouped=9.0, always=4.0),
    Kind.TEXT_FIRST_LAST: Cost(read=2.0, read_grouped=2.9, kept=0.6, kept_grouped=9.0, always=2.0),
}


def costs_ns(part: Part, *, grouped: bool) -> NDArray[np.float64]:
    """CPU of one synopsis per arriving tuple at each level, 0 to LEVEL_MAX: float64 [levels].

    Which rows a level keeps is chosen once for all synopses that read at it, and is not in here
    (synopses.profile.CHOOSING_NS). A level may cost more than reading everything: counts, ranges
    and hashes of all tuples are taken before any is skipped, so sums and distinct counts of one
    group gain nothing by thinning.

    Args:
      part: of a query's plan. grouped: the query has GROUP BY.
    """
    cost = _COSTS[part.kind]
    assert cost is not None
    levels = range(LEVEL_MAX + 1)
    costs = np.array([cost.ns_per_tuple(level, grouped=grouped) for level in levels])
    if part.kind is Kind.DISTINCT:
        costs[0] = GroupedDistinct.profile.cost_ns_per_tuple(0, grouped=grouped)
    if part.kind in ENDS_IN_TIME and not grouped:
        costs[:] = costs[0]  # They are read in full at any level.
    return costs
