"""Memory footprint of a standing query's synopses: how many exist at once, and their bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Window
from shedder.engine.synopsis_plans.error_curves import SIZED
from shedder.engine.synopsis_plans.synopsis_plan import (
    OPEN_TIMES,
    SynopsisKind,
    SynopsisPlan,
    SynopsisSpec,
)
from shedder.streams.windows import PaneGrid
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.model.profile import TYPICAL
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments

GROUP_BYTES_MIN: Final = 16 << 10
"""The least cap on groups: below it, hardly a group finds room."""

_UNSIZED = {
    SynopsisKind.COUNT: GroupedCount.profile,
    SynopsisKind.MOMENTS: GroupedMoments.profile,
    SynopsisKind.CROSS: GroupedCrossMoments.profile,
    SynopsisKind.FIRST_LAST: GroupedFirstLast.profile,
    SynopsisKind.BUCKETS: GroupedLogBuckets.profile,
}
_USUAL_BYTES = {
    SynopsisKind.TEXT_FIRST_LAST: 320,  # Texts of some dozen letters.
    SynopsisKind.EXTREMES: 256,
    **{kind: it.bytes_of(it.default, TYPICAL) for kind, it in _UNSIZED.items()},
}
_OBJECT_BYTES = 1_024  # Python and numpy objects of a synopsis (measured: 430 to 1,900).
_SLIDING_SHARE = 2  # While a window is merged, its accumulator stands beside its panes.


def copies_of(query: BoundQuery) -> int:
    """Return how many panes and merges of them stand at once, and what a window is merged into."""
    return _copies(query.window, query.schema.lateness_us)


@lru_cache(maxsize=1 << 12)
def _copies(window: Window, lateness_us: int) -> int:
    grid = PaneGrid.of(window)
    panes = grid.panes_max(lateness_us)
    rungs = len(grid.coarsening.grains)  # Each gives its stretch of the window.
    return panes + grid.merges_max + _SLIDING_SHARE + rungs - 1 if grid.slides else panes


def pane_bytes(part: SynopsisSpec, size: int) -> int:
    """What a part of this size (0 where it has none) takes in one pane, of one group."""
    return _pane_bytes(part.kind, size)


@lru_cache(maxsize=1 << 14)
def _pane_bytes(kind: SynopsisKind, size: int) -> int:
    return SIZED[kind].profile.bytes_of(size, TYPICAL) if kind in SIZED else _USUAL_BYTES[kind]


def window_bytes(query: BoundQuery, part: SynopsisSpec, size: int) -> int:
    """What a part of this size takes in all panes and merges of a query without groups."""
    size_bytes = copies_of(query) * pane_bytes(part, size)
    return (
        size_bytes + _open_bytes(query, size) if part.kind is SynopsisKind.FREQUENT else size_bytes
    )


def beside_bytes(query: BoundQuery, plan: SynopsisPlan) -> int:
    """What the objects of the panes take beside what the synopses say of themselves."""
    return len(plan.parts) * copies_of(query) * _OBJECT_BYTES


def _open_bytes(query: BoundQuery, entries: int) -> int:
    """What open panes take beyond the size of their tables once they are closed (plan.opened)."""
    grid = PaneGrid.of(query.window)
    if not grid.slides:
        return 0
    panes = grid.panes_max(query.schema.lateness_us) - grid.panes_live + 1
    return panes * (OPEN_TIMES - 1) * GroupedFrequent.profile.bytes_of(entries, TYPICAL)
