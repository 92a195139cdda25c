"""Counts of tuples by pane: late tuples of a standing query, and dropped tuples of a stream.

Three counters of late tuples exist.

- A query counts tuples whose pane has closed: `window_state/query_state.py`.
- A stream's ledger counts event times before the watermark: `standing_queries/stream_state.py`.
- A receipt counts the same of its batches: `ingest/arrival_watermark.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

LATE_PANES_MAX = 1 << 16  # Panes whose late tuples are counted apart.
_COUNTED_PANES_MAX = 1_000  # Panes that one stretch of unknown times is counted in.


@dataclass(slots=True)
class LatePanes:
    """Numbers of tuples that no synopsis has read, by the pane of their event time.

    by_pane: tuples of each pane, by its number.
    beyond: a pane, and the tuples of that pane or later ones; None: there are none.
    """

    by_pane: dict[int, int] = field(default_factory=dict)
    beyond: tuple[int, int] | None = None

    def count(self, panes: NDArray[np.int64], *, needed_from: int | None) -> None:
        """Count the panes of late tuples; those before needed_from are of no window any more."""
        found, counts = np.unique(panes, return_counts=True)
        needed = found >= (found[:1] if needed_from is None else needed_from)
        for pane, count in zip(found[needed].tolist(), counts[needed].tolist(), strict=True):
            self.by_pane[pane] = self.by_pane.get(pane, 0) + count
        if len(self.by_pane) > LATE_PANES_MAX:
            self._fold()

    def add(self, pane: int, count: int, *, needed_from: int | None) -> None:
        """Count late tuples of one pane."""
        if count and (needed_from is None or pane >= needed_from):
            self.by_pane[pane] = self.by_pane.get(pane, 0) + count
            if len(self.by_pane) > LATE_PANES_MAX:
                self._fold()

    def add_anywhere(self, first: int, last: int, count: int, *, needed_from: int | None) -> None:
        """Count late tuples of which it is only known that their panes are first to last."""
        cut = first + _COUNTED_PANES_MAX
        for pane in range(first, min(last + 1, cut)):
            self.add(pane, count, needed_from=needed_from)
        if last >= cut:
            pane, before = self.beyond or (cut, 0)
            self.beyond = (min(pane, cut), before + count)

    def _fold(self) -> None:
        """Wrong clocks can name any pane: those farthest ahead share one count from now on."""
        ahead = sorted(self.by_pane)[LATE_PANES_MAX // 2 :]
        count = sum(self.by_pane.pop(pane) for pane in ahead)
        if self.beyond is not None:
            ahead.append(self.beyond[0])
            count += self.beyond[1]
        self.beyond = (min(ahead), count)

    def drop_before(self, pane: int) -> None:
        """Forget the counts of panes that no window needs any more."""
        for old in [p for p in self.by_pane if p < pane]:
            del self.by_pane[old]

    def forget(self, pane: int) -> None:
        """Forget the count of a pane that was built again, late tuples included."""
        self.by_pane.pop(pane, None)

    def count_in(self, wanted: range) -> int:
        """Return how many tuples were late for these panes, at most."""
        late = sum(count for pane, count in self.by_pane.items() if pane in wanted)
        return late + (self.beyond[1] if self.beyond is not None and self._reach(wanted) else 0)

    def panes_in(self, wanted: range) -> tuple[int, int] | None:
        """The first and the last of these panes that tuples may have been late for, if any."""
        panes = [pane for pane in self.by_pane if pane in wanted]
        if self.beyond is not None and self._reach(wanted):
            panes += [max(self.beyond[0], wanted[0]), wanted[-1]]
        return (min(panes), max(panes)) if panes else None

    def _reach(self, wanted: range) -> bool:
        return self.beyond is not None and bool(wanted) and wanted[-1] >= self.beyond[0]

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"late_by_pane": list(self.by_pane.items()), "late_beyond": self.beyond}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of to_json."""
        beyond = state["late_beyond"]
        return cls(dict(state["late_by_pane"]), None if beyond is None else (beyond[0], beyond[1]))
