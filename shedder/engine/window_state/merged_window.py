"""One window of a standing query: its panes merged into one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.pane import Pane
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.windows import Span


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A window's panes as one, to be read only. ids: groups, ascending; None without GROUP BY."""

    pane: Pane
    ids: NDArray[np.int64] | None
    late: int


def merged_window(query: QueryState, span: Span) -> Merged:
    """Merge the panes of a window of the query's grid; only the groups that have tuples."""
    panes, late = query.panes, query.late_in(span)
    if query.grid.slides:  # A window that has closed is of closed panes, which never change.
        whole = panes.closed.merged(query.panes_in(span))
    else:
        whole = Pane(query.plan, panes.groups, of_any_size=True)
        if 0 in panes:
            whole.merge(panes[0])
    if query.keys is None:
        return Merged(whole, None, late)
    ids = whole.groups_here
    return Merged(whole.select(ids), ids, late)
