"""Present sizes of the synopses in a query's panes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan, opened, with_sizes
from shedder.engine.window_state.group_memory_cap import groups_max
from shedder.streams.windows import PaneGrid


@dataclass(slots=True, eq=False)
class PaneSizes:
    """Sizes of a query's synopses, and the memory that its groups may hold.

    plan: sizes of closed panes; larger panes shrink to them.
    opened_plan: sizes of the panes that still count.
    part_bytes_max: cap on the groups of each part in all panes; bytes.
    cells_max: most panes of each rung of COLLAPSE that stand at once; int64 [rungs].
    """

    query: BoundQuery
    plan: SynopsisPlan
    part_bytes_max: int
    opened_plan: SynopsisPlan = field(init=False)
    cells_max: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.opened_plan = opened(self.query, self.plan)
        grid = PaneGrid.of(self.query.window)
        self.cells_max = np.array(grid.cells_max(self.query.schema.lateness_us))

    def change(self, sizes: Sequence[int], part_bytes_max: int) -> None:
        """Replace the size of each part and the cap."""
        self.plan = with_sizes(self.plan, sizes)
        self.opened_plan = opened(self.query, self.plan)
        self.part_bytes_max = part_bytes_max

    @property
    def panes_max(self) -> int:
        """The most panes that stand at once."""
        return int(self.cells_max.sum())

    @property
    def groups_max(self) -> int:
        """The most groups that can find room, when each takes the least in every pane."""
        return groups_max(self.plan, self.panes_max, self.part_bytes_max)
