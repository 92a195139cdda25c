"""Pane sharer: a query as pane sharing sees it, a feeder or a taker of panes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.synopsis_plans.synopsis_plan import Plan
from shedder.engine.window_state.live_panes import LivePanes
from shedder.streams.group_keys import GroupKeys
from shedder.streams.windows import PaneGrid

Sharer = TypeVar("Sharer")


@dataclass(slots=True, eq=False)
class Feed(Generic[Sharer]):
    """Where the panes of a query come from.

    from_pane: the first that its feeder reads for it. next_pane: the first it has not taken yet.
    """

    feeder: Sharer
    from_pane: int
    next_pane: int

    def advance(self, next_pane: int) -> None:
        """The panes before this one have been taken."""
        self.next_pane = max(self.next_pane, next_pane)


class PaneSharer(ABC):
    """The part of a standing query that shares panes.

    reads: equal for queries that keep the same of the same tuples.
    feed: from the query that reads tuples for this one. takers: queries for which this one does.
    asked_from_us: the end of the first window that may be asked for; None: any may be.
    failed: what was read is not whole.
    """

    name: str
    query: BoundQuery
    grid: PaneGrid
    levels: tuple[int, ...]
    reads: int
    keys: GroupKeys | None
    panes: LivePanes
    asked_from_us: int | None
    failed: bool
    feed: Feed[Self] | None
    takers: list[Self]

    def feed_from(self, feed: Feed[Self] | None) -> None:
        """Take the panes of another query from now on; None: read tuples."""
        self.feed = feed

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """Synopses of closed panes."""

    @abstractmethod
    def fail(self) -> None:
        """What was read is not whole."""

    @abstractmethod
    def close(self, watermark_us: int | None) -> None:
        """Mark the panes that this watermark has passed; they do not change any more."""

    @abstractmethod
    def hold_to_the_cap(self) -> None:
        """Make room once the panes of any aggregate weigh more than they may."""
