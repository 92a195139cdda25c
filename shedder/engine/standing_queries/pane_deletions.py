"""The DELETEs of a stream that the panes of a standing query reflect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Self

import numpy as np

from shedder.archive.metadata.deleted_positions import Deletion
from shedder.engine.window_state.query_state import QueryState
from shedder.streams.windows import PaneGrid, Span


@dataclass(slots=True)
class PaneDeletions:
    """The number of DELETEs that each pane reflects. Used by the apply thread.

    A pane reflects a DELETE if none of the rows that it counts were deleted by it. The DELETEs of
    a stream are numbered from 0, in the order in which they were carried out.

    reflected: number of the first DELETE that some pane may not reflect, if `behind` is empty.
    behind: the same number for single panes that reflect fewer DELETEs.
    """

    reflected: int = 0
    behind: dict[int, int] = field(default_factory=dict)

    @classmethod
    def registered_at(cls, deletions: Sequence[Deletion], position: int) -> Self:
        """Begin for a query that reads from a position on; it reflects all earlier DELETEs."""
        return cls(sum(1 for _ in takewhile(lambda each: each.position < position, deletions)))

    def look(self, deletions: Sequence[Deletion], query_state: QueryState, position: int) -> None:
        """Find the panes that may count rows that were deleted since the last look.

        Cells of several panes (COLLAPSE) are never rebuilt, so no pane of such a query is found.

        Args:
          deletions: all of the stream. state: the query.
          position: one past the last tuple that was applied. Panes that do not exist yet read
            later tuples, which DELETEs up to this position have not deleted.
        """
        if query_state.grid.coarsening.longest > 1:
            return
        end = self.reflected
        while end < len(deletions) and deletions[end].position <= position:
            end += 1
        if end > self.reflected:
            new = deletions[self.reflected : end]
            untaken = () if query_state.feed is None else query_state.feed.untaken_panes()
            for pane in {*query_state.panes, *untaken}.difference(self.behind):
                if _any_overlaps(query_state.grid, pane, new):
                    self.behind[pane] = self.reflected
            self.reflected = end
        needed = query_state.panes.dropped_before
        if needed is not None and self.behind:
            self.behind = {pane: it for pane, it in self.behind.items() if pane >= needed}

    def pending(
        self, deletions: Sequence[Deletion], grid: PaneGrid, span: Span
    ) -> Sequence[Deletion]:
        """The DELETEs whose rows a window may still count, in order."""
        if grid.slides and span.end_us is None:
            return ()  # No window has closed.
        wanted = grid.panes_in(span)
        inside = [pane for pane in self.behind if pane in wanted]
        panes = np.array(inside, np.int64)
        reflected = np.array([self.behind[pane] for pane in inside], np.int64)
        first = int(min(reflected, default=self.reflected))
        found = []
        for number, each in enumerate(deletions[first:], first):
            if not each.overlaps(span.start_us, span.end_us):
                continue
            low, high = grid.pane_of(each.low_us), grid.pane_of(each.high_us)
            here = (panes >= low) & (panes <= high) & (reflected <= number)
            if number >= self.reflected or here.any():
                found.append(each)
        return found

    def rebuild(
        self, pane: int, reflected: int, deletions: Sequence[Deletion], grid: PaneGrid
    ) -> None:
        """Note that a pane was rebuilt without the rows of the DELETEs before `reflected`."""
        self.behind.pop(pane, None)
        if _any_overlaps(grid, pane, deletions[reflected : self.reflected]):
            self.behind[pane] = reflected

    def to_json(self) -> dict[str, Any]:
        """Return the part of a checkpoint."""
        return {"reflected": self.reflected, "behind": list(self.behind.items())}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Inverse of to_json."""
        return cls(state["reflected"], dict(state["behind"]))


def _any_overlaps(grid: PaneGrid, pane: int, deletions: Sequence[Deletion]) -> bool:
    start_us, end_us = grid.span.start_us, grid.span.end_us
    if grid.width_us is not None:
        start_us, end_us = pane * grid.width_us, (pane + 1) * grid.width_us
    return any(each.overlaps(start_us, end_us) for each in deletions)
