"""Pane shrinking: a smaller copy of a pane, made in slices while the pane goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shedder.engine.panes.pane import Pane, Place
from shedder.engine.panes.synopsis_input import PartInput
from shedder.engine.panes.synopsis_resizing import settle, shrunk
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan

SLICE_BYTES = 32 << 10  # Bytes of a synopsis that one step shrinks, in one or two milliseconds.


@dataclass(slots=True, eq=False)
class _Smaller:
    """A synopsis at another size: its first groups so far, which read what the synopsis reads."""

    source: Any
    size: int
    slice_bytes: int
    made: Any = field(init=False)
    groups: int = field(init=False, default=0)
    _groups_at_once: int = field(init=False)

    def __post_init__(self) -> None:
        groups, size_bytes = self.source.groups, max(1, int(self.source.size_bytes))
        self._groups_at_once = max(1, groups * self.slice_bytes // size_bytes)
        self.made = shrunk(self.source, self.size, range(0))
        self.made.grow(self.source.groups)

    @property
    def whole(self) -> bool:
        """Return whether all groups are there."""
        return self.groups == int(self.source.groups)

    def take(self, *, closed: bool) -> None:
        """Take in some more groups."""
        first, groups = self.groups, self.source.groups
        stop = self.groups = min(first + self._groups_at_once, groups)
        some = shrunk(self.source, self.size, range(first, stop))
        if closed:
            settle(some, self.size)
        self.made.merge(some.scatter(np.arange(first, stop), groups))


class Shrinking:
    """Builds, slice by slice, a version of a pane in which nothing is larger than in a plan.

    The pane stays unchanged: queries, checkpoints and merges use it until the other version is
    complete and replaces it. While the pane counts, it hands on what it reads, for the groups that
    the other version has so far. A group that is folded before more is read equals a group that
    had read more before it was folded. So the result does not depend on when a group is folded.
    """

    def __init__(
        self, pane: Pane, limit: SynopsisPlan, *, closed: bool, slice_bytes: int = SLICE_BYTES
    ) -> None:
        """Begin with no group.

        Args:
          pane: to be replaced. limit: the plan that nothing is larger than.
          closed: whether it counts nothing more.
          slice_bytes: bytes of a synopsis that one step shrinks, approximately.
        """
        self._slice_bytes = slice_bytes
        self.pane = pane
        self.limit = limit
        self.closed = closed
        self._made: dict[Place, _Smaller] = {}
        if not closed:
            pane.hand_on_to(self)

    def is_still(self, pane: Pane, limit: SynopsisPlan, *, closed: bool) -> bool:
        """Return whether the copy has the wanted sizes, and all that the pane took in since."""
        same = self.pane is pane and self.limit is limit and self.closed is closed
        return same and (closed or pane.handed_on_to is self)

    @property
    def size_bytes(self) -> int:
        """What is held beside the pane."""
        return sum(int(each.made.size_bytes) for each in list(self._made.values()))

    def step(self) -> bool:
        """Take some groups of one synopsis; returns whether there was anything left to take."""
        for place, synopsis, size in self.pane.larger_than(self.limit):
            each = self._made.get(place)
            if each is None:
                each = self._made[place] = _Smaller(synopsis, size, self._slice_bytes)
            if not each.whole:
                each.take(closed=self.closed)
                return True
        return False

    def read(self, place: Place, given: PartInput, first: int, last: int) -> None:
        """The pane has let its synopsis there read these rows."""
        each = self._made.get(place)
        if each is not None and each.groups:
            own = self.pane.own
            places = None if own is None else own.places
            given.feed(each.made, first, last, places=places, groups=each.groups)

    def finish(self, plan: SynopsisPlan) -> Pane:
        """The other version, with this plan for what it begins; every step has been taken."""
        if self.closed:
            for each in self._made.values():
                settle(each.made, each.size)
        return self.pane.with_others({place: each.made for place, each in self._made.items()}, plan)
