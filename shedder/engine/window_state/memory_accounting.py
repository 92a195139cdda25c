"""Memory accounting of a query's panes, and enforcement of its group memory cap."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.pane import Pane
from shedder.engine.synopsis_plans.memory_footprint import pane_bytes
from shedder.engine.synopsis_plans.synopsis_plan import Plan
from shedder.engine.window_state.closed_panes import ClosedPanes
from shedder.engine.window_state.group_memory_cap import (
    GROWTH_MAX,
    HOLD_TEXTS,
    TEXTS_BYTES_MAX,
    BucketWidths,
)
from shedder.engine.window_state.pane_shrinking import Shrinking
from shedder.streams.group_keys import GroupKeys
from shedder.streams.windows import PaneGrid

_USUAL_TEXTS = 2  # Times the bytes of a synopsis that its texts may take, whatever the windows.


class Weighed(ABC):
    """The part of a standing query that says what it holds, and makes room where that is too much.

    _roomy: sizes that found room enough.
    """

    plan: Plan
    opened_plan: Plan
    grid: PaneGrid
    panes: dict[int, Pane]
    closed: ClosedPanes
    keys: GroupKeys | None
    widths: BucketWidths
    takers: Sequence[Weighed]
    part_bytes_max: int
    own_span_min: int
    _cells_max: NDArray[np.int64]
    _open: set[int]
    _roomy: tuple[object, ...] | None
    _shrinking: Shrinking | None

    def hold_to_the_cap(self) -> None:
        """Once the panes of any aggregate weigh, or will weigh, more than they may, make room.

        Without groups each open pane's histogram has a cap of its own.

        Buckets are collapsed where that is enough, else there are no new groups; nor are there any
        once the values of their keys, long texts, take as much as an aggregate may. What the panes
        will weigh: as many as stand at once, each as heavy as the heaviest now. Their merges are
        kept in the room that is left: groups come first, then fast windows.
        """
        self.hold_texts([self.panes[number] for number in self._open], self.opened_plan)
        if self.keys is None:
            if self.widths.fewest:
                alone = [self.panes[number] for number in self._open]
                self.widths.hold_alone(alone, [taker.widths for taker in self.takers])
            return
        if not self.panes:
            return
        sizes = self._sizes()
        if sizes == self._roomy:
            return
        if self.keys.value_bytes > self.part_bytes_max:
            self.keys.freeze()
        held, weight = self._weights()
        self.closed.limit_merges(np.maximum(self.part_bytes_max - held, 0))
        over = np.flatnonzero(weight > self.part_bytes_max).tolist()
        self._roomy = None if over else sizes
        shares = {part: self.part_bytes_max / weight[part] for part in over}
        panes = self.panes.values()
        bits = self.widths.to_hold(shares, panes, frozen=self.keys.frozen)
        if bits is None:
            self.keys.freeze()
        elif bits:
            self.widths.widen(bits, panes)
            self._count_closed_again()

    def hold_texts(self, panes: Iterable[Pane], plan: Plan) -> None:
        """Hold the texts of these panes to their shares of the cap on texts.

        A synopsis that has more cuts its texts or drops its rarest values; answers say so. Its
        share is at least as large as synopses of this plan with usual texts need.
        """
        parts = [at for at, part in enumerate(plan.parts) if part.kind in HOLD_TEXTS]
        if not parts:
            return
        share = min(each._texts_share() for each in (self, *self.takers))
        least = {at: _USUAL_TEXTS * pane_bytes(plan.parts[at], plan.parts[at].size) for at in parts}
        for pane in panes:
            for at in parts:
                for synopsis in pane.read_by(at):
                    synopsis.hold_texts(max(share, least[at]))

    def _texts_share(self) -> int:
        """Return the share of a pane in the cap on the texts of an aggregate, in bytes."""
        bytes_max = TEXTS_BYTES_MAX if self.keys is None else GROWTH_MAX * self.part_bytes_max
        return bytes_max // max(int(self._cells_max.sum()), 1)

    def _sizes(self) -> tuple[object, ...]:
        """All that the weights, and what they may be, depend on: seldom another than last time."""
        closed = self.closed
        of_open = [self.panes[pane].part_bytes for pane in self._open]
        of_closed = closed.pane_bytes.tobytes(), closed.heaviest_bytes.tobytes()
        keys_bytes = 0 if self.keys is None else self.keys.value_bytes
        return of_open, *of_closed, keys_bytes, self.part_bytes_max

    def _weights(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What each part holds, and what it will when as many panes stand as can at once."""
        filling = self._open_bytes()
        heaviest = self.closed.heaviest_bytes.copy()
        heaviest[0] = np.maximum(heaviest[0], filling.max(axis=0, initial=0))
        heaviest = np.maximum.accumulate(heaviest)  # A cell weighs as much as a pane in it.
        held = self.closed.pane_bytes + filling.sum(axis=0)
        return held, np.maximum(held, self._cells_max @ heaviest)

    @property
    def foreseen(self) -> tuple[int, ...]:
        """What each part holds, or will when as many panes stand as can at once, in bytes."""
        return tuple(self._weights()[1].tolist())

    def _count_closed_again(self) -> None:
        """The closed panes have changed: their weights, and the merges of them, are others."""
        closed = self._none_closed(self.closed.bounds)
        for number in self.closed.numbers:
            closed.add(number, self.panes[number])
        self.closed, self._roomy = closed, None  # Its merges are not limited yet.

    def _none_closed(self, bounds: Sequence[int] | None = None) -> ClosedPanes:
        grid = self.grid
        return ClosedPanes(
            self.plan,
            grouped=self.keys is not None,
            cells=grid.cells_live,
            grains=grid.coarsening.grains,
            bounds=bounds,
            own_span_min=self.own_span_min,
        )

    def _open_bytes(self) -> NDArray[np.int64]:
        """What each part of each open pane holds; shape [panes, parts]."""
        sizes = [self.panes[pane].part_bytes for pane in self._open]
        return np.array(sizes, np.int64).reshape(-1, len(self.plan.parts))

    def fit_widths(self, held: Pane) -> None:
        """A pane that is not among these yet: all get the widest buckets that any has.

        Without groups each has its own.
        """
        if self.keys is None:
            return
        if self.widths.learn(held):
            for other in self.panes.values():
                self.widths.fit(other)
            self._count_closed_again()
        self.widths.fit(held)

    @property
    def size_bytes(self) -> int:
        """What the panes, their merges and the keys, with the panes they are in, hold in memory."""
        closed = self.closed.pane_bytes + self.closed.merge_bytes
        panes = int(closed.sum() + self._open_bytes().sum())
        at_it = self._shrinking  # Another thread may ask.
        panes += 0 if at_it is None else at_it.size_bytes
        return panes + (0 if self.keys is None else self.keys.size_bytes + self.closed.home_bytes)

    @property
    def merge_bytes(self) -> NDArray[np.int64]:
        """What each part holds in the merges that later windows use again; shape [parts]."""
        return self.closed.merge_bytes
