"""Quantiles with a certain interval in the value: a histogram whose buckets are the float's bits.

The first 7 bits of the mantissa, the exponent and the sign choose the bucket, so that a bucket is
2^-7 of its lower end wide and finding it costs a shift. This is the histogram of DDSketch (Masson,
Rim, Lee 2019, VLDB 12(12)) with a cheaper, slightly uneven mapping; as all that is kept are exact
counts, the ranks at bucket edges are exact and a quantile lies in its bucket for certain.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from synopses.histogram.bucket_index import (
    MANTISSA_BITS,
    SHIFT_MAX,
    SHIFT_MIN,
    ZERO,
    cell_ends,
    farthest,
    middle_of,
)
from synopses.histogram.codec import packed, unpacked
from synopses.histogram.grouped_counts import BucketCounts
from synopses.kernels.array_inputs import as_column, as_ids
from synopses.kernels.group_cell_map import checked_entries, placing
from synopses.kernels.grouped_arrays import check_taken, grown, same_kind, scattered
from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import CorruptSynopsis
from synopses.model.estimate import Bound, Estimates
from synopses.model.parameters import as_groups, as_whole
from synopses.model.profile import Cost, Profile, Share, Statistics, Thinning
from synopses.model.ranks import discrete_rank
from synopses.model.resizing import Resizable

_SOURCE = "log-buckets"


@njit(nogil=True, cache=True)
def _merge_ends(
    counts: NDArray[np.int64],
    extremes: NDArray[np.float64],
    groups: int,
    other_counts: NDArray[np.int64],
    other_extremes: NDArray[np.float64],
) -> None:
    """Add the counts of the other's groups, and widen the extremes to theirs.

    Of 0.0 and -0.0 the other's stays, as np.minimum has it.
    """
    for group in range(groups):
        counts[group] += other_counts[group]
        low, high = other_extremes[group, 0], other_extremes[group, 1]
        extremes[group, 0] = low if low <= extremes[group, 0] else extremes[group, 0]
        extremes[group, 1] = high if high >= extremes[group, 1] else extremes[group, 1]


def _error_of(mantissa_bits: int, _statistics: Statistics, _confidence: float) -> float:
    """Half a bucket at its low end: the value given is the middle of the bucket."""
    return float(2.0 ** -(mantissa_bits + 1))


def _bytes_of(mantissa_bits: int, statistics: Statistics) -> int:
    """The buckets of so many decades: few in a map of twice the room, many as counters.

    Counters come with a table of 8 KiB, which groups share, and with untouched neighbours.
    """
    touched = statistics.decades * math.log2(10) * 2**mantissa_bits
    return 24 + int(min(52 * min(touched, statistics.tuples), 10 * 1024 + 3 * touched))


class GroupedLogBuckets(Resizable):
    """Histogram of one column per group; quantiles to 2^-7 of the value, for certain.

    Counts are exact, so that summaries merge and subtract without error. A touched bucket takes 26
    to 52 bytes in a small group and about 4 in a large one; values that span a factor of ten touch
    about 400 buckets. Beside the buckets: tuples, smallest and largest value per group (after
    `subtract` these still bound what is left).
    """

    profile: ClassVar = Profile(
        question="QUANTILE(x, q), MEDIAN(x)",
        size="mantissa_bits",
        sizes=range(MANTISSA_BITS + 1),
        default=MANTISSA_BITS,
        linear=True,
        thinning=Thinning.ROWS,
        thinned="hypergeometric ranks of the bucket edges: all buckets that may hold the target",
        share=Share.VALUE,
        error_of=_error_of,
        bytes_of=_bytes_of,
        cost=Cost(read=1.2, read_grouped=6.5, kept=3.7, kept_grouped=8.9, always=0.9),
    )
    __slots__ = ("_cells", "_counts", "_extremes", "_groups")

    def __init__(self, groups: int) -> None:
        """Make the histograms of so many empty groups.

        Raises:
          BadParameter: there is no such number of groups.
        """
        self._groups = as_groups(groups)
        self._cells = BucketCounts()
        self._counts = np.zeros(max(groups, 1), np.int64)
        self._extremes = _no_extremes(max(groups, 1))

    @property
    def groups(self) -> int:
        """Return how many groups there are."""
        return self._groups

    @property
    def size_bytes(self) -> int:
        """Bytes really held."""
        return self._cells.size_bytes + self._counts.nbytes + self._extremes.nbytes

    @property
    def counts(self) -> NDArray[np.int64]:
        """Values per group; int64 [groups]."""
        return self._counts[: self._groups]

    def grow(self, groups: int) -> None:
        """Make room for groups up to this many; the new ones are empty."""
        if groups > self._groups:
            self._counts = grown(self._counts, groups)
            self._extremes = grown(self._extremes, groups, np.array([np.inf, -np.inf]))
            self._groups = groups

    def update(self, ids: NDArray[np.int32] | None, values: NDArray[np.float64]) -> None:
        """Take values in; NaN is taken for absent.

        Args:
          ids: int32 [n], group of each value; None: all are of group 0.
          values: float64 [n].

        Raises:
          BadParameter: an id is not that of a group, or there are not as many as values.
        """
        if ids is None and not self._groups:
            self.grow(1)
        column = as_column(values, np.float64)
        groups = as_ids(ids, column.size, self._groups)
        self._cells.update(groups, column, self._counts, self._extremes)

    def merge(self, other: Self) -> Self:
        """Add the other's values, in place.

        Raises:
          CannotMerge: the other is of another kind.
        """
        same_kind(self, other)
        if not other.groups:
            return self
        self.grow(other.groups)
        self._cells.merge(other._cells, self._counts.size)
        _merge_ends(self._counts, self._extremes, other.groups, other._counts, other._extremes)
        return self

    def subtract(self, other: Self) -> Self:
        """Take away the other's values, which must be among these, in place.

        Raises:
          CannotMerge: the other is of another kind.
          CannotSubtract: a bucket holds fewer values; nothing is taken out then.
        """
        same_kind(self, other)
        check_taken(self.counts, other.counts)
        self.grow(other.groups)
        self._cells.check_taken(other._cells)
        self._cells.merge(other._cells, self._counts.size, sign=-1)
        self._counts[: other.groups] -= other.counts
        self._extremes[: self._groups][self.counts == 0] = np.inf, -np.inf
        return self

    @property
    def _ends(self) -> NDArray[np.float64]:
        """The least and the largest value of each group. Which of two zeros came last is not told:
        0.0 and -0.0 are one value, and a sum of both is 0.0."""
        ends: NDArray[np.float64] = self._extremes[: self._groups] + 0.0
        return ends

    @property
    def mantissa_bits(self) -> int:
        """A bucket is 2 to the minus this of its lower end wide: 7, or less after `resize`."""
        return 52 - self._cells.shift

    def resize(self, mantissa_bits: int, /) -> Self:
        """Collapse buckets to this many bits; each bit less makes them twice as wide, in place.

        Counts stay exact, so a quantile is as certain as before, in a wider bucket.
        Source: Epicoco, Melle, Cafaro, Pulimeno, Morleo 2020 (UDDSketch), IEEE Access 8.

        Raises:
          BadParameter: that is more than now; what was collapsed does not come back.
        """
        mantissa_bits = as_whole("mantissa_bits", mantissa_bits, 0, self.mantissa_bits)
        self._cells.collapse(52 - mantissa_bits, self._counts.size)
        return self

    def quantile(self, q: float) -> Estimates:
        """The discrete q-quantile per group (percentile_disc: a value of the data); float64.

        The interval is the bucket, cut at the group's extremes; the truth is inside for certain.
        Null where the group is empty.

        Raises:
          BadParameter: q is not in [0, 1].
        """
        groups, cells, counts = self._cells.entries()
        ends = np.cumsum(counts)
        before = np.concatenate(([0], np.cumsum(self.counts)))[:-1]
        ranks = before + discrete_rank(q, self.counts)
        empty = self.counts == 0
        if not len(groups):
            return _nothing(self._groups)
        at = np.minimum(np.searchsorted(ends, ranks), len(groups) - 1)
        low, high = cell_ends(cells[at], self._cells.shift)
        extremes = self._ends
        low = np.maximum(low, extremes[:, 0])
        high = np.minimum(high, extremes[:, 1])
        low, high = np.where(empty, 0.0, low), np.where(empty, 0.0, high)
        return _certain(middle_of(low, high), low, high, empty)

    def buckets(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Group, cell and count of every bucket that holds values, by group, then by value."""
        return self._cells.entries()

    def ends_of(self, cells: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The smallest and the largest double of each cell; shapes [n]."""
        return cell_ends(cells, self._cells.shift)

    def select(self, ids: NDArray[np.int64]) -> Self:
        """A new summary of these groups, in this order.

        Raises:
          BadParameter: one is selected twice.
        """
        moved = self._cells.regrouped(placing(ids, self._groups), len(ids))
        return type(self)._of(moved, self._counts[ids], self._extremes[ids])

    def scatter(self, ids: NDArray[np.int64], groups: int) -> Self:
        """A new summary with `groups` groups in which group i of this one is group ids[i]."""
        extremes = _no_extremes(groups)
        extremes[ids] = self._extremes[: self._groups]
        moved = self._cells.regrouped(ids, groups)
        return type(self)._of(moved, scattered(self.counts, ids, groups), extremes)

    @classmethod
    def _of(
        cls, cells: BucketCounts, counts: NDArray[np.int64], extremes: NDArray[np.float64]
    ) -> Self:
        made = cls(0)
        made._cells = cells if counts.size else BucketCounts(cells.shift)
        if counts.size:
            made._counts, made._extremes, made._groups = counts, extremes, counts.size
        return made

    def to_bytes(self) -> bytes:
        """The histograms as bytes; equal histograms give equal bytes."""
        parameters = (self._groups, self._cells.shift)
        buckets = packed(self._cells.entries(), self._groups)
        return seal(Kind.LOG_BUCKETS, parameters, [buckets, self._ends])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote.

        Raises:
          CorruptSynopsis: these are not its bytes.
        """
        body = unseal(data, Kind.LOG_BUCKETS)
        size, shift = body.parameters
        if not SHIFT_MIN <= shift <= SHIFT_MAX:
            raise CorruptSynopsis("shift", shift, f"{SHIFT_MIN} to {SHIFT_MAX}")
        groups, cells, counts = unpacked(body.raw(), size)
        extremes = body.array(np.float64, (size, 2))
        body.end()
        away = farthest(shift)
        checked_entries(groups, cells - (ZERO - away), group_count=size, cell_count=2 * away + 1)
        totals = np.zeros(size, np.int64)
        np.add.at(totals, groups, counts)
        _check_ends(groups, cells, shift, extremes)
        return cls._of(BucketCounts.of((groups, cells, counts), size, shift), totals, extremes)


def _check_ends(
    groups: NDArray[np.int64], cells: NDArray[np.int64], shift: int, ends: NDArray[np.float64]
) -> None:
    """Ends of each group reach into its first and its last bucket, or beyond.

    Raises:
      CorruptSynopsis: those of a group do not.
    """
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    last = np.append(first[1:], groups.size)[: first.size] - 1
    least, most = _no_extremes(len(ends)).T
    are_ends = (ends[:, 0] == least) & (ends[:, 1] == most)  # Of no values.
    held = groups[first]
    least[held], most[held] = cell_ends(cells[first], shift)[1], cell_ends(cells[last], shift)[0]
    low, high = ends[held].T
    are_ends[held] = (low <= least[held]) & (high >= most[held]) & (low <= high)
    if not are_ends.all():
        wrong = int(np.argmin(are_ends))
        expected = f"{least[wrong]} or less to {most[wrong]} or more"
        raise CorruptSynopsis(f"ends of group {wrong}", tuple(ends[wrong].tolist()), expected)


def _no_extremes(groups: int) -> NDArray[np.float64]:
    return np.tile(np.array([np.inf, -np.inf]), (groups, 1))


def _nothing(groups: int) -> Estimates:
    zeros = np.zeros(groups)
    return Estimates.exact(zeros, _SOURCE, np.ones(groups, np.bool_))


def _certain(
    value: NDArray[np.float64] | NDArray[np.int64],
    low: NDArray[np.float64] | NDArray[np.int64],
    high: NDArray[np.float64] | NDArray[np.int64],
    null: NDArray[np.bool_],
) -> Estimates:
    bound = np.where(low == high, Bound.EXACT, Bound.INTERVAL).astype(np.uint8)
    value = np.where(low == high, low, value)
    return Estimates(value, low, high, bound, null, 1.0, _SOURCE)
