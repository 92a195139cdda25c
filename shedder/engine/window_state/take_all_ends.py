"""Ends of a thinned argument's take-all stratum: rows with values beyond them are read in full.

The ends depend on values and positions of rows, never on the random keys that rows are thinned by.
So the rows that are kept of those between the ends are a simple random sample of them. What these
can add to a sum lies in a narrow range.

Source: Hidiroglou 1986, American Statistician 40(1); Cochran 1977, Sampling Techniques, ch. 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shedder.streams.frame import ArgumentBasics, Frame
from shedder.streams.non_null_values import Present
from synopses.kernels.array_inputs import as_input
from synopses.samples.admission_kernels import Rows, few_outside

NO_ROWS: Final = np.zeros(0, np.int64)
_SHARE: Final = 1 / 20  # Rows beyond each end, as a share of the rows that a level keeps.
_STEP: Final = 29  # Of so many positions one is gathered. A prime: few periods of data have it.
GATHERED_MIN: Final = 1_000  # Values; fewer do not set ends.
_RANK_MIN: Final = 8  # Gathered values beyond an end: fewer leave it off by more than a third.
_FLAT: Final = 2.0  # Deviations from the mean; few rows beyond narrow no range that ends there.
_STRETCHES: Final = 32  # Until ends are set again.
_OVERFLOW: Final = 4  # Times the rows that ends are set for. More show that values have moved.
_PAUSE_MAX: Final = 64  # Stretches without ends after values have moved again and again.
_DOUBLE_WHOLE_MAX: Final = 2.0**53  # Doubles tell whole numbers apart up to here.

Values = NDArray[Any]
Piece = tuple[int, slice | Rows, int | Rows]


@dataclass(slots=True, eq=False)
class TakeAllEnds:
    """The ends of one argument, as doubles; values strictly beyond them are read in full.

    A stretch is a range of positions. Ends change between stretches only, and by the values of
    whole stretches. So ends do not depend on the batches that rows come in.

    stretch_rows: positions of a stretch. low, high: the ends; infinite ones have nothing beyond.
    level: that the argument was thinned to when the stretch began.
    stretch: the number of the present stretch; -1: none has begun.
    left: stretches until values are gathered, to set the ends again; 0: they are gathered.
    pause: stretches without ends after the next overflow; doubled by each overflow.
    seen, beyond: values of the present stretch, and those of them that were beyond an end.
    gathered: float64 arrays of values.
    clipped: values of the last frame, each moved to the end that it is beyond. None: the ends have
      not changed within that frame.
    """

    stretch_rows: int
    low: float = -np.inf
    high: float = np.inf
    level: int = 0
    stretch: int = -1
    left: int = 0
    pause: int = 1
    seen: int = 0
    beyond: int = 0
    gathered: list[NDArray[np.float64]] = field(default_factory=list)
    clipped: Values | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the values that are held."""
        clipped = 0 if self.clipped is None else self.clipped.nbytes
        return clipped + sum(each.nbytes for each in list(self.gathered))

    def to_json(self) -> dict[str, Any]:
        """Everything that the next ends depend on, for a checkpoint."""
        return {
            "ends": [self.low, self.high],
            "counts": [self.level, self.stretch, self.left, self.pause, self.seen, self.beyond],
            "gathered": [value for each in self.gathered for value in each.tolist()],
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any], stretch_rows: int) -> TakeAllEnds:
        """Read what `to_json` returned."""
        low, high = state["ends"]
        level, stretch, left, pause, seen, beyond = state["counts"]
        gathered = [np.array(state["gathered"], np.float64)]
        return cls(
            stretch_rows, low, high, level, stretch, left, pause, seen, beyond, gathered=gathered
        )

    def rows_beyond(self, view: Frame, present: Present, known: ArgumentBasics, level: int) -> Rows:
        """Return which rows of the next frame are beyond the ends, ascending.

        Args:
          present: its values; known: their range. level: that they are thinned to.
        """
        values, rows = present.values, present.rows
        assert isinstance(values, np.ndarray), "numbers"
        self.clipped = None
        pieces = self.pieces(view, rows, values.size)
        if not pieces:  # No row of the frame has a value.
            return NO_ROWS
        if len(pieces) == 1:
            beyond = self.of_stretch(values, pieces[0], known, level)
            return beyond if rows is None else rows[beyond]
        found, ends = [NO_ROWS], list[tuple[float, float]]()
        for piece in pieces:
            at = piece[1]
            here = self.of_stretch(values[at], piece, known, level)
            found.append(at.start + here if isinstance(at, slice) else at[here])
            ends.append((self.low, self.high))
        if len(set(ends)) > 1:
            self.clipped = values.copy()
            for (_, at, _), (low, high) in zip(pieces, ends, strict=True):
                self.clipped[at] = values[at].clip(*_ends_in_type(low, high, values.dtype.kind))
        beyond = np.concatenate(found)
        if not isinstance(pieces[0][1], slice):
            beyond.sort()
        return beyond if rows is None else rows[beyond]

    def between(
        self, present: Present, known: ArgumentBasics, places: tuple[int, int], taken: int
    ) -> ArgumentBasics:
        """Return what is known of values of the last frame that were not read in full.

        The range is that of all values, each moved to the end that it is beyond. So it does not
        depend on the frames that rows come in.

        Args:
          present: values of the last frame. places: first row and last row (exclusive).
          known: of the values of these rows. taken: how many of these values were read.
        """
        if self.clipped is None:
            low, high = known.low, known.high
            if low is None or high is None or (self.low <= low and high <= self.high):
                return ArgumentBasics(known.rows - taken, low, high)
            kind = "i" if isinstance(low, int) else "f"
            least, most = _ends_in_type(self.low, self.high, kind)
            return ArgumentBasics(
                known.rows - taken, min(max(low, least), most), max(min(high, most), least)
            )
        rows = present.rows
        first, last = places if rows is None else rows.searchsorted(places).tolist()
        some = self.clipped[first:last]
        if not some.size:
            return ArgumentBasics(0, None, None)
        return ArgumentBasics(some.size - taken, some.min().item(), some.max().item())

    def pieces(self, view: Frame, rows: Rows | None, size: int) -> list[Piece]:
        """The frame's values by stretches: number of the stretch, where they are, positions."""
        span, length = view.batch_positions, self.stretch_rows
        stretch = span.start // length
        first = view.first_position if rows is None else None
        if first is not None:
            if (first + size - 1) // length == first // length:
                return [(first // length, slice(0, size), first)]
            cuts = range(first // length, (first + size - 1) // length + 1)
            starts = [max(cut * length - first, 0) for cut in cuts]
            ends = [*starts[1:], size]
            places = zip(cuts, starts, ends, strict=True)
            return [(cut, slice(start, end), first + start) for cut, start, end in places]
        if self.left and self.stretch == stretch == (span.stop - 1) // length:
            return [(stretch, slice(0, size), NO_ROWS)]
        positions = view.positions if rows is None else view.positions[rows]
        stretches, found = positions // length, list[Piece]()
        for cut in range(stretch, (span.stop - 1) // length + 1):
            at = np.flatnonzero(stretches == cut)
            if at.size:
                found.append((cut, at, positions[at]))
        return found

    def of_stretch(self, values: Values, piece: Piece, known: ArgumentBasics, level: int) -> Rows:
        """Return where values beyond the ends are.

        Args:
          values: of the stretch. piece: which they are. known: their range, or that of more values.
          level: that they are thinned to.
        """
        stretch, _, positions = piece
        self.enter(stretch, level, values.size)
        if not self.left:
            self.gathered.append(values[one_in_step(positions)].astype(np.float64))
        if known.low is None or known.high is None:
            return NO_ROWS
        if self.low <= known.low and known.high <= self.high:
            return NO_ROWS
        dtype = np.int64 if values.dtype.kind == "i" else np.float64
        found = few_outside(as_input(values, dtype), self.low, self.high)
        self.count_beyond(found.size)
        return found

    def enter(self, stretch: int, level: int, size: int) -> None:
        """Count so many values of a stretch; begin it if it is a new one."""
        if stretch > self.stretch:
            self._begin(stretch, level)
        self.seen += size

    def count_beyond(self, size: int) -> None:
        """Count so many values of the present stretch as beyond an end."""
        self.beyond += size

    def _begin(self, stretch: int, level: int) -> None:
        """Begin a stretch; all values of the one before have been seen."""
        passed, changed = stretch - self.stretch, level != self.level
        expected = 2 * (2.0**-self.level * _SHARE * self.seen + _RANK_MIN)
        self.stretch, self.level = stretch, level
        overflows, self.seen, self.beyond = self.beyond > _OVERFLOW * expected, 0, 0
        if not self.left:
            self._set()
        elif overflows:
            self.low, self.high = -np.inf, np.inf
            self.left, self.pause = self.pause, min(2 * self.pause, _PAUSE_MAX)
        else:
            self.left = 0 if changed else max(self.left - passed, 0)
            if not self.left and self.low < self.high < np.inf:
                self.pause = 1

    def _set(self) -> None:
        """Set ends that about as many values are beyond as the level is to read in full.

        On a side where values lie no farther from the mean than the other end, the end is as far
        from the mean. Flat columns have such ends on both sides: only new values are beyond them.
        """
        if sum(map(len, self.gathered)) < GATHERED_MIN:
            return
        values = np.sort(np.concatenate(self.gathered))  # Whatever order the rows came in.
        self.gathered, self.left = [], _STRETCHES
        rank = max(int(len(values) * 2.0**-self.level * _SHARE), _RANK_MIN)
        low, high = float(values[rank]), float(values[-rank - 1])
        with np.errstate(over="ignore", invalid="ignore"):  # Infinite values have no such mean.
            mean, deviation = float(values.mean()), float(values.std())
        least, most = float(values[0]), float(values[-1])
        if max(mean - least, most - mean) <= _FLAT * deviation < np.inf:
            low = min(least, mean - _FLAT * deviation)
            high = max(most, mean + _FLAT * deviation)
        elif mean - least <= high - mean:
            low = min(least, mean - (high - mean))
        elif most - mean <= mean - low:
            high = max(most, mean + (mean - low))
        self.low, self.high = low, high


def one_in_step(positions: int | Rows) -> slice | NDArray[np.bool_]:
    """Return which values of a piece are gathered, by the positions of the piece."""
    if isinstance(positions, np.ndarray):
        return np.asarray(positions % _STEP == 0)
    return slice(-positions % _STEP, None, _STEP)


def _ends_in_type(low: float, high: float, kind: str) -> tuple[Any, Any]:
    """The least and the greatest value that is beyond neither end; kind: of numpy's dtype."""
    if kind != "i":
        return low, high
    least, most = _whole_below(low), -_whole_below(-high)
    return max(least, -(2**63)), min(most, 2**63 - 1)


def _whole_below(end: float) -> int:
    """The least whole number that may be at an end in doubles, which larger ones are rounded to."""
    if math.isinf(end):
        return -(2**64) if end < 0 else 2**64
    return math.floor(end if abs(end) < _DOUBLE_WHOLE_MAX else np.nextafter(end, -np.inf))
