"""Take-all stratum of a thinned query: the rows that its sums, averages and variances read in full.

Rows beyond the ends of any argument of moments are in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from shedder.engine.panes.argument_basics import known_of
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisPlan, SynopsisSpec
from shedder.engine.window_state.take_all_ends import NO_ROWS, TakeAllEnds
from shedder.streams.frame import ArgumentBasics, Frame
from synopses.samples.admission_kernels import Rows

STRETCH_ROWS: Final = 1 << 16  # Positions with the same ends: thinning by load lasts for more.


class TakeAllStratum:
    """The ends of each argument of moments that is thinned, by part of the plan."""

    def __init__(self, stretch_rows: int = STRETCH_ROWS) -> None:
        self._stretch_rows = stretch_rows
        self._ends: dict[int, TakeAllEnds] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes of the values that the ends are set by."""
        return sum(each.size_bytes for each in list(self._ends.values()))

    def to_json(self) -> dict[str, Any]:
        """The state for a checkpoint, by part."""
        return {str(part): ends.to_json() for part, ends in self._ends.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a checkpoint, or of another query that read the same rows."""
        self._ends = {
            int(part): TakeAllEnds.from_json(ends, self._stretch_rows)
            for part, ends in state.items()
        }

    def rows(self, view: Frame, plan: SynopsisPlan, levels: Sequence[int]) -> Rows:
        """Return which rows of the next frame are read in full, ascending."""
        found = []
        for at, part in enumerate(plan.parts):
            if levels[at] and part.kind is SynopsisKind.MOMENTS and part.argument is not None:
                ends = self._ends.get(at)
                if ends is None:
                    ends = self._ends[at] = TakeAllEnds(self._stretch_rows)
                rows = ends.rows_beyond(view, part.argument, levels[at])
                if rows.size:
                    found.append(rows)
        if len(found) < 2:
            return found[0] if found else NO_ROWS
        together: Rows = np.sort(np.concatenate(found))
        is_new = np.append(True, together[1:] != together[:-1])
        return np.asarray(together[is_new])

    def known(
        self, at: int, part: SynopsisSpec, view: Frame, places: tuple[int, int], taken: int
    ) -> ArgumentBasics:
        """Return what is known of a part's values in rows of the last frame, but for those taken.

        Args:
          at: the number of the part. places: first row and last row (exclusive).
          taken: how many of its values were read in full.
        """
        ends = self._ends.get(at)
        if ends is not None and part.argument is not None:
            return ends.between(view, part.argument, places, taken)
        known = known_of(part, view, *places)
        return ArgumentBasics(known.rows - taken, None, None) if taken else known
