"""Level segment: the tuples that a pane's synopsis read at one level, with the basics of all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.diagonal_ranges import DiagonalRanges, joined
from shedder.engine.panes.synopsis_resizing import merged
from shedder.streams.frame import ArgumentBasics
from synopses.moments.covariance import GroupedCrossMoments

End = int | float | None


@dataclass(slots=True, eq=False)
class Segment:
    """A synopsis that has read a part of the tuples, and what is known of all of them.

    population: non-null values (tuples, where the synopsis counts rows) that there were to read;
    read: those that the synopsis read, a simple random sample of them without replacement.
    low, high: the range of all of them; None where there is none, and for text.
    shape: of moments that are asked for a variance, (x, x^2) of what was read; of pairs the squares
    of their sums and differences, on the axes of `diagonals`. A normal interval needs it. None: it
    was not kept.
    low_beside, high_beside: the range of the second values of pairs, of FIRST's and LAST's times.
    diagonals: of pairs, the ranges of their sums and differences; None: not known of all.
    """

    synopsis: Any
    population: int = 0
    read: int = 0
    low: int | float | None = None
    high: int | float | None = None
    low_beside: int | float | None = None
    high_beside: int | float | None = None
    shape: GroupedCrossMoments | None = field(default=None, kw_only=True)
    diagonals: DiagonalRanges | None = field(default=None, kw_only=True)

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        beside = 0 if self.shape is None else self.shape.size_bytes
        return int(self.synopsis.size_bytes) + beside

    def forget_counts(self) -> None:
        """Count nothing: another segment counts the same values."""
        self.population = self.read = 0

    def grow(self, groups: int) -> None:
        """Make room for more groups."""
        self.synopsis.grow(groups)
        if self.shape is not None:
            self.shape.grow(groups)

    @property
    def skipped(self) -> int:
        """Values that the synopsis did not read."""
        return self.population - self.read

    @property
    def unread_share(self) -> float:
        """The part of the values that the synopsis did not read."""
        return self.skipped / self.population if self.population else 0.0

    @property
    def basics(self) -> tuple[int | float | None, ...]:
        """Everything but the synopsis, as it is stored; what comes last may be left out."""
        beside = () if self.low_beside is None else (self.low_beside, self.high_beside)
        return self.population, self.read, self.low, self.high, *beside

    def notice(
        self, known: ArgumentBasics, read: int, diagonals: DiagonalRanges | None = None
    ) -> None:
        """Count values that there were to read, and those of them that were."""
        self._stretch_diagonals(known.rows, diagonals)
        self.population += known.rows
        self.read += read
        self._stretch(known)

    def merge(self, other: Segment) -> Self:
        """Fold in another segment of the same synopsis and level."""
        self.synopsis = merged(self.synopsis, other.synopsis)
        if other.shape is None and other.read:
            self.shape = None  # Of a part of the values it says nothing.
        elif other.shape is not None and self.shape is not None:
            self.shape.merge(other.shape)
        self._stretch_diagonals(other.population, other.diagonals)
        self.population += other.population
        self.read += other.read
        self._stretch(other)
        return self

    def select(self, ids: NDArray[np.int64]) -> Segment:
        """These groups, in this order; those that it has not met are empty."""
        shape = None if self.shape is None else selected(self.shape, ids)
        return replace(self, synopsis=selected(self.synopsis, ids), shape=shape)

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Segment:
        """The inverse of select: group i goes to ids[i]."""
        shape = None if self.shape is None else self.shape.scatter(ids, groups)
        return replace(self, synopsis=self.synopsis.scatter(ids, groups), shape=shape)

    def _stretch_diagonals(self, population: int, other: DiagonalRanges | None) -> None:
        """Hold the diagonal ranges of so many more values; called before these are counted."""
        if other is None and not population:
            return
        is_first = self.diagonals is None and not self.population
        self.diagonals = other if is_first else joined(self.diagonals, other)

    def _stretch(self, other: ArgumentBasics | Segment) -> None:
        self.low, self.high = _lower(self.low, other.low), _higher(self.high, other.high)
        self.low_beside = _lower(self.low_beside, other.low_beside)
        self.high_beside = _higher(self.high_beside, other.high_beside)


def _lower(end: End, other: End) -> End:
    """The lower one of two ends; None where there is neither."""
    return other if end is None or (other is not None and other < end) else end


def _higher(end: End, other: End) -> End:
    return other if end is None or (other is not None and other > end) else end


def selected(synopsis: Any, ids: NDArray[np.int64]) -> Any:
    """A synopsis' groups, in this order; those that it has not met are empty."""
    if len(ids):
        synopsis.grow(int(ids.max()) + 1)
    return synopsis.select(ids)
