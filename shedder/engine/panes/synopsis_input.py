"""Input of one synopsis from a view: arrays without nulls, and the groups of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.engine.panes.diagonal_ranges import PairAxes
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisSpec
from shedder.streams.frame import Frame
from synopses.moments.covariance import GroupedCrossMoments


class PartInput:
    """A part's arrays of one view, from which its synopses of any pane and level are fed."""

    __slots__ = ("_arrays", "_ids", "_is_count", "_is_of_pairs", "_rows")

    def __init__(
        self, part: SynopsisSpec, view: Frame, ids: NDArray[np.int32] | None, *, level: int = 0
    ) -> None:
        self._arrays: tuple[Any, ...] = ()
        self._rows: NDArray[np.int64] | None = None
        if part.argument is not None and part.second is not None:
            pairs = view.pairs(part.argument, part.second)
            self._rows, self._arrays = pairs.rows, (pairs.first, pairs.second)
        elif part.argument is not None:
            present = view.present(part.argument)
            self._rows = present.rows
            match part.kind:  # Each question takes its time: the most usual kinds come first.
                case SynopsisKind.COUNT:
                    pass
                case SynopsisKind.MOMENTS:
                    self._arrays = (present.values,)
                case SynopsisKind.DISTINCT:
                    hashes = view.identities(part.argument)
                    self._arrays = (hashes.first, hashes.second)[: 1 if level else 2]
                case (
                    SynopsisKind.BUCKETS
                    | SynopsisKind.KLL
                    | SynopsisKind.REQ_HIGH
                    | SynopsisKind.REQ_LOW
                ):
                    self._arrays = (np.asarray(present.values, np.float64),)
                case SynopsisKind.FREQUENT:
                    keys = view.hashes(part.argument).first
                    self._arrays = (keys, _gatherable(present.values))
                case SynopsisKind.COUNTERS | SynopsisKind.THETA:
                    self._arrays = (view.hashes(part.argument).first,)
                case SynopsisKind.FIRST_LAST | SynopsisKind.TEXT_FIRST_LAST:
                    rows = slice(None) if present.rows is None else present.rows
                    self._arrays = (view.times_us[rows], view.positions[rows], present.values)
                case _:
                    self._arrays = (present.values,)
        self._ids = ids if ids is None or self._rows is None else ids[self._rows]
        self._is_of_pairs = part.second is not None
        self._is_count = part.kind is SynopsisKind.COUNT

    def _values_of(self, first: int, last: int) -> tuple[int, int]:
        """Return which of the values are of the view's rows first to last (exclusive)."""
        if self._rows is None:
            return first, last
        start, stop = np.searchsorted(self._rows, (first, last)).tolist()
        return start, stop

    def groups_of(self, first: int, last: int) -> NDArray[np.int32]:
        """The group of each value of these rows."""
        start, stop = self._values_of(first, last)
        assert self._ids is not None
        return self._ids[start:stop]

    def feed(
        self,
        synopsis: Any,
        first: int,
        last: int,
        *,
        places: NDArray[np.int32] | None = None,
        groups: int | None = None,
    ) -> int:
        """Update the synopsis with the view's rows first to last (exclusive).

        Args:
          places: where in the synopsis each group is; None: where its id says.
          groups: the synopsis has only the first groups; None: all.

        Returns:
          How many values there were in these rows.
        """
        first, last = self._values_of(first, last)
        if first == last:
            return 0
        ids, arrays = self._some(first, last, places)
        if self._is_count:
            synopsis.update(ids, int(last - first))
            return int(last - first)
        if ids is not None and groups is not None:
            rows = np.flatnonzero(ids < groups)
            ids, arrays = ids[rows], [array[rows] for array in arrays]
        synopsis.update(ids, *arrays)
        return int(last - first)

    def feed_thinned(
        self,
        synopsis: Any,
        shape: GroupedCrossMoments | None,
        first: int,
        last: int,
        *,
        places: NDArray[np.int32] | None = None,
        axes: PairAxes | None = None,
    ) -> int:
        """Update a synopsis as `feed`, and the shape of its segment, if the segment has one.

        The shape of numbers is that of x and x^2, the shape of pairs that of the squares of their
        sums and differences on the axes.
        """
        if shape is None or (axes is None and self._is_of_pairs):
            return self.feed(synopsis, first, last, places=places)
        first, last = self._values_of(first, last)
        if first == last:
            return 0
        ids, arrays = self._some(first, last, places)
        if axes is not None:
            synopsis.update_with_squares(shape, axes.units, ids, *arrays)
            return last - first
        values = np.asarray(arrays[0], np.float64)
        with np.errstate(over="ignore"):  # An infinite square makes the pair one that is apart.
            shape.update(ids, values, values * values)
        synopsis.update(ids, *arrays)
        return last - first

    def _some(
        self, first: int, last: int, places: NDArray[np.int32] | None
    ) -> tuple[NDArray[np.int32] | None, list[Any]]:
        """The groups and the arrays of values first to last (exclusive)."""
        ids = None if self._ids is None else self._ids[first:last]
        if ids is not None and places is not None:
            ids = places[ids]
        return ids, [array[first:last] for array in self._arrays]


class TextValues:
    """Arrow text that becomes Python strings only for the rows that a caller picks."""

    def __init__(self, values: pa.Array[Any]) -> None:
        self._values = values
        self.dtype = np.dtype(object)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> Any:
        if isinstance(rows, slice):
            return TextValues(self._values[rows])
        return self._values.take(rows).to_numpy(zero_copy_only=False)


def _gatherable(values: Any) -> Any:
    return TextValues(values) if isinstance(values, pa.Array) else values
