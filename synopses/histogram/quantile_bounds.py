"""Quantiles from histograms of strata that were read at different shares: ends by rank intervals.

Whatever was skipped, the share of a stratum at or below a bucket's edge is hypergeometric. A value
is left out below when even the upper bound of the rank at its edge does not reach the target, above
when the lower bound at the edge before it does; ranks rise with the edge, so either end misses only
if the bound at one fixed edge, the true quantile's, does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.histogram.bucket_index import middle_of
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.interval import Intervals
from synopses.intervals.quantiles import rank_bounds
from synopses.model.ranks import discrete_rank
from synopses.strata.joint_counts import total_count
from synopses.strata.joint_ranks import joint_ranks

Floats = NDArray[np.float64]
CellEnds = Callable[[NDArray[np.int64]], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True, eq=False)
class BucketStratum:
    """A histogram per group of what was read of a stratum.

    population: N values that there were; read: n of them, of all groups.
    groups, cells, counts: int64 [entries], ascending by group, then cell; all counts > 0.
    totals: int64 [groups], values read of each. low, high: a range that holds all N.
    """

    population: int
    read: int
    groups: NDArray[np.int64]
    cells: NDArray[np.int64]
    counts: NDArray[np.int64]
    totals: NDArray[np.int64]
    low: float
    high: float

    @property
    def skipped(self) -> int:
        """Values that were not read."""
        return self.population - self.read

    @property
    def factor(self) -> float:
        """N/n; 0 where nothing was read."""
        return self.population / self.read if self.read else 0.0


def bucket_quantile(
    strata: Sequence[BucketStratum],
    ends_of: CellEnds,
    *,
    rank_share: float,
    confidence: float,
    whole: bool,
) -> Intervals:
    """The discrete quantile of each group's values, read or not.

    Without groups (whole) the number of values is known, and the ranks of all strata at an edge
    add up. With groups the shares of all strata at an edge are one test (`joint_ranks`). Where it
    is not certified, each stratum has an interval of its own, by order statistics, and the
    quantile lies between the least and the greatest of them: below the least no stratum has the
    asked share, at the greatest all have.

    Args:
      strata: over the same groups. ends_of: the smallest and the largest value of cells.
      rank_share: q in [0, 1]. confidence: of each interval, in (0, 1).
      whole: there is one group, and every value is its.

    Returns:
      quantiles: [groups]; the value is the middle of the bucket that holds the estimated rank; NaN
      for a group of which no value was read.
    """
    each = split_confidence(confidence, max(1, sum(s.skipped > 0 for s in strata)))
    value = _estimate(strata, ends_of, rank_share)
    if whole:
        low, high = _by_edges(strata, ends_of, rank_share, confidence)
    else:
        low, high = _hull(strata, ends_of, rank_share, each)
        if len(strata) > 1:
            low, high = _jointly(strata, ends_of, rank_share, confidence, (low, high))
    return Intervals.of(value, low, high)


def _by_edges(
    strata: Sequence[BucketStratum], ends_of: CellEnds, rank_share: float, confidence: float
) -> tuple[Floats, Floats]:
    """All strata at once: bounds of the rank at each edge, over the cells that any has touched."""
    cells = np.unique(np.concatenate([s.cells for s in strata]))
    below = np.zeros((len(strata), len(cells) + 1), np.int64)  # The last column: before all cells.
    for row, stratum in zip(below, strata, strict=True):
        ends = np.concatenate(([0], np.cumsum(stratum.counts)))
        row[:-1] = ends[np.searchsorted(stratum.cells, cells, side="right")]
    population = np.array([s.population for s in strata])
    read = np.array([s.read for s in strata])
    members = np.array([sum(s.population for s in strata)])
    target = int(discrete_rank(rank_share, members)[0])
    low, high = min(s.low for s in strata), max(s.high for s in strata)
    if not len(cells):
        return np.array([low]), np.array([high])
    lows, highs = ends_of(cells)
    ranks = total_count(
        population.astype(np.float64),
        read.astype(np.float64),
        below.astype(np.float64),
        confidence=confidence,
    )
    # Ranks rise with the edge, so bounds may be made to rise, too. Before all cells comes first.
    most = np.maximum.accumulate(np.roll(ranks[1], 1))
    least = np.minimum.accumulate(np.roll(ranks[0], 1)[::-1])[::-1]
    first, last = (int(np.searchsorted(ends[1:], target)) for ends in (most, least))
    if first < len(cells) and most[first] < target:
        low = max(low, float(lows[first]))
    elif first == len(cells):
        low = max(low, float(highs[-1]))
    if last < len(cells):
        high = min(high, float(highs[last]))
    return np.array([min(low, high)]), np.array([high])


def _jointly(
    strata: Sequence[BucketStratum],
    ends_of: CellEnds,
    rank_share: float,
    confidence: float,
    otherwise: tuple[Floats, Floats],
) -> tuple[Floats, Floats]:
    """Cells that hold the quantile of each group, by one test over strata; or the other ends."""
    groups, size = np.concatenate([s.groups for s in strata]), len(strata[0].totals)
    cells, codes = np.unique(np.concatenate([s.cells for s in strata]), return_inverse=True)
    keys, at = np.unique(groups * max(1, len(cells)) + codes, return_inverse=True)
    owners = keys // max(1, len(cells))
    starts = np.searchsorted(owners, np.arange(size + 1))
    below, begin = np.zeros((len(strata), len(keys))), 0
    for row, stratum in zip(below, strata, strict=True):
        end = begin + len(stratum.cells)
        row[at[begin:end]] = stratum.counts
        ends = np.concatenate(([0.0], np.cumsum(row)))
        row[:] = ends[1:] - ends[starts[owners]]
        begin = end
    first, last = joint_ranks(
        np.array([s.population for s in strata], np.float64),
        np.array([s.read for s in strata], np.float64),
        starts=starts,
        below=below,
        rank_share=rank_share,
        confidence=confidence,
    )
    low, high = min(s.low for s in strata), max(s.high for s in strata)
    lows, highs = ends_of(cells[keys % max(1, len(cells))])
    lows = np.concatenate(([low], np.maximum(lows, low)))
    highs = np.concatenate((np.minimum(highs, high), [high]))
    least = lows[np.where(first > 0, starts[:-1] + first, 0)]
    most = highs[np.where(last <= np.diff(starts), starts[:-1] + last - 1, len(highs) - 1)]
    return np.where(first < 0, otherwise[0], least), np.where(first < 0, otherwise[1], most)


def _hull(
    strata: Sequence[BucketStratum], ends_of: CellEnds, rank_share: float, each: float
) -> tuple[Floats, Floats]:
    groups = len(strata[0].totals)
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    for stratum in strata:
        totals = stratum.totals
        there = totals > 0
        if stratum.skipped:
            there = np.ones(groups, np.bool_)
            first, last = rank_bounds(
                totals,
                members=np.zeros(groups, np.int64),
                members_known=False,
                rank_share=rank_share,
                confidence=each,
            )
        else:
            first = last = discrete_rank(rank_share, totals)
        lows, highs = _at_ranks(stratum, ends_of, first), _at_ranks(stratum, ends_of, last)
        least = np.where((first < 1) | (totals == 0), stratum.low, lows[0])
        most = np.where((last > totals) | (totals == 0), stratum.high, highs[1])
        low = np.where(there, np.minimum(low, least), low)
        high = np.where(there, np.maximum(high, most), high)
    none = low > high
    return np.where(none, -np.inf, low), np.where(none, np.inf, high)


def _at_ranks(
    stratum: BucketStratum, ends_of: CellEnds, ranks: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """The ends of the cell that holds each group's value of this rank, cut by the range."""
    if not len(stratum.cells):
        none = np.zeros(len(ranks))
        return none, none
    before = np.concatenate(([0], np.cumsum(stratum.totals)))[:-1]
    wanted = before + np.clip(ranks, 1, np.maximum(stratum.totals, 1))
    at = np.searchsorted(np.cumsum(stratum.counts), wanted)
    low, high = ends_of(stratum.cells[np.minimum(at, len(stratum.cells) - 1)])
    return np.maximum(low, stratum.low), np.minimum(high, stratum.high)


def _estimate(strata: Sequence[BucketStratum], ends_of: CellEnds, rank_share: float) -> Floats:
    """The middle of the bucket where the estimated ranks reach the target."""
    groups = np.concatenate([s.groups for s in strata])
    cells = np.concatenate([s.cells for s in strata])
    weights = np.concatenate([s.factor * s.counts for s in strata])
    size = len(strata[0].totals)
    if not len(groups):
        return np.full(size, np.nan)
    order = np.lexsort((cells, groups))
    ends = np.cumsum(weights[order])
    totals = np.bincount(groups, weights=weights, minlength=size)
    before = np.concatenate(([0.0], np.cumsum(totals)))[:-1]
    wanted = before + rank_share * totals * (1 - 1e-9)
    at = np.minimum(np.searchsorted(ends, wanted), len(order) - 1)
    last = np.searchsorted(groups[order], np.arange(size), side="right") - 1
    first = np.searchsorted(groups[order], np.arange(size))
    at = np.clip(at, np.minimum(first, len(order) - 1), np.maximum(last, 0))
    low, high = ends_of(cells[order][at])
    return np.where(totals > 0, middle_of(low, high), np.nan)
