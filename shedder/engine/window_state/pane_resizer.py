"""Pane resizer: changes of synopsis sizes, and shrinking of the panes that have larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shedder.engine.panes.pane import Pane
from shedder.engine.panes.synopsis_resizing import size_of
from shedder.engine.synopsis_plans.error_curves import SIZED
from shedder.engine.synopsis_plans.synopsis_plan import (
    SynopsisKind,
    SynopsisPlan,
    SynopsisSpec,
    with_sizes,
)
from shedder.engine.window_state.live_panes import LivePanes
from shedder.engine.window_state.pane_shrinking import SLICE_BYTES, Shrinking
from shedder.engine.window_state.pane_sizes import PaneSizes

_ANY = 1 << 62  # A size that nothing is larger than.
_TRIED_GROUPS = 32  # Enough to see which part of them is full.


class PaneResizer:
    """Gives the panes of a query other sizes while the stream runs."""

    def __init__(self, panes: LivePanes, sizes: PaneSizes) -> None:
        """Resize these panes. sizes: of the query, changed here alone."""
        self._panes = panes
        self._sizes = sizes
        self._to_shrink: dict[int, SynopsisPlan] = {}
        self._shrinking: Shrinking | None = None
        # Of the newest closed pane.
        self._halved: tuple[Pane, tuple[float, ...]] | None = None

    def set_sizes(self, sizes: Sequence[int], part_bytes_max: int) -> None:
        """From now on new panes have these sizes, and groups this room; larger panes are to shrink.

        Panes that are smaller stay so: what was forgotten does not come back. They shrink bit by
        bit, by `shrink_some`: in which order, and when, makes no difference to what they hold, nor
        do sizes that are set before all have shrunk to the last ones.

        Args:
          sizes: of each part of the plan, 0 where it has none.
          part_bytes_max: the cap on the groups of each part.
        """
        if not _are_sizes_of(
            self._sizes.plan, sizes
        ):  # The record is of another query of the name.
            return
        has_other_cap = part_bytes_max != self._sizes.part_bytes_max
        self._sizes.change(sizes, part_bytes_max)
        keys = self._panes.group_keys
        if keys is not None and has_other_cap:
            keys.make_room(self._sizes.groups_max, others=self._panes.has_others)
        self.look_for_larger()

    def look_for_larger(self) -> None:
        """Find the panes that are to shrink, beside those that are."""
        for number in self._panes.open_numbers():
            self._shrink_to(number, self._limit_while_open)
        for number in self._panes.closed.numbers:
            self.shrink_closed(number)

    def shrink_closed(self, number: int) -> None:
        """From now on a closed pane is to shrink to the present sizes."""
        self._shrink_to(number, self._sizes.plan)

    def _shrink_to(self, number: int, limit: SynopsisPlan) -> None:
        """From now on a pane is to shrink to a plan's sizes, or to smaller ones that it had to."""
        if self._panes[number].is_larger_than(limit):
            before = self._to_shrink.setdefault(number, limit)
            least = _least(limit, before)
            if least.parts != before.parts:
                self._to_shrink[number] = least

    @property
    def _limit_while_open(self) -> SynopsisPlan:
        """Tables of frequent items shrink when a pane closes: it matters to them when."""
        opened_plan = self._sizes.opened_plan
        if not self._panes.grid.slides:
            return opened_plan
        parts = opened_plan.parts
        sizes = [_ANY if part.kind is SynopsisKind.FREQUENT else part.size for part in parts]
        return with_sizes(opened_plan, sizes)

    @property
    def shrinks(self) -> bool:
        """Return whether panes are left that are to shrink."""
        return bool(self._to_shrink)

    @property
    def size_bytes(self) -> int:
        """Bytes of the version that is being made of a pane. From any thread."""
        at_it = self._shrinking
        return 0 if at_it is None else at_it.size_bytes

    def shrink_some(self, *, slice_bytes: int = SLICE_BYTES) -> None:
        """Shrink some groups of one pane; the newest pane that is to shrink comes first.

        Args:
          slice_bytes: bytes of a synopsis that one step shrinks, approximately.
        """
        number, limit = next(reversed(self._to_shrink.items()))
        pane, at_it = self._panes.get(number), self._shrinking
        if pane is None or not pane.is_larger_than(limit):  # It was dropped or replaced meanwhile.
            self._shrunk(number)
            return
        is_open = self._panes.is_open(number)
        if at_it is None or not at_it.is_still(pane, limit, closed=not is_open):
            at_it = self._shrinking = Shrinking(
                pane, limit, closed=not is_open, slice_bytes=slice_bytes
            )
        if at_it.step():
            return
        plan = self._sizes.opened_plan if is_open else self._sizes.plan
        smaller = at_it.finish(_least(plan, limit))
        self._shrunk(number)
        self._panes.replace(number, smaller)

    def _shrunk(self, number: int) -> None:
        del self._to_shrink[number]
        self._shrinking = None

    def shrink_all(self) -> None:
        """Shrink all panes that are to, now."""
        while self._to_shrink:
            self.shrink_some()

    def halved(self) -> tuple[float, ...]:
        """The share of its bytes that the groups of each part keep in sketches of half the size.

        Tried on some groups of the newest closed pane. Groups of few values take hardly less.
        """
        panes = self._panes
        if panes.group_keys is None or not panes.closed.numbers:
            return ()
        newest = panes[panes.closed.numbers[-1]]  # It does not change any more.
        if self._halved is None or self._halved[0] is not newest:
            self._halved = newest, tuple(map(kept_by_halving, self._sizes.plan.parts, newest.parts))
        return self._halved[1]

    def coarsest(self) -> tuple[int, ...]:
        """The least size that each part has in any live pane, or that new ones will have."""
        parts = self._sizes.plan.parts
        found = [part.size for part in parts]
        sized = [at for at, part in enumerate(parts) if part.kind in SIZED]
        for pane in self._panes.values():
            for at in sized:
                size = size_of(pane.parts[at])
                found[at] = min(found[at], size)
        return tuple(found)


def _are_sizes_of(plan: SynopsisPlan, sizes: Sequence[int]) -> bool:
    """Return whether the parts of a plan may have these sizes."""
    if len(sizes) != len(plan.parts):
        return False
    for part, size in zip(plan.parts, sizes, strict=True):
        if not part.size or not size:
            if part.size != size:
                return False
        elif not SIZED[part.kind].profile.sizes[0] <= size <= SIZED[part.kind].profile.sizes[-1]:
            return False
    return True


def _least(plan: SynopsisPlan, other: SynopsisPlan) -> SynopsisPlan:
    """A plan with the smaller sizes of two."""
    sizes = zip(plan.parts, other.parts, strict=True)
    return with_sizes(plan, [min(one.size, two.size) for one, two in sizes])


def kept_by_halving(part: SynopsisSpec, synopsis: Any) -> float:
    """Return the share of bytes that a synopsis of half the size keeps; 1 at the smallest size."""
    if part.kind not in SIZED or not synopsis.groups:
        return 1.0
    half = size_of(synopsis) - 1 if SIZED[part.kind].in_powers else size_of(synopsis) // 2
    if half < SIZED[part.kind].smallest:
        return 1.0
    step = -(-synopsis.groups // _TRIED_GROUPS)
    some = synopsis.select(np.arange(0, synopsis.groups, step))
    before = some.size_bytes
    return min(1.0, float(some.resize(half).size_bytes) / before) if before else 1.0
