"""Take-all stratum of a thinned query: the rows that its moments and cross moments read in full.

Rows beyond the ends of any argument of these are in it, for pairs those beyond the ends of either
value, or of their sum or difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

from shedder.engine.panes.argument_basics import known_of
from shedder.engine.panes.diagonal_ranges import DiagonalRanges, PairAxes
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisPlan, SynopsisSpec
from shedder.engine.window_state.take_all_diagonals import TakeAllDiagonals
from shedder.engine.window_state.take_all_ends import NO_ROWS, TakeAllEnds
from shedder.streams.frame import ArgumentBasics, Frame
from shedder.streams.non_null_values import Present
from synopses.samples.admission_kernels import Rows, united_rows

TAKES_ALL: Final = (SynopsisKind.MOMENTS, SynopsisKind.CROSS)  # What reads these rows in full.
STRETCH_ROWS: Final = 1 << 16  # Positions with the same ends: thinning by load lasts for more.


class TakeAllStratum:
    """The ends of each argument that is thinned, by part of the plan.

    The ends of the second values of a pair have the number -1 - part. Diagonals are those of pairs.
    """

    def __init__(self, stretch_rows: int = STRETCH_ROWS) -> None:
        self._stretch_rows = stretch_rows
        self._ends: dict[int, TakeAllEnds] = {}
        self._diagonals: dict[int, TakeAllDiagonals] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes of the values that the ends are set by."""
        diagonals = sum(each.size_bytes for each in list(self._diagonals.values()))
        return diagonals + sum(each.size_bytes for each in list(self._ends.values()))

    def to_json(self) -> dict[str, Any]:
        """The state for a checkpoint, by part."""
        state = {str(part): ends.to_json() for part, ends in self._ends.items()}
        for part, diagonals in self._diagonals.items():
            state[str(part)]["diagonals"] = diagonals.to_json()
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of a checkpoint, or of another query that read the same rows."""
        self._ends = {
            int(part): TakeAllEnds.from_json(ends, self._stretch_rows)
            for part, ends in state.items()
        }
        self._diagonals = {
            int(part): TakeAllDiagonals.from_json(ends["diagonals"], self._stretch_rows)
            for part, ends in state.items()
            if "diagonals" in ends
        }

    def rows(self, view: Frame, plan: SynopsisPlan, levels: Sequence[int]) -> Rows:
        """Return which rows of the next frame are read in full, ascending."""
        found = []
        for at, part in enumerate(plan.parts):
            if not levels[at] or part.kind not in TAKES_ALL or part.argument is None:
                continue
            known = _known(part, view, 0, len(view))
            for (number, present), each in zip(_columns(at, part, view), known, strict=True):
                ends = self._ends.get(number)
                if ends is None:
                    ends = self._ends[number] = TakeAllEnds(self._stretch_rows)
                rows = ends.rows_beyond(view, present, each, levels[at])
                if rows.size:
                    found.append(rows)
            if part.second is not None:
                if at not in self._diagonals:
                    self._diagonals[at] = TakeAllDiagonals(self._stretch_rows)
                pairs = view.pairs(part.argument, part.second)
                rows = self._diagonals[at].rows_beyond(view, pairs, levels[at])
                if rows.size:
                    found.append(rows)
        return reduce(united_rows, found) if found else NO_ROWS

    def known(
        self, at: int, part: SynopsisSpec, view: Frame, places: tuple[int, int], taken: int
    ) -> ArgumentBasics:
        """Return what is known of a part's values in rows of the last frame, but for those taken.

        Args:
          at: the number of the part. places: first row and last row (exclusive).
          taken: how many of its values were read in full.
        """
        if at in self._ends and part.argument is not None:
            known = [
                self._ends[number].between(present, each, places, taken)
                for (number, present), each in zip(
                    _columns(at, part, view), _known(part, view, *places), strict=True
                )
            ]
            first, last = known[0], known[-1]
            if part.second is None:
                return first
            return ArgumentBasics(first.rows, first.low, first.high, last.low, last.high)
        known_here = known_of(part, view, *places)
        return ArgumentBasics(known_here.rows - taken, None, None) if taken else known_here

    def axes_of(self, at: int) -> PairAxes | None:
        """Return the axes of a part's pairs, if they are set."""
        return self._diagonals[at].axes if at in self._diagonals else None

    def known_diagonals(
        self, at: int, part: SynopsisSpec, view: Frame, places: tuple[int, int]
    ) -> DiagonalRanges | None:
        """Return the diagonal ranges of a part's pairs in rows of the last frame, if known."""
        if at not in self._diagonals or part.argument is None or part.second is None:
            return None
        return self._diagonals[at].between(view.pairs(part.argument, part.second), places)


def _columns(at: int, part: SynopsisSpec, view: Frame) -> list[tuple[int, Present]]:
    """The columns of numbers that a part reads, each with the number of its ends."""
    assert part.argument is not None, part
    if part.second is None:
        return [(at, view.present(part.argument))]
    pairs = view.pairs(part.argument, part.second)
    return [(at, Present(pairs.first, pairs.rows)), (-1 - at, Present(pairs.second, pairs.rows))]


def _known(part: SynopsisSpec, view: Frame, first: int, last: int) -> list[ArgumentBasics]:
    """What is known of each of these columns in rows first to last (exclusive)."""
    known = known_of(part, view, first, last)
    if part.second is None:
        return [known]
    return [
        ArgumentBasics(known.rows, known.low, known.high),
        ArgumentBasics(known.rows, known.low_beside, known.high_beside),
    ]
