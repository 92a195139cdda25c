"""The panes of one window of a join: those that get rows, and those that are closed."""

from __future__ import annotations

import numpy as np

from synopses.joins.closed_panes import NO_KEYS, ClosedPane, fewer_buckets
from synopses.joins.key_tables import Floats, Words
from synopses.joins.pane_counts import PaneCounts, PaneRoom


class WindowPanes:
    """The panes of one window. Panes are known by the instant at which they are born.

    newest_us: instant of the pane that was closed last; None: none was.
    heaviest, averages: of this pane, the most frequent keys and the averages of values.
    """

    def __init__(self, range_us: int, expressions: int) -> None:
        """A window without panes. expressions: how many values a row has."""
        self.range_us = range_us
        self.open: dict[int, PaneCounts] = {}
        self.closed: dict[int, ClosedPane] = {}
        self.newest_us: int | None = None
        self.heaviest: Words = NO_KEYS
        self.averages: Floats = np.zeros(expressions)

    @property
    def size_bytes(self) -> int:
        """Bytes of all panes."""
        return sum(pane.size_bytes for pane in self.panes)

    @property
    def panes(self) -> list[PaneCounts | ClosedPane]:
        """Return all panes that are held."""
        return [*self.open.values(), *self.closed.values()]

    def close_until(self, instant_us: int) -> None:
        """Close the panes that are born, and forget those that have left the window."""
        for born_us in sorted(each for each in self.open if each <= instant_us):
            pane = self.open.pop(born_us)
            self.closed[born_us], self.newest_us = pane.closed(), born_us
            self.heaviest, self.averages = pane.heaviest(), pane.averages()
        for born_us in [each for each in self.closed if each + self.range_us <= instant_us]:
            del self.closed[born_us]

    def shrink(self, sizes: PaneRoom, secrets: Words) -> None:
        """Bring all panes into these sizes where theirs are larger."""
        for born_us, pane in self.closed.items():
            self.closed[born_us] = pane.shrunk(
                secrets,
                heavy=sizes.heavy,
                keys=sizes.keys,
                buckets=fewer_buckets(len(pane.sums), sizes.buckets),
            )
        for open_pane in self.open.values():
            open_pane.shrink(sizes)

    def window(self, instant_us: int) -> list[ClosedPane]:
        """Return the panes that are in the window as of an instant, the oldest first."""
        return [
            self.closed[born_us]
            for born_us in sorted(self.closed)
            if born_us <= instant_us < born_us + self.range_us
        ]

    def instants(self) -> set[int]:
        """Return the instants at which a pane is born, or leaves the window."""
        ends = {born_us + self.range_us for born_us in (*self.open, *self.closed)}
        return ends | set(self.open)
