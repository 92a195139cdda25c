"""Whole numbers that doubles do not hold: their distances from a whole number near them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column, Expression
from shedder.queries.sampling.sampled_query import Sampled
from synopses.intervals.interval import Intervals
from synopses.intervals.sample_values import SampledValues
from synopses.model.estimate import Bound

HELD_MAX: Final = 2.0**53  # Doubles tell whole numbers apart up to here.
_BITS: Final = 10  # An int64 without its last 10 bits is a double.
_INT64: Final = np.iinfo(np.int64)
_WHOLE: Final = frozenset({ColumnType.INTEGER, ColumnType.BIGINT, ColumnType.TIMESTAMP})

Integers = NDArray[np.int64]


def is_beyond_doubles(sampled: Sampled, node: Expression) -> bool:
    """Return whether an expression may have whole numbers that doubles do not tell apart."""
    return node.type in _WHOLE and bool(np.abs(sampled.range(node)).max() >= HELD_MAX)


def distances(values: Integers, anchors: Integers) -> NDArray[np.float64]:
    """Values less anchors, rounded once; anchors are multiples of 1,024."""
    high = (values >> _BITS) - (anchors >> _BITS)
    return high * float(1 << _BITS) + (values & ((1 << _BITS) - 1))


def anchors_of(values: Integers, ids: Integers, groups: int) -> Integers:
    """A multiple of 1,024 near the first value of each group; 0 where there is none."""
    anchors = np.zeros(groups, np.int64)
    anchors[ids[::-1]] = values[::-1]
    return anchors >> _BITS << _BITS


@dataclass(frozen=True, slots=True, eq=False)
class AnchoredValues:
    """The values of a sample less a whole number of their group.

    sample: the distances, with the range of all. anchors: int64 [groups], doubles too.
    """

    sample: SampledValues
    anchors: Integers

    @classmethod
    def of(cls, sampled: Sampled, node: Expression) -> AnchoredValues:
        """Of an expression of whole numbers."""
        values, ids = sampled.present(node)
        anchors = anchors_of(values, ids, sampled.groups.count)
        low, high = range_of_distances(sampled, node, anchors)
        sample = sampled.sample_of(node, distances(values, anchors[ids]), ids, low, high)
        return cls(sample, anchors)

    def raised(self, means: Intervals) -> Intervals:
        """Means of distances as means of values."""
        return raised(means, self.anchors)


def raised(means: Intervals, anchors: Integers) -> Intervals:
    """Means of distances as means of values, the ends rounded outward."""
    value, low, high = (anchors + part for part in (means.value, means.low, means.high))
    is_open = means.bound != Bound.EXACT
    low = np.where(is_open, np.nextafter(low, -np.inf), low)
    high = np.where(is_open, np.nextafter(high, np.inf), high)
    return replace(means, value=value, low=low, high=high)


def range_of_distances(
    sampled: Sampled, node: Expression, anchors: Integers
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends that no distance lies outside of, by group."""
    low, high = (
        np.broadcast_to(np.asarray(end, np.float64), anchors.shape) - anchors
        for end in sampled.range(node)
    )
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    basics = sampled.view.basics[node.name] if isinstance(node, Column) else None
    if basics is not None and isinstance(basics.low, int) and isinstance(basics.high, int):
        low, high = (
            distances(np.full(anchors.shape, end, np.int64), anchors)
            for end in (basics.low, basics.high)
        )
    moments = sampled.moments(node)
    if moments is not None:
        least, most = moments.minimum(), moments.maximum()
        low = np.where(least.null, low, distances(least.value, anchors))
        high = np.where(most.null, high, distances(most.value, anchors))
    return low, high


@dataclass(frozen=True, slots=True, eq=False)
class RankedValues:
    """The values of a sample as their places among its different values, which doubles hold.

    sample: the places from 1, with 0 and one more than there are for the ends of the range; these
    are infinite where the range has no end. table: int64, the value of each place.
    """

    sample: SampledValues
    table: Integers

    @classmethod
    def of(cls, sampled: Sampled, node: Expression) -> RankedValues:
        """Of an expression of whole numbers."""
        values, ids = sampled.present(node)
        different, places = np.unique(values, return_inverse=True)
        low, high = sampled.range(node)
        ends = [0.0 if np.isfinite(low) else -np.inf, len(different) + 1.0]
        ends[1] = ends[1] if np.isfinite(high) else np.inf
        numbers = places.astype(np.float64) + 1.0
        sample = sampled.sample_of(node, numbers, ids, *map(np.asarray, ends))
        known = _whole_range(sampled, node, (low, high))
        return cls(sample, np.concatenate([known[:1], different, known[1:]]))

    def valued(self, places: NDArray[np.float64]) -> Integers:
        """The values of places; of NaN it is 0."""
        last = len(self.table) - 1
        at = np.clip(np.nan_to_num(places, nan=0.0, posinf=last, neginf=0.0), 0, last)
        found: Integers = np.where(np.isnan(places), 0, self.table[at.astype(np.int64)])
        return found


def _whole_range(sampled: Sampled, node: Expression, ends: tuple[float, float]) -> Integers:
    """The ends of the range as int64."""
    basics: Any = sampled.view.basics[node.name] if isinstance(node, Column) else None
    if basics is not None and isinstance(basics.low, int):
        return np.array([basics.low, basics.high], np.int64)
    low, high = ends
    least = _INT64.min if low <= -(2.0**63) else int(np.floor(low))
    most = _INT64.max if high >= 2.0**63 else int(np.ceil(high))
    return np.array([least, most], np.int64)
