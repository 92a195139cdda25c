"""Panes of one query, open and closed, by number."""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_codec import pane_from_bytes, pane_to_bytes
from shedder.engine.window_state.closed_panes import ClosedPanes
from shedder.engine.window_state.group_memory_cap import BucketWidths
from shedder.engine.window_state.pane_sizes import PaneSizes
from shedder.engine.window_state.pane_store_writer import PaneStoreWriter
from shedder.streams.group_keys import OTHERS, GroupKeys
from shedder.streams.windows import PaneGrid

_STAY = 7 / 8  # Of ids: with so many alive there is no room to be made for new groups.


class LivePanes(Mapping[int, Pane]):
    """The panes that a query holds. A closed pane never changes; another version may replace it.

    grid: numbers of panes by event time.
    group_keys: groups of the query; None without GROUP BY.
    sizes: present sizes of the synopses.
    widths: bucket widths of the histograms.
    closed: closed panes, and the windows that are merged from them.
    closed_to: panes before this number are closed; None: none was closed yet.
    folded_to_us: end of the window for which old panes were folded last; None: none were.
    dropped_before: no window needs panes before this number; None: this process has dropped none.
    recounts: how often the closed panes were counted anew, which drops merges of them.
    """

    def __init__(
        self,
        grid: PaneGrid,
        group_keys: GroupKeys | None,
        sizes: PaneSizes,
        widths: BucketWidths,
        store_writer: PaneStoreWriter,
        *,
        own_span_min: int,
    ) -> None:
        """Begin with no pane.

        Args:
          store_writer: is told of closed panes that change.
          own_span_min: panes with fewer groups have rows for all of them.
        """
        self.grid = grid
        self.group_keys = group_keys
        self.sizes = sizes
        self.widths = widths
        self._store_writer = store_writer
        self._own_span_min = own_span_min
        self._panes: dict[int, Pane] = {}
        self._open: set[int] = set()
        self.closed = self._none_closed()
        self.closed_to: int | None = None
        self.folded_to_us: int | None = None
        self.dropped_before: int | None = None
        self.recounts = 0

    # --- look-ups ------------------------------------------------------------------------------

    def __getitem__(self, number: int) -> Pane:
        return self._panes[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._panes)

    def __len__(self) -> int:
        return len(self._panes)

    def keys(self) -> KeysView[int]:
        """Return a view that other threads may copy at once, as that of a dict."""
        return self._panes.keys()

    def items(self) -> ItemsView[int, Pane]:
        """Return a view that other threads may copy at once, as that of a dict."""
        return self._panes.items()

    def values(self) -> ValuesView[Pane]:
        """Return a view that other threads may copy at once, as that of a dict."""
        return self._panes.values()

    @property
    def groups(self) -> int:
        """Number of groups so far; 1 without GROUP BY."""
        return 1 if self.group_keys is None else self.group_keys.size

    def open_numbers(self) -> list[int]:
        """Return the numbers of the open panes, ascending."""
        return sorted(self._open)

    def open_panes(self) -> list[Pane]:
        """Return the panes that are not closed yet, in no order."""
        return [self._panes[number] for number in self._open]

    def open_bytes(self) -> NDArray[np.int64]:
        """Return the bytes of each part of each open pane; shape [panes, parts]."""
        sizes = [pane.part_bytes for pane in self.open_panes()]
        return np.array(sizes, np.int64).reshape(-1, len(self.sizes.plan.parts))

    def is_open(self, number: int) -> bool:
        """Return whether a pane is not closed yet."""
        return number in self._open

    @property
    def has_others(self) -> bool:
        """Return whether panes have tuples of groups that found no room."""
        return self.group_keys is not None and bool(self._alive(self.group_keys.size)[OTHERS])

    @property
    def others_share(self) -> float:
        """Of the tuples that the panes count, those of groups that found no room."""
        panes = self._panes.values()
        total = sum(float(pane.counts.sum()) for pane in panes)
        others = sum(float(pane.count_of(OTHERS)) for pane in panes)
        return others / total if self.group_keys is not None and total else 0.0

    # --- from open to dropped ------------------------------------------------------------------

    def open_pane(self, number: int, groups: int) -> Pane:
        """Return an open pane; a new one, with room for so many groups, when there is none."""
        held = self._panes.get(number)
        if held is None:
            few = self.group_keys is not None and self.closed.had_few_of(self.group_keys.size)
            held = self._panes[number] = Pane(self.sizes.opened_plan, groups, of_few=few)
            self.widths.fit(held)
            self._open.add(number)
        return held

    def end_before(self, number: int) -> dict[int, Pane]:
        """End the open panes before this number, and return them to be closed."""
        self.closed_to = number
        ended = {each: self._panes[each] for each in sorted(self._open) if each < number}
        self._open.difference_update(ended)
        for pane in ended.values():
            pane.end(own_span_min=self._own_span_min)
            pane.settle(self.sizes.plan, shrinks=self.group_keys is None)
        return ended

    def close(self, number: int, pane: Pane) -> None:
        """Add a pane that never changes: one that has ended, or that another query closed."""
        self._panes[number] = pane
        self.closed.add(number, pane)

    def fold(self, end_us: int) -> Iterable[int]:
        """Merge old panes into coarser cells, and return the numbers of the new cells.

        Args:
          end_us: end of a window whose panes are closed; no earlier window is asked for any more.
        """
        bounds = self.grid.bounds(end_us)
        if not bounds or (self.folded_to_us is not None and self.folded_to_us >= end_us):
            return ()
        self.folded_to_us = end_us
        if bounds == self.closed.bounds:
            return ()
        cells, gone = self.closed.fold(bounds)
        for number in gone:
            self._panes.pop(number, None)  # A cell may have come and gone in this one fold.
        self._panes |= cells
        self._store_writer.note_folded([*gone, *cells])
        return cells

    def drop_before(self, number: int) -> None:
        """Forget the panes before this one, and groups that only they had."""
        self.dropped_before = number
        dead = [*self.closed.drop_before(number), *(p for p in self._open if p < number)]
        for old in dead:
            del self._panes[old]
            self._open.discard(old)
        self._store_writer.note_changed(dead)
        if dead and self.group_keys is not None:
            self._forget_dead_groups(self.group_keys)

    def _forget_dead_groups(self, keys: GroupKeys) -> None:
        """Compact the ids when less than half of them are alive; when few are left, sooner."""
        alive = self._alive(keys.size)
        others = bool(alive[OTHERS])
        alive[OTHERS] = False
        kept = np.flatnonzero(alive)
        if len(kept) + 1 > (_STAY if keys.is_nearly_full else 0.5) * keys.size:
            return
        self._store_writer.encode_newest()
        source = np.concatenate([np.zeros(1, np.int64), kept])
        for number, pane in self._panes.items():
            self._panes[number] = pane.renumbered(source)
        self._recount()
        partial = keys.partial_from  # Groups that might be partial before still might be.
        keys.keep(kept)
        whole = len(kept) if partial is None else int(np.searchsorted(kept, partial))
        keys.note_partial(1 + whole if others else None)

    def _alive(self, groups: int) -> NDArray[np.bool_]:
        """Return which groups have tuples in any pane."""
        alive = self.closed.alive(groups)
        for pane in self.open_panes():
            alive[pane.groups_here] = True
        return alive

    # --- other versions ------------------------------------------------------------------------

    def replace(self, number: int, pane: Pane) -> None:
        """Put another version of a pane, of the same tuples, in its place."""
        self.fit_widths(pane)
        old, self._panes[number] = self._panes[number], pane
        if number not in self._open:
            self.closed.replace(number, old, pane)
            self._store_writer.note_changed([number])

    def put(self, panes: Mapping[int, Pane], *, closed: bool) -> None:
        """Put versions of more tuples in the places of panes, or where there are none yet.

        Those that stood there are not changed. Closed ones have numbers of cells (`cell_of`).
        """
        for number, pane in panes.items():
            self.fit_widths(pane)
            self._panes[number] = pane
        if closed:
            self._store_writer.note_changed(panes)
            self._recount({*self.closed.numbers, *panes})
        else:
            self._open.update(panes)

    def snapshot(self) -> Callable[[], None]:
        """Return a function that restores the present panes, none of which may change meanwhile."""
        panes, closed, closed_to = dict(self._panes), self.closed, self.closed_to
        open_panes, restore_stored = set(self._open), self._store_writer.snapshot()

        def restore() -> None:
            self._panes, self.closed, self.closed_to = panes, closed, closed_to
            self._open = open_panes
            self.recounts += 1
            restore_stored()

        return restore

    # --- bucket widths -------------------------------------------------------------------------

    def fit_widths(self, held: Pane) -> None:
        """Give a pane that is not among these yet, and these, the widest buckets that any has.

        Without groups each pane has its own.
        """
        if self.group_keys is None:
            return
        if self.widths.learn(held):
            for other in self._panes.values():
                self.widths.fit(other)
            self._recount()
        self.widths.fit(held)

    def widen(self, bits: Mapping[int, int]) -> None:
        """Collapse the histograms of these parts in all panes."""
        self.widths.widen(bits, self._panes.values())
        self._recount()

    def _recount(self, numbers: Iterable[int] | None = None) -> None:
        """Count closed panes anew after they changed; None: the present ones."""
        closed = self._none_closed(self.closed.bounds)
        for number in sorted(self.closed.numbers if numbers is None else numbers):
            closed.add(number, self._panes[number])
        self.closed = closed  # Its merges are not limited yet.
        self.recounts += 1

    def _none_closed(self, bounds: Sequence[int] | None = None) -> ClosedPanes:
        return ClosedPanes(
            self.sizes.plan,
            grouped=self.group_keys is not None,
            cells=self.grid.cells_live,
            grains=self.grid.coarsening.grains,
            bounds=bounds,
            own_span_min=self._own_span_min,
        )

    # --- bytes ---------------------------------------------------------------------------------

    def to_bytes(self, number: int) -> bytes:
        """Return a pane with its group keys, readable by itself."""
        return pane_to_bytes(self._panes[number], self.group_keys)

    def adopt(self, number: int, data: bytes, *, closed: bool) -> None:
        """Take a stored pane back."""
        plan = self.sizes.plan if closed else self.sizes.opened_plan
        held = self._panes[number] = pane_from_bytes(data, plan, self.group_keys)
        self.fit_widths(held)
        if closed:
            self.closed.add(number, held)
            self._store_writer.note_stored(number)
        else:
            self._open.add(number)
