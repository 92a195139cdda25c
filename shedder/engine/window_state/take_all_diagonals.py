"""Ends of the sum and the difference of a thinned pair's values, on fixed axes.

Pairs in a corner of the ranges of both columns weigh most in a correlation, and few columns have
any there. Pairs beyond these ends are read in full, as those beyond the ends of either column are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.diagonal_ranges import DiagonalRanges, PairAxes, pair_of
from shedder.engine.window_state.take_all_ends import (
    GATHERED_MIN,
    NO_ROWS,
    Piece,
    TakeAllEnds,
    one_in_step,
)
from shedder.streams.frame import Frame
from shedder.streams.non_null_values import Pairs
from synopses.kernels.array_inputs import as_input
from synopses.samples.admission_kernels import Rows
from synopses.samples.diagonal_kernels import pairs_beyond

Floats = NDArray[np.float64]
_SPREAD: Final = 1e-70, 1e70  # Spreads between them have squares that are doubles.


@dataclass(slots=True, eq=False)
class TakeAllDiagonals:
    """The axes of pairs, by the means and spreads of earlier pairs, and the ends on both.

    stretch_rows: as of `TakeAllEnds`. axes: None: not set yet.
    total, difference: the ends. stretch: the number of the present one; -1: none has begun.
    gathered: float64 [2, values] each, to set the axes by.
    pieces: which pairs of the last frame are of each stretch, and the ends there: float64 [4].
      None: the axes were not set.
    """

    stretch_rows: int
    axes: PairAxes | None = None
    total: TakeAllEnds = field(init=False)
    difference: TakeAllEnds = field(init=False)
    stretch: int = -1
    gathered: list[Floats] = field(default_factory=list)
    pieces: list[tuple[slice | Rows, Floats | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with ends that nothing is beyond."""
        self.total, self.difference = (TakeAllEnds(self.stretch_rows) for _ in range(2))

    @property
    def size_bytes(self) -> int:
        """Bytes of the values that are held."""
        held = self.total.size_bytes + self.difference.size_bytes
        return held + sum(each.nbytes for each in list(self.gathered))

    def to_json(self) -> dict[str, Any]:
        """Everything that the next ends depend on, for a checkpoint."""
        return {
            "axes": None if self.axes is None else [self.axes.centers, self.axes.scales],
            "ends": [self.total.to_json(), self.difference.to_json()],
            "stretch": self.stretch,
            "gathered": np.concatenate([np.zeros((2, 0)), *self.gathered], axis=1).tolist(),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any], stretch_rows: int) -> TakeAllDiagonals:
        """Read what `to_json` returned."""
        axes = None if state["axes"] is None else PairAxes(*map(pair_of, state["axes"]))
        gathered = [np.array(state["gathered"], np.float64)]
        made = cls(stretch_rows, axes, state["stretch"], gathered)
        made.total, made.difference = (
            TakeAllEnds.from_json(ends, stretch_rows) for ends in state["ends"]
        )
        return made

    def rows_beyond(self, view: Frame, pairs: Pairs, level: int) -> Rows:
        """Return which rows of the next frame are beyond any of the ends, ascending."""
        size, self.pieces = len(pairs.first), []
        if not size:
            return NO_ROWS
        # The ends that gather values need the positions of these.
        ends = self.difference if self.total.left else self.total
        found = []
        for piece in ends.pieces(view, pairs.rows, size):
            stretch, at, positions = piece
            if stretch > self.stretch:
                self.stretch = stretch
                if self.axes is None:
                    self._set_axes(level)
            x, y = (
                as_input(each[at].astype(np.float64, copy=False), np.float64)
                for each in (pairs.first, pairs.second)
            )
            if self.axes is None:
                chosen = one_in_step(positions)
                self.gathered.append(np.stack([x[chosen], y[chosen]]))
                self.pieces.append((at, None))
                continue
            beyond = self._beyond(x, y, piece, level)
            found.append(at.start + beyond if isinstance(at, slice) else at[beyond])
        rows = np.concatenate(found) if found else NO_ROWS
        if len(self.pieces) > 1 and not isinstance(self.pieces[0][0], slice):
            rows.sort()
        return rows if pairs.rows is None else pairs.rows[rows]

    def between(self, pairs: Pairs, places: tuple[int, int]) -> DiagonalRanges | None:
        """Return the ranges of pairs of the last frame that were not read in full.

        They reach from end to end: looking for the least and the largest would cost as much again.

        Args:
          pairs: of the last frame. places: first row and last row (exclusive).
        """
        first, last = places if pairs.rows is None else pairs.rows.searchsorted(places).tolist()
        found = []
        for at, ends in self.pieces:
            if isinstance(at, slice):
                is_here = max(at.start, first) < min(at.stop, last)
            else:
                is_here = bool(((at >= first) & (at < last)).any())
            if is_here and ends is None:
                return None
            if is_here and ends is not None:
                found.append(ends)
        if not found or self.axes is None:
            return None
        lows, highs = np.array(found)[:, ::2].min(axis=0), np.array(found)[:, 1::2].max(axis=0)
        (low, low_apart), (high, high_apart) = lows.tolist(), highs.tolist()
        return DiagonalRanges(self.axes, (low, high), (low_apart, high_apart))

    def _beyond(self, x: Floats, y: Floats, piece: Piece, level: int) -> Rows:
        """Return where pairs of a stretch are beyond an end."""
        assert self.axes is not None
        stretch, at, positions = piece
        for number, ends in enumerate((self.total, self.difference)):
            ends.enter(stretch, level, x.size)
            if not ends.left:
                chosen = one_in_step(positions)
                ends.gathered.append(self.axes.both(x[chosen], y[chosen])[number])
        here = np.array(
            [self.total.low, self.total.high, self.difference.low, self.difference.high]
        )
        self.pieces.append((at, here))
        beyond, sums, differences = pairs_beyond(x, y, self.axes.units, here)
        self.total.count_beyond(sums)
        self.difference.count_beyond(differences)
        return beyond

    def _set_axes(self, level: int) -> None:
        """Set the axes, and the first ends, by the values of the stretches before."""
        gathered = np.concatenate([np.zeros((2, 0)), *self.gathered], axis=1)
        if gathered.shape[1] < GATHERED_MIN:
            return
        self.gathered = []
        with np.errstate(invalid="ignore", over="ignore"):
            centers, scales = gathered.mean(axis=1), gathered.std(axis=1)
        if not ((scales > _SPREAD[0]) & (scales < _SPREAD[1])).all():
            return
        self.axes = PairAxes(pair_of(centers.tolist()), pair_of(scales.tolist()))
        before = self.stretch - 1
        self.total, self.difference = (
            TakeAllEnds(self.stretch_rows, level=level, stretch=before, gathered=[values])
            for values in self.axes.both(*gathered)
        )
