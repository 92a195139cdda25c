"""Join sizes from thinned parts: the bound of the sketch, then the bound of sampling.

Vectors of counts scaled up from the strata are near the true ones (`vector_error`), and the size
of a join is a product of two such vectors, so by Cauchy and Schwarz it is near their product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.level_segment import Segment
from shedder.engine.panes.synopsis_resizing import alike
from shedder.queries.sampling.sampled_joins import whole_sizes
from synopses.counters.count_min import GroupedCountMin
from synopses.counters.join_size import join_size, self_join_size
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.count_vector_products import vector_error
from synopses.intervals.hypergeometric import matching_count
from synopses.model.estimate import Estimates

SOURCE = "thinned panes"

Floats = NDArray[np.float64]
Ends = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The counts of one column: a sketch per stratum, the one that was read in full first.

    read, fewest, most: float64 [strata, groups], values that were read, and between how many there
    are of them.
    """

    sketches: Sequence[GroupedCountMin]
    read: Floats
    fewest: Floats
    most: Floats

    @classmethod
    def of(
        cls,
        whole: GroupedCountMin,
        segments: Sequence[Segment],
        confidence: float,
        *,
        ungrouped: bool,
    ) -> Side:
        """The sizes of all groups hold together, over all strata, with this confidence each."""
        groups = whole.groups
        sketches = alike([whole, *(segment.synopsis for segment in segments)])
        for sketch in sketches:
            sketch.grow(groups)
        read = np.array([sketch.totals()[:groups] for sketch in sketches], np.float64)
        fewest, most = read.copy(), read.copy()
        each = split_confidence(confidence, max(1, sum(s.skipped > 0 for s in segments)))
        for at, segment in enumerate(segments, 1):
            if ungrouped:
                fewest[at] = most[at] = segment.population
            elif segment.skipped:
                found = matching_count(
                    population=segment.population,
                    read=segment.read,
                    matched=read[at].astype(np.int64),
                    confidence=each,
                )
                fewest[at] = np.maximum(found.low, read[at])
                most[at] = np.maximum(found.high, read[at])
        return cls(sketches, read, fewest, most)

    def scales(self, population: Floats) -> Floats:
        """N/n of each stratum; 0 where nothing was read."""
        return np.where(self.read > 0, population / np.maximum(self.read, 1.0), 0.0)

    def error(self, confidence: float) -> Floats:
        """Return how far the scaled counts are from the true ones."""
        return vector_error(self.read, self.most, confidence=confidence)


def thinned_self_join(side: Side, confidence: float) -> Estimates:
    """The sum of squared counts of each group, per `Side.of` at the same part of delta.

    A quarter of delta is for the sizes of groups, a quarter for the sketches, half for the sample.
    """
    sketched, sampled = _parts(confidence)
    strata = len(side.sketches)
    each = split_confidence(sketched, strata * (strata + 1) // 2)
    products = _self_products(side, each)
    low, value, high = (
        _weighed(part, side.scales(n), side.scales(n))
        for part, n in zip(products, _sizes(side), strict=True)
    )
    away = side.error(sampled)
    norms = np.sqrt(np.maximum(low, 0.0)), np.sqrt(np.maximum(high, 0.0))
    ends = np.maximum(norms[0] - away, 0.0) ** 2, (norms[1] + away) ** 2
    ones = np.ones_like(side.read)
    fewest, most = side.fewest.sum(axis=0), side.most.sum(axis=0)
    skipped = most - side.read.sum(axis=0)
    # Every skipped value is alike to itself at least, and to no more than all that were read.
    certain = (
        _weighed(products[0], ones, ones) + fewest - side.read.sum(axis=0),
        (np.sqrt(_weighed(products[2], ones, ones)) + skipped) ** 2,
    )
    excess = _expected_excess(side)
    return _column(value - excess, ends, certain, confidence)


def thinned_join(left: Side, right: Side, confidence: float) -> Estimates:
    """The sum over keys of count in left times count in right; parts of delta likewise.

    |<a', b'> - <a, b>| <= |a' - a| |b'| + |a| |b' - b|, and |a| <= |a'| + |a' - a|.
    """
    sketched, sampled = _parts(confidence)
    strata = len(left.sketches), len(right.sketches)
    intervals = strata[0] * strata[1] + sum(n * (n + 1) // 2 for n in strata)
    each = split_confidence(sketched, intervals)
    products = _products(left, right, each)
    low, value, high = (
        _weighed(part, left.scales(x), right.scales(y))
        for part, x, y in zip(products, _sizes(left), _sizes(right), strict=True)
    )
    norms = [
        np.sqrt(_weighed(_self_products(side, each)[2], *(side.scales(side.most),) * 2))
        for side in (left, right)
    ]
    errors = [side.error(split_confidence(sampled, 2)) for side in (left, right)]
    with np.errstate(invalid="ignore"):  # An infinite error of an empty side.
        away = errors[0] * norms[1] + (norms[0] + errors[0]) * errors[1]
    away = np.where(np.isnan(away), np.inf, away)
    ones = np.ones_like(left.read), np.ones_like(right.read)
    certain = (
        _weighed(products[0], *ones),
        left.most.sum(axis=0) * right.most.sum(axis=0),
    )
    return _column(value, (low - away, high + away), certain, confidence)


def confidence_of_sizes(confidence: float, sides: int) -> float:
    """What the sizes of groups are asked to hold with, so that a quarter of delta is theirs."""
    return split_confidence(confidence, 4 * sides)


def _parts(confidence: float) -> tuple[float, float]:
    """What the sketches and the sample are asked to hold with."""
    return split_confidence(confidence, 4), split_confidence(confidence, 2)


def _sizes(side: Side) -> tuple[Floats, Floats, Floats]:
    """The fewest values that there are, the likely number, the most."""
    return side.fewest, (side.fewest + side.most) / 2.0, side.most


def _products(left: Side, right: Side, each: float) -> tuple[Floats, Floats, Floats]:
    """(low, value, high) of the products of every two strata: [strata, strata, groups]."""
    found = [[_ends(join_size(x, y, each)) for y in right.sketches] for x in left.sketches]
    array = np.array(found, np.float64)  # [left, right, end, groups]
    return array[:, :, 0], array[:, :, 1], array[:, :, 2]


def _self_products(side: Side, each: float) -> tuple[Floats, Floats, Floats]:
    """The same of a side with itself; a pair of strata is asked once."""
    strata = len(side.sketches)
    found = np.zeros((3, strata, strata, side.read.shape[1]))
    for i, x in enumerate(side.sketches):
        found[:, i, i] = _ends(self_join_size(x, each))
        for j in range(i):
            found[:, i, j] = found[:, j, i] = _ends(join_size(x, side.sketches[j], each))
    return found[0], found[1], found[2]


def _ends(column: Estimates) -> Floats:
    return np.array([column.low, column.value, column.high], np.float64)


def _weighed(products: Floats, left: Floats, right: Floats) -> Floats:
    """The sum over pairs of strata of both scales times the product: [groups]."""
    found: Floats = np.einsum("ijg,ig,jg->g", products, left, right)
    return found


def _expected_excess(side: Side) -> Floats:
    """By how much squares of scaled counts are too large on average, each key being rare."""
    size = (side.fewest + side.most) / 2.0
    factor = side.scales(size)
    return np.asarray((factor * (size - side.read)).sum(axis=0))


def _column(value: Floats, ends: Ends, certain: Ends, confidence: float) -> Estimates:
    """What is believed, cut to what is certain."""
    low, high = np.maximum(ends[0], certain[0]), np.minimum(ends[1], certain[1])
    return whole_sizes(np.rint(value), low, high, confidence, SOURCE)
