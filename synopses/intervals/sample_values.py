"""Sampled values: what a uniform sample holds of a column, group by group, and what is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from synopses.kernels.array_inputs import as_input
from synopses.model.errors import BadParameter


@dataclass(frozen=True, slots=True, eq=False)
class SampledValues:
    """The non-null values of the sampled rows that match, sorted by group, with the basics.

    population: N, tuples of the stratum; read: n of them, an SRS without replacement (or all). One
      number each, or int64 [groups] where groups are of different strata.
    starts: int64 [groups + 1]; group g's values are values[starts[g]:starts[g + 1]].
    values: float64 [matches], finite.
    low, high: float64 [groups], a range that holds every value of the column (from the basics:
      taken before anything was skipped); may be infinite, then little can be promised.
    everything: every tuple of the stratum is a non-null match of the one group (no filter).
    whole_numbers: all values of the column are whole, read or not.
    shuffle_seed: 64 random bits that no value depends on; betting shuffles the rows by it.
    """

    population: int | NDArray[np.int64]
    read: int | NDArray[np.int64]
    starts: NDArray[np.int64]
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    everything: bool
    whole_numbers: bool = False
    shuffle_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("values", "low", "high"):
            object.__setattr__(self, name, as_input(getattr(self, name), np.float64))
        object.__setattr__(self, "starts", as_input(self.starts, np.int64))

    @classmethod
    def by_group(
        cls,
        values: NDArray[np.float64],
        *,
        ids: NDArray[np.int32] | None,
        groups: int,
        population: int | NDArray[np.int64],
        read: int | NDArray[np.int64],
        low: ArrayLike,
        high: ArrayLike,
        everything: bool = False,
        whole_numbers: bool = False,
        shuffle_seed: int = 0,
    ) -> Self:
        """Sort the matches by group; the meaning of the arguments is the class's.

        Args:
          values: float64 [matches]; nulls and rows that do not match are left out already.
          ids: int32 [matches], each row's group; None: all are group 0.
          low: scalar or [groups]; widened where a value lies outside (rounding).
          high: likewise.

        Raises:
          BadParameter: there are more matches than rows read, or more read than there are.
        """
        if ids is None:
            starts = np.array([0] + [len(values)] * groups, np.int64)
            ordered = np.ascontiguousarray(values, np.float64)
        else:
            starts = np.zeros(groups + 1, np.int64)
            np.cumsum(np.bincount(ids, minlength=groups), out=starts[1:])
            # Numbers of 16 bits are sorted by radix, ten times as fast.
            small = ids.astype(np.uint16) if groups <= 1 << 16 else ids
            ordered = values[np.argsort(small, kind="stable")].astype(np.float64, copy=False)
        matched = np.diff(starts) if isinstance(read, np.ndarray) else np.array([len(values)])
        if not ((matched <= read) & (np.asarray(read) <= population)).all():
            raise BadParameter(
                "matches, read, population", (matched, read, population), "m <= n <= N"
            )
        lows = np.broadcast_to(np.asarray(low, np.float64), (groups,)).copy()
        highs = np.broadcast_to(np.asarray(high, np.float64), (groups,)).copy()
        ordered = as_input(ordered, np.float64)
        _widen(starts, ordered, lows, highs)
        assert not everything or (groups == 1 and len(values) == read)
        return cls(
            population, read, starts, ordered, lows, highs, everything, whole_numbers, shuffle_seed
        )

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return len(self.starts) - 1

    @property
    def populations(self) -> NDArray[np.int64]:
        """int64 [groups], N of each group's stratum."""
        return np.broadcast_to(np.asarray(self.population, np.int64), (self.groups,))

    @property
    def reads(self) -> NDArray[np.int64]:
        """int64 [groups], n of each group's stratum."""
        return np.broadcast_to(np.asarray(self.read, np.int64), (self.groups,))

    @property
    def complete(self) -> NDArray[np.bool_]:
        """bool [groups], whether all tuples of the group's stratum were read."""
        complete: NDArray[np.bool_] = self.reads == self.populations
        return complete

    @property
    def unread_share(self) -> NDArray[np.float64]:
        """float64 [groups], 1 - n/N; 0 where there is no tuple."""
        return 1.0 - self.reads / np.maximum(self.populations, 1)

    @property
    def two_valued(self) -> NDArray[np.bool_]:
        """bool [groups], whether no value can lie between the ends of the range, which differ."""
        found: NDArray[np.bool_] = self.whole_numbers & (self.high - self.low == 1.0)
        return found

    @property
    def matched(self) -> NDArray[np.int64]:
        """int64 [groups], matching rows read."""
        return np.diff(self.starts)

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Each group's mean (NaN when empty) and sum of squared deviations from it."""
        return _moments(self.starts, self.values)

    def of_groups(self, chosen: NDArray[np.bool_]) -> Self:
        """The same rows of some groups. chosen: bool [groups]."""
        if chosen.all():
            return self
        starts = np.append(0, np.cumsum(self.matched[chosen]))
        population, read = (
            part[chosen] if isinstance(part, np.ndarray) else part
            for part in (self.population, self.read)
        )
        return replace(
            self,
            population=population,
            read=read,
            starts=starts,
            values=self.values[np.repeat(chosen, self.matched)],
            low=self.low[chosen],
            high=self.high[chosen],
        )

    def with_values(
        self, values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> Self:
        """The same rows with other values, aligned with `values`, and their range."""
        return replace(self, values=values, low=low, high=high, whole_numbers=False)


@njit(nogil=True, cache=True)
def _widen(
    starts: NDArray[np.int64],
    values: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> None:
    for group in range(len(low)):
        for row in range(starts[group], starts[group + 1]):
            low[group] = min(low[group], values[row])
            high[group] = max(high[group], values[row])


@njit(nogil=True, cache=True)
def _moments(
    starts: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    groups = len(starts) - 1
    means = np.full(groups, np.nan)
    squares = np.zeros(groups)
    for group in range(groups):
        first, last = starts[group], starts[group + 1]
        if first == last:
            continue
        mean = 0.0
        for row in range(first, last):
            mean += values[row] / (last - first)
        # A second pass takes the rounding out; equal values then have no spread at all.
        rest = 0.0
        for row in range(first, last):
            rest += values[row] - mean
        mean += rest / (last - first)
        mean = min(max(mean, values[first:last].min()), values[first:last].max())
        means[group] = mean
        for row in range(first, last):
            squares[group] += (values[row] - mean) ** 2
    return means, squares
