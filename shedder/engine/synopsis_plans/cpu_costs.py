"""CPU costs of a plan's synopses at every level, for the overload controller."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.synopsis_plans.synopsis_plan import (
    BY_HASH,
    ENDS_IN_TIME,
    SynopsisKind,
    SynopsisSpec,
)
from shedder.overload.load_meter import ROWS_MAX
from shedder.streams.monotone_expressions import monotone_of
from synopses.counters.count_min import GroupedCountMin
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.model.profile import CHOOSING_NS, Cost
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.theta.theta_sketch import GroupedTheta

_COSTS: Final[dict[SynopsisKind, Cost | None]] = {
    SynopsisKind.COUNT: GroupedCount.profile.cost,
    SynopsisKind.MOMENTS: GroupedMoments.profile.cost,
    SynopsisKind.CROSS: GroupedCrossMoments.profile.cost,
    SynopsisKind.FIRST_LAST: GroupedFirstLast.profile.cost,
    SynopsisKind.DISTINCT: GroupedTheta.profile.cost,  # When thinned; see below.
    SynopsisKind.THETA: GroupedTheta.profile.cost,
    SynopsisKind.BUCKETS: GroupedLogBuckets.profile.cost,
    SynopsisKind.KLL: GroupedKll.profile.cost,
    SynopsisKind.REQ_HIGH: GroupedReq.profile.cost,
    SynopsisKind.REQ_LOW: GroupedReq.profile.cost,
    SynopsisKind.FREQUENT: GroupedFrequent.profile.cost,
    SynopsisKind.COUNTERS: GroupedCountMin.profile.cost,
    # Texts of some dozen letters, measured as the others.
    SynopsisKind.EXTREMES: Cost(read=3.0, read_grouped=5.9, kept=6.0, kept_grouped=9.0, always=4.0),
    SynopsisKind.TEXT_FIRST_LAST: Cost(
        read=2.0, read_grouped=2.9, kept=0.6, kept_grouped=9.0, always=2.0
    ),
}


# What is known of all values, or their hashes, is found once for all that read the column.
_OWN: Final = (SynopsisKind.CROSS, SynopsisKind.EXTREMES, *ENDS_IN_TIME)
_MEASURED_ROWS: Final = 65_536  # In a batch, when what is always taken was measured.
_MEASURED_CALL_NS: Final = 0.3  # Of that, what is each one's own: calls, by batch.
_RUN_ROWS: Final = ROWS_MAX / 2  # What may always wait is read as one while work is shed.
_CALL_NS: Final = _MEASURED_CALL_NS * _MEASURED_ROWS / _RUN_ROWS


@lru_cache(maxsize=4096)
def costs_ns(part: SynopsisSpec, *, grouped: bool, alone: bool = True) -> NDArray[np.float64]:
    """CPU of one synopsis per arriving tuple at each level, 0 to LEVEL_MAX: float64 [levels].

    Which rows a level keeps is chosen once for all synopses that read at it, and is not in here
    (synopses.model.profile.CHOOSING_NS). A level may cost more than reading everything: counts,
    ranges and hashes of all tuples are taken before any is skipped, so sums and distinct counts of
    one group gain nothing by thinning.

    Args:
      part: of a query's plan. grouped: the query has GROUP BY.
      alone: no other synopsis reads its column. False: without the costs in `shared_ns`, and in
        runs as long as they are under load shedding.
    """
    cost = _COSTS[part.kind]
    assert cost is not None
    levels = range(LEVEL_MAX + 1)
    costs = np.array([cost.ns_per_tuple(level, grouped=grouped) for level in levels])
    shared = _shared_basics_ns(part)
    if not alone and shared:
        costs[1:] -= shared + _MEASURED_CALL_NS - _CALL_NS
    if part.kind is SynopsisKind.DISTINCT:
        costs[0] = GroupedDistinct.profile.cost_ns_per_tuple(0, grouped=grouped)
    if part.kind in ENDS_IN_TIME and not grouped:
        costs[:] = costs[0]  # They are read in full at any level.
    costs.setflags(write=False)
    return costs


def shared_ns(part: SynopsisSpec, level: int) -> Mapping[Hashable, float]:
    """What a thinned synopsis needs of every tuple that others need, too: it is taken once.

    That is which rows are kept, by level; the nulls and the range of the column that its argument
    follows from (streams/monotone_expressions.py), or the hashes of its values; and, by level,
    which of these are kept. By what it is, ns per arriving tuple.
    """
    if not level:
        return {}
    basics_ns = _shared_basics_ns(part)
    if not basics_ns:
        return {level: CHOOSING_NS}
    assert part.argument is not None
    chain = monotone_of(part.argument)
    of = part.argument if chain is None else chain.column
    if part.kind in BY_HASH:
        return {("hash", of): basics_ns - CHOOSING_NS, (of, level): CHOOSING_NS}
    return {level: CHOOSING_NS, of: basics_ns}


def _shared_basics_ns(part: SynopsisSpec) -> float:
    cost = _COSTS[part.kind]
    assert cost is not None
    if part.argument is None or part.kind in _OWN:
        return 0.0
    return max(cost.always - _MEASURED_CALL_NS, 0.0)
