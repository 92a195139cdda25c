"""Memory accounting of a query's panes, and enforcement of its group memory cap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.pane import Pane
from shedder.engine.synopsis_plans.memory_footprint import pane_bytes
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from shedder.engine.window_state.group_memory_cap import GROWTH_MAX, HOLD_TEXTS, TEXTS_BYTES_MAX
from shedder.engine.window_state.live_panes import LivePanes
from shedder.engine.window_state.pane_sizes import PaneSizes

_USUAL_TEXTS = 2  # Times the bytes of a synopsis that its texts may take, whatever the windows.


class PaneMemory:
    """Bytes that the panes of a query hold and will hold, and the caps on these bytes."""

    def __init__(self, panes: LivePanes, sizes: PaneSizes) -> None:
        """Account for panes. sizes: with the cap on the groups of each part."""
        self._panes = panes
        self._sizes = sizes
        self._sizes_known_to_fit: tuple[object, ...] | None = (
            None  # Weights that found room enough.
        )

    def hold_to_the_cap(self, consumers: Sequence[PaneMemory]) -> None:
        """Make room when the panes of any aggregate weigh, or will weigh, more than they may.

        Without groups each open pane's histogram has a cap of its own.

        Buckets are collapsed where that is enough, else there are no new groups; nor are there any
        once the values of their keys, long texts, take as much as an aggregate may. What the panes
        will weigh: as many as stand at once, each as heavy as the heaviest now. Their merges are
        kept in the room that is left: groups come first, then fast windows.

        Args:
          consumers: memory of the queries that take these panes; their caps hold, too.
        """
        panes, keys = self._panes, self._panes.group_keys
        self.hold_texts(panes.open_panes(), self._sizes.opened_plan, consumers)
        if keys is None:
            if panes.widths.fewest:
                stricter = [each._panes.widths for each in consumers]
                panes.widths.hold_alone(panes.open_panes(), stricter)
            return
        if not panes:
            return
        weighed = self._weighed()
        if weighed == self._sizes_known_to_fit:
            return
        cap = self._sizes.part_bytes_max
        if keys.value_bytes > cap:
            keys.freeze()
        held, weight = self._weights()
        panes.closed.limit_merges(np.maximum(cap - held, 0))
        over = np.flatnonzero(weight > cap).tolist()
        self._sizes_known_to_fit = None if over else weighed
        shares = {part: cap / weight[part] for part in over}
        bits = panes.widths.to_hold(shares, panes.values(), frozen=keys.frozen)
        if bits is None:
            keys.freeze()
        elif bits:
            panes.widen(bits)

    def hold_texts(
        self, panes: Iterable[Pane], plan: SynopsisPlan, consumers: Sequence[PaneMemory]
    ) -> None:
        """Hold the texts of these panes to their shares of the cap on texts.

        A synopsis that has more cuts its texts or drops its rarest values; answers say so. Its
        share is at least as large as synopses of this plan with usual texts need.
        """
        parts = [at for at, part in enumerate(plan.parts) if part.kind in HOLD_TEXTS]
        if not parts:
            return
        share = min(each._texts_share for each in (self, *consumers))
        least = {at: _USUAL_TEXTS * pane_bytes(plan.parts[at], plan.parts[at].size) for at in parts}
        for pane in panes:
            for at in parts:
                for synopsis in pane.read_by(at):
                    synopsis.hold_texts(max(share, least[at]))

    @property
    def _texts_share(self) -> int:
        """The share of a pane in the cap on the texts of an aggregate, in bytes."""
        grouped = self._panes.group_keys is not None
        bytes_max = GROWTH_MAX * self._sizes.part_bytes_max if grouped else TEXTS_BYTES_MAX
        return bytes_max // max(self._sizes.panes_max, 1)

    def _weighed(self) -> tuple[object, ...]:
        """All that the weights, and what they may be, depend on: seldom another than last time."""
        closed, keys = self._panes.closed, self._panes.group_keys
        of_open = [pane.part_bytes for pane in self._panes.open_panes()]
        of_closed = closed.pane_bytes.tobytes(), closed.heaviest_bytes.tobytes()
        keys_bytes = 0 if keys is None else keys.value_bytes
        cap = self._sizes.part_bytes_max
        return of_open, *of_closed, self._panes.recounts, keys_bytes, cap

    def _weights(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What each part holds, and what it will when as many panes stand as can at once."""
        closed, filling = self._panes.closed, self._panes.open_bytes()
        heaviest = closed.heaviest_bytes.copy()
        heaviest[0] = np.maximum(heaviest[0], filling.max(axis=0, initial=0))
        heaviest = np.maximum.accumulate(heaviest)  # A cell weighs as much as a pane in it.
        held = closed.pane_bytes + filling.sum(axis=0)
        return held, np.maximum(held, self._sizes.cells_max @ heaviest)

    @property
    def foreseen(self) -> tuple[int, ...]:
        """What each part holds, or will when as many panes stand as can at once, in bytes."""
        return tuple(self._weights()[1].tolist())

    @property
    def size_bytes(self) -> int:
        """What the panes, their merges and the keys, with the panes they are in, hold in memory."""
        closed, keys = self._panes.closed, self._panes.group_keys
        panes = int((closed.pane_bytes + closed.merge_bytes).sum() + self._panes.open_bytes().sum())
        return panes + (0 if keys is None else keys.size_bytes + closed.home_bytes)
