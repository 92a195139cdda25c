"""Sampled pairs: two columns of one uniform sample, group by group, with what is known of both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.intervals.from_moments import Floats
from synopses.intervals.sample_values import SampledValues

FEATURES: Final = 5  # Of a pair of standardised values: z_x z_y, z_x^2, z_y^2, z_x and z_y.


class PairMoments(NamedTuple):
    """Moments of the sampled pairs of each group.

    means, spreads: float64 [groups, 2], of x and of y: the mean, and the root of the mean squared
      distance from it.
    correlation: float64 [groups], the mean of z_x z_y; z are the values less the mean, divided by
      the spread, or 0 where there is no spread.
    scatter: float64 [groups, 5, 5], sums of products of the features' distances from their means.
    """

    means: Floats
    spreads: Floats
    correlation: Floats
    scatter: Floats


@dataclass(frozen=True)
class SampledPairs:
    """The pairs of the sampled rows that match, sorted by group.

    first, second: x and y; rows, order, population and seed are the same in both.
    """

    first: SampledValues
    second: SampledValues

    @classmethod
    def by_group(
        cls,
        first: Floats,
        second: Floats,
        *,
        ids: NDArray[np.int32] | None,
        groups: int,
        population: int | NDArray[np.int64],
        read: int | NDArray[np.int64],
        ranges: tuple[tuple[float, float], tuple[float, float]],
        shuffle_seed: int = 0,
    ) -> Self:
        """Sort the pairs by group.

        Args:
          first, second: float64 [matches], x and y, finite.
          ranges: (low, high) of x and of y, which hold all values, read or not.
          ids, groups, population, read, shuffle_seed: as in `SampledValues.by_group`.
        """
        x, y = (
            SampledValues.by_group(
                values,
                ids=ids,
                groups=groups,
                population=population,
                read=read,
                low=low,
                high=high,
                shuffle_seed=shuffle_seed,
            )
            for values, (low, high) in zip((first, second), ranges, strict=True)
        )
        return cls(x, y)

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self.first.groups

    @property
    def matched(self) -> Floats:
        """float64 [groups], pairs read."""
        return self.first.matched.astype(np.float64)

    @property
    def owners(self) -> NDArray[np.int64]:
        """int64 [matches], the group of each pair."""
        return np.repeat(np.arange(self.groups), self.first.matched)

    @cached_property
    def moments(self) -> PairMoments:
        """Means, spreads, and how the products and squares of the pairs vary."""
        return PairMoments(*_moments(self.first.starts, self.first.values, self.second.values))


@dataclass(frozen=True, slots=True, eq=False)
class CertainPairs:
    """Pairs that are known for certain, by their values alone, beside a sample of the others.

    starts: int64 [groups + 1], where the certain pairs of each group begin.
    pairs: float64 [2, pairs], their x and y.
    others: the sample without them, with the number and the ranges of all other tuples.
    """

    starts: NDArray[np.int64]
    pairs: Floats
    others: SampledPairs

    @classmethod
    def by_group(
        cls, first: Floats, second: Floats, *, ids: NDArray[np.int64], others: SampledPairs
    ) -> Self:
        """Sort finite pairs, each with the number of its group."""
        order = np.argsort(ids, kind="stable")
        counts = np.bincount(ids, minlength=others.groups)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return cls(starts, np.stack([first[order], second[order]]), others)

    @classmethod
    def none(cls, others: SampledPairs) -> Self:
        """No pair is known."""
        return cls(np.zeros(others.groups + 1, np.int64), np.empty((2, 0)), others)


@njit(nogil=True, cache=True)
def _moments(
    starts: NDArray[np.int64], first: Floats, second: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    groups = len(starts) - 1
    means, spreads = np.zeros((groups, 2)), np.zeros((groups, 2))
    average = np.zeros((groups, FEATURES))
    scatter = np.zeros((groups, FEATURES, FEATURES))
    parts = np.empty(FEATURES)
    for group in range(groups):
        begin, end = starts[group], starts[group + 1]
        if begin == end:
            continue
        for column in range(2):
            values = first[begin:end] if column == 0 else second[begin:end]
            mean = values.mean()
            mean += (values - mean).mean()  # Takes the rounding out.
            mean = min(max(mean, values.min()), values.max())
            means[group, column] = mean
            spreads[group, column] = np.sqrt(((values - mean) ** 2).mean())
        inverse_x = 1.0 / spreads[group, 0] if spreads[group, 0] > 0.0 else 0.0
        inverse_y = 1.0 / spreads[group, 1] if spreads[group, 1] > 0.0 else 0.0
        for turn in range(2):
            for row in range(begin, end):
                x = (first[row] - means[group, 0]) * inverse_x
                y = (second[row] - means[group, 1]) * inverse_y
                parts[0], parts[1], parts[2], parts[3], parts[4] = x * y, x * x, y * y, x, y
                if turn == 0:
                    average[group] += parts / (end - begin)
                    continue
                parts -= average[group]
                for i in range(FEATURES):
                    for j in range(i + 1):
                        scatter[group, i, j] += parts[i] * parts[j]
        for i in range(FEATURES):
            for j in range(i):
                scatter[group, j, i] = scatter[group, i, j]
    return means, spreads, average[:, 0].copy(), scatter
