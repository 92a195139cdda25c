"""A segment: what one synopsis read of a pane at one level, with the basics of what there was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shedder.streams.frame import Known


@dataclass(slots=True, eq=False)
class Segment:
    """A synopsis that has read a part of the tuples, and what is known of all of them.

    population: non-null values (tuples, where the synopsis counts rows) that there were to read;
    read: those that the synopsis read, a simple random sample of them without replacement.
    low, high: the range of all of them; None where there is none, and for text.
    """

    synopsis: Any
    population: int = 0
    read: int = 0
    low: int | float | None = None
    high: int | float | None = None

    @property
    def skipped(self) -> int:
        """Values that the synopsis did not read."""
        return self.population - self.read

    @property
    def basics(self) -> tuple[int, int, int | float | None, int | float | None]:
        """Everything but the synopsis, as it is stored."""
        return self.population, self.read, self.low, self.high

    def notice(self, known: Known, read: int) -> None:
        """Count values that there were to read, and those of them that were."""
        self.population += known.rows
        self.read += read
        self._stretch(known.low, known.high)

    def merge(self, other: Segment) -> Self:
        """Fold in another segment of the same synopsis and level."""
        self.synopsis.merge(other.synopsis)
        self.population += other.population
        self.read += other.read
        self._stretch(other.low, other.high)
        return self

    def select(self, ids: NDArray[np.int64]) -> Segment:
        """These groups, in this order; those that it has not met are empty."""
        return replace(self, synopsis=selected(self.synopsis, ids))

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Segment:
        """The inverse of select: group i goes to ids[i]."""
        return replace(self, synopsis=self.synopsis.scatter(ids, groups))

    def _stretch(self, low: int | float | None, high: int | float | None) -> None:
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
        if high is not None:
            self.high = high if self.high is None else max(self.high, high)


def selected(synopsis: Any, ids: NDArray[np.int64]) -> Any:
    """A synopsis' groups, in this order; those that it has not met are empty."""
    if len(ids):
        synopsis.grow(int(ids.max()) + 1)
    return synopsis.select(ids)
